// All detectors as cards: last decision, alarms of the last day, the last scores.

import { call } from "./api.js";
import { make, moment, signed, spark } from "./dom.js";

function card(detector) {
  const last = detector.last;
  const word = last === null ? make("span", { class: "soft" }, "nothing scored yet")
    : make("span", { class: last.anomalous ? "bad" : "good" },
      `${last.anomalous ? "anomalous" : "normal"} ${signed(last.decision)}`);
  const alarms = detector.alarms_last_day;
  return make("li", {}, make("a", { class: "card", href: `#/detector/${encodeURIComponent(detector.name)}` },
    make("strong", {}, detector.name), word,
    make("div", { class: "soft" }, last === null ? "" : `${last.source}, ${moment(last.at)}`),
    detector.recent.length > 1 ? spark([detector.recent], { zero: true, label: "the last scores; below the line is anomalous" }) : null,
    make("div", { class: alarms ? "bad" : "soft" }, `${alarms} ${alarms === 1 ? "alarm" : "alarms"} in the last day`),
    make("div", { class: "soft" }, `version ${detector.version}`)));
}

export async function showCards(view, { attempt }) {
  const list = make("ul", { class: "cards" });
  const fill = async () => {
    const detectors = await call("GET", "/detectors");
    list.replaceChildren(...detectors.map(card));
    if (!detectors.length) {
      list.append(make("li", {}, "No detector yet. ", make("a", { href: "#/new" }, "Make one from a few normal recordings.")));
    }
  };
  await fill();
  view.replaceChildren(make("h1", {}, "Detectors"), list);
  let waiting = null;
  return () => {
    if (waiting !== null) return;
    waiting = setTimeout(() => { waiting = null; attempt(fill, true); }, 300);
  };
}
