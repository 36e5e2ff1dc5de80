// A new detector: drop files, look at the normals beside each other, leave out what is odd, fit.

import { call } from "./api.js";
import { make, replaceKeepingFocus, signed, thumbnail } from "./dom.js";

export async function showCreate(view, { attempt, tell }) {
  const models = await call("GET", "/models");
  let files = [];
  const leftOut = new Set();
  const name = make("input", { id: "name", required: true, pattern: "[A-Za-z0-9][A-Za-z0-9_\\-]{0,63}", placeholder: "press-7" });
  const model = make("select", { id: "model" }, ...models.map((one) => make("option", { value: one.name }, `${one.name}: ${one.title}`)));
  if (models.some((one) => one.name === "series")) model.value = "series";
  const rate = make("select", { id: "rate" }, make("option", { value: "" }, "the model's own threshold"),
    ...["0.1", "0.05", "0.02", "0.01"].map((share) => make("option", { value: share }, `${100 * share} % of normals may raise an alarm`)));
  const window_ = make("input", { id: "window", type: "number", min: "1", placeholder: "as the model says" });
  const chooser = make("input", { type: "file", id: "files", multiple: true });
  const drop = make("div", { class: "drop" }, make("label", { for: "files" }, "Drop normal recordings or pictures here, or choose files"), chooser,
    make("div", { class: "soft", id: "chosen" }, ".csv .npy .parquet .wav .png .jpg"));
  const fit = make("button", { class: "main", type: "submit", disabled: true }, "Fit");
  const busy = make("p", { class: "soft", role: "status" });
  const result = make("section", { "aria-live": "polite" });
  let asked = 0;

  const body = () => {
    const form = new FormData();
    for (const file of files) form.append("files", file, file.name);
    form.append("model", model.value);
    form.append("leave_out", JSON.stringify([...leftOut]));
    if (rate.value) form.append("false_alarm_rate", rate.value);
    if (window_.value) form.append("window", window_.value);
    return form;
  };

  const preview = () => attempt(async () => {
    if (!files.length) return;
    const turn = ++asked; // an answer that comes after the next question is not shown
    busy.textContent = "looking at the normals…";
    fit.disabled = true;
    let told;
    try {
      told = await call("POST", "/preview", body());
    } catch (error) {
      if (turn === asked) result.textContent = "";
      throw error;
    } finally {
      if (turn === asked) busy.textContent = "";
    }
    if (turn !== asked) return;
    const { report, normals } = told;
    const list = make("ul", { class: "small" }, ...normals.map((one) => {
      const out = leftOut.has(one.number);
      const says = out ? "left out" : one.odd ? "looks odd" : one.decision === null ? "" : signed(one.decision);
      return make("li", { class: `${one.odd ? "odd" : ""} ${out ? "out" : ""}` },
        thumbnail(one.thumbnail, `normal ${one.number} of ${one.file}`),
        make("div", {}, `${one.file}${one.place ? ` at ${one.place}` : ""}`),
        make("div", { class: one.odd ? "bad" : "soft" }, says),
        make("button", { type: "button", "data-key": `normal ${one.number}`, onclick: () => { out ? leftOut.delete(one.number) : leftOut.add(one.number); preview(); } },
          out ? "take it back" : "leave out"));
    }));
    const counted = `${report.normals} ${report.normals === 1 ? "normal" : "normals"}`;
    const odd = `${report.odd.length} ${report.odd.length === 1 ? "looks" : "look"} odd`;
    replaceKeepingFocus(result, make("h2", {}, `${counted}, ${odd}`),
      make("p", {}, report.expectation), ...report.warnings.map((line) => make("p", { class: "bad" }, line)), list);
    fit.disabled = false;
  });

  const choose = (chosen) => {
    files = [...chosen];
    leftOut.clear();
    drop.querySelector("#chosen").textContent = `${files.length} ${files.length === 1 ? "file" : "files"}`;
    preview();
  };
  chooser.addEventListener("change", () => choose(chooser.files));
  drop.addEventListener("dragover", (event) => { event.preventDefault(); drop.classList.add("over"); });
  drop.addEventListener("dragleave", () => drop.classList.remove("over"));
  drop.addEventListener("drop", (event) => { event.preventDefault(); drop.classList.remove("over"); choose(event.dataTransfer.files); });
  for (const input of [model, rate, window_]) input.addEventListener("change", () => { leftOut.clear(); preview(); });

  const form = make("form", {
    onsubmit: (event) => {
      event.preventDefault();
      attempt(async () => {
        const data = body();
        data.append("name", name.value);
        fit.disabled = true;
        try { await call("POST", "/detectors", data); } finally { fit.disabled = false; }
        tell("");
        location.hash = `#/detector/${encodeURIComponent(name.value)}`;
      });
    },
  }, make("label", { for: "name" }, "Name"), name, make("label", { for: "model" }, "Model"), model,
    make("label", { for: "rate" }, "False alarms"), rate, make("label", { for: "window" }, "Time steps of a window"), window_,
    drop, busy, result, make("p", {}, fit));
  view.replaceChildren(make("h1", {}, "New detector"), form);
  return () => {};
}
