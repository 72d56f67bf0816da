// Step 2: two points that have to swap places, on a line and with one more dimension.
// data = { swaps: [{ name, h: (T, 2, d), error }] }
import { classColour } from "./colours.js";
import { axes, text } from "./player_draw.js";
import { at, dot, line, path } from "./tour_draw.js";

const NARROW = 560, ROOM = 1.35;  // the plots stand below each other in less than NARROW pixels; h₁ reaches ±ROOM

export const SWAP = {
  choices: ({ swaps }) => ({ label: "State", names: swaps.map(({ name }) => name) }),
  height: (width) => width < NARROW ? 600 : 360,

  draw(g, w, h, { swaps }, { t, choice }, theme) {
    const { h: frames } = swaps[choice], wide = w >= NARROW, plane = frames[0][0].length > 1, now = at(frames, t);
    const left = { x: 52, y: 28, w: wide ? w * 0.5 - 70 : w - 64, h: wide ? h - 76 : h / 2 - 74 };
    const right = wide ? { ...left, x: w * 0.5 + 52, w: w * 0.5 - 66 } : { ...left, y: h / 2 + 28 };
    const most = Math.max(1, ...swaps.flatMap((s) => s.h.flatMap((f) => f.map((p) => Math.abs(p[1] ?? 0))))) * 1.1;
    text(g, "The first coordinate over time", left.x, 10, { colour: theme.ink });
    const over = axes(g, left, [0, 1], [-ROOM, ROOM], theme, ["Time (t)", ""]);
    text(g, "First coordinate (h₁)", 10, left.y + left.h / 2, { align: "center", colour: theme.ink, turn: true });
    text(g, plane ? "All of the state at time t: a plane" : "All of the state at time t: a line", right.x, right.y - 18, { colour: theme.ink });
    const space = axes(g, right, [-most, most], [-ROOM, ROOM], theme, [plane ? "Appended coordinate (h₂)" : "There is no second coordinate", ""]);
    text(g, "First coordinate (h₁)", right.x - 42, right.y + right.h / 2, { align: "center", colour: theme.ink, turn: true });
    if (!plane) line(g, [[space.X(0), right.y], [space.X(0), right.y + right.h]], theme.ink, 1.5, 0.6);
    for (const p of [0, 1]) {
      const colour = classColour(p), goal = -frames[0][p][0], steps = path(frames, t, p);
      dot(g, over.X(1), over.Y(goal), 8, null, colour, 2.5);
      line(g, steps.map(([s, v]) => [over.X(s), over.Y(v[0])]), colour, 2.5);
      line(g, steps.map(([, v]) => [space.X(v[1] ?? 0), space.Y(v[0])]), colour, 2.5, 0.6);
    }
    for (const p of [0, 1]) {
      dot(g, over.X(t), over.Y(now(p, 0)), 5.5, classColour(p), theme.paper);
      dot(g, space.X(plane ? now(p, 1) : 0), space.Y(now(p, 0)), 6.5, classColour(p), theme.paper);
    }
  },

  words({ swaps }, { t, choice }) {
    const { h, error } = swaps[choice], now = at(h, t), gap = now(1, 0) - now(0, 0);
    const order = gap > 0.005 ? "orange is above blue" : gap < -0.005 ? "orange is below blue" : "orange is a little above blue, closer than the picture shows";
    return `At t = ${t.toFixed(2)}, ${order} in h₁. Rings: where each has to arrive. Mean squared error at t = 1 after training: ${error.toFixed(2)}.`;
  },
};
