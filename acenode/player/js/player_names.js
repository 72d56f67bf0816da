// Names of variables beside and below a map: all of them as long as there is room for small letters.
import { text } from "./player_draw.js";
import { clamp } from "./theme.js";

const LETTER = 0.56, CAPITAL = 0.7;  // widths of average letters, as shares of the font's size
const LARGEST = 12, SMALLEST = 8, BETWEEN = 2;  // sizes of letters and the gap between lines, in pixels
const LONGEST = 76;  // pixels of a name

const widthOf = (name, size) => size * [...name].reduce((sum, letter) => sum + (letter === letter.toLowerCase() ? LETTER : CAPITAL), 0);

// A name that is too long loses letters in the middle, since the ends of names tell them apart.
export function shortened(name, pixels, size) {
  const letters = [...name], most = Math.max(3, Math.floor(letters.length * pixels / widthOf(name, size)));
  if (letters.length <= most) return name;
  const head = Math.ceil((most - 1) / 2);
  return `${letters.slice(0, head).join("")}…${letters.slice(letters.length - (most - 1 - head)).join("")}`;
}

// The pixels that names take up beside a map, or below it if they are turned.
export const nameRoom = (names) => clamp(Math.max(...names.map((name) => widthOf(name, LARGEST))), 20, LONGEST);

// True if some name is too long for a column of that many pixels.
export const turned = (names, column) => names.some((name) => widthOf(name, LARGEST) > Math.max(column - 6, 0));

// Write the names beside the rows of a map, or below its columns; returns those that are written.
export function nameTicks(g, box, names, across, turn, theme) {
  const count = names.length, room = (across ? box.w : box.h) / count, lines = !across || turn;
  const size = lines ? clamp(Math.floor(room - BETWEEN), SMALLEST, LARGEST) : LARGEST;
  const every = lines ? Math.ceil((size + BETWEEN / 2) / room) : 1, written = [];
  for (let i = 0; i < count; i += every) {
    const at = (i + 0.5) * room, name = shortened(names[i], LONGEST, size), style = { colour: theme.ink, faint: true, size };
    if (!across) text(g, name, box.x - 6, box.y + at, { ...style, align: "right" });
    else if (turn) text(g, name, box.x + at, box.y + box.h + 6, { ...style, align: "right", turn: true });
    else text(g, name, box.x + at, box.y + box.h + 5, { ...style, align: "center", base: "top" });
    written.push(name);
  }
  return written;
}
