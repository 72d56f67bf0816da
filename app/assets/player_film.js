// The film of one run, from app/film.py: its description, and the arrays of the epochs that are looked at.
import { classColour } from "./colours.js";
import { clamp } from "./theme.js";

const KEPT_BYTES = 96e6;  // of a run's epochs
const NONE = [];

// Whether there is a curve of how far a(t) has gone from a(0).
export const hasChange = (meta) => meta.attention !== null || meta.change_max > 0;

function decode(buffer) {
  const size = new DataView(buffer).getUint32(0, true);
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, size))), arrays = {};
  for (const [name, { dtype, shape, offset }] of Object.entries(header.arrays)) {
    const type = dtype === "float32" ? Float32Array : Uint8Array;
    arrays[name] = { shape, data: new type(buffer, 4 + size + offset, shape.reduce((a, b) => a * b, 1)) };
  }
  return { version: header.version, bytes: buffer.byteLength, arrays };
}

export class Film {
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
    const { t, probes, attention, features, state } = this.meta;
    const same = (name, ...shape) => block.arrays[name]?.shape.every((n, i) => n === [t.length, probes, ...shape][i]);
    return same("pca", 2) && (!attention || same("attention", ...attention.shape))
      && (!attention?.channels || same("attention_channels", attention.channels, ...attention.shape))
      && (!features || same("features", features.channels, ...features.shape))
      && (!state || same("state", state.size)) && (!hasChange(this.meta) || same("change"));
  }

  className(label) { return this.meta.classes?.[label] ?? String(label); }
  name(probe) { return this.meta.names?.[probe] ?? `probe ${probe + 1}`; }
  title(probe) { return this.meta.labels ? `class ${this.className(this.meta.labels[probe])}` : this.name(probe); }
  whole(probe) { return this.meta.labels ? `${this.title(probe)}, ${this.name(probe)}` : this.name(probe); }
  jumps(probe) { return this.meta.jumps?.[probe] ?? NONE; }  // when its state jumped
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
