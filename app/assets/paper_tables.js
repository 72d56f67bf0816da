// The paper's tables with measured values beside the printed ones. A click on a cell sends its table and key.
import { make } from "./theme.js";

function cellLink(cell, one, send) {
  const parts = [make("span", "value", cell.ours), make("span", `mark ${cell.mark}`, cell.sign)];
  if (cell.details) parts.push(make("span", "details", cell.details));
  const link = make("a", { className: "cell", title: cell.hint, "data-cell": cell.key, "data-table": one.name, on: {
    click: (event) => {
      if (event.metaKey || event.ctrlKey || event.shiftKey || event.button) return;  // another tab or window
      event.preventDefault();
      if (cell.key === one.opened) scrollToRuns();
      else send("cell", { table: one.name, cell: cell.key });
    } } }, ...parts);
  link.href = `?cell=${encodeURIComponent(cell.key)}&table=${one.name}`;
  link.target = "_self";
  if (cell.key === one.opened) link.setAttribute("aria-current", "true");
  return link;
}

function row(line, one, send) {
  const cells = line.cells.flatMap((cell) => cell === null ? [make("td", { colSpan: 2 })] : [
    make("td", { className: cell.best ? "printed best" : "printed" }, cell.printed,
      ...(cell.params ? [make("span", "details", `${cell.params} parameters`)] : [])),
    make("td", "ours", cellLink(cell, one, send))]);
  return make("tr", "", make("th", { scope: "row" }, line.label), ...cells);
}

function table(one, send) {
  const heads = one.columns.map((title) => make("th", { colSpan: 2, scope: "colgroup" }, title));
  const sides = one.columns.flatMap(() => [make("th", { scope: "col" }, "Paper"), make("th", { scope: "col" }, "Ours")]);
  return make("figure", `paper-table${one.columns.length > 1 ? " several" : ""}${one.columns.length > 2 ? " wide" : ""}`,
    make("figcaption", "", make("strong", "", one.title), make("span", "", one.caption)),
    make("div", { className: "scroll", tabIndex: 0 }, make("table", "",
      make("thead", "", make("tr", "", make("th", { rowSpan: 2, scope: "col" }, one.corner), ...heads),
        make("tr", "sides", ...sides)),
      make("tbody", "", ...one.rows.map((line) => row(line, one, send))))));
}

// Scroll to the runs of the opened cell, once the page has them.
function scrollToRuns(tries = 40) {
  const place = document.querySelector(".st-key-paper-cell");
  if (place) {
    const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
    place.style.scrollMarginTop = "4.5rem"; // the height of the app's header
    place.scrollIntoView({ behavior: still ? "auto" : "smooth", block: "start" });
  } else if (tries) setTimeout(scrollToRuns, 100, tries - 1);
}

let waiting;  // the timer of `focusNext`, one on the page

// Focus a cell of these tables once what had the focus is gone: the same cell in a table that moves, or the button Close.
function focusNext(element, place, tries = 40) {
  clearTimeout(waiting);
  if (document.activeElement === document.body) focus(element, place);
  else if (tries && !element.contains(document.activeElement)) waiting = setTimeout(focusNext, 100, element, place, tries - 1);
}

function focus(element, { cell, table }) {
  element.querySelector(`[data-cell="${CSS.escape(cell)}"][data-table="${table}"]`)?.focus({ preventScroll: true });
}

const placeOf = (link) => link?.dataset.cell ? { cell: link.dataset.cell, table: link.dataset.table } : null;

export function mount(element, first, send) {
  element.className = "paper-tables";
  let drawn = "", opened = null;  // the place of the opened cell

  function draw(data) {
    const text = JSON.stringify(data);
    if (text === drawn) return;
    drawn = text;
    const focused = element.contains(document.activeElement) ? placeOf(document.activeElement) : null;
    element.replaceChildren(...data.tables.map((one) => table(one, send)));
    const before = opened;
    opened = placeOf(element.querySelector("[aria-current]"));
    if (focused) focus(element, focused);
    if (opened?.cell === before?.cell && opened?.table === before?.table) return;
    if (opened) setTimeout(scrollToRuns, 300);  // the runs of a cell opened before may still be there
    if (opened || !document.querySelector(".cell[aria-current]")) focusNext(element, opened ?? before);
  }

  draw(first);
  return { update: draw, destroy() {} };
}
