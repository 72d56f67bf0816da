// The pictures of the playground: the points with the field, the rest of the state, h′ against h, and the losses.
//
// A view of a network draws on a canvas: view(g, w, h, scene). scene = { problem, picture, t, theme }.
import { classColour } from "./colours.js";
import { axes, dot, path, text, ticks } from "./player_draw.js";
import { arrows, atTime, clipped, course, stroke, value } from "./tour_pictures.js";

const ARROW = 0.8;  // of the distance between two arrows
const SUB = "₀₁₂₃";

// Many lines of one class as one path.
function manyLines(g, lines, colour, width, alpha) {
  const drawn = new Path2D();
  for (const places of lines) for (const [n, [x, y]] of places.entries()) if (n) drawn.lineTo(x, y); else drawn.moveTo(x, y);
  stroke(g, drawn, colour, width, alpha);
}

// The paths of all points until t, class by class.
function paths(g, { problem, picture, t }, place, width, alpha) {
  for (const c of new Set(problem.colour)) {
    const own = [...problem.colour.keys()].filter((p) => problem.colour[p] === c);
    manyLines(g, own.map((p) => course(picture.h, t, (s) => place(s, p))), classColour(c), width, alpha);
  }
}

const crowded = ({ colour }) => colour.length > 10;
const inFront = ({ colour }) => [...colour.entries()].reverse();  // the first class is drawn last, so that it is seen

const range = ({ problem: { centre }, picture: { reach } }) => [centre - reach, centre + reach];

const fieldColours = ({ problem, picture, theme }) => picture.rates.shape[0] > 1
  ? problem.probes.map((p) => classColour(problem.colour[p])) : [theme.ink];

// Two points on a line: h over time, with the arrows of (1, dh/dt).
function overTime(g, w, h, scene) {
  const { problem, picture, t, theme } = scene, box = { x: 52, y: 8, w: w - 62, h: h - 50 }, { reach } = picture;
  const { X, Y } = axes(g, box, [-0.03, 1.05], range(scene), theme, ["Time (t)", "State (h)"]);
  const [seen, times, count] = picture.rates.shape, step = ARROW * box.w / times, places = [];
  for (let k = 0; k < times; k++) for (let n = 0; n < count; n++) {
    const moves = Array.from({ length: seen }, (_, s) => {
      const rise = -value(picture.rates, s, k, n, 0) * box.h / (2 * reach), length = Math.hypot(box.w, rise);
      return [step * box.w / length, step * rise / length];
    });
    places.push({ x: X(k / (times - 1)), y: Y(value(picture.places, n, 0)), moves });
  }
  clipped(g, box, () => {
    arrows(g, places, fieldColours(scene), seen > 1 ? 0.7 : 0.4);
    path(g, [[X(t), box.y], [X(t), box.y + box.h]], theme.ink, 1, 0.4, [3, 3]);
    for (const [p, k] of problem.colour.entries()) {
      path(g, course(picture.h, 1, (s) => [X(s), Y(atTime(picture.h, s, p, 0))]), classColour(k), 3);
      dot(g, X(1), Y(value(problem.targets, 0, p, 0)), 8, null, classColour(k), 2.5);
      dot(g, X(t), Y(atTime(picture.h, t, p, 0)), 5.5, classColour(k), theme.panel);
    }
  });
}

// Points of the plane at time t, their paths until then, and the field at t.
function plane(g, w, h, scene) {
  const { problem, picture, t, theme } = scene, side = Math.min(w - 62, h - 50);
  const box = { x: 52, y: 8, w: side, h: side };
  const { X, Y } = axes(g, box, range(scene), range(scene), theme, ["First coordinate (h₁)", "Second coordinate (h₂)"]);
  const [seen, times, count] = picture.rates.shape, k = Math.round(t * (times - 1)), gap = side / Math.sqrt(count);
  let fastest = 1e-6;
  for (let s = 0; s < seen; s++) for (let n = 0; n < count; n++) fastest = Math.max(fastest, Math.hypot(value(picture.rates, s, k, n, 0), value(picture.rates, s, k, n, 1)));
  const places = Array.from({ length: count }, (_, n) => ({ x: X(value(picture.places, n, 0)), y: Y(value(picture.places, n, 1)),
    moves: Array.from({ length: seen }, (_, s) => [0, 1].map((i) => (i ? -1 : 1) * value(picture.rates, s, k, n, i) / fastest * ARROW * gap)) }));
  const rings = [];  // around the goals, drawn whole also at the edge
  clipped(g, box, () => {
    arrows(g, places, fieldColours(scene), seen > 1 ? 0.75 : 0.45);
    if (!problem.targets) path(g, [[X(0), box.y], [X(0), box.y + box.h]], theme.ink, 1.5, 0.9, [6, 5]);
    for (const [p, c] of problem.colour.entries()) {
      const colour = classColour(c);
      if (problem.targets) {
        const goals = Array.from({ length: problem.targets.shape[0] }, (_, n) => [X(value(problem.targets, n, p, 0)), Y(value(problem.targets, n, p, 1))]);
        path(g, [[X(value(picture.h, 0, p, 0)), Y(value(picture.h, 0, p, 1))], ...goals], colour, 2, 0.5, [2, 5]);
        rings.push([...goals.at(-1), colour]);
      }
    }
    paths(g, scene, (s, p) => [X(atTime(picture.h, s, p, 0)), Y(atTime(picture.h, s, p, 1))], crowded(problem) ? 1 : 2.5, crowded(problem) ? 0.35 : 0.9);
    for (const [p, c] of inFront(problem)) dot(g, X(atTime(picture.h, t, p, 0)), Y(atTime(picture.h, t, p, 1)), crowded(problem) ? 3 : 5, classColour(c), theme.panel, 1);
    if (seen > 1) for (const p of problem.probes) dot(g, X(atTime(picture.h, t, p, 0)), Y(atTime(picture.h, t, p, 1)), 7.5, null, theme.ink, 1.5);
  });
  for (const [x, y, colour] of rings) dot(g, x, y, 8, null, colour, 2);
}

// The largest absolute value of one coordinate, at least `least`.
function most({ shape, data }, i, least) {
  const d = shape.at(-1);
  let found = least;
  for (let n = i; n < data.length; n += d) found = Math.max(found, Math.abs(data[n]));
  return found * 1.08;
}

// The part of the state that a NODE does not have, against h₁.
export function rest(g, w, h, scene) {
  const { problem, picture, t, theme } = scene, { d } = problem, box = { x: 44, y: 8, w: w - 52, h: h - 50 };
  const more = picture.h.shape[2] > d, array = more ? picture.h : picture.weights, first = d === 1 ? "State (h)" : "First coordinate (h₁)";
  const xs = more ? (([m]) => [-m, m])([most(picture.h, d, 1)]) : array ? [0, 1] : [-1, 1];
  const label = more ? `Appended (h${SUB[d + 1]})` : array ? d === 1 ? "Weight of a" : "First weight" : "No other";
  const { X, Y } = axes(g, box, xs, range(scene), theme, [label, first]);
  const index = more ? [d] : array?.shape.length === 4 ? [0, 0] : [0];
  const across = (s, p) => array ? atTime(array, s, p, ...index) : 0;
  clipped(g, box, () => {
    if (!array) path(g, [[X(0), box.y], [X(0), box.y + box.h]], theme.ink, 1.5, 0.5);
    const place = (s, p) => [X(across(s, p)), Y(atTime(picture.h, s, p, 0))];
    paths(g, scene, place, crowded(problem) ? 1 : 2, crowded(problem) ? 0.3 : 0.7);
    for (const [p, c] of inFront(problem)) dot(g, ...place(t, p), crowded(problem) ? 3 : 5, classColour(c), theme.panel, 1);
  });
}

// What f reads against the state.
export function attended(g, w, h, scene) {
  const { problem, picture, t, theme } = scene, box = { x: 44, y: 8, w: w - 52, h: h - 50 }, ends = range(scene);
  const low = Math.min(0, ends[0]), read = picture.attended ?? picture.h;  // attention moves h′ towards zero
  const { X, Y } = axes(g, box, ends, [low, ends[1]], theme, ["State (h)", "f reads (h′)"]);
  clipped(g, box, () => {
    path(g, ends.map((v) => [X(v), Y(v)]), theme.ink, 1, 0.5, [5, 5]);
    for (const [p, c] of inFront(problem)) for (let i = 0; i < problem.d; i++) {
      const place = (s) => [X(atTime(picture.h, s, p, i)), Y(atTime(read, s, p, i))];
      if (problem.d === 1) path(g, course(picture.h, t, place), classColour(c), 2, 0.7);
      dot(g, ...place(t), problem.d === 1 ? 5 : 3, i ? null : classColour(c), i ? classColour(c) : theme.panel, i ? 1.2 : 1);
    }
  });
}

export const points = (g, w, h, scene) => (scene.problem.d === 1 ? overTime : plane)(g, w, h, scene);

export function nothing(g, w, h, words, theme) {
  text(g, words, w / 2, h / 2, { align: "center", colour: theme.ink, faint: true });
}

export const COLOURS = { node: "#8a8f98", augmented: "#3fa7a0", ace: "#b07aa1" };
const DASHES = { node: [], augmented: [7, 4], ace: [2, 3] };  // they differ without colour, too
const DECADES = 12, LABELS = 6;  // at most
const SAMPLE = 32, LETTER = 7.5, GAP = 24, ROW = 18;  // pixels of the legend: line, letter, between entries, row

// The powers of ten between which all losses lie.
export function lossRange(losses) {
  const all = losses.filter((v) => v > 0), high = Math.ceil(Math.log10(Math.max(1, ...all)));
  return [Math.max(high - DECADES, Math.min(-1, Math.floor(Math.log10(Math.min(1, ...all))))), high];
}

// A power of ten, short enough for the margin.
export const powerOfTen = (p) => p >= -3 && p <= 4 ? String(10 ** p) : `1e${p}`.replace("-", "−");

// Where the entries of the legend start: in rows, from the left edge on.
export function legendPlaces(titles, width) {
  let x = 0, row = 0;
  return titles.map((title) => {
    const length = SAMPLE + LETTER * title.length;
    if (x > 0 && x + length > width) [x, row] = [0, row + 1];
    x += length + GAP;
    return { x: x - length - GAP, row };
  });
}

export function drawLosses(g, w, h, networks, theme) {
  const left = 62, places = legendPlaces(networks.map(({ title }) => title), w - left), top = 22 + ROW * (places.at(-1)?.row ?? 0);
  const box = { x: left, y: top, w: w - left - 10, h: h - top - 42 };
  const last = Math.max(10, ...networks.map(({ steps }) => steps.at(-1) ?? 0));
  const [low, high] = lossRange(networks.flatMap(({ losses }) => losses)), every = Math.ceil((high - low) / LABELS);
  const rows = [];
  for (let p = high; p >= low; p -= every) rows.push(p);
  const { X, Y } = axes(g, box, [0, last], [low, high], theme, ["Step", "Loss"], { written: powerOfTen, columns: ticks(0, last, Math.min(6, box.w / 70)), rows, grid: false });
  for (const [n, { name, title, steps, losses }] of networks.entries()) {
    const x = left + places[n].x, y = 9 + ROW * places[n].row;
    path(g, losses.map((v, k) => [X(steps[k]), Y(Math.log10(Math.max(v, 10 ** low)))]), COLOURS[name], 2, 1, DASHES[name]);
    path(g, [[x, y], [x + 26, y]], COLOURS[name], 2.5, 1, DASHES[name]);
    text(g, title, x + 32, y, { colour: theme.ink });
  }
}
