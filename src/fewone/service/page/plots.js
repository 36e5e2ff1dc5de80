// Curves by uPlot: scores over time with the threshold, a recording with its explanation shaded, a picture with its map.

import { make, pictureAddress } from "./dom.js";

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const axis = () => ({ stroke: colour("--soft"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line") } });

function fill(place, height, build) {
  const plot = new window.uPlot(...build(place.clientWidth || 600, height), place);
  new ResizeObserver(() => plot.setSize({ width: place.clientWidth, height })).observe(place);
  return plot;
}

// rows oldest first; drag to zoom, double click to see all; onChoose gets the row nearest to a click.
export function drawTimeline(place, rows, onChoose) {
  place.replaceChildren();
  const data = [rows.map((row) => row.at), rows.map((row) => row.decision), rows.map(() => 0)];
  const points = {
    show: true, size: 7,
    fill: colour("--good"), stroke: colour("--good"),
  };
  const bad = rows.map((row) => (row.anomalous ? row.decision : null));
  data.push(bad);
  const plot = fill(place, 260, (width, height) => [{
    width, height, legend: { show: false }, cursor: { drag: { x: true, y: false }, focus: { prox: 30 } },
    scales: { x: { time: true } }, axes: [axis(), axis()],
    series: [{}, { stroke: colour("--good"), width: 1, points }, { stroke: colour("--soft"), width: 1, dash: [6, 4], points: { show: false } },
      { stroke: "transparent", width: 0, points: { show: true, size: 9, fill: colour("--bad"), stroke: colour("--bad") } }],
  }, data]);
  plot.over.addEventListener("click", () => {
    const index = plot.cursor.idx;
    if (index !== null && index !== undefined && rows[index]) onChoose(rows[index]);
  });
  return plot;
}

// values (time steps, channels); explanation (time steps,) or null: the higher, the darker.
export function drawRecording(place, values, explanation) {
  place.replaceChildren();
  const channels = values[0].length;
  const data = [values.map((_, step) => step), ...Array.from({ length: channels }, (_, channel) => values.map((row) => row[channel]))];
  const largest = explanation ? Math.max(...explanation) : 0;
  const shade = (plot) => {
    if (!(largest > 0)) return;
    const { left, top, width, height } = plot.bbox;
    plot.ctx.save();
    plot.ctx.fillStyle = colour("--bad");
    const step = Math.max(1, Math.floor(explanation.length / width));
    for (let first = 0; first < explanation.length; first += step) {
      const share = Math.max(...explanation.slice(first, first + step)) / largest;
      if (share <= 0.25) continue;
      const from = Math.max(left, plot.valToPos(first - 0.5, "x", true));
      const to = Math.min(left + width, plot.valToPos(first + step - 0.5, "x", true));
      if (to <= from) continue;
      plot.ctx.globalAlpha = 0.35 * share;
      plot.ctx.fillRect(from, top, to - from, height);
    }
    plot.ctx.restore();
  };
  const strokes = ["--good", "--ink", "--soft"];
  return fill(place, 240, (width, height) => [{
    width, height, legend: { show: false }, scales: { x: { time: false } }, axes: [axis(), axis()],
    series: [{}, ...Array.from({ length: channels }, (_, channel) => ({ stroke: colour(strokes[channel % 3]), width: 1, points: { show: false } }))],
    hooks: { drawClear: [shade] },
  }, data]);
}

export function drawPicture(place, base64, map) {
  const frame = make("div", { class: "picture" }, make("img", { src: pictureAddress(base64), alt: "the picture that was scored" }));
  if (map) {
    const canvas = make("canvas", { width: map[0].length, height: map.length, role: "img" });
    canvas.setAttribute("aria-label", "where the anomaly is, in red");
    const context = canvas.getContext("2d");
    const pixels = context.createImageData(map[0].length, map.length);
    const largest = Math.max(...map.map((row) => Math.max(...row)), 1e-9);
    map.flat().forEach((value, index) => pixels.data.set([220, 40, 20, Math.max(0, Math.round((255 * value) / largest))], 4 * index));
    context.putImageData(pixels, 0, 0);
    frame.append(canvas);
  }
  place.replaceChildren(frame);
}
