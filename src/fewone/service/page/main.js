// Which view the address asks for; the live line; the one place where errors are told.

import { listen, session, ServiceError } from "./api.js";
import { showCards } from "./cards.js";
import { showCreate } from "./create.js";
import { showDetector } from "./detector.js";
import { make } from "./dom.js";

const view = document.getElementById("view");
const notice = document.getElementById("notice");
const live = document.getElementById("live");
let onDecision = () => {};
let stopListening = null;

export function tell(message, kind = "done") {
  notice.className = kind;
  notice.textContent = message;
  notice.hidden = !message;
}

function askForToken(message) {
  const input = make("input", { type: "password", id: "token", autocomplete: "off", required: true });
  const form = make("form", {
    onsubmit: (event) => {
      event.preventDefault();
      session.token = input.value;
      show();
    },
  }, make("h1", {}, "This service asks for a token"), make("p", {}, message), make("label", { for: "token" }, "Token"),
    make("div", { class: "row" }, input, make("button", { class: "main" }, "Go on")));
  view.replaceChildren(form);
  input.focus();
}

// quietly: nobody asked for it, so what was told before stays.
export async function attempt(work, quietly = false) {
  try {
    if (!quietly) tell("");
    return await work();
  } catch (error) {
    if (!(error instanceof ServiceError)) throw error;
    if (error.status === 401) askForToken(error.message);
    else tell(error.message, "wrong");
    return undefined;
  }
}

// Of an address that somebody typed or cut off.
function readName(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

async function show() {
  onDecision = () => {};
  const [, word, name] = location.hash.split("/");
  await attempt(async () => {
    if (word === "new") onDecision = await showCreate(view, { attempt, tell });
    else if (word === "detector") onDecision = await showDetector(view, readName(name), { attempt, tell });
    else onDecision = await showCards(view, { attempt });
    if (!view.contains(document.activeElement)) view.focus({ preventScroll: true });
    if (stopListening === null) {
      stopListening = listen((event) => onDecision(event), (up) => { live.textContent = up ? "live" : "not connected"; });
    }
  });
}

window.addEventListener("hashchange", show);
show();
