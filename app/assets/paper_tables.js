// The paper's tables with measured values beside the printed ones. A click on a cell sends its table and key.
import { make } from "./theme.js";

function cellLink(cell, table, send) {
  const parts = [make("span", "value", cell.ours), make("span", `mark ${cell.mark}`, cell.sign)];
  if (cell.details) parts.push(make("span", "details", cell.details));
  const link = make("a", { className: "cell", title: cell.hint, "data-cell": cell.key, "data-table": table.name, on: {
    click: (event) => {
      if (event.metaKey || event.ctrlKey || event.shiftKey || event.button) return;  // another tab or window
      event.preventDefault();
      if (cell.key === table.opened) scrollToRuns();
      else send("cell", { table: table.name, cell: cell.key });
    } } }, ...parts);
  link.href = `?cell=${encodeURIComponent(cell.key)}&table=${table.name}`;
  link.target = "_self";
  if (cell.key === table.opened) link.setAttribute("aria-current", "true");
  return link;
}

function row(line, table, send) {
  const cells = line.cells.flatMap((cell) => cell === null ? [make("td", { colSpan: 2 })] : [
    make("td", { className: cell.best ? "printed best" : "printed" }, cell.printed,
      ...(cell.params ? [make("span", "details", `${cell.params} parameters`)] : [])),
    make("td", "ours", cellLink(cell, table, send))]);
  return make("tr", "", make("th", { scope: "row" }, line.label), ...cells);
}

function figure(table, send) {
  const heads = table.columns.map((title) => make("th", { colSpan: 2, scope: "colgroup" }, title));
  const sides = table.columns.flatMap(() => [make("th", { scope: "col" }, "Paper"), make("th", { scope: "col" }, "Ours")]);
  return make("figure", `paper-table${table.columns.length > 1 ? " several" : ""}${table.columns.length > 2 ? " wide" : ""}`,
    make("figcaption", "", make("strong", "", table.title), make("span", "", table.caption)),
    make("div", { className: "scroll", tabIndex: 0 }, make("table", "",
      make("thead", "", make("tr", "", make("th", { rowSpan: 2, scope: "col" }, table.corner), ...heads),
        make("tr", "sides", ...sides)),
      make("tbody", "", ...table.rows.map((line) => row(line, table, send))))));
}

// Scroll to the runs of the opened cell, once the page has them.
function scrollToRuns(tries = 40) {
  const runs = document.querySelector(".st-key-paper-cell");
  if (runs) {
    const reduced = matchMedia("(prefers-reduced-motion: reduce)").matches;
    runs.style.scrollMarginTop = "4.5rem"; // the height of the app's header
    runs.scrollIntoView({ behavior: reduced ? "auto" : "smooth", block: "start" });
  } else if (tries) setTimeout(scrollToRuns, 100, tries - 1);
}

let focusTimer;  // of `focusNext`, one for all tables of the page

// Focus a cell of these tables once the element that has the focus disappears: the button Close, or the cell itself, when
// its table moves from the component below the runs to the one above.
function focusNext(element, place, tries = 40) {
  clearTimeout(focusTimer);
  if (document.activeElement === document.body) focus(element, place);
  else if (tries && !element.contains(document.activeElement))
    focusTimer = setTimeout(focusNext, 100, element, place, tries - 1);
}

function focus(element, { cell, table }) {
  element.querySelector(`[data-cell="${CSS.escape(cell)}"][data-table="${table}"]`)?.focus({ preventScroll: true });
}

const placeOf = (link) => link?.dataset.cell ? { cell: link.dataset.cell, table: link.dataset.table } : null;

export function mount(element, first, send) {
  element.className = "ace paper-tables";
  let drawn = "", opened = null;  // the opened cell and its table

  function draw(data) {
    const text = JSON.stringify(data);
    if (text === drawn) return;
    drawn = text;
    const focused = element.contains(document.activeElement) ? placeOf(document.activeElement) : null;
    element.replaceChildren(...data.tables.map((table) => figure(table, send)));
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
