// The animation on the home page: h(t) of ten digits on the left, their attention σ(a(t)) on the right.
import { classColour, viridis } from "./colours.js";
import { at, theme } from "./theme.js";

const DURATION = 5000, PAUSE = 900;  // milliseconds for t from 0 to 1, and at its end
const FRAME_INTERVAL = 40;  // milliseconds; a low rate leaves the processor to training

export function mount(element, data) {
  element.className = "hero";
  const canvas = document.createElement("canvas");
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", "Animation of ten digits: the states h(t) move in the plane while the attention a(t) changes");
  element.append(canvas);
  let recording = null, frame = 0, destroyed = false, start = performance.now(), lastFrame = 0;
  const still = matchMedia("(prefers-reduced-motion: reduce)").matches;

  function draw(now) {
    if (destroyed) return;
    frame = requestAnimationFrame(draw);
    const width = element.clientWidth;
    if (!recording || !width || document.hidden || now - lastFrame < FRAME_INTERVAL) return;
    lastFrame = now;
    const ratio = devicePixelRatio || 1, height = width < 620 ? 420 : 300;
    if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
      canvas.style.height = `${height}px`;
    }
    const elapsed = Math.max(0, now - start);  // a frame's time can be earlier than the start
    const t = still ? 1 : Math.min(1, (elapsed % (DURATION + PAUSE)) / DURATION);
    const c = canvas.getContext("2d"), colours = theme(element);
    c.setTransform(ratio, 0, 0, ratio, 0, 0);
    c.clearRect(0, 0, width, height);
    const narrow = width < 620, gap = narrow ? 0 : Math.min(200, width * 0.2);
    const left = narrow ? { x: 8, y: 26, w: width - 16, h: 170 } : { x: 8, y: 34, w: (width - gap) / 2 - 16, h: height - 74 };
    const right = narrow ? { x: 8, y: 250, w: width - 16, h: 130 } : { x: (width + gap) / 2 + 8, y: 34, w: (width - gap) / 2 - 16, h: height - 74 };
    drawStates(c, left, t, colours);
    drawAttention(c, right, t, colours);
    if (!narrow) drawArrows(c, left, right, t, now, colours);
    drawText(c, left, right, t, colours, height);
  }

  // The frames before and after time `t`, and how far it lies between them.
  const framesAt = (rows, t) => {
    const place = t * (rows.length - 1), low = Math.min(Math.floor(place), rows.length - 2), part = place - low;
    return [rows[low], rows[low + 1], part];
  };

  // The trajectories h(t), with a dot and the digit at time `t`.
  function drawStates(c, box, t, colours) {
    const X = (v) => box.x + box.w * (0.5 + 0.46 * v), Y = (v) => box.y + box.h * (0.5 - 0.46 * v);
    c.strokeStyle = colours.border;
    c.strokeRect(box.x + 0.5, box.y + 0.5, box.w, box.h);
    const [a, b, part] = framesAt(recording.plane, t), last = Math.floor(t * (recording.plane.length - 1));
    recording.labels.forEach((label, p) => {
      c.strokeStyle = classColour(label);
      c.globalAlpha = 0.25;
      c.lineWidth = 1;
      c.beginPath();
      recording.plane.forEach((row, i) => i ? c.lineTo(X(row[p][0]), Y(row[p][1])) : c.moveTo(X(row[p][0]), Y(row[p][1])));
      c.stroke();
      const head = [0, 1].map((k) => a[p][k] + (b[p][k] - a[p][k]) * part);
      c.globalAlpha = 1;
      c.lineWidth = 2.5;
      c.beginPath();
      recording.plane.slice(0, last + 1).forEach((row, i) => i ? c.lineTo(X(row[p][0]), Y(row[p][1])) : c.moveTo(X(row[p][0]), Y(row[p][1])));
      c.lineTo(X(head[0]), Y(head[1]));
      c.stroke();
      c.beginPath();
      c.arc(X(head[0]), Y(head[1]), 9, 0, 7);
      c.fillStyle = classColour(label);
      c.fill();
      c.fillStyle = "#fff";
      c.font = "600 11px system-ui, sans-serif";
      c.textAlign = "center";
      c.textBaseline = "middle";
      c.fillText(String(label), X(head[0]), Y(head[1]) + 0.5);
    });
  }

  // The attention maps at time `t`, with the digit drawn over each.
  function drawAttention(c, box, t, colours) {
    const columns = 5, rows = Math.ceil(recording.labels.length / columns);
    const side = Math.min(box.w / columns - 10, box.h / rows - 10);
    const x0 = box.x + (box.w - columns * (side + 10) + 10) / 2, y0 = box.y + (box.h - rows * (side + 10) + 10) / 2;
    const [a, b, part] = framesAt(recording.maps, t);
    recording.labels.forEach((label, p) => {
      const x = x0 + (p % columns) * (side + 10), y = y0 + Math.floor(p / columns) * (side + 10);
      const size = a[p].length, cell = side / size, pixels = recording.image[p], dot = side / pixels.length;
      for (let i = 0; i < size; i++) for (let j = 0; j < size; j++) {
        const v = (a[p][i][j] + (b[p][i][j] - a[p][i][j]) * part - recording.low) / (recording.high - recording.low);
        c.fillStyle = `rgb(${viridis(v)})`;
        c.fillRect(x + j * cell, y + i * cell, cell + 0.5, cell + 0.5);
      }
      c.fillStyle = "#fff";
      pixels.forEach((row, i) => row.forEach((v, j) => {
        if (v < 40) return;
        c.globalAlpha = 0.75 * v / 255;
        c.fillRect(x + j * dot + dot * 0.2, y + i * dot + dot * 0.2, dot * 0.6, dot * 0.6);
      }));
      c.globalAlpha = 1;
      c.strokeStyle = classColour(label);
      c.lineWidth = 2;
      c.strokeRect(x, y, side, side);
    });
    c.strokeStyle = colours.border;
  }

  // Arrows that show how each ODE depends on the other.
  function drawArrows(c, left, right, t, now, colours) {
    const x0 = left.x + left.w + 10, x1 = right.x - 10, middle = left.y + left.h / 2;
    for (const [from, to, lift, text] of [[x0, x1, -46, "h(t) drives a(t)"], [x1, x0, 46, "a(t) weights h(t)"]]) {
      const point = (s) => [from + (to - from) * s, middle + lift * (1 + 0.7 * Math.sin(Math.PI * s)) * 0.75];
      c.strokeStyle = colours.primary;
      c.lineWidth = 2;
      c.beginPath();
      for (let s = 0; s <= 1.001; s += 0.05) s ? c.lineTo(...point(s)) : c.moveTo(...point(s));
      c.stroke();
      const [ax, ay] = point(1), turn = Math.sign(to - from);
      c.fillStyle = colours.primary;
      c.beginPath();
      c.moveTo(ax + 5 * turn, ay);
      c.lineTo(ax - 6 * turn, ay - 5);
      c.lineTo(ax - 6 * turn, ay + 5);
      c.fill();
      if (t < 1) for (let k = 0; k < 3; k++) {
        const [x, y] = point(((now / 1400) + k / 3) % 1);
        c.beginPath();
        c.arc(x, y, 3.5, 0, 7);
        c.fill();
      }
      c.fillStyle = colours.text;
      c.font = "12px system-ui, sans-serif";
      c.textAlign = "center";
      c.fillText(text, (x0 + x1) / 2, middle + lift * 1.28 + (lift > 0 ? 14 : -12));
    }
  }

  function drawText(c, left, right, t, colours, height) {
    c.fillStyle = colours.text;
    c.textAlign = "left";
    c.textBaseline = "alphabetic";
    c.font = "600 14px system-ui, sans-serif";
    c.fillText("dh/dt = f(h ⊙ σ(a), t)", left.x, left.y - 10);
    c.fillText("da/dt = g(h ⊙ σ(a), t)", right.x, right.y - 10);
    c.font = "12px system-ui, sans-serif";
    c.globalAlpha = 0.75;
    c.fillText("States h(t) of ten digits, two principal components", left.x, left.y + left.h + 18, left.w);
    c.fillText("Attention σ(a(t)): dark suppresses, bright passes", right.x, right.y + right.h + 18, right.w);
    c.globalAlpha = 1;
    c.fillStyle = colours.border;
    const length = element.clientWidth - 82;
    c.fillRect(8, height - 10, length, 3);
    c.fillStyle = colours.primary;
    c.fillRect(8, height - 10, length * t, 3);
    c.fillStyle = colours.text;
    c.textAlign = "right";
    c.fillText(`t = ${t.toFixed(2)}`, element.clientWidth - 8, height - 5);
  }

  fetch(at(`${data.base}assets/hero.json`)).then((answer) => answer.json()).then((found) => {
    const all = found.maps.flat(3);
    recording = { ...found, low: Math.min(...all), high: Math.max(...all) };
    start = performance.now();
  }).catch(() => {});
  frame = requestAnimationFrame(draw);
  return { update() {}, destroy() { destroyed = true; cancelAnimationFrame(frame); } };
}
