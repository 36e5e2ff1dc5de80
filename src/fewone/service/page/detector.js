// One detector: scores over time, the chosen recording with its explanation, feedback, versions, the threshold.

import { at, call, download } from "./api.js";
import { make, moment, replaceKeepingFocus, signed, thumbnail } from "./dom.js";
import { drawPicture, drawRecording, drawTimeline, readZoom } from "./plots.js";

const SHOWN = 300;
const LARGEST_SHOWN = 1000;
const LARGEST_EXPLAINED = 8;
const QUICK = 700;
const RATES = [null, 0.2, 0.1, 0.05, 0.02, 0.01, 0.005, 0.001];

const asPercent = (share) => `${Number((100 * share).toPrecision(3))} %`;
const sayRate = (rate) => (rate === null ? "The model's own threshold" : `${asPercent(rate)} false alarms`);

// Nothing is shown of a detector that is not there.
async function findDetector(view, home) {
  try {
    return await call("GET", home);
  } catch (error) {
    view.replaceChildren(make("p", {}, make("a", { href: "#/" }, "All detectors")));
    throw error;
  }
}

export async function showDetector(view, name, { attempt, tell }) {
  const home = at(name);
  const found = await findDetector(view, home);
  let rows = [];
  let chosen = null;
  let drawn = null;
  let shown = SHOWN;
  let changed = new Set();
  const plot = make("div", { class: "plot", id: "timeline" });
  const table = make("tbody", {});
  const recording = make("section", { id: "recording", "aria-live": "polite" });
  const versions = make("tbody", {});
  const support = make("section", {});
  const line = make("p", { class: "soft" });

  const redraw = () => {
    const zoom = readZoom(drawn?.plot, drawn?.rows ?? []);
    if (rows.length) drawn = { rows, plot: drawTimeline(plot, rows, { onChoose: choose, changed, shown: zoom }) };
    else plot.replaceChildren(make("p", { class: "soft" }, `Nothing scored yet: send a recording to ${home}/score, or choose a file below.`));
    hint.hidden = !rows.length;
    replaceKeepingFocus(table, ...rows.slice(-25).reverse().map((row) => make("tr", { class: row.id === chosen ? "chosen" : "" },
      make("td", {}, make("button", { type: "button", "data-key": `score ${row.id}`, "aria-label": `look at score ${row.id}`, onclick: () => choose(row) }, `${row.id}`)),
      make("td", { class: row.anomalous ? "bad" : "" }, signed(row.decision)),
      make("td", {}, row.source), make("td", { class: "wide" }, moment(row.at)),
      make("td", { class: "wide" }, `${row.version}`), make("td", {}, row.was ? `was ${row.was}` : ""))));
  };

  const earlier = make("button", { type: "button", hidden: true, onclick: () => { shown = LARGEST_SHOWN; attempt(refresh); } }, "show earlier ones");

  const hint = make("div", { class: "row soft", hidden: true }, "Drag to zoom, double click to see all, click to look at one.", earlier);

  const refresh = async () => {
    const page = await call("GET", `${home}/history?limit=${shown}`);
    rows = page.rows.reverse();
    earlier.hidden = page.before === null || shown >= LARGEST_SHOWN;
    redraw();
  };

  const refreshVersions = async (known = null) => {
    const [detector, told] = await Promise.all([known ?? call("GET", home), call("GET", `${home}/versions`)]);
    const rate = detector.false_alarm_rate;
    line.textContent = `version ${detector.version} (${detector.why}), model ${detector.model || detector.learner}, `
      + `${detector.report.normals} ${detector.report.normals === 1 ? "normal" : "normals"}, `
      + `${detector.report.known_anomalies} known ${detector.report.known_anomalies === 1 ? "anomaly" : "anomalies"}, `
      + (rate === null ? "the model's own threshold" : `false-alarm rate ${asPercent(rate)}`);
    slider.value = String(Math.max(0, RATES.indexOf(rate)));
    slider.setAttribute("aria-valuetext", sayRate(rate));
    replaceKeepingFocus(versions, ...told.map((one) => make("tr", {}, make("td", {}, `${one.number}`), make("td", {}, one.why),
      make("td", { class: "wide" }, moment(one.made)),
      make("td", {}, one.number === detector.version ? "now" : make("button", {
        type: "button", "data-key": `version ${one.number}`, onclick: () => change("POST", `${home}/versions/${one.number}/restore`),
      }, "restore")))));
    support.replaceChildren(make("p", {}, detector.report.expectation), ...detector.report.warnings.map((text) => make("p", { class: "bad" }, text)),
      make("ul", { class: "small" }, ...detector.thumbnails.map((small, place) => make("li", { class: detector.support[place]?.anomaly ? "odd" : "" },
        thumbnail(small, `example ${place} of the support`),
        make("div", {}, `${detector.support[place]?.file ?? ""}${detector.support[place]?.anomaly ? " (anomaly)" : ""}`)))));
  };

  const change = (method, path, body) => attempt(async () => {
    const told = await call(method, path, body);
    changed = new Set();
    await Promise.all([refresh(), refreshVersions()]);
    tell(`version ${told.version}: ${told.why}`);
    const row = rows.find((one) => one.id === chosen);
    if (row) showButtons(row);
  });

  const buttons = make("div", { class: "row" });
  const showButtons = (row) => {
    const say = (was) => () => change("POST", `${home}/feedback`, { score: row.id, was });
    replaceKeepingFocus(buttons,
      make("button", { type: "button", "data-key": "normal", onclick: say("normal"), disabled: row.was === "normal" }, "was normal"),
      make("button", { type: "button", "data-key": "anomalous", onclick: say("anomalous"), disabled: row.was === "anomalous" }, "was anomalous"),
      make("button", { type: "button", "data-key": "undo", onclick: () => change("DELETE", `${home}/feedback/${row.id}`), disabled: !row.was }, "undo"),
      make("span", { class: "soft" }, row.was ? `you said: was ${row.was}` : ""));
  };

  const choose = (row) => attempt(async () => {
    chosen = row.id;
    redraw();
    const picture = make("div", { class: "plot" });
    const where = make("span", {}, "looking for where the anomaly is");
    recording.replaceChildren(
      make("h2", {}, `${row.source}: `, make("span", { class: row.anomalous ? "bad" : "good" }, `${row.anomalous ? "anomalous" : "normal"} ${signed(row.decision)}`)),
      make("p", { class: "soft" }, `score ${row.id}, by version ${row.version}, ${moment(row.at)}; `, where), buttons, picture);
    showButtons(row);
    if (recording.getBoundingClientRect().top < 0 || recording.getBoundingClientRect().top > 0.7 * window.innerHeight) {
      recording.scrollIntoView({ block: "start" });
    }
    const draw = (place, told) => {
      if (told.picture) drawPicture(place, told.picture, told.explanation);
      else if (told.values) drawRecording(place, told.values, told.explanation);
      else place.textContent = "the values are no longer kept";
    };
    // What was scored is there at once; to find where the anomaly is may take seconds.
    draw(picture, await call("GET", `${home}/scores/${row.id}`));
    const words = row.anomalous ? "shaded: where the anomaly is" : "shaded: where it is least like the normals";
    const all = Math.min(LARGEST_EXPLAINED, row.windows);
    for (let count = 1, place = picture; count <= all;) {
      const begin = performance.now();
      const told = await call("GET", `${home}/scores/${row.id}?explain=true&explained=${count}`);
      if (!place.isConnected) return;
      const explained = make("div", { class: "plot", "data-explained": String(told.explanation !== null && count === all) });
      place.replaceWith(explained);
      place = explained;
      draw(place, told);
      where.textContent = told.explanation === null ? "" : count === all ? words : `${words}, in the worst ${count} of ${all} windows so far`;
      if (told.explanation === null) return;
      // Where a window is quick the others come at once.
      count = count === all ? all + 1 : performance.now() - begin < QUICK ? all : count + 1;
    }
  });

  const tried = make("p", { id: "tried", "aria-live": "polite" });
  const apply = make("button", { type: "button", disabled: true, onclick: () => change("PATCH", home, { false_alarm_rate: RATES[slider.value] }) }, "apply");
  const slider = make("input", {
    type: "range", min: "0", max: String(RATES.length - 1), step: "1", id: "slider",
    oninput: () => attempt(async () => {
      const rate = RATES[slider.value];
      slider.setAttribute("aria-valuetext", sayRate(rate));
      const asked = slider.value;
      const told = await call("GET", `${home}/threshold${rate === null ? "" : `?false_alarm_rate=${rate}`}`);
      if (asked !== slider.value) return;
      const one = told.alarms_then === 1 ? "alarm" : "alarms";
      tried.textContent = `${sayRate(rate)}: `
        + (told.compared ? `${told.alarms_then} ${one} among the last ${told.compared} scores instead of ${told.alarms_now}; ${told.changed.length} would change (ringed above).`
          : "there is no score yet with these normals to try it on.")
        + (told.left_out ? ` ${told.left_out} older ones were scored with other normals.` : "");
      apply.disabled = false;
      changed = new Set(told.changed.map((one) => one.id));
      redraw();
    }),
  });

  const file = make("input", {
    type: "file", id: "score-files", multiple: true,
    onchange: () => attempt(async () => {
      const form = new FormData();
      for (const one of file.files) form.append("files", one, one.name);
      await call("POST", `${home}/score`, form);
      await refresh();
      file.value = "";
      if (rows.length) choose(rows[rows.length - 1]);
    }),
  });
  const actions = make("div", { class: "row" },
    make("button", { type: "button", onclick: () => attempt(() => download(`${home}/download`, `${name}.zip`)) }, "download"),
    make("button", { type: "button", onclick: () => attempt(() => download(`${home}/onnx`, `${name}.onnx`)) }, "export to ONNX"),
    make("button", {
      type: "button", onclick: () => attempt(async () => {
        const fresh = window.prompt("New name", name);
        if (!fresh || fresh === name) return;
        await call("PATCH", home, { name: fresh });
        location.hash = `#/detector/${encodeURIComponent(fresh)}`;
      }),
    }, "rename"),
    make("button", {
      type: "button", onclick: () => attempt(async () => {
        if (!window.confirm(`Delete ${name} with all its versions and its history?`)) return;
        await call("DELETE", home);
        location.hash = "#/";
      }),
    }, "delete"));

  const head = (...words) => make("thead", {}, make("tr", {}, ...words.map(([word, kind]) => make("th", { class: kind || "" }, word))));
  view.replaceChildren(make("h1", {}, name), line,
    make("h2", {}, "Scores: below the dashed line is anomalous"), plot, hint,
    make("div", { class: "row" }, make("label", { for: "score-files" }, "Score files"), file), recording,
    make("h2", {}, "The last decisions"),
    make("div", { class: "scroll" }, make("table", {}, head(["score"], ["decision"], ["what"], ["when", "wide"], ["version", "wide"], ["said"]), table)),
    make("h2", {}, "Threshold"), make("label", { for: "slider" }, "False alarms: the model's own, then from many to few"), slider, tried, apply,
    make("h2", {}, "Versions"), make("div", { class: "scroll" }, make("table", {}, head(["version"], ["why"], ["when", "wide"], [""]), versions)),
    make("h2", {}, "Normals"), support, make("h2", {}, "This detector"), actions);
  await Promise.all([refresh(), refreshVersions(found)]);
  let waiting = null;
  return (event) => {
    if (event.detector !== name || waiting !== null) return;
    waiting = setTimeout(() => { waiting = null; attempt(refresh, true); }, 300);
  };
}
