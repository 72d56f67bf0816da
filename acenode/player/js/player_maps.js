// The panels that show maps: the attention, of each channel, and the state itself.
import { colouring, fill, paintInput, scratch, stateColouring, valueOf } from "./colours.js";
import { BAR, cellName, colourBar, countTicks, drawNow, inside, multiples, multiplesCell, nameRoom, nameTicks, number, onlySome, overTime, overTimeCell, span, text, tiling, turned, weightLines } from "./player_draw.js";
import { clamp } from "./theme.js";

const SHORT = {
  pairwise: "Attention from j into i (softmax(a))",
  elementwise: "Attention, mean over channels (sigmoid(a))",
  coordinates: "Attention over time (sigmoid(a))",
  influence: "Influence from j on i (|∂ḣ/∂h|), on itself left out",
};
const NOT_KEPT = "No influence in these snapshots";

// The name of the map that is shown, of named variables the chosen one; `shownMap` describes it, or is null if it is missing.
const mapName = ({ attention, named }, state) => !attention || (named && state.map === "influence") ? "influence" : "attention";
export const shownMap = (view, state) => view.run.meta[mapName(view.run.meta, state)];
const mapColouring = (view, state, theme, name) => colouring(theme, view.run.meta[name], view.scale(name), state.mode === "change");
export const shownLevels = (view, state) => view.block.arrays[mapName(view.run.meta, state)];

// The pixels for labels left of a matrix and below it, and whether the names below it are turned.
function labelRoom({ names }, w, h) {
  if (!names) return { left: 44, below: 46, turn: false };
  const left = 30 + nameRoom(names), turn = turned(names, Math.min(w - left - BAR - 4, h - 46) / names.length);
  return { left, below: turn ? 38 + nameRoom(names) : 46, turn };
}

export const ATTENTION = {
  name: "attention",
  tab: "Attention",
  shown: (meta) => Boolean(meta.attention || meta.influence),
  title: (view, state) => (state.mode === "change" ? "Change since the start: " : "") + SHORT[shownMap(view, state)?.kind ?? "influence"],
  hint: (view, state) => shownMap(view, state)?.title ?? NOT_KEPT,
  key(view, state) {
    const vector = shownMap(view, state)?.kind === "coordinates";
    return `${vector ? state.t.toFixed(4) : view.run.frame(state.t).nearest}/${state.probe}/${state.mode}/${state.map}`;
  },

  baseKey: (view, state) => shownMap(view, state)?.kind === "coordinates" ? `${state.probe}/${state.mode}` : `${state.mode}/${state.map}`,
  base(g, w, h, view, state, theme) {
    const about = shownMap(view, state);
    if (!about) return text(g, NOT_KEPT, w / 2, h / 2, { align: "center", colour: theme.ink });
    const colours = mapColouring(view, state, theme, mapName(view.run.meta, state));
    if (about.kind !== "coordinates") return colourBar(g, w, h, colours.bar, ...colours.ends, theme);
    const { data, shape: [, P, , columns] } = view.block.arrays.attention, at = (f, i) => data[(f * P + state.probe) * columns + i];
    const level = colours.changed ? (f, i) => clamp(255 + Math.round((at(f, i) - at(0, i)) * colours.gain), 0, 510) : at;
    return overTime(g, w, h, view, theme, level, colours, columns, state.probe);
  },

  draw(g, w, h, view, state, theme, still) {
    const { run } = view, about = shownMap(view, state);
    view.maps = [];
    if (!about) return;
    const { data, shape: [, P, rows, columns] } = shownLevels(view, state);
    if (about.kind === "coordinates") {
      view.coordinates = still;
      drawNow(g, still.X(state.t), still, theme);
      return;
    }
    const { changed, gain, table } = mapColouring(view, state, theme, mapName(run.meta, state)), nearest = run.frame(state.t).nearest, block0 = rows * columns;
    const { cells, put } = scratch(columns, rows), start = (nearest * P + state.probe) * block0;
    fill(cells, data, start, changed ? state.probe * block0 : null, block0, table, gain);
    if (about.kind === "influence") for (const i of span(rows)) cells[i * columns + i] = 0;  // transparent: its own influence is not shown
    const picture = put(), pairwise = about.kind === "pairwise" || about.kind === "influence", over = !pairwise && run.pixels !== null;
    const { left, below, turn } = labelRoom(about, w, h), room = pairwise ? { x: left, y: 8, w: w - left - BAR - 4, h: h - below } : { x: 8, y: 8, w: w - 12 - BAR, h: h - 16 };
    const tiles = tiling(over ? 2 : 1, columns / rows, room.w, room.h, 14, over ? 20 : 0);
    g.imageSmoothingEnabled = false;
    for (const i of span(over ? 2 : 1)) {
      const { x, y } = tiles.place(i), box = { x: room.x + x, y: room.y + y, w: tiles.width, h: tiles.height };
      if (over && i === 0) {
        g.drawImage(paintInput(run, state.probe), box.x, box.y, box.w, box.h);
        fill(cells, data, start, changed ? state.probe * block0 : null, block0, table, gain);  // again: if the input has the map's size, paintInput has used the same scratch canvas
        g.globalAlpha = 0.55;
        g.drawImage(put(), box.x, box.y, box.w, box.h);
        g.globalAlpha = 1;
      } else g.drawImage(picture, box.x, box.y, box.w, box.h);
      g.strokeStyle = theme.line;
      g.lineWidth = 1;
      g.strokeRect(box.x - 0.5, box.y - 0.5, box.w + 1, box.h + 1);
      if (over) text(g, i === 0 ? "Overlaid on input" : "Attention only", box.x + box.w / 2, box.y + box.h + 5,
        { align: "center", base: "top", colour: theme.ink, faint: true });
      if (pairwise) {
        for (const [across, count] of [[true, columns], [false, rows]]) {
          if (about.names) nameTicks(g, box, about.names, across, turn, theme);
          else countTicks(g, box, count, across, theme, about.full[across ? 1 : 0]);
        }
        text(g, about.names ? "From" : `${about.columns} (from)`, box.x + box.w / 2, box.y + box.h + below - 24, { align: "center", base: "top", colour: theme.ink });
        text(g, about.names ? "Into" : `${about.rows} (into)`, box.x - left + 8, box.y + box.h / 2, { align: "center", colour: theme.ink, turn: true });
      }
      view.maps.push(box);
    }
  },

  hover(x, y, view, state) {
    const { run } = view, about = shownMap(view, state);
    if (!about) return null;
    const { data, shape: [, P, rows, columns] } = shownLevels(view, state);
    let f = run.frame(state.t).nearest, i, j;
    if (about.kind === "coordinates") {
      const cell = overTimeCell(x, y, view.coordinates);
      if (!cell) return null;
      [f, i, j] = [cell.f, 0, cell.i];
    } else {
      const box = (view.maps ?? []).find((b) => inside(x, y, b));
      if (!box) return null;
      [i, j] = [Math.floor((y - box.y) / box.h * rows), Math.floor((x - box.x) / box.w * columns)];
    }
    const at = (frame) => valueOf(about, data[((frame * P + state.probe) * rows + i) * columns + j]);
    const place = about.kind === "coordinates" ? `coordinate ${cellName(j, columns, about.full[1])}, ${run.timeText(run.meta.t[f])}`
      : about.names ? `from ${about.names[j]} into ${about.names[i]}`
      : `${about.rows} ${cellName(i, rows, about.full[0])}, ${about.columns} ${cellName(j, columns, about.full[1])}`;
    if (about.kind === "influence" && i === j) return [`${about.names[i]} on itself: not shown`, run.title(state.probe)];
    return [place, ...weightLines(at(f), at(0), about.kind === "influence" ? "influence" : "weight"), run.title(state.probe)];
  },
};

// The cell under the pointer in maps side by side: its channel, row and column in words, and its level in a frame.
function tileUnder(x, y, view, { probe }, name, full) {
  const cell = multiplesCell(x, y, view[name]), { data, shape: [, P, C, H, W] } = view.block.arrays[name];
  return cell && { words: `channel ${cell.c + 1}, row ${cellName(cell.i, H, full[0])}, column ${cellName(cell.j, W, full[1])}`,
    level: (f) => data[(((f * P + probe) * C + cell.c) * H + cell.i) * W + cell.j] };
}

export const CHANNELS = {
  name: "channels",
  tab: "Channels",
  shown: (meta) => Boolean(meta.attention_channels),
  title(view, state) {
    const { shape: [channels], total } = view.run.meta.attention_channels;
    return `${state.mode === "change" ? "Change since the start: " : ""}Attention, each channel (sigmoid(a))` + onlySome(channels, total);
  },
  key: (view, state) => `${view.run.frame(state.t).nearest}/${state.probe}/${state.mode}`,
  baseKey: (view, state) => state.mode,
  base(g, w, h, view, state, theme) {
    const { bar, ends } = mapColouring(view, state, theme, "attention_channels");
    colourBar(g, w, h, bar, ...ends, theme);
  },
  draw(g, w, h, view, state, theme) {
    multiples(g, w, h, view, state, theme, "attention_channels", mapColouring(view, state, theme, "attention_channels"));
  },
  hover(x, y, view, state) {
    const { run } = view, about = run.meta.attention_channels, found = tileUnder(x, y, view, state, "attention_channels", about.full);
    if (!found) return null;
    const at = (f) => valueOf(about, found.level(f));
    return [found.words, ...weightLines(at(run.frame(state.t).nearest), at(0)), run.title(state.probe)];
  },
};

// The state h(t) itself: feature maps, or a vector over time.
export const FEATURES = {
  name: "features",
  tab: "State",
  shown: (meta) => Boolean(meta.features || meta.state),
  title(view) {
    const { features } = view.run.meta;
    return features ? "State, each channel (feature maps h)" + onlySome(features.shape[0], features.total) : `State, each ${view.run.variables() ? "variable" : "coordinate"} over time (h)`;
  },
  key: (view, state) => `${view.run.meta.features ? view.run.frame(state.t).nearest : state.t.toFixed(4)}/${state.probe}`,
  baseKey: (view, state) => view.run.meta.features ? "" : String(state.probe),
  base(g, w, h, view, state, theme) {
    const { features, state: vector } = view.run.meta, colours = stateColouring(theme, features ?? vector, view.scale(features ? "features" : "state"));
    if (features) return colourBar(g, w, h, colours.bar, ...colours.ends, theme);
    const { data, shape: [, P, d] } = view.block.arrays.state, [, high] = colours.ends;
    const level = (f, i) => clamp(Math.round(255 + 255 * data[(f * P + state.probe) * d + i] / high), 0, 510);
    return overTime(g, w, h, view, theme, level, { ...colours, table: theme.signed }, d, state.probe);
  },
  draw(g, w, h, view, state, theme, still) {
    const { features } = view.run.meta;
    if (features) multiples(g, w, h, view, state, theme, "features", stateColouring(theme, features, view.scale("features")));
    else {
      view.states = still;
      drawNow(g, still.X(state.t), still, theme);
    }
  },
  hover(x, y, view, state) {
    const { run } = view, { features } = run.meta;
    if (!features) {
      const cell = overTimeCell(x, y, view.states), { data, shape: [, P, d] } = view.block.arrays.state;
      return cell && [`${run.variables()?.[cell.i] ?? `coordinate ${cell.i + 1}`}, ${run.timeText(run.meta.t[cell.f])}`,
        `state h = ${number(data[(cell.f * P + state.probe) * d + cell.i])}`, run.title(state.probe)];
    }
    const found = tileUnder(x, y, view, state, "features", features.full);
    if (!found) return null;
    const level = found.level(run.frame(state.t).nearest), beyond = level === 0 ? "≤ " : level === 255 ? "≥ " : "≈ ";
    return [found.words, `state h ${beyond}${number(valueOf(features, level))}`, run.title(state.probe)];
  },
};
