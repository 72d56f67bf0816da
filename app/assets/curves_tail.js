// The points that curves have gained since their chart was drawn: one short path each, over the chart. It costs a small
// part of drawing the chart anew, and is used on a page that nobody touches, for a few seconds at a time.
const LONGEST = 5000;  // milliseconds until the chart itself is drawn again

const DASHES = { dash: "9 9", dot: "3 3" };  // as Plotly draws them

export class Tail {
  constructor() {
    this.node = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    this.node.classList.add("tail");
    this.node.setAttribute("aria-hidden", "true");
    this.forget();
  }

  get empty() { return !this.node.childElementCount; }

  // The chart must be drawn before a tail can be.
  forget() {
    this.node.replaceChildren();
    Object.assign(this, { ends: null, since: 0 });
  }

  // The chart shows these traces.
  start(traces) {
    this.forget();
    const visible = traces.filter((trace) => trace.visible);
    if (!visible.every(({ mode, fill, x }) => mode === "lines" && !fill && x.length)) return;
    this.ends = new Map(visible.map(({ uid, x, y }) => [uid, [x.at(-1), y.at(-1)]]));
    this.since = performance.now();
  }

  // Draws what the traces have beyond the chart; returns false if they do not fit into it, or the chart is too old.
  extend({ _fullLayout: layout }, traces) {
    const visible = traces.filter((trace) => trace.visible);
    if (!this.ends || performance.now() - this.since > LONGEST || visible.length !== this.ends.size) return false;
    const scales = [scaleOf(layout.xaxis, layout._size.w, false), scaleOf(layout.yaxis, layout._size.h, true)], paths = [];
    for (const trace of visible) {
      const end = this.ends.get(trace.uid), d = end && pathOf(trace, end, ...scales);
      if (typeof d !== "string") return false;
      if (d) paths.push(pathElement(trace, d));
    }
    const { l, t, w, h } = layout._size;
    this.node.style.cssText = `left: ${l}px; top: ${t}px; width: ${w}px; height: ${h}px`;
    this.node.replaceChildren(...paths);
    return true;
  }
}

// Maps a value to pixels along an axis; NaN outside its range.
function scaleOf({ type, range }, length, downwards) {
  const [from, to] = range.map(Number);
  return (value) => {
    const share = ((type === "log" ? Math.log10(value) : value) - from) / (to - from);
    return share >= 0 && share <= 1 ? length * (downwards ? 1 - share : share) : NaN;
  };
}

// The path from the last point of the chart through the newer ones: "" if there is none, null if one lies outside.
function pathOf({ x, y, line }, [lastX, lastY], across, down) {
  let first = x.length, d = "", drawing = false;
  while (first > 0 && x[first - 1] > lastX) first--;
  if (first === x.length) return "";
  const put = (u, v) => {
    if (Number.isNaN(v)) return (drawing = false, true);  // a gap
    const [px, py] = [across(u), down(v)];
    if (Number.isNaN(px) || Number.isNaN(py)) return false;
    const at = `${px.toFixed(1)} ${py.toFixed(1)}`;
    d += drawing ? (line.shape === "hv" ? `H${px.toFixed(1)}V${py.toFixed(1)}` : `L${at}`) : `M${at}`;
    return drawing = true;
  };
  if (!put(lastX, lastY)) return null;
  for (let i = first; i < x.length; i++) if (!put(x[i], y[i])) return null;
  return d;
}

function pathElement({ line, opacity = 1 }, d) {
  const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
  path.setAttribute("d", d);
  Object.assign(path.style, { stroke: line.color, strokeWidth: line.width, opacity, fill: "none",
    strokeDasharray: DASHES[line.dash] ?? "none" });
  return path;
}
