// Drawing that the pictures of the tour share.

// h at a time between frames: at(frames, t)(p, i) interpolates coordinate i of point p.
export function at(frames, t) {
  const place = Math.min(Math.max(t, 0), 1) * (frames.length - 1), low = Math.min(Math.floor(place), frames.length - 2), part = place - low;
  return (p, i) => frames[low][p][i] + (frames[low + 1][p][i] - frames[low][p][i]) * part;
}

// The path of a point from t = 0 to t, as [[t, h], …].
export function path(frames, t, p) {
  const last = Math.floor(t * (frames.length - 1) + 1e-9), now = at(frames, t);
  const found = frames.slice(0, last + 1).map((frame, f) => [f / (frames.length - 1), frame[p]]);
  return [...found, [t, frames[0][p].map((_, i) => now(p, i))]];
}

export function line(g, points, colour, width = 2, alpha = 1, dash = []) {
  g.strokeStyle = colour;
  g.lineWidth = width;
  g.globalAlpha = alpha;
  g.lineJoin = g.lineCap = "round";
  g.setLineDash(dash);
  g.beginPath();
  for (const [x, y] of points) g.lineTo(x, y);
  g.stroke();
  g.setLineDash([]);
  g.globalAlpha = 1;
}

export function dot(g, x, y, radius, fill, stroke, width = 1.5) {
  g.beginPath();
  g.arc(x, y, radius, 0, 7);
  if (fill) { g.fillStyle = fill; g.fill(); }
  g.strokeStyle = stroke;
  g.lineWidth = width;
  g.stroke();
}

// An arrow from (x, y) by (dx, dy).
export function arrow(g, x, y, dx, dy, colour) {
  const length = Math.hypot(dx, dy);
  if (length < 1) return;
  const [ux, uy] = [dx / length, dy / length], head = Math.min(5, length);
  line(g, [[x, y], [x + dx, y + dy]], colour, 1.2, 0.55);
  line(g, [[x + dx - head * (ux + 0.6 * uy), y + dy - head * (uy - 0.6 * ux)], [x + dx, y + dy],
    [x + dx - head * (ux - 0.6 * uy), y + dy - head * (uy + 0.6 * ux)]], colour, 1.2, 0.55);
}
