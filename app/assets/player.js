// The trajectory player: one time, one epoch and one probe drive every panel of every run.
//
//   mount(element, data, send) → { update(data), destroy() }
//   data = { runs: [{ id, label, colour, live }], base: "lab/", frame: { t, epoch, probe } }
//
// A run's film comes from app/film.py: `${base}film/${id}` describes it, `${base}film/${id}/${epoch}` has the arrays of
// one epoch. `send`, where given and `data.report` is set, is told ("frame", { t, epoch, probe }) whenever they come to rest.

const PASS_SECONDS = 4;  // one pass of t at 1×
const POLL_MS = 3000, REST_MS = 400, WATCH_MS = 500;
const KEPT_BYTES = 96e6;  // of a run's epochs
const SPEEDS = [0.25, 0.5, 1, 2, 4];
const CLASSES = ["#4e79a7", "#f28e2b", "#e15759", "#3fa7a0", "#59a14f", "#d0a215", "#b07aa1", "#f06292", "#9c755f", "#8a8f98"];
const VIRIDIS = [[68, 1, 84], [72, 40, 120], [62, 74, 137], [49, 104, 142], [38, 130, 142], [31, 158, 137], [53, 183, 121],
  [109, 205, 89], [180, 222, 44], [253, 231, 37]];
const BLUE = [36, 98, 214], ORANGE = [224, 104, 28];
const FONT = "12px system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif";

// Small things ------------------------------------------------------------------------------------------------------

const clamp = (v, low, high) => Math.min(Math.max(v, low), high);
const span = (n) => [...Array(n).keys()];
const classColour = (k) => k < CLASSES.length ? CLASSES[k] : `hsl(${(k * 137.5) % 360} 55% 52%)`;

function number(v) {
  if (!Number.isFinite(v)) return "–";
  const size = Math.abs(v);
  return (size !== 0 && (size >= 1e4 || size < 1e-3) ? v.toExponential(1) : String(Number(v.toPrecision(3)))).replaceAll("-", "−");
}

function make(tag, props = {}, ...children) {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(props)) {
    if (key === "on") for (const [event, f] of Object.entries(value)) node.addEventListener(event, f);
    else if (key in node) node[key] = value;
    else node.setAttribute(key, value);
  }
  node.append(...children);
  return node;
}

// Round numbers between two ends, about so many.
function ticks(low, high, count) {
  const rough = (high - low) / Math.max(count, 1) || 1, power = 10 ** Math.floor(Math.log10(rough));
  const step = power * ([1, 2, 5, 10].find((m) => m * power >= rough) ?? 10);
  const found = [];
  for (let v = Math.ceil(low / step - 1e-9) * step; v <= high + step * 1e-9; v += step) found.push(Math.abs(v) < step / 1e6 ? 0 : v);
  return found;
}

const blend = (a, b, w) => a.map((v, i) => Math.round(v + (b[i] - v) * w));
const pixel = ([r, g, b]) => (255 << 24 | b << 16 | g << 8 | r) >>> 0;

function colourTable(stops, size) {
  return Uint32Array.from({ length: size }, (_, i) => {
    const place = i / (size - 1) * (stops.length - 1), k = Math.min(Math.floor(place), stops.length - 2);
    return pixel(blend(stops[k], stops[k + 1], place - k));
  });
}

// Pictures of few pixels, to be drawn large; one for each size, used again and again.
const scratches = new Map();
function scratch(width, height) {
  const key = `${width}x${height}`;
  let found = scratches.get(key);
  if (!found) {
    const canvas = make("canvas", { width, height }), context = canvas.getContext("2d");
    const image = context.createImageData(width, height);
    found = { canvas, cells: new Uint32Array(image.data.buffer), put: () => { context.putImageData(image, 0, 0); return canvas; } };
    scratches.set(key, found);
  }
  return found;
}

function rgb(colour) {
  const context = make("canvas", { width: 1, height: 1 }).getContext("2d");
  context.fillStyle = colour;
  context.fillRect(0, 0, 1, 1);
  return [...context.getImageData(0, 0, 1, 1).data.slice(0, 3)];
}

// Colours as the page has them now. `levels` is for what goes from low to high, `signed` and `features` for what has a zero.
function readTheme(node, old = null) {
  const style = getComputedStyle(node), value = (name) => style.getPropertyValue(name).trim();
  const names = ["--ink", "--paper", "--panel", "--accent", "--line"].map(value), [ink, paper, panel, accent, line] = names;
  if (old?.key === names.join("|")) return old;
  const middle = rgb(paper), ends = [BLUE, middle, ORANGE];
  return { key: names.join("|"), ink, paper, panel, accent, line, levels: colourTable(VIRIDIS, 256), signed: colourTable(ends, 511),
    features: colourTable(ends, 256) };
}

// The film of one run -----------------------------------------------------------------------------------------------

function decode(buffer) {
  const size = new DataView(buffer).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, size))), arrays = {};
  for (const [name, { dtype, shape, offset }] of Object.entries(header.arrays)) {
    const type = dtype === "float32" ? Float32Array : Uint8Array;
    arrays[name] = { shape, data: new type(buffer, 4 + size + offset, shape.reduce((a, b) => a * b, 1)) };
  }
  return { version: header.version, epoch: header.epoch, bytes: buffer.byteLength, arrays };
}

class Film {
  constructor(spec, address, changed) {
    this.spec = spec;
    this.address = address;  // (path) → URL
    this.changed = changed;
    this.meta = null;
    this.pixels = null;
    this.problem = null;  // in words
    this.blocks = new Map();  // epoch → arrays, those used last at the end
    this.pending = new Set();
    this.failed = new Set();
    this.ended = new AbortController();
  }

  async get(path, kind) {
    const answer = await fetch(this.address(path), { signal: this.ended.signal });
    if (!answer.ok) throw new Error(answer.status === 404 ? "not found" : `the server answered ${answer.status}`);
    return answer[kind]();
  }

  async read() {
    if (this.reading) return;
    this.reading = true;
    try {
      const meta = await this.get("", "json");
      this.problem = null;
      if (this.meta?.version !== meta.version) {
        this.meta = meta;
        this.failed.clear();
        this.pixels = meta.image ? Uint8Array.from(atob(meta.image.pixels), (ch) => ch.charCodeAt(0)) : null;
      }
    } catch (error) {
      if (this.ended.signal.aborted) return;
      this.problem = `The snapshots cannot be read: ${error.message}.`;
    } finally {
      this.reading = false;
    }
    if (!this.ended.signal.aborted) this.changed(this);
  }

  // Its own epoch that is nearest and not later; its first where all are later.
  epochFor(epoch) {
    const own = this.meta?.epochs ?? [];
    if (!own.length) return null;
    return epoch === null ? own.at(-1) : own.findLast((e) => e <= epoch) ?? own[0];
  }

  // The arrays of an epoch if they are here, even of an older version; what is missing is asked for.
  block(epoch, near = true) {
    const found = this.blocks.get(epoch);
    if (!found || found.version !== this.meta.version) this.ask(epoch);
    if (near && found) {
      this.blocks.delete(epoch);
      this.blocks.set(epoch, found);
      const i = this.meta.epochs.indexOf(epoch);
      for (const other of [this.meta.epochs[i + 1], this.meta.epochs[i - 1]]) if (other !== undefined) this.block(other, false);
    }
    return found;
  }

  async ask(epoch) {
    const version = this.meta.version, key = `${version}/${epoch}`;
    if (this.pending.has(key) || this.failed.has(key)) return;
    this.pending.add(key);
    try {
      const block = decode(await this.get(`/${epoch}?v=${encodeURIComponent(version)}`, "arrayBuffer"));
      this.blocks.delete(epoch);
      this.blocks.set(epoch, block);
      let bytes = [...this.blocks.values()].reduce((sum, b) => sum + b.bytes, 0);
      for (const [old, b] of this.blocks) {
        if (bytes <= KEPT_BYTES || this.blocks.size <= 3) break;
        this.blocks.delete(old);
        bytes -= b.bytes;
      }
      if (block.version !== this.meta.version) {  // the run has grown between the two requests
        block.version = this.meta.version;
        this.read();
      }
    } catch (error) {
      if (this.ended.signal.aborted) return;
      this.failed.add(key);
      this.problem = `Epoch ${epoch} cannot be read: ${error.message}.`;
    } finally {
      this.pending.delete(key);
    }
    this.changed(this);
  }

  // Are these the arrays that the description speaks of? Not while a run that changed its shapes is read again.
  fits(block) {
    const { t, probes, attention, features, state } = this.meta, { arrays } = block, same = (name, ...shape) => arrays[name]?.shape.every((n, i) => n === [t.length, probes, ...shape][i]);
    return same("pca", 2) && (!attention || same("attention", ...attention.shape)) && (!attention?.channels || same("attention_channels", attention.channels, ...attention.shape))
      && (!features || same("features", features.channels, ...features.shape)) && (!state || same("state", state.size)) && (!CHANGE.shown(this.meta) || same("change"));
  }

  className(label) { return this.meta.classes?.[label] ?? String(label); }
  title(probe) { return this.meta.labels ? `class ${this.className(this.meta.labels[probe])}` : `probe ${probe + 1}`; }
  colour(probe) { return classColour(this.meta.labels ? this.meta.labels[probe] : probe); }

  opinion(probe, epoch) {
    const found = this.meta.opinions?.[this.meta.epochs.indexOf(epoch)]?.[probe];
    return found ? `the model says ${this.className(found[0])} (${(100 * found[1]).toFixed(0)} %)` : null;
  }

  // Where t lies among the frames: the nearest one, and the two around it.
  frame(t) {
    const own = this.meta.t, n = own.length;
    let high = own.findIndex((v) => v >= t);
    if (high < 0) high = n - 1;
    const low = Math.max(high - 1, 0), part = high === low ? 0 : clamp((t - own[low]) / (own[high] - own[low] || 1), 0, 1);
    return { low, high, part, near: part < 0.5 ? low : high };
  }

  end() { this.ended.abort(); }
}

// A probe's input, as it is.
function paintInput(film, probe) {
  const [channels, height, width] = film.meta.image.shape, start = probe * channels * height * width;
  const { cells, put } = scratch(width, height);
  for (let i = 0; i < width * height; i++) {
    const at = start + i * channels;
    cells[i] = pixel(channels === 3 ? [film.pixels[at], film.pixels[at + 1], film.pixels[at + 2]] : Array(3).fill(film.pixels[at]));
  }
  return put();
}

// What panels are drawn with ----------------------------------------------------------------------------------------

function text(g, words, x, y, { align = "left", base = "middle", colour, faint = false, turn = false } = {}) {
  g.save();
  g.font = FONT;
  g.fillStyle = colour;
  g.globalAlpha = faint ? 0.72 : 1;
  g.textAlign = align;
  g.textBaseline = base;
  g.translate(x, y);
  if (turn) g.rotate(-Math.PI / 2);
  g.fillText(words, 0, 0);
  g.restore();
}

// Axes with a frame; what they return turns data into pixels.
function axes(g, box, xs, ys, theme, labels) {
  const X = (v) => box.x + (v - xs[0]) / (xs[1] - xs[0]) * box.w, Y = (v) => box.y + box.h - (v - ys[0]) / (ys[1] - ys[0]) * box.h;
  g.lineWidth = 1;
  g.strokeStyle = theme.line;
  g.beginPath();
  for (const v of ticks(...xs, box.w / 70)) {
    g.moveTo(X(v), box.y);
    g.lineTo(X(v), box.y + box.h);
    text(g, number(v), X(v), box.y + box.h + 6, { align: "center", base: "top", colour: theme.ink, faint: true });
  }
  for (const v of ticks(...ys, box.h / 45)) {
    g.moveTo(box.x, Y(v));
    g.lineTo(box.x + box.w, Y(v));
    text(g, number(v), box.x - 6, Y(v), { align: "right", colour: theme.ink, faint: true });
  }
  g.stroke();
  text(g, labels[0], box.x + box.w / 2, box.y + box.h + 34, { align: "center", base: "bottom", colour: theme.ink });
  if (labels[1]) text(g, labels[1], 12, box.y + box.h / 2, { align: "center", colour: theme.ink, turn: true });
  return { X, Y };
}

const BAR = 70;  // pixels that a bar of colours takes on the right
function colourBar(g, w, h, table, low, high, theme) {
  const bar = { x: w - BAR + 12, y: 10, w: 12, h: h - 20 }, { cells, put } = scratch(1, 256);
  for (let i = 0; i < 256; i++) cells[255 - i] = table[Math.round(i / 255 * (table.length - 1))];
  g.imageSmoothingEnabled = false;
  g.drawImage(put(), bar.x, bar.y, bar.w, bar.h);
  g.strokeStyle = theme.line;
  g.strokeRect(bar.x, bar.y, bar.w, bar.h);
  const digits = clamp(Math.ceil(-Math.log10((high - low) / 20 || 1)), 0, 4);
  const said = (v) => Math.max(Math.abs(low), Math.abs(high)) >= 1e4 || high - low < 1e-3 ? v.toExponential(0) : v.toFixed(digits);
  for (const part of [0, 0.25, 0.5, 0.75, 1]) {
    const y = clamp(bar.y + bar.h * (1 - part), bar.y + 5, bar.y + bar.h - 5);
    text(g, said(low + part * (high - low)).replace("-", "−"), bar.x + bar.w + 5, y, { colour: theme.ink, faint: true });
  }
}

// The largest equal cells of that shape: how many columns, and how large a cell is.
function tiling(count, aspect, w, h, gap, caption = 0) {
  let best = { columns: 1, width: 0 };
  for (let columns = 1; columns <= count; columns++) {
    const rows = Math.ceil(count / columns);
    const width = Math.min((w - gap * (columns - 1)) / columns, ((h - gap * (rows - 1)) / rows - caption) * aspect);
    if (width > best.width) best = { columns, width };
  }
  const width = Math.max(Math.floor(best.width), 1), height = Math.max(Math.floor(width / aspect), 1);
  const rows = Math.ceil(count / best.columns);
  const x = Math.max(0, (w - best.columns * (width + gap) + gap) / 2), y = Math.max(0, (h - rows * (height + gap + caption) + gap) / 2);
  return { columns: best.columns, width, height,
    place: (i) => ({ x: Math.round(x + i % best.columns * (width + gap)), y: Math.round(y + Math.floor(i / best.columns) * (height + gap + caption)) }) };
}

// Bytes as a picture: levels by themselves, or their difference from where they began, on the scale of `swing`.
function fill(cells, data, start, begun, count, table, gain) {
  if (begun === null) for (let i = 0; i < count; i++) cells[i] = table[data[start + i]];
  else for (let i = 0; i < count; i++) cells[i] = table[clamp(255 + Math.round((data[start + i] - data[begun + i]) * gain), 0, 510)];
}

const scaleOf = (about, changed) => changed ? [-about.swing, about.swing] : [about.low, about.high];
const gainOf = (about) => (about.high - about.low) / (about.swing || 1);  // levels of a difference → places in the table
const valueOf = (about, level) => about.low + level * (about.high - about.low) / 255;
const signedNumber = (v) => (v > 0 ? "+" : "") + number(v);

function cellName(i, shown, full) {
  if (shown === full) return String(i + 1);
  return `${Math.floor(i * full / shown) + 1}–${Math.floor((i + 1) * full / shown)}`;
}

// The panels --------------------------------------------------------------------------------------------------------
// Each has title(view, state), key(view, state): what it depends on beside size, epoch and colours, draw(g, w, h, view, state,
// theme, still), and hover(x, y, view, state) → lines or null. `view` has the film and the arrays of the epoch it shows.
// What stands still while t runs (axes, whole curves) is drawn by base(…) whenever baseKey(…) changes; `still` is what it returned.

const PLANE = {
  name: "plane",
  shown: () => true,
  title: () => "h(t) in the plane of largest variance",
  key: (view, state) => `${state.t.toFixed(4)}/${state.probe}/${state.near}`,

  range(view, state) {
    const { data } = view.block.arrays.pca, { pca } = view.film.meta, ends = [[Infinity, -Infinity], [Infinity, -Infinity]];
    if (!state.near) for (const [i, own] of [pca.x, pca.y].entries()) ends[i] = [...own];
    for (let i = 0; i < data.length; i++) {
      const end = ends[i % 2];
      if (data[i] < end[0]) end[0] = data[i];
      if (data[i] > end[1]) end[1] = data[i];
    }
    return ends.map(([low, high]) => { const room = (high - low || 1) * 0.06; return [low - room, high + room]; });
  },

  baseKey: (view, state) => `${state.probe}/${state.near}`,
  base(g, w, h, view, state, theme) {
    const { film, block } = view, { data, shape: [T, P] } = block.arrays.pca, box = { x: 52, y: 8, w: w - 62, h: h - 48 };
    const [xs, ys] = this.range(view, state), share = (i) => `PC ${i + 1} (${(100 * film.meta.pca.shares[i]).toFixed(0)} % of the variance)`;
    const { X, Y } = axes(g, box, xs, ys, theme, [share(0), share(1)]);
    g.lineJoin = "round";
    for (const p of span(P)) {
      g.strokeStyle = film.colour(p);
      g.globalAlpha = p === state.probe ? 0.8 : 0.4;
      g.lineWidth = 1;
      g.beginPath();
      for (let f = 0; f < T; f++) g.lineTo(X(data[(f * P + p) * 2]), Y(data[(f * P + p) * 2 + 1]));
      g.stroke();
    }
    g.globalAlpha = 1;
    return { X, Y };
  },

  draw(g, w, h, view, state, theme, { X, Y }) {
    const { film, block } = view, { data, shape: [, P] } = block.arrays.pca;
    const { low, high, part } = film.frame(state.t), px = (f, p) => X(data[(f * P + p) * 2]), py = (f, p) => Y(data[(f * P + p) * 2 + 1]);
    const head = (p) => [px(low, p) + (px(high, p) - px(low, p)) * part, py(low, p) + (py(high, p) - py(low, p)) * part];
    const order = [...span(P).filter((p) => p !== state.probe), ...(state.probe < P ? [state.probe] : [])];
    view.heads = [];
    g.lineJoin = g.lineCap = "round";
    for (const p of order) {
      const chosen = p === state.probe, [hx, hy] = head(p);
      g.strokeStyle = film.colour(p);
      g.globalAlpha = chosen ? 1 : 0.75;
      g.lineWidth = chosen ? 4 : 2;
      g.beginPath();
      for (let f = 0; f <= low; f++) g.lineTo(px(f, p), py(f, p));
      g.lineTo(hx, hy);
      g.stroke();
      g.globalAlpha = 1;
      g.lineWidth = 1.5;  // where it began
      g.fillStyle = theme.paper;
      g.beginPath();
      g.arc(px(0, p), py(0, p), 2.5, 0, 7);
      g.fill();
      g.stroke();
    }
    for (const p of order) {
      const chosen = p === state.probe, [x, y] = head(p);
      g.fillStyle = film.colour(p);
      g.strokeStyle = chosen ? theme.ink : theme.paper;
      g.lineWidth = chosen ? 2 : 1;
      g.beginPath();
      g.arc(x, y, chosen ? 7.5 : 5, 0, 7);
      g.fill();
      g.stroke();
      view.heads.push({ p, x, y });
    }
  },

  nearest(x, y, view) {
    let best = null, least = 16 ** 2;
    for (const head of view.heads ?? []) {
      const d = (head.x - x) ** 2 + (head.y - y) ** 2;
      if (d <= least) [best, least] = [head.p, d];
    }
    return best;
  },
  hover(x, y, view, state) {
    const p = this.nearest(x, y, view), { film } = view;
    if (p === null) return null;
    const opinion = film.opinion(p, view.epoch);
    return [film.meta.labels ? `${film.title(p)}, probe ${p + 1}` : film.title(p), `t = ${state.t.toFixed(2)}`, ...(opinion ? [opinion] : [])];
  },
  click(x, y, view) { return this.nearest(x, y, view); },
};

// A vector over time as a picture: coordinates down, t across.
function overTime(g, w, h, view, theme, level, table, low, high, size) {
  const T = view.film.meta.t.length, box = { x: 44, y: 8, w: w - 44 - BAR - 6, h: h - 48 }, { cells, put } = scratch(T, size);
  for (let i = 0; i < size; i++) for (let f = 0; f < T; f++) cells[i * T + f] = table[level(f, i)];
  g.imageSmoothingEnabled = false;
  g.drawImage(put(), box.x, box.y, box.w, box.h);
  const t = view.film.meta.t, ends = [t[0], t.at(-1)], X = (v) => box.x + (v - ends[0]) / (ends[1] - ends[0] || 1) * box.w;
  for (const v of ticks(...ends, box.w / 60)) text(g, number(v), X(v), box.y + box.h + 6, { align: "center", base: "top", colour: theme.ink, faint: true });
  text(g, "t", box.x + box.w / 2, box.y + box.h + 34, { align: "center", base: "bottom", colour: theme.ink });
  countTicks(g, box, size, false, theme);
  text(g, "coordinate", 10, box.y + box.h / 2, { align: "center", colour: theme.ink, turn: true });
  colourBar(g, w, h - 30, table, low, high, theme);
  return { ...box, T, size, X };
}

// … and the line at now.
function drawNow(g, x, box, theme) {
  g.beginPath();
  g.moveTo(x, box.y);
  g.lineTo(x, box.y + box.h);
  g.strokeStyle = theme.paper;
  g.lineWidth = 4;
  g.stroke();
  g.strokeStyle = theme.ink;
  g.lineWidth = 1.5;
  g.stroke();
}

function overTimeCell(x, y, box) {
  if (!box || x < box.x || y < box.y || x >= box.x + box.w || y >= box.y + box.h) return null;
  return { f: Math.floor((x - box.x) / box.w * box.T), i: Math.floor((y - box.y) / box.h * box.size) };
}

// Whole numbers beside the cells of a map, as many as there is room for.
function countTicks(g, box, count, across, theme, full = count) {
  const room = (across ? box.w : box.h) / count, every = Math.ceil(count / Math.max(1, Math.floor(count * room / (across ? 30 : 18))));
  for (let i = 0; i < count; i += every) {
    const at = (i + 0.5) * room, name = String(Math.floor(i * full / count) + 1), style = { colour: theme.ink, faint: true };
    if (across) text(g, name, box.x + at, box.y + box.h + 5, { ...style, align: "center", base: "top" });
    else text(g, name, box.x - 6, box.y + at, { ...style, align: "right" });
  }
}

const SHORT = { pairwise: "softmax(a(t)), from h_j into h_i", elementwise: "sigmoid(a(t)), mean over channels", coordinates: "sigmoid(a(t)) over time" };

const ATTENTION = {
  name: "attention",
  shown: (meta) => meta.attention !== null,
  title: (view, state) => (state.mode === "change" ? "Change since t = 0: " : "") + SHORT[view.film.meta.attention.kind],
  hint: (view) => view.film.meta.attention.title,
  key(view, state) {
    const vector = view.film.meta.attention.kind === "coordinates";
    return `${vector ? state.t.toFixed(4) : view.film.frame(state.t).near}/${state.probe}/${state.mode}`;
  },

  baseKey: (view, state) => view.film.meta.attention.kind === "coordinates" ? `${state.probe}/${state.mode}` : state.mode,
  base(g, w, h, view, state, theme) {
    const about = view.film.meta.attention, changed = state.mode === "change", gain = gainOf(about);
    const table = changed ? theme.signed : theme.levels, [low, high] = scaleOf(about, changed);
    if (about.kind !== "coordinates") return colourBar(g, w, h, table, low, high, theme);
    const { data, shape: [, P, , columns] } = view.block.arrays.attention, at = (f, i) => data[(f * P + state.probe) * columns + i];
    const level = changed ? (f, i) => clamp(255 + Math.round((at(f, i) - at(0, i)) * gain), 0, 510) : at;
    return overTime(g, w, h, view, theme, level, table, low, high, columns);
  },

  draw(g, w, h, view, state, theme, still) {
    const { film, block } = view, about = film.meta.attention, { data, shape: [, P, rows, columns] } = block.arrays.attention;
    if (about.kind === "coordinates") {
      view.coordinates = still;
      drawNow(g, still.X(state.t), still, theme);
      return;
    }
    const changed = state.mode === "change", near = film.frame(state.t).near, block0 = rows * columns, gain = gainOf(about);
    const table = changed ? theme.signed : theme.levels;
    const { cells, put } = scratch(columns, rows), start = (near * P + state.probe) * block0;
    fill(cells, data, start, changed ? state.probe * block0 : null, block0, table, gain);
    const picture = put(), pairwise = about.kind === "pairwise", over = !pairwise && film.pixels !== null;
    const room = pairwise ? { x: 44, y: 8, w: w - 44 - BAR - 4, h: h - 46 } : { x: 8, y: 8, w: w - 12 - BAR, h: h - 16 };
    const tiles = tiling(over ? 2 : 1, columns / rows, room.w, room.h, 14, over ? 20 : 0);
    g.imageSmoothingEnabled = false;
    view.maps = [];
    for (const i of span(over ? 2 : 1)) {
      const { x, y } = tiles.place(i), box = { x: room.x + x, y: room.y + y, w: tiles.width, h: tiles.height };
      if (over && i === 0) {
        g.drawImage(paintInput(film, state.probe), box.x, box.y, box.w, box.h);
        fill(cells, data, start, changed ? state.probe * block0 : null, block0, table, gain);  // one picture where both have a size
        g.globalAlpha = 0.55;
        g.drawImage(put(), box.x, box.y, box.w, box.h);
        g.globalAlpha = 1;
      } else g.drawImage(picture, box.x, box.y, box.w, box.h);
      g.strokeStyle = theme.line;
      g.lineWidth = 1;
      g.strokeRect(box.x - 0.5, box.y - 0.5, box.w + 1, box.h + 1);
      if (over) text(g, i === 0 ? "over the input" : "by itself", box.x + box.w / 2, box.y + box.h + 5, { align: "center", base: "top", colour: theme.ink, faint: true });
      if (pairwise) {
        countTicks(g, box, columns, true, theme, about.full[1]);
        countTicks(g, box, rows, false, theme, about.full[0]);
        text(g, `${about.columns} (from)`, box.x + box.w / 2, box.y + box.h + 22, { align: "center", base: "top", colour: theme.ink });
        text(g, `${about.rows} (into)`, box.x - 32, box.y + box.h / 2, { align: "center", colour: theme.ink, turn: true });
      }
      view.maps.push(box);
    }
  },

  hover(x, y, view, state) {
    const { film, block } = view, about = film.meta.attention, { data, shape: [, P, rows, columns] } = block.arrays.attention;
    let f = film.frame(state.t).near, i, j;
    if (about.kind === "coordinates") {
      const cell = overTimeCell(x, y, view.coordinates);
      if (!cell) return null;
      [f, i, j] = [cell.f, 0, cell.i];
    } else {
      const box = (view.maps ?? []).find((b) => x >= b.x && y >= b.y && x < b.x + b.w && y < b.y + b.h);
      if (!box) return null;
      [i, j] = [Math.floor((y - box.y) / box.h * rows), Math.floor((x - box.x) / box.w * columns)];
    }
    const at = (frame) => valueOf(about, data[((frame * P + state.probe) * rows + i) * columns + j]);
    const place = about.kind === "coordinates" ? `coordinate ${cellName(j, columns, about.full[1])}, t = ${film.meta.t[f].toFixed(2)}`
      : `${about.rows} ${cellName(i, rows, about.full[0])}, ${about.columns} ${cellName(j, columns, about.full[1])}`;
    return [place, `weight ${at(f).toFixed(4)}`, `since t = 0: ${signedNumber(at(f) - at(0))}`, film.title(state.probe)];
  },
};

const CHANGE = {
  name: "change",
  shown: (meta) => meta.attention !== null || meta.change_max > 0,
  title: () => "Distance of a(t) from a(0)",
  key: (view, state) => `${state.t.toFixed(4)}/${state.probe}`,

  baseKey: (view, state) => String(state.probe),
  base(g, w, h, view, state, theme) {
    const { film, block } = view, { data, shape: [T, P] } = block.arrays.change, t = film.meta.t;
    const box = { x: 58, y: 8, w: w - 70, h: h - 48 }, most = film.meta.change_max * 1.08 || 1;
    const { X, Y } = axes(g, box, [t[0], t.at(-1) > t[0] ? t.at(-1) : t[0] + 1], [0, most], theme, ["t", "‖a(t) − a(0)‖ / ‖a(0)‖"]);
    for (const p of [...span(P).filter((q) => q !== state.probe), ...(state.probe < P ? [state.probe] : [])]) {
      g.globalAlpha = p === state.probe ? 1 : 0.5;
      g.strokeStyle = film.colour(p);
      g.lineWidth = p === state.probe ? 3 : 1.25;
      g.beginPath();
      for (let f = 0; f < T; f++) g.lineTo(X(t[f]), Y(data[f * P + p]));
      g.stroke();
    }
    g.globalAlpha = 1;
    return { box, X, Y };
  },

  draw(g, w, h, view, state, theme, { box, X, Y }) {
    const { film, block } = view, { data, shape: [, P] } = block.arrays.change, { low, high, part } = film.frame(state.t);
    const from = data[low * P + state.probe], here = from + (data[high * P + state.probe] - from) * part;
    g.strokeStyle = theme.ink;
    g.lineWidth = 1;
    g.globalAlpha = 0.5;
    g.setLineDash([3, 3]);
    g.beginPath();
    g.moveTo(X(state.t), box.y);
    g.lineTo(X(state.t), box.y + box.h);
    g.stroke();
    g.setLineDash([]);
    g.globalAlpha = 1;
    g.fillStyle = film.colour(state.probe);
    g.lineWidth = 2;
    g.beginPath();
    g.arc(X(state.t), Y(here), 6, 0, 7);
    g.fill();
    g.stroke();
    view.curve = { box, X, Y };
  },

  hover(x, y, view) {
    const { film, block, curve } = view;
    if (!curve || x < curve.box.x || x > curve.box.x + curve.box.w) return null;
    const { data, shape: [, P] } = block.arrays.change, t = film.meta.t;
    const f = film.frame(t[0] + (x - curve.box.x) / curve.box.w * (t.at(-1) - t[0])).near;
    const away = span(P).map((p) => Math.abs(curve.Y(data[f * P + p]) - y)), p = away.indexOf(Math.min(...away));
    return away[p] > 20 ? null : [`${film.title(p)}, probe ${p + 1}`, `t = ${t[f].toFixed(2)}`, `changed by ${number(data[f * P + p])}`];
  },
};

// Channels side by side, each a small map.
function multiples(g, w, h, view, state, theme, { array, table, changed, gain, slot }) {
  const { data, shape: [, P, C, H, W] } = array, near = view.film.frame(state.t).near, size = H * W;
  const tiles = tiling(C, W / H, w - 12 - BAR, h - 16, C > 36 ? 2 : 4), { cells, put } = scratch(W, H * C);
  const start = (near * P + state.probe) * C * size;
  fill(cells, data, start, changed ? state.probe * C * size : null, C * size, table, gain);
  const picture = put();
  g.imageSmoothingEnabled = false;
  g.strokeStyle = theme.line;
  g.lineWidth = 1;
  for (let c = 0; c < C; c++) {
    const { x, y } = tiles.place(c);
    g.drawImage(picture, 0, c * H, W, H, 8 + x, 8 + y, tiles.width, tiles.height);
    if (C <= 36) g.strokeRect(8 + x - 0.5, 8 + y - 0.5, tiles.width + 1, tiles.height + 1);
  }
  view[slot] = { tiles, C, H, W };
}

function multiplesCell(x, y, drawn) {
  if (!drawn) return null;
  const { tiles, C, H, W } = drawn;
  for (let c = 0; c < C; c++) {
    const at = tiles.place(c), u = (x - 8 - at.x) / tiles.width, v = (y - 8 - at.y) / tiles.height;
    if (u >= 0 && u < 1 && v >= 0 && v < 1) return { c, i: Math.floor(v * H), j: Math.floor(u * W) };
  }
  return null;
}

const some = (shown, total) => shown < total ? ` (the first ${shown} of ${total} channels)` : "";

const CHANNELS = {
  name: "channels",
  shown: (meta) => Boolean(meta.attention?.channels),
  title(view, state) {
    const { channels, each } = view.film.meta.attention;
    return `${state.mode === "change" ? "Change since t = 0: " : ""}sigmoid(a(t)), each channel` + some(channels, each.total);
  },
  key: (view, state) => `${view.film.frame(state.t).near}/${state.probe}/${state.mode}`,
  baseKey: (view, state) => state.mode,
  base(g, w, h, view, state, theme) {
    const changed = state.mode === "change";
    colourBar(g, w, h, changed ? theme.signed : theme.levels, ...scaleOf(view.film.meta.attention.each, changed), theme);
  },
  draw(g, w, h, view, state, theme) {
    const changed = state.mode === "change";
    multiples(g, w, h, view, state, theme, { array: view.block.arrays.attention_channels, changed,
      table: changed ? theme.signed : theme.levels, gain: gainOf(view.film.meta.attention.each), slot: "channelTiles" });
  },
  hover(x, y, view, state) {
    const cell = multiplesCell(x, y, view.channelTiles);
    if (!cell) return null;
    const { film } = view, { full, each } = film.meta.attention, { data, shape: [, P, C, H, W] } = view.block.arrays.attention_channels;
    const at = (f) => valueOf(each, data[(((f * P + state.probe) * C + cell.c) * H + cell.i) * W + cell.j]), now = at(film.frame(state.t).near);
    return [`channel ${cell.c + 1}, row ${cellName(cell.i, H, full[0])}, column ${cellName(cell.j, W, full[1])}`,
      `weight ${now.toFixed(4)}`, `since t = 0: ${signedNumber(now - at(0))}`, film.title(state.probe)];
  },
};

const FEATURES = {
  name: "features",
  shown: (meta) => meta.features !== null || meta.state !== null,
  title(view) {
    const { features } = view.film.meta;
    return features ? "Feature maps h(t), each channel" + some(features.channels, features.total) : "h(t), each coordinate over time";
  },
  key: (view, state) => `${view.film.meta.features ? view.film.frame(state.t).near : state.t.toFixed(4)}/${state.probe}`,
  baseKey: (view, state) => view.film.meta.features ? "" : String(state.probe),
  base(g, w, h, view, state, theme) {
    const { features, state: vector } = view.film.meta;
    if (features) return colourBar(g, w, h, theme.signed, features.low, features.high, theme);
    const { data, shape: [, P, d] } = view.block.arrays.state;
    const level = (f, i) => clamp(Math.round(255 + 255 * data[(f * P + state.probe) * d + i] / vector.high), 0, 510);
    return overTime(g, w, h, view, theme, level, theme.signed, vector.low, vector.high, d);
  },
  draw(g, w, h, view, state, theme, still) {
    if (view.film.meta.features) multiples(g, w, h, view, state, theme, { array: view.block.arrays.features, table: theme.features, changed: false, gain: 1, slot: "featureTiles" });
    else {
      view.states = still;
      drawNow(g, still.X(state.t), still, theme);
    }
  },
  hover(x, y, view, state) {
    const { film } = view, { features } = film.meta;
    if (!features) {
      const cell = overTimeCell(x, y, view.states), { data, shape: [, P, d] } = view.block.arrays.state;
      return cell && [`coordinate ${cell.i + 1}, t = ${film.meta.t[cell.f].toFixed(2)}`, `h = ${number(data[(cell.f * P + state.probe) * d + cell.i])}`, film.title(state.probe)];
    }
    const cell = multiplesCell(x, y, view.featureTiles);
    if (!cell) return null;
    const { data, shape: [, P, C, H, W] } = view.block.arrays.features;
    const level = data[(((film.frame(state.t).near * P + state.probe) * C + cell.c) * H + cell.i) * W + cell.j];
    const beyond = level === 0 ? "≤ " : level === 255 ? "≥ " : "≈ ";
    return [`channel ${cell.c + 1}, row ${cellName(cell.i, H, features.full[0])}, column ${cellName(cell.j, W, features.full[1])}`,
      `h ${beyond}${number(valueOf(features, level))}`, film.title(state.probe)];
  },
};

const PANELS = [PLANE, ATTENTION, CHANGE, CHANNELS, FEATURES];

// One run on the screen ---------------------------------------------------------------------------------------------

class View {
  constructor(film, player) {
    this.film = film;
    this.player = player;
    this.block = this.epoch = null;
    this.dot = make("span", { className: "dot" });
    this.name = make("strong", {});
    this.said = make("span", { className: "said" });
    this.message = make("p", { className: "message", hidden: true });
    this.missing = make("div", { className: "panel missing", hidden: true });
    this.notes = make("details", { className: "notes", hidden: true });
    this.panels = make("div", { className: "panels", hidden: true });
    this.node = make("section", { className: "run" }, make("header", {}, this.dot, this.name, this.said), this.message, this.panels, this.notes);
    this.drawn = PANELS.map((kind) => this.panel(kind));
    this.drawn[0].node.after(this.missing);
    this.describe();
  }

  panel(kind) {
    const canvas = make("canvas", {}), caption = make("figcaption", {}), frame = make("div", { className: "canvas" }, canvas);
    const node = make("figure", { className: `panel ${kind.name}` }, caption, frame);
    const panel = { kind, canvas, caption, node, frame, width: 0, height: 0, key: null, under: make("canvas", {}) };
    canvas.addEventListener("pointermove", (event) => this.player.point({ panel, view: this, x: event.offsetX, y: event.offsetY, event }));
    canvas.addEventListener("pointerleave", () => this.player.point(null));
    if (kind.click) canvas.addEventListener("click", (event) => {
      const probe = this.block ? kind.click(event.offsetX, event.offsetY, this) : null;
      if (probe !== null) this.player.go({ probe });
    });
    this.player.sizes.observe(frame);
    frame.panel = panel;
    this.panels.append(node);
    return panel;
  }

  describe() {
    const { label, id, colour } = this.film.spec;
    this.name.textContent = label ?? id;
    this.dot.style.background = colour || "var(--accent)";
  }

  // What there is to see, and why not.
  arrange() {
    const { meta, problem } = this.film, why = problem ?? (meta ? meta.why : "Reading the snapshots …");
    this.message.hidden = !why;
    this.message.textContent = why ?? "";
    this.panels.hidden = !meta || !meta.epochs.length;
    if (!meta) return;
    for (const panel of this.drawn) panel.node.hidden = !panel.kind.shown(meta);
    this.missing.hidden = meta.attention !== null || !meta.no_attention;
    this.missing.textContent = meta.no_attention ?? "";
    this.panels.dataset.show = meta.attention === null ? "states" : meta.attention.channels ? "all" : "vectors";
    this.notes.hidden = !meta.notes.length;
    this.notes.replaceChildren(make("summary", {}, meta.notes.length === 1 ? "1 note on the snapshots" : `${meta.notes.length} notes on the snapshots`),
      ...meta.notes.map((note) => make("p", {}, note)));
  }

  // Take the epoch that the player stands at; what was shown stays until the arrays are here.
  choose(state) {
    const { film } = this, wanted = film.meta ? film.epochFor(state.epoch) : null;
    if (wanted === null) return;
    const found = film.block(wanted), block = found && film.fits(found) ? found : null;
    if (block) [this.block, this.epoch] = [block, wanted];
    else if (this.block && !film.fits(this.block)) this.block = this.epoch = null;
    const shown = block ? wanted : this.epoch, when = shown === null ? "reading …" : shown === 0 ? "before training" : `after epoch ${shown}`;
    const away = shown !== null && shown !== state.epoch ? block ? ", its nearest snapshot" : ` (reading epoch ${wanted} …)` : "";
    const probe = Math.min(state.probe, film.meta.probes - 1), opinion = shown === null ? null : film.opinion(probe, shown);
    const words = `${when}${away}${opinion ? ` · ${film.title(probe)}: ${opinion}` : ""}`;
    if (this.said.textContent !== words) this.said.textContent = words;
  }

  draw(state, theme, ratio) {
    this.choose(state);
    if (!this.block || this.panels.hidden) return 0;
    const own = { ...state, probe: Math.min(state.probe, this.block.arrays.pca.shape[1] - 1) };
    const t = this.film.meta.t;
    own.t = clamp(state.t, t[0], t.at(-1));
    let count = 0;
    for (const panel of this.drawn) {
      const { kind, canvas, width, height } = panel;
      if (panel.node.hidden || width < 8 || height < 8) continue;
      const always = `${this.epoch}/${this.block.version}/${width}x${height}/${ratio}/${theme.key}/`, key = always + kind.key(this, own);
      if (key === panel.key) continue;
      panel.key = key;
      const clear = (target) => {
        const [w, h] = [Math.round(width * ratio), Math.round(height * ratio)], g = target.getContext("2d");
        if (target.width !== w || target.height !== h) Object.assign(target, { width: w, height: h });
        g.setTransform(1, 0, 0, 1, 0, 0);
        g.clearRect(0, 0, w, h);
        return g;
      };
      const scaled = (g) => { g.setTransform(ratio, 0, 0, ratio, 0, 0); return g; }, baseKey = always + kind.baseKey(this, own);
      if (panel.baseKey !== baseKey) {
        panel.baseKey = baseKey;
        panel.still = kind.base(scaled(clear(panel.under)), width, height, this, own, theme);
      }
      const g = clear(canvas);
      g.drawImage(panel.under, 0, 0);
      kind.draw(scaled(g), width, height, this, own, theme, panel.still);
      const title = kind.title(this, own);
      if (panel.caption.textContent !== title) Object.assign(panel.caption, { textContent: title, title: kind.hint?.(this) ?? title });
      count += 1;
    }
    return count;
  }

  lines(panel, x, y, state) {
    if (!this.block) return null;
    const own = { ...state, probe: Math.min(state.probe, this.block.arrays.pca.shape[1] - 1) };
    return panel.kind.hover(x, y, this, own);
  }

  end() {
    for (const { frame } of this.drawn) this.player.sizes.unobserve(frame);
    this.node.remove();
    this.film.end();
  }
}

// The player --------------------------------------------------------------------------------------------------------

class Player {
  constructor(element, data, send) {
    this.send = send;
    this.views = [];
    this.state = { t: 0, epoch: null, probe: 0, mode: "weight", near: false };
    this.playing = this.ended = false;
    this.loop = true;
    this.wanted = { epoch: null, probe: 0 };  // as asked for: the runs may still be on their way; epoch null is the newest
    this.settled = false;  // every run has answered once
    this.speed = 1;
    this.epochs = [];
    this.ends = [0, 1];
    this.painted = [];
    this.pointer = this.request = this.rested = this.written = this.given = null;
    this.sizes = new ResizeObserver((entries) => {
      for (const { target, contentRect } of entries) Object.assign(target.panel, { width: Math.floor(contentRect.width), height: Math.floor(contentRect.height) });
      this.wake();
    });
    this.build();
    element.append(this.node);
    this.theme = readTheme(this.node);
    this.read(data.frame);
    this.readAddress();
    this.update(data);
    this.poll = setInterval(() => { if (!document.hidden) for (const { film } of this.views) if (film.spec.live) film.read(); }, POLL_MS);
    this.watch = setInterval(() => this.lookAround(), WATCH_MS);
  }

  build() {
    const range = (label, on) => make("input", { type: "range", min: "0", max: "1", step: "0.001", value: "0", "aria-label": label, on: { input: on } });
    const select = (label, options, value, on) => {
      const node = make("select", { "aria-label": label, on: { change: on } }, ...options.map(([v, words]) => make("option", { value: v }, words)));
      node.value = value;
      return node;
    };
    const check = (words, on) => { const box = make("input", { type: "checkbox", on: { change: on } }); return [box, make("label", { className: "check" }, box, words)]; };
    this.button = make("button", { type: "button", className: "play", on: { click: () => this.play(!this.playing) } });
    this.timeSlider = range("time t", () => { this.play(false); this.go({ t: Number(this.timeSlider.value) }); });
    this.timeSaid = make("output", {});
    this.epochSlider = range("training epoch", () => this.go({ epoch: this.epochs[Number(this.epochSlider.value)] ?? null }));
    this.epochSlider.step = "1";
    this.epochSaid = make("output", {});
    const speed = select("speed", SPEEDS.map((v) => [String(v), `${v}×`]), "1", () => { this.speed = Number(speed.value); });
    const mode = select("what maps show", [["weight", "weight"], ["change", "change since a(0)"]], "weight", () => { this.state.mode = mode.value; this.wake(); });
    const near = select("range of the plane", [["all", "all epochs"], ["one", "this epoch"]], "all", () => { this.state.near = near.value === "one"; this.wake(); });
    const [loop, loopLabel] = check("loop", () => { this.loop = loop.checked; });
    loop.checked = true;
    [this.followBox, this.followLabel] = check("follow newest", () => { this.wanted.epoch = this.followBox.checked ? null : this.state.epoch; this.merge(); });
    this.modeLabel = make("label", { className: "choice" }, "maps show", mode);
    this.picker = make("div", { className: "probes", role: "group", "aria-label": "probe" });
    this.tip = make("div", { className: "tip", hidden: true });
    this.runs = make("div", { className: "runs" });
    this.node = make("div", { className: "ace-player", tabIndex: 0, role: "group", "aria-label": "Trajectory player. Left and right: one frame; up and down: one epoch; space: play or pause.",
      on: { keydown: (event) => this.key(event) } },
      make("div", { className: "bar" },
        make("div", { className: "line" }, this.button, make("label", { className: "slider" }, "t", this.timeSlider), this.timeSaid, speed, loopLabel),
        make("div", { className: "line" }, make("label", { className: "slider" }, "epoch", this.epochSlider), this.epochSaid, this.followLabel),
        make("div", { className: "line" }, this.modeLabel, make("label", { className: "choice" }, "plane fits", near), this.picker)),
      this.runs, this.tip);
    this.tell();
  }

  // Where it stands -------------------------------------------------------------------------------------------------

  read(frame) {
    if (!frame) return;
    if (Number.isFinite(frame.t)) this.state.t = frame.t;
    if (frame.epoch === null || Number.isInteger(frame.epoch)) this.wanted.epoch = frame.epoch;
    if (Number.isInteger(frame.probe) && frame.probe >= 0) this.state.probe = this.wanted.probe = frame.probe;
  }

  readAddress() {
    const query = new URLSearchParams(location.search), found = (name, pattern) => pattern.test(query.get(name) ?? "") ? Number(query.get(name)) : undefined;
    this.read({ t: found("t", /^-?\d+(\.\d+)?$/), epoch: found("epoch", /^\d{1,9}$/), probe: found("probe", /^\d{1,4}$/) });
  }

  // The place written down as text: what stays when the page is read again.
  writeAddress() {
    clearTimeout(this.rested);
    this.rested = null;
    if (this.ended || !this.epochs.length || !this.node.isConnected) return;
    const { t, epoch, probe } = this.state;
    this.written = { t: String(Number(t.toFixed(3))), epoch: epoch === null ? null : String(epoch), probe: String(probe) };
    this.putAddress();
    if (this.report) this.send?.("frame", { t, epoch, probe });
  }

  putAddress() {
    const url = new URL(location.href);
    for (const [name, value] of Object.entries(this.written)) if (value !== null) url.searchParams.set(name, value);
    if (url.href !== location.href) history.replaceState(history.state, "", url);
  }

  rest() {
    clearTimeout(this.rested);
    if (!this.playing) this.rested = setTimeout(() => this.writeAddress(), REST_MS);
  }

  // Twice a second: has the page changed its colours, has somebody taken our place out of the address?
  lookAround() {
    if (!this.node.isConnected) return;
    const theme = readTheme(this.node, this.theme);
    if (theme !== this.theme) {
      this.theme = theme;
      this.wake();
    }
    if (!this.written) return;
    const query = new URLSearchParams(location.search);
    if (Object.entries(this.written).some(([name, value]) => value !== null && !query.has(name))) this.putAddress();
  }

  go({ t, epoch, probe }) {
    const s = this.state, before = `${s.t}/${s.epoch}/${s.probe}`;
    if (Number.isFinite(t)) s.t = clamp(t, ...this.ends);
    if (Number.isInteger(epoch)) {
      s.epoch = this.epochs.findLast((e) => e <= epoch) ?? this.epochs[0] ?? epoch;
      if (this.wanted.epoch !== null || s.epoch !== this.epochs.at(-1)) this.wanted.epoch = s.epoch;
    }
    if (Number.isInteger(probe)) s.probe = this.wanted.probe = clamp(probe, 0, Math.max(this.probes() - 1, 0));
    if (before === `${s.t}/${s.epoch}/${s.probe}`) return;
    for (const { film } of this.views) film.failed.clear();  // what could not be read may be there by now
    this.wake();
    this.rest();
  }

  probes() { return Math.max(0, ...this.views.map(({ film }) => film.meta?.probes ?? 0)); }

  step(frames) {
    this.play(false);
    const t = this.views.map(({ film }) => film.meta?.t ?? []).reduce((a, b) => b.length > a.length ? b : a, []);
    if (!t.length) return;
    const away = t.map((v) => Math.abs(v - this.state.t)), i = away.indexOf(Math.min(...away));
    this.go({ t: t[clamp(i + frames, 0, t.length - 1)] });
  }

  stepEpoch(by) {
    const i = this.epochs.indexOf(this.state.epoch);
    if (this.epochs.length) this.go({ epoch: this.epochs[clamp(i + by, 0, this.epochs.length - 1)] });
  }

  key(event) {
    const { target } = event, kind = target.tagName === "INPUT" ? target.type : target.tagName;
    if (event.altKey || event.ctrlKey || event.metaKey || kind === "SELECT" || kind === "TEXTAREA" || target.isContentEditable) return;
    const button = kind === "BUTTON" || kind === "checkbox" || kind === "SUMMARY", time = target === this.timeSlider;
    if (!button && !time && kind !== "DIV") return;
    const act = { ArrowLeft: () => this.step(-1), ArrowRight: () => this.step(1), ArrowUp: () => this.stepEpoch(1), ArrowDown: () => this.stepEpoch(-1),
      " ": () => this.play(!this.playing) }[event.key];
    if (!act || (event.key === " " && button)) return;
    event.preventDefault();
    event.stopPropagation();
    act();
  }

  play(on) {
    if (on === this.playing || (on && !this.epochs.length)) return;
    this.playing = on;
    this.last = null;
    if (on && this.state.t >= this.ends[1]) this.state.t = this.ends[0];
    if (on) {
      clearTimeout(this.rested);
      this.painted = [];
    } else this.writeAddress();
    this.tell();
    this.wake();
  }

  // The runs ----------------------------------------------------------------------------------------------------------

  update(data) {
    this.report = data.report === true;
    const base = data.base ?? "";
    const address = (id) => (path) => new URL(`${base}film/${encodeURIComponent(id)}${path}`, document.baseURI);
    const runs = data.runs ?? [], kept = new Map(this.views.map((view) => [view.film.spec.id, view]));
    this.views = runs.map((spec) => {
      const old = kept.get(spec.id);
      kept.delete(spec.id);
      if (old) {
        const again = old.film.spec.live !== spec.live || old.film.problem !== null;  // a run that ends has one more snapshot
        Object.assign(old.film, { spec, address: address(spec.id) });
        old.describe();
        if (again) { old.film.failed.clear(); old.film.read(); }
        return old;
      }
      const view = new View(new Film(spec, address(spec.id), () => this.merge()), this);
      view.arrange();
      view.film.read();
      return view;
    });
    for (const view of kept.values()) view.end();
    const nodes = this.views.map((view) => view.node);
    if (nodes.length !== this.runs.children.length || nodes.some((node, i) => node !== this.runs.children[i])) this.runs.replaceChildren(...nodes);
    this.runs.dataset.count = String(nodes.length);
    const given = JSON.stringify(data.frame ?? null);
    if (this.given !== null && given !== this.given && data.frame) this.seek(data.frame);
    this.given = given;
    this.merge();
  }

  // Something has been read: what do all runs together have?
  merge() {
    if (this.ended) return;
    const metas = this.views.map(({ film }) => film.meta).filter((meta) => meta?.epochs.length), s = this.state;
    this.epochs = [...new Set(metas.flatMap((meta) => meta.epochs))].sort((a, b) => a - b);
    const live = this.views.some(({ film }) => film.spec.live), newest = this.epochs.at(-1);
    const answered = this.views.every(({ film }) => film.meta || film.problem);
    this.followLabel.hidden = !live;
    if (metas.length) {
      this.ends = [Math.min(...metas.map((m) => m.t[0])), Math.max(...metas.map((m) => m.t.at(-1)))];
      if (!this.settled && answered && live && this.wanted.epoch >= newest) this.wanted.epoch = null;  // it was following when it was left
      s.epoch = this.wanted.epoch === null ? newest : this.epochs.findLast((e) => e <= this.wanted.epoch) ?? this.epochs[0];
      s.t = clamp(s.t, ...this.ends);
      s.probe = clamp(this.wanted.probe, 0, this.probes() - 1);
      Object.assign(this.timeSlider, { min: String(this.ends[0]), max: String(this.ends[1]), step: String((this.ends[1] - this.ends[0]) / 1000 || 0.001) });
      this.epochSlider.max = String(this.epochs.length - 1);
      this.epochSlider.disabled = this.epochs.length < 2;
    }
    this.button.disabled = this.timeSlider.disabled = !metas.length;
    this.modeLabel.hidden = !metas.some((meta) => meta.attention);
    for (const view of this.views) view.arrange();
    this.pick();
    this.wake();
    this.settled ||= answered;
    if (answered) this.rest();
  }

  // The probes to pick from: those of the run that has most.
  pick() {
    const best = this.views.map(({ film }) => film).filter((film) => film.meta?.epochs.length).reduce((a, b) => a && a.meta.probes >= b.meta.probes ? a : b, null);
    const key = best && `${best.spec.id}/${best.meta.probes}/${best.meta.image?.pixels.length}/${best.meta.labels}/${best.meta.classes}`;
    if (!best || key === this.picked) return;
    this.picked = key;
    this.picker.replaceChildren(...span(best.meta.probes).map((probe) => {
      const button = make("button", { type: "button", title: best.title(probe), on: { click: () => this.go({ probe }) } });
      button.style.setProperty("--class", best.colour(probe));
      if (best.pixels) {
        const [, height, width] = best.meta.image.shape, canvas = make("canvas", { width, height });
        canvas.getContext("2d").drawImage(paintInput(best, probe), 0, 0);
        button.append(canvas);
      }
      button.append(make("span", {}, best.meta.labels ? best.className(best.meta.labels[probe]) : `probe ${probe + 1}`));
      return button;
    }));
  }

  // Drawing -----------------------------------------------------------------------------------------------------------

  wake() {
    if (this.request === null && !this.ended) this.request = requestAnimationFrame((now) => this.tick(now));
  }

  tick(now) {
    this.request = null;
    const s = this.state, [start, end] = this.ends;
    if (this.playing) {
      const passed = this.last === null ? 0 : Math.min((now - this.last) / 1000, 0.25);
      this.last = now;
      s.t += passed * this.speed * (end - start) / PASS_SECONDS;
      if (s.t >= end) {
        if (this.loop && end > start) s.t = start + (s.t - start) % (end - start);
        else {
          s.t = end;
          this.play(false);
        }
      }
    }
    const begun = performance.now(), ratio = window.devicePixelRatio || 1;
    let count = 0;
    for (const view of this.views) count += view.draw(s, this.theme, ratio);
    this.tell();
    this.showTip();
    if (count) {
      this.painted.push({ now, took: performance.now() - begun });
      if (this.painted.length > 120) this.painted.shift();
    }
    if (this.playing) this.wake();
  }

  tell() {
    const { t, epoch, probe } = this.state, say = (node, words) => { if (node.textContent !== words) node.textContent = words; };
    say(this.button, this.playing ? "❚❚ Pause" : "▶ Play");
    say(this.timeSaid, t.toFixed(2));
    say(this.epochSaid, epoch === null ? "–" : `${epoch}${this.epochs.length ? ` of ${this.epochs.at(-1)}` : ""}`);
    this.timeSlider.value = String(t);
    this.epochSlider.value = String(Math.max(this.epochs.indexOf(epoch), 0));
    this.followBox.checked = this.wanted.epoch === null;
    for (const [i, button] of [...this.picker.children].entries()) {
      const pressed = String(i === probe);
      if (button.getAttribute("aria-pressed") !== pressed) button.setAttribute("aria-pressed", pressed);
    }
  }

  point(where) {
    this.pointer = where;
    this.showTip();
  }

  showTip() {
    const { pointer, tip } = this, lines = pointer && this.views.includes(pointer.view) ? pointer.view.lines(pointer.panel, pointer.x, pointer.y, this.state) : null;
    tip.hidden = !lines;
    if (!lines) return;
    const words = lines.join("\n");
    if (tip.textContent !== words) tip.textContent = words;
    const own = this.node.getBoundingClientRect(), x = pointer.event.clientX - own.left, y = pointer.event.clientY - own.top;
    const left = x + 16 + tip.offsetWidth > own.width ? x - 16 - tip.offsetWidth : x + 16;
    tip.style.transform = `translate(${Math.max(left, 0)}px, ${Math.max(y - tip.offsetHeight - 10, 0)}px)`;
  }

  seek(frame) {
    if (frame.epoch === null) this.wanted.epoch = null;
    this.go({ ...frame, epoch: frame.epoch === null ? this.epochs.at(-1) : frame.epoch });
  }

  fps() {
    const own = this.painted;
    return own.length < 2 || performance.now() - own.at(-1).now > 1000 ? 0 : (own.length - 1) * 1000 / (own.at(-1).now - own[0].now);
  }

  // Milliseconds that the drawing of a frame took: the mean and the longest of the last ones.
  cost() {
    const took = this.painted.map((p) => p.took);
    return { mean: took.reduce((a, b) => a + b, 0) / (took.length || 1), most: Math.max(0, ...took) };
  }

  destroy() {
    this.ended = true;
    this.playing = false;
    clearInterval(this.poll);
    clearInterval(this.watch);
    clearTimeout(this.rested);
    cancelAnimationFrame(this.request);
    for (const view of this.views) view.end();
    this.sizes.disconnect();
    this.node.remove();
  }
}

export function mount(element, data, send) {
  const player = new Player(element, data, send);
  element.__player = {
    fps: () => player.fps(),
    cost: () => player.cost(),
    frame: () => ({ t: player.state.t, epoch: player.state.epoch, probe: player.state.probe }),
    seek: (frame) => player.seek(frame),
    play: (on = true) => player.play(on),
  };
  return {
    update: (next) => player.update(next),
    destroy: () => { player.destroy(); delete element.__player; },
  };
}
