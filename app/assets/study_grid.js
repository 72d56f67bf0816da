// The grid of a study: a row for each group, a column for each seed or fold. It follows the runs without rerunning the page.
import { poll } from "./poll.js";
import { at, make, setText, setTextOrHide } from "./theme.js";

const INTERVAL = 1200, IDLE_INTERVAL = 6000;  // milliseconds between two requests
const UNDISTURBED = 8000;  // milliseconds after the reader has scrolled in which the grid does not scroll by itself
const SIGNS = { finished: "✓", running: "●", queued: "○", stopped: "■", failed: "✗", interrupted: "◐", missing: "" };

class Cell {
  constructor() {
    this.sign = make("span", { className: "study-sign", "aria-hidden": "true" });
    this.text = make("span", "study-text");
    this.filled = make("span", "study-filled");
    this.bar = make("span", { className: "study-bar", "aria-hidden": "true" }, this.filled);
    this.link = make("a", { className: "study-cell", target: "_self" }, this.sign, this.text, this.bar);
    this.node = make("td", "", this.link);
  }

  write({ state, progress, text, about, link }) {
    setText(this.sign, SIGNS[state] ?? "?");
    setText(this.text, text);
    this.link.title = about;
    this.node.dataset.state = state;
    this.bar.hidden = !(state !== "finished" && progress > 0);
    this.filled.style.width = `${100 * progress}%`;
    if (link) this.link.href = at(link);
    else this.link.removeAttribute("href");
  }
}

// The table of one shape; another set of groups or seeds gets a new one.
class Grid {
  constructor(view) {
    this.cells = view.rows.map((row) => row.cells.map(() => new Cell()));
    this.means = view.rows.map(() => make("td", "study-mean"));
    const heads = view.columns.map((title) => make("th", { scope: "col" }, title));
    const rows = view.rows.map((row, i) => make("tr", "",
      make("th", { scope: "row" }, row.name, ...(row.baseline ? [make("span", "study-note", "baseline")] : [])),
      ...this.cells[i].map((cell) => cell.node), this.means[i]));
    this.table = make("table", "", make("thead", "", make("tr", "", make("th", { scope: "col" }, "Group"), ...heads,
      make("th", { scope: "col" }, "Mean ± std"))), make("tbody", "", ...rows));
    this.box = make("div", { className: "study-scroll", tabIndex: 0, role: "region", "aria-label": `Runs of the study, ${view.metric}`,
      on: { wheel: () => this.touched(), pointerdown: () => this.touched(), keydown: () => this.touched() } }, this.table);
    this.training = null;
    this.undisturbedFrom = 0;
  }

  touched() { this.undisturbedFrom = performance.now() + UNDISTURBED; }

  write(view) {
    let training = null;
    view.rows.forEach((row, i) => {
      setText(this.means[i], row.mean);
      row.cells.forEach((cell, j) => {
        this.cells[i][j].write(cell);
        if (cell.state === "running") training ??= this.cells[i][j].node;
      });
    });
    if (training && training !== this.training && performance.now() >= this.undisturbedFrom) this.reveal(training);
    this.training = training;
  }

  // Scroll the box, not the page, so that a cell is in view beside the group's name and below the heads.
  reveal(node) {
    const box = this.box.getBoundingClientRect(), own = node.getBoundingClientRect();
    const left = box.left + this.table.rows[0].cells[0].offsetWidth, top = box.top + this.table.tHead.offsetHeight;
    const across = own.left < left ? own.left - left : Math.max(0, own.right - box.right + 12);
    const down = own.top < top ? own.top - top : Math.max(0, own.bottom - box.bottom + 12);
    if (across || down) this.box.scrollBy({ left: across, top: down });
  }
}

const shape = (view) => JSON.stringify([view.columns, view.rows.map((row) => [row.name, row.baseline]), view.metric]);

export function mount(element, first, send) {
  element.className = "study-grid";
  const summary = make("div", "study-summary"), now = make("div", "study-now"), filled = make("span", "study-filled");
  const total = make("div", { className: "study-bar total", "aria-hidden": "true" }, filled), place = make("div");
  element.append(summary, total, now, place);
  let data = first, grid = null, drawn = "", states = null, destroyed = false;

  function draw(view) {
    if (shape(view) !== drawn) {
      drawn = shape(view);
      grid = new Grid(view);
      place.replaceChildren(grid.box);
    }
    setText(summary, [`${view.finished} of ${view.runs} runs finished`, view.left, `Test ${view.metric}`].filter(Boolean).join(" · "));
    filled.style.width = `${100 * view.progress}%`;
    setTextOrHide(now, view.now.length ? `Training: ${view.now.join("; ")}` : "");
    grid.write(view);
    const before = states;
    states = view.states;
    return before !== null && before !== states;
  }

  async function refresh() {
    const { base, name } = data, answer = await fetch(at(`${base}study/${encodeURIComponent(name)}`));
    if (!answer.ok) return IDLE_INTERVAL;
    const view = await answer.json();
    if (destroyed || name !== data.name) return INTERVAL;  // another study is shown by now
    if (draw(view)) send("state", view.states);
    return /:(running|queued)/.test(view.states) ? INTERVAL : IDLE_INTERVAL;
  }

  const polling = poll(refresh, IDLE_INTERVAL);
  draw(first.view);
  polling.later(INTERVAL);
  return {
    update(next) {
      if (next.name !== data.name) states = null;
      data = next;
      draw(next.view);
      polling.later(INTERVAL);
    },
    destroy() { destroyed = true; polling.end(); },
  };
}
