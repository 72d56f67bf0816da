// Values as colours: palettes, the colour of each class, and arrays of bytes as pictures.
import { clamp, coloursOf, make } from "./theme.js";

const CLASSES = ["#4e79a7", "#f28e2b", "#e15759", "#3fa7a0", "#59a14f", "#d0a215", "#b07aa1", "#f06292", "#9c755f", "#8a8f98"];
const VIRIDIS = [[68, 1, 84], [72, 40, 120], [62, 74, 137], [49, 104, 142], [38, 130, 142], [31, 158, 137], [53, 183, 121],
  [109, 205, 89], [180, 222, 44], [253, 231, 37]];
const BLUE = [36, 98, 214], ORANGE = [224, 104, 28];

// As acenode/compare/colours.py.
export const classColour = (k) => k < CLASSES.length ? CLASSES[k] : `hsl(${(k * 137.5) % 360}, 55%, 52%)`;

const blend = (a, b, w) => a.map((v, i) => Math.round(v + (b[i] - v) * w));
const pixel = ([r, g, b]) => (255 << 24 | b << 16 | g << 8 | r) >>> 0;

// The colour [r, g, b] of a level between 0 and 1 on a scale with these stops.
function between(stops, x) {
  const place = clamp(x, 0, 1) * (stops.length - 1), k = Math.min(Math.floor(place), stops.length - 2);
  return blend(stops[k], stops[k + 1], place - k);
}

const colourTable = (stops, size) => Uint32Array.from({ length: size }, (_, i) => pixel(between(stops, i / (size - 1))));

function rgb(colour) {
  const context = make("canvas", { width: 1, height: 1 }).getContext("2d");
  context.fillStyle = colour;
  context.fillRect(0, 0, 1, 1);
  return [...context.getImageData(0, 0, 1, 1).data.slice(0, 3)];
}

// The page's colours, `old` if they are still the same. `levels` is a table for values from low to high, `signed` and `features`
// for values around zero.
export function readTheme(node, old = null) {
  const found = coloursOf(node, old);
  if (found === old) return old;
  const ends = [BLUE, rgb(found.panel), ORANGE];
  return { ...found, levels: colourTable(VIRIDIS, 256), signed: colourTable(ends, 511), features: colourTable(ends, 256) };
}

// Reusable canvases for small pictures that are drawn enlarged, one for each size.
const scratches = new Map();
export function scratch(width, height) {
  const key = `${width}x${height}`;
  let found = scratches.get(key);
  if (!found) {
    const canvas = make("canvas", { width, height }), context = canvas.getContext("2d");
    const image = context.createImageData(width, height);
    found = { cells: new Uint32Array(image.data.buffer), put: () => { context.putImageData(image, 0, 0); return canvas; } };
    scratches.set(key, found);
  }
  return found;
}

// A probe's input image.
export function paintInput(run, probe) {
  const [channels, height, width] = run.meta.image.shape, start = probe * channels * height * width;
  const { cells, put } = scratch(width, height);
  for (let i = 0; i < width * height; i++) {
    const at = start + i * channels;
    cells[i] = pixel(channels === 3 ? [run.pixels[at], run.pixels[at + 1], run.pixels[at + 2]] : Array(3).fill(run.pixels[at]));
  }
  return put();
}

// Fill pixels from the bytes at `start`. Unless `initial` is null, show their difference from the bytes at `initial`, times `gain`.
export function fill(cells, data, start, initial, count, table, gain) {
  if (initial === null) for (let i = 0; i < count; i++) cells[i] = table[data[start + i]];
  else for (let i = 0; i < count; i++) cells[i] = table[clamp(255 + Math.round((data[start + i] - data[initial + i]) * gain), 0, 510)];
}

export const valueOf = (about, level) => about.low + level * (about.high - about.low) / 255;

// The colours of the 256 levels of an array, which cover its own range, on another scale.
function onScale(table, about, { low, high }) {
  const most = table.length - 1, place = (level) => Math.round((valueOf(about, level) - low) / (high - low || 1) * most);
  return Uint32Array.from({ length: 256 }, (_, level) => table[clamp(place(level), 0, most)]);
}

// How an array that is described by `about` is drawn on a scale: the table of its levels, or of their change, whose table is
// symmetric around zero and has `gain` places for a level; and the table and the ends of the bar of colours.
export function colouring(theme, about, scale, changed) {
  const most = scale.largest_change;
  return changed ? { changed, table: theme.signed, gain: (about.high - about.low) / (most || 1), bar: theme.signed, ends: [-most, most] }
    : { changed, table: onScale(theme.levels, about, scale), gain: 1, bar: theme.levels, ends: [scale.low, scale.high] };
}

// The same for the states, which are around zero.
export const stateColouring = (theme, about, scale) => ({ changed: false, table: onScale(theme.features, about, scale), gain: 1,
  bar: theme.signed, ends: [scale.low, scale.high] });
