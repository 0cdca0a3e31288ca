// The form of the calculator's page and its picture.
"use strict";

const COLORS = ["#D55E00", "#0072B2", "#009E73"];
const field = (name) => Number(document.getElementById(name).value);
let asked = 0;

function settings() {
  const rate = field("batch") / field("records");
  // Steps are rounded up; the quotient may have been rounded, so a whole number stays one.
  const stepsOf = (epochs) => Math.max(1, Math.ceil((epochs / rate) * (1 - 2 ** -45)));
  return { sigma: field("sigma"), rate: Math.min(1, rate * (1 + 2 ** -50)), delta: field("delta"), epochs: field("epochs"), stepsOf };
}

function show() {
  const { sigma, rate, delta, epochs, stepsOf } = settings(), steps = stepsOf(epochs);
  const whole = field("records") >= field("batch") && field("batch") > 0 && epochs > 0;
  const found = whole ? upperEpsilon(sigma, rate, steps, delta)
    : { problem: "Records, batch and epochs must be above 0, and the batch at most the records." };
  document.getElementById("answer").textContent = found.problem || (Number.isFinite(found.epsilon)
    ? `epsilon ≤ ${roundedUp(found.epsilon)} at delta ${delta}` : "No useful bound: epsilon is above 10,000.");
  document.getElementById("said").textContent = found.problem ? "" : `${steps} steps at rate ${rate.toPrecision(4)}.` +
    (delta >= 1 / field("records") ? " Delta should be well below 1 / records." : "");
  document.getElementById("plot").replaceChildren();
  if (!found.problem && Number.isFinite(found.epsilon)) draw(++asked);
}

// Lines grow point by point, so that the page answers while they are computed.
function draw(turn) {
  const { sigma, rate, delta, epochs, stepsOf } = settings();
  const levels = [0.8, 1, 1.25].map((factor) => Number((factor * sigma).toPrecision(3)));
  const places = Array.from({ length: 9 }, (_, i) => (2 * epochs * (i + 0.5)) / 8.5);
  const lines = levels.map(() => []);
  const jobs = places.flatMap((x) => levels.map((level, row) => ({ x, level, row })));
  const next = () => {
    if (turn !== asked) return;
    const job = jobs.shift();
    if (!job) return;
    const { epsilon } = upperEpsilon(job.level, rate, stepsOf(job.x), delta);
    if (Number.isFinite(epsilon)) lines[job.row].push([job.x, epsilon]);
    if (job.row === 2) paint(lines, levels, 2 * epochs, epochs);
    setTimeout(next);
  };
  next();
}

function element(name, attributes, text) {
  const one = document.createElementNS("http://www.w3.org/2000/svg", name);
  Object.entries(attributes).forEach(([key, value]) => one.setAttribute(key, value));
  if (text !== undefined) one.textContent = text;
  document.getElementById("plot").append(one);
}

function paint(lines, levels, last, now) {
  const most = Math.max(...lines.flat().map((point) => point[1])) * 1.08 || 1;
  const x = (value) => 55 + (value / last) * 470, y = (value) => 315 - (value / most) * 290;
  document.getElementById("plot").replaceChildren();
  const unit = 10 ** Math.floor(Math.log10(most)), gap = most / unit < 2 ? unit / 2 : most / unit < 5 ? unit : 2 * unit;
  for (let tick = 0; tick <= most; tick += gap) {
    element("line", { x1: 55, x2: 525, y1: y(tick), y2: y(tick), stroke: "currentColor", "stroke-opacity": 0.15 });
    element("text", { x: 48, y: y(tick) + 4, "text-anchor": "end" }, Number(tick.toPrecision(3)));
  }
  [0, last / 2, last].forEach((tick) => element("text", { x: x(tick), y: 334, "text-anchor": "middle" }, Number(tick.toPrecision(3))));
  element("text", { x: 290, y: 354, "text-anchor": "middle" }, "epochs");
  element("text", { x: 55, y: 15 }, "epsilon");
  element("line", { x1: x(now), x2: x(now), y1: 25, y2: 315, stroke: "currentColor", "stroke-dasharray": "3 4", "stroke-opacity": 0.5 });
  lines.forEach((points, row) => {
    if (!points.length) return;
    const path = points.map((point) => `${x(point[0])},${y(point[1])}`).join(" ");
    element("polyline", { points: path, fill: "none", stroke: COLORS[row], "stroke-width": 3 });
    const end = points[points.length - 1];
    element("text", { x: x(end[0]) + 8, y: y(end[1]) + 4, fill: COLORS[row] }, `noise ${levels[row]}`);
  });
}

document.getElementById("form").addEventListener("input", show);
document.getElementById("form").addEventListener("submit", (event) => event.preventDefault());
show();
