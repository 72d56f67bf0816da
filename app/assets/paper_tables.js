// The paper's tables with measured values beside the printed ones. A click on a cell sends its table and key.
import { make } from "./theme.js";

function cellLink(cell, name, data, send) {
  const parts = [make("span", "value", cell.ours), make("span", `mark ${cell.mark}`, cell.sign)];
  if (cell.details) parts.push(make("span", "details", cell.details));
  const link = make("a", { className: "cell", title: cell.hint, "data-cell": cell.key, on: {
    click: (event) => {
      if (event.metaKey || event.ctrlKey || event.shiftKey || event.button) return;  // another tab or window
      event.preventDefault();
      send("cell", { table: name, cell: cell.key });
    } } }, ...parts);
  link.href = `?cell=${encodeURIComponent(cell.key)}`;
  link.target = "_self";
  if (cell.key === data.chosen) link.setAttribute("aria-current", "true");
  return link;
}

function row(line, name, data, send) {
  const cells = line.cells.flatMap((cell) => cell === null ? [make("td", { colSpan: 2 })] : [
    make("td", { className: cell.best ? "printed best" : "printed" }, cell.printed,
      ...(cell.params ? [make("span", "details", `${cell.params} parameters`)] : [])),
    make("td", "ours", cellLink(cell, name, data, send))]);
  return make("tr", "", make("th", { scope: "row" }, line.label), ...cells);
}

function table(one, data, send) {
  const heads = one.columns.map((title) => make("th", { colSpan: 2, scope: "colgroup" }, title));
  const sides = one.columns.flatMap(() => [make("th", { scope: "col" }, "Paper"), make("th", { scope: "col" }, "Ours")]);
  return make("figure", `paper-table${one.columns.length > 1 ? " several" : ""}${one.columns.length > 2 ? " wide" : ""}`,
    make("figcaption", "", make("strong", "", one.title), make("span", "", one.caption)),
    make("div", { className: "scroll", tabIndex: 0 }, make("table", "",
      make("thead", "", make("tr", "", make("th", { rowSpan: 2, scope: "col" }, one.corner), ...heads),
        make("tr", "sides", ...sides)),
      make("tbody", "", ...one.rows.map((line) => row(line, one.name, data, send))))));
}

// Scroll to the runs of the chosen cell, once the page has them.
function scrollToRuns(tries = 40) {
  const place = document.querySelector(".st-key-paper-cell");
  if (place) {
    place.style.scrollMarginTop = "4.5rem"; // the height of the app's header
    place.scrollIntoView({ behavior: "smooth", block: "start" });
  } else if (tries) setTimeout(scrollToRuns, 100, tries - 1);
}

export function mount(element, first, send) {
  element.className = "paper-tables";
  let drawn = "", chosen = null;

  function draw(data) {
    const text = JSON.stringify(data);
    if (text === drawn) return;
    drawn = text;
    const focused = element.contains(document.activeElement) ? document.activeElement.dataset.cell : null;
    element.replaceChildren(...data.tables.map((one) => table(one, data, send)));
    const link = element.querySelector("[aria-current]"), own = link?.dataset.cell ?? null;
    if (own && own !== chosen) setTimeout(() => {  // the runs of a cell chosen before may still be there
      if (document.activeElement === document.body) link.focus({ preventScroll: true });  // its table has moved up
      scrollToRuns();
    }, 300);
    chosen = own;
    if (focused) element.querySelector(`[data-cell="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
  }

  draw(first);
  return { update: draw, destroy() {} };
}
