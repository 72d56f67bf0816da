// The grid of a study: a row for each group, a column for each seed or fold. It follows the runs without rerunning the page.
import { follow } from "./poll.js";
import { at, make, setText, setTextOrHide } from "./theme.js";

const UNDISTURBED = 8000;  // milliseconds after the reader has scrolled in which the grid does not scroll by itself
const SIGNS = { finished: "✓", running: "●", queued: "○", stopped: "■", failed: "✗", interrupted: "◐", missing: "" };

function cellNode({ state, progress, text, about, link }) {
  const filled = make("span"), bar = make("span", { className: "ace-bar", "aria-hidden": "true", hidden: state === "finished" || !progress }, filled);
  filled.style.width = `${100 * progress}%`;
  const inner = make("a", { className: "study-cell", target: "_self", title: about }, make("span", { className: "study-sign", "aria-hidden": "true" }, SIGNS[state] ?? "?"),
    make("span", "study-text", text), bar);
  if (link) inner.href = at(link);
  const node = make("td", "", inner);
  node.dataset.state = state;
  return node;
}

function tableNode({ columns, rows }) {
  const heads = ["Group", ...columns, "Mean ± std"].map((title) => make("th", { scope: "col" }, title));
  return make("table", "", make("thead", "", make("tr", "", ...heads)), make("tbody", "", ...rows.map(({ name, baseline, cells, mean }) => make("tr", "",
    make("th", { scope: "row" }, name, ...(baseline ? [make("span", "study-note", "baseline")] : [])), ...cells.map(cellNode), make("td", "study-mean", mean)))));
}

export function mount(element, first, send) {
  let drawn = "", training = null, undisturbedFrom = 0;
  const touched = () => { undisturbedFrom = performance.now() + UNDISTURBED; };
  const summary = make("div", "study-summary"), now = make("div", "study-now"), filled = make("span");
  const box = make("div", { className: "ace-scroll study-scroll", tabIndex: 0, role: "region", on: { wheel: touched, pointerdown: touched, keydown: touched } });
  element.className = "study-grid";
  element.append(summary, make("div", { className: "ace-bar total", "aria-hidden": "true" }, filled), now, box);

  // Scroll the box, not the page, so that a cell is in view beside the group's name and below the heads.
  function reveal(node) {
    const outer = box.getBoundingClientRect(), own = node.getBoundingClientRect(), { rows, tHead } = box.firstChild;
    const left = outer.left + rows[0].cells[0].offsetWidth, top = outer.top + tHead.offsetHeight;
    const across = own.left < left ? own.left - left : Math.max(0, own.right - outer.right + 12);
    const down = own.top < top ? own.top - top : Math.max(0, own.bottom - outer.bottom + 12);
    if (across || down) box.scrollBy({ left: across, top: down });
  }

  function draw(view) {
    const text = JSON.stringify(view.rows);
    setText(summary, [`${view.finished} of ${view.runs} runs finished`, view.left, `Test ${view.metric}`].filter(Boolean).join(" · "));
    filled.style.width = `${100 * view.progress}%`;
    setTextOrHide(now, view.now.length ? `Training: ${view.now.join("; ")}` : "");
    box.setAttribute("aria-label", `Runs of the study, ${view.metric}`);
    if (text !== drawn) {
      const focused = [...box.querySelectorAll("a")].indexOf(document.activeElement);
      drawn = text;
      box.replaceChildren(tableNode(view));
      if (focused >= 0) box.querySelectorAll("a")[focused]?.focus({ preventScroll: true });
      const cell = box.querySelector("[data-state=running]"), place = cell && `${cell.parentNode.rowIndex}/${cell.cellIndex}`;
      if (cell && place !== training && performance.now() >= undisturbedFrom) reveal(cell);
      training = place;
    }
  }

  draw(first.view);
  const following = follow("study", first, draw, send);
  return { update(next) { draw(next.view); following.update(next); }, destroy: following.end };
}
