// Elements without HTML in strings: what a user typed is always text.

export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (key in element && key !== "list" && typeof value !== "string") element[key] = value;
    else element.setAttribute(key, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

// Renders anew; who works with the keyboard stays where he was, or next to it if that is gone or cannot be pressed now.
export function replaceKeepingFocus(place, ...children) {
  const key = place.contains(document.activeElement) ? document.activeElement.dataset.key : undefined;
  place.replaceChildren(...children);
  if (key === undefined) return;
  const twin = [...place.querySelectorAll("[data-key]")].find((one) => one.dataset.key === key);
  const next = twin && !twin.disabled ? twin : (twin?.parentElement ?? place).querySelector("button:not(:disabled)");
  next?.focus({ preventScroll: true });
}

const SPACE = "http://www.w3.org/2000/svg";

function draw(tag, attributes) {
  const element = document.createElementNS(SPACE, tag);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  return element;
}

// Small lines in one frame; zero: a line where normal ends.
export function spark(lines, { zero = false, label = "" } = {}) {
  const all = lines.flat().filter(Number.isFinite);
  const low = Math.min(...all, zero ? 0 : Infinity);
  const high = Math.max(...all, zero ? 0 : -Infinity);
  const y = (value) => (high > low ? 38 - (36 * (value - low)) / (high - low) : 20);
  const svg = draw("svg", { viewBox: "0 0 100 40", preserveAspectRatio: "none", role: "img", "aria-label": label });
  if (zero) svg.append(draw("line", { x1: 0, x2: 100, y1: y(0), y2: y(0), class: "spark zero" }));
  for (const line of lines) {
    const step = 100 / Math.max(1, line.length - 1);
    const points = line.map((value, place) => `${(place * step).toFixed(2)},${y(value).toFixed(2)}`).join(" ");
    svg.append(draw("polyline", { points, class: "spark" }));
  }
  return svg;
}

export function thumbnail(small, label) {
  if (small.picture === undefined) return spark(small.series, { label });
  return make("img", { src: pictureAddress(small.picture), alt: label });
}

// As a blob, because the page's policy allows no data: addresses.
export function pictureAddress(base64) {
  const bytes = Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
  return URL.createObjectURL(new Blob([bytes], { type: "image/png" }));
}

export const moment = (seconds) => new Date(1000 * seconds).toLocaleString();
export const signed = (value) => (value >= 0 ? "+" : "−") + Math.abs(value).toFixed(2);
