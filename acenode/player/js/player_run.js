// The snapshots of one run, as acenode/player/data.py sends them: a description, and the arrays of the epochs shown.
import { classColour } from "./colours.js";
import { number, percent } from "./player_draw.js";
import { at, clamp } from "./theme.js";

const KEPT_BYTES = 96e6;  // upper limit for a run's epochs in memory
const NONE = [];

function decode(buffer) {
  const size = new DataView(buffer).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, size))), arrays = {};
  for (const [name, { dtype, shape, offset }] of Object.entries(header.arrays)) {
    const type = dtype === "float32" ? Float32Array : Uint8Array;
    arrays[name] = { shape, data: new type(buffer, 4 + size + offset, shape.reduce((a, b) => a * b, 1)) };
  }
  return { version: header.version, bytes: buffer.byteLength, arrays };
}

export class RunData {
  // changed(this) is called whenever something has been read.
  constructor(spec, source, changed) {
    this.spec = spec;
    this.source = source;
    this.changed = changed;
    this.meta = null;
    this.pixels = null;
    this.problem = null;  // why the snapshots cannot be read
    this.blocks = new Map();  // epoch → arrays, least recently used first
    this.pending = new Set();
    this.failed = new Set();
    this.ended = new AbortController();
  }

  async read() {
    if (this.reading) return;
    this.reading = true;
    try {
      const meta = await this.source.description(this.ended.signal, this.meta?.version);
      if (!meta && this.problem === null) return;
      this.problem = null;
      if (meta && this.meta?.version !== meta.version) {
        this.meta = meta;
        this.failed.clear();
        this.pixels = meta.image ? bytes(meta.image.pixels) : null;
      }
    } catch (error) {
      if (this.ended.signal.aborted) return;
      this.problem = `Snapshots could not be loaded: ${error.message}.`;
    } finally {
      this.reading = false;
    }
    if (!this.ended.signal.aborted) this.changed(this);
  }

  // The run's latest epoch that is not after `epoch`, or its first one.
  epochFor(epoch) {
    const own = this.meta?.epochs ?? [];
    if (!own.length) return null;
    return epoch === null ? own.at(-1) : own.findLast((e) => e <= epoch) ?? own[0];
  }

  // The arrays of an epoch if they have been read, even of an older version. Missing or outdated arrays are requested;
  // with `prefetch`, also those of the epochs before and after.
  block(epoch, prefetch = true) {
    const found = this.blocks.get(epoch);
    if (!found || found.version !== this.meta.version) this.ask(epoch);
    if (prefetch && found) {
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
      const block = decode(await this.source.block(epoch, version, this.ended.signal));
      this.blocks.delete(epoch);
      this.blocks.set(epoch, block);
      const most = Math.max(3, Math.floor(KEPT_BYTES / block.bytes));
      for (const old of this.blocks.keys()) if (this.blocks.size > most) this.blocks.delete(old);
      if (block.version !== this.meta.version) {  // a snapshot was written between the two requests
        block.version = this.meta.version;
        this.read();
      }
    } catch (error) {
      if (this.ended.signal.aborted) return;
      this.failed.add(key);
      this.problem = `Epoch ${epoch} could not be loaded: ${error.message}.`;
    } finally {
      this.pending.delete(key);
    }
    this.changed(this);
  }

  // True if the arrays have the shapes of the description; false while a run whose shapes changed is read again.
  fits(block) {
    const { t, probes } = this.meta, like = (name, shape) => String(block.arrays[name]?.shape) === String([t.length, probes, ...shape]);
    return like("pca", [2]) && DRAWN.every((name) => !this.meta[name] || like(name, this.meta[name].shape ?? [3]));
  }

  // The names of the state's coordinates, if they are variables.
  variables() { return this.meta.influence?.names ?? (this.meta.named ? this.meta.attention?.names : null) ?? null; }
  className(label) { return this.meta.classes?.[label] ?? String(label); }
  name(probe) { return this.meta.names?.[probe] ?? `sample ${probe + 1}`; }
  // A sample is called by its name if it has one, such as a patient's id, or else by its class.
  title(probe) { return this.meta.labels && !this.meta.names ? `class ${this.className(this.meta.labels[probe])}` : this.name(probe); }
  whole(probe) { return this.meta.labels ? `${this.name(probe)}, class ${this.className(this.meta.labels[probe])}` : this.name(probe); }
  short(probe) {
    const { labels, names, subject } = this.meta, kind = labels ? this.className(labels[probe]) : "", start = `${subject} `;
    const name = names?.[probe].startsWith(start) ? names[probe].slice(start.length) : names?.[probe];
    return name && kind ? `${name}, ${kind}` : kind || (name ?? this.name(probe));
  }

  // Time in the data's unit, if it has one: hours of a stay, days at a station.
  real(t) { return t * (this.meta.time?.scale ?? 1); }
  timeLabel() { return this.meta.time ? `Time (${this.meta.time.unit})` : "Time (t)"; }
  timeText(t) { return this.meta.time ? `${number(this.real(t))} ${this.meta.time.unit}` : `time t = ${t.toFixed(2)}`; }
  jumps(probe) { return this.meta.jumps?.[probe] ?? NONE; }  // times at which the probe's state jumped
  colour(probe) { return classColour(this.meta.labels ? this.meta.labels[probe] : probe); }

  prediction(probe, epoch) {
    const found = this.meta.predictions?.[this.meta.epochs.indexOf(epoch)]?.[probe];
    return found ? `predicted ${this.className(found[0])} (${percent(found[1])})` : null;
  }

  // The frames before and after t, the fraction of the way between them, and the nearest one.
  frame(t) {
    const own = this.meta.t, n = own.length;
    let high = own.findIndex((v) => v >= t);
    if (high < 0) high = n - 1;
    const low = Math.max(high - 1, 0), part = high === low ? 0 : clamp((t - own[low]) / (own[high] - own[low] || 1), 0, 1);
    return { low, high, part, nearest: part < 0.5 ? low : high };
  }

  end() { this.ended.abort(); }
}

// Where the snapshots of a run come from: routes of the app's server, or data inside the page.
//
//   description(signal, known) → what there is to play; null if it is still of the version `known`
//   block(epoch, version, signal) → the bytes of one epoch

export function servedBy(base, id) {
  const get = async (path, kind, signal) => {
    const answer = await fetch(at(`${base}film/${encodeURIComponent(id)}${path}`), { signal });
    if (!answer.ok) throw new Error(answer.status === 404 ? "not found" : `the server returned status ${answer.status}`);
    return answer.status === 204 ? null : answer[kind]();
  };
  return {
    description: (signal, known) => get(known ? `?known=${encodeURIComponent(known)}` : "", "json", signal),
    block: (epoch, version, signal) => get(`/${epoch}?v=${encodeURIComponent(version)}`, "arrayBuffer", signal),
  };
}

export const bytes = (base64) => Uint8Array.from(atob(base64), (ch) => ch.charCodeAt(0));
export const floats = (base64) => new Float32Array(bytes(base64).buffer);

// { description, blocks: { epoch: base64 } }
export function embeddedIn({ description, blocks }) {
  return {
    description: async () => description,
    block: async (epoch) => bytes(blocks[epoch]).buffer,
  };
}

// The range of values that colours cover: of each run alone, or one for all runs, so that equal colours are equal values.

const DRAWN = ["attention", "attention_channels", "influence", "features", "state", "measure"];

// Softmax and sigmoid weights do not share a scale, nor do their measures.
const keyOf = (name, about) => `${name}/${about.kind ?? about.name}`;

export class Scales {
  constructor() { Object.assign(this, { same: true, common: new Map() }); }

  // Find the common scales of the runs with these descriptions.
  take(metas) {
    this.common.clear();
    for (const meta of metas) for (const name of DRAWN.filter((one) => meta[one])) {
      const own = meta[name], key = keyOf(name, own), before = this.common.get(key) ?? own;
      this.common.set(key, { low: Math.min(own.low, before.low), high: Math.max(own.high, before.high),
        largest_change: Math.max(own.largest_change ?? 0, before.largest_change ?? 0) });
    }
  }

  // Changes whenever pictures must be drawn again.
  get key() { return this.same ? JSON.stringify([...this.common.values()]) : "own"; }

  of(name, meta) { return (this.same && this.common.get(keyOf(name, meta[name]))) || meta[name]; }
}
