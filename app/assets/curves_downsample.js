// Downsampling: each bucket of 2^k rows, counted from row 0, keeps its extremes. Points already drawn do not move.
import { below } from "./curves_table.js";

const IN_VIEW = 900, OUTSIDE = 200;  // rows above which points in view, or on each side of it, are reduced

// Calls each(from, to) for buckets of the visible rows, and for coarser buckets on both sides of them.
function buckets(x, window, each) {
  const n = x.length, from = window ? Math.max(0, below(x, window[0], n) - 1) : 0;
  const to = window ? Math.min(n, below(x, window[1], n) + 1) : n;
  for (const [a, b, most] of [[0, from, OUTSIDE], [from, to, IN_VIEW], [to, n, OUTSIDE]]) {
    const size = b - a <= most ? 1 : 2 ** Math.ceil(Math.log2(2 * (b - a) / most));
    for (let start = a - a % size; start < b; start += size) each(Math.max(a, start), Math.min(b, start + size));
  }
}

// Keeps the smallest and largest value of each bucket.
export function downsampleLine(x, y, window) {
  const out = { x: [], y: [] }, n = x.length;
  const put = (i) => { out.x.push(x[i]); out.y.push(y[i]); };
  buckets(x, window, (from, to) => {
    let lo = -1, hi = -1;
    for (let i = from; i < to; i++) {
      if (Number.isNaN(y[i])) continue;
      if (lo < 0 || y[i] < y[lo]) lo = i;
      if (hi < 0 || y[i] > y[hi]) hi = i;
    }
    if (lo < 0) put(from);
    else if (lo === hi) put(lo);
    else { put(Math.min(lo, hi)); put(Math.max(lo, hi)); }
  });
  if (n && out.x.at(-1) !== x[n - 1]) put(n - 1);
  return out;
}

// Returns the area between two curves as closed outlines, one for each stretch without a gap.
export function downsampleBand(x, low, high, window) {
  const out = { x: [], y: [] };
  let edge = [];
  const close = () => {
    if (edge.length > 1) {
      out.x.push(...edge.map((p) => p[0]), ...edge.map((p) => p[0]).reverse(), NaN);
      out.y.push(...edge.map((p) => p[2]), ...edge.map((p) => p[1]).reverse(), NaN);
    }
    edge = [];
  };
  buckets(x, window, (from, to) => {
    let min = Infinity, max = -Infinity;
    for (let i = from; i < to; i++) if (low[i] <= high[i]) { min = Math.min(min, low[i]); max = Math.max(max, high[i]); }
    if (min > max) close(); else edge.push([x[from], min, max]);
  });
  close();
  return out;
}
