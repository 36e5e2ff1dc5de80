// Curves by uPlot: scores over time with the threshold, a recording with its explanation shaded, a picture with its map.

import { make, pictureAddress } from "./dom.js";

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const axis = () => ({ stroke: colour("--soft"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line") } });

function fill(place, height, build) {
  const plot = new window.uPlot(...build(place.clientWidth || 600, height), place);
  new ResizeObserver(() => plot.setSize({ width: place.clientWidth, height })).observe(place);
  return plot;
}

// rows oldest first, one beside the other however close in time they fell; drag to zoom, double click to see all.
// onChoose gets the row nearest to a click; changed: ids of rows that another threshold would judge otherwise (ringed).
// shown: the ids of the first and last row of a zoom that is to be kept.
export function drawTimeline(place, rows, { onChoose, changed = new Set(), shown = null }) {
  place.replaceChildren();
  const decisions = rows.map((row) => row.decision);
  const only = (keep) => rows.map((row) => (keep(row) ? row.decision : null));
  const data = [rows.map((_, index) => index), decisions, rows.map(() => 0), only((row) => row.anomalous), only((row) => changed.has(row.id))];
  const dots = (size, fillName, strokeName, width = 1) => ({ show: true, size, width, fill: fillName ? colour(fillName) : "transparent", stroke: colour(strokeName) });
  const times = (_, places) => places.map((index) => (Number.isInteger(index) && rows[index] ? clock(rows[index].at, rows) : ""));
  const plot = fill(place, 260, (width, height) => [{
    width, height, legend: { show: false }, cursor: { drag: { x: true, y: false }, focus: { prox: 30 } },
    scales: { x: { time: false, range: (_, low, high) => (rows.length === 1 ? [-0.5, 0.5] : [low - 0.5, high + 0.5]) } },
    axes: [{ ...axis(), values: times, space: 90 }, { ...axis(), size: 60 }],
    series: [{}, { stroke: colour("--good"), width: 1, points: dots(6, "--good", "--good") },
      { stroke: "transparent", points: { show: false } }, // 0 is always in sight
      { stroke: "transparent", width: 0, points: dots(9, "--bad", "--bad") },
      { stroke: "transparent", width: 0, points: dots(14, null, "--ink", 2) }],
    hooks: { draw: [drawThreshold] },
  }, data]);
  place.dataset.changed = String(data[4].filter((value) => value !== null).length);
  if (shown !== null) {
    const first = rows.findIndex((row) => row.id >= shown[0]);
    const last = rows.findLastIndex((row) => row.id <= shown[1]);
    if (first >= 0 && last > first) plot.setScale("x", { min: first, max: last });
  }
  plot.over.addEventListener("click", () => {
    const index = plot.cursor.idx;
    if (index !== null && index !== undefined && rows[index]) onChoose(rows[index]);
  });
  return plot;
}

// From edge to edge, however few rows there are.
function drawThreshold(plot) {
  const { left, width } = plot.bbox;
  const height = plot.valToPos(0, "y", true);
  plot.ctx.save();
  plot.ctx.strokeStyle = colour("--ink");
  plot.ctx.lineWidth = devicePixelRatio;
  plot.ctx.setLineDash([6 * devicePixelRatio, 4 * devicePixelRatio]);
  plot.ctx.beginPath();
  plot.ctx.moveTo(left, height);
  plot.ctx.lineTo(left + width, height);
  plot.ctx.stroke();
  plot.ctx.restore();
}

// Which rows a zoomed plot shows, as ids; null: all.
export function readZoom(plot, rows) {
  if (!plot || !rows.length) return null;
  const first = Math.max(0, Math.ceil(plot.scales.x.min));
  const last = Math.min(rows.length - 1, Math.floor(plot.scales.x.max));
  return (first === 0 && last === rows.length - 1) || last < first ? null : [rows[first].id, rows[last].id];
}

// As short as the span of the rows allows.
function clock(seconds, rows) {
  const moment = new Date(1000 * seconds);
  const span = rows[rows.length - 1].at - rows[0].at;
  return span < 80000 ? moment.toLocaleTimeString() : moment.toLocaleDateString();
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
    width, height, legend: { show: false }, scales: { x: { time: false } }, axes: [axis(), { ...axis(), size: 60 }],
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
