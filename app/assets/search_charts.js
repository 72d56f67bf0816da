// The trials of a search: its best ones in a table, and the charts of app/results/search_figures.py. They follow the search
// without rerunning the page; charts are updated, not drawn anew. The table is shown first.
//
//   mount(element, { name, base: "lab/" }, send) → { update(data), destroy() }
//
// Calls send("state", text) when the search starts or ends, and when there is a best trial for the first time.
import { Card, Drawing } from "./figures.js";
import { follow } from "./poll.js";
import { at, make, setText, setTextOrHide } from "./theme.js";

const WIDE = 2, SLICES = 3;  // which of the charts takes the whole width, and the first of the slices

function writeTable(table, { heads, rows }) {
  const row = ([trial, ...cells], link) => make("tr", "", make("th", { scope: "row" }, trial), ...cells.map((text) => make("td", "", text)),
    make("td", "", link ? make("a", { href: at(link), target: "_self", "aria-label": `Curves of trial ${parseInt(trial, 10)}` }, "Curves") : "–"));
  table.replaceChildren(make("thead", "", make("tr", "", ...heads.map((title) => make("th", { scope: "col" }, title)))),
    make("tbody", "", ...rows.map(({ cells, link }) => row(cells, link))));
}

export function mount(element, first, send) {
  const summary = make("div", "summary"), now = make("div", "now"), best = make("div", "now"), filled = make("span");
  const bar = make("div", { className: "ace-bar total", "aria-hidden": "true" }, filled), note = make("p", { className: "note", hidden: true });
  const heading = make("h2", { hidden: true }, "Best trials"), table = make("table");
  const scroll = make("div", { className: "ace-scroll", tabIndex: 0, role: "region", "aria-label": "Best trials", hidden: true }, table);
  const grids = [make("div", "grid"), make("div", "grid")];
  const root = make("div", "ace ace-figures search-charts", summary, bar, now, best, heading, scroll, grids[0], make("h2", "", "Value by setting"), grids[1], note);
  element.append(root);
  let name = first.name, view = null, cards = [], listed = "";
  const drawing = new Drawing(root, first.base, (card, colours) => card.draw(card.given.figure, colours, card.given.empty));

  function write(next) {
    view = next;
    setText(summary, view.summary);
    filled.style.width = `${100 * Math.min(1, view.progress)}%`;
    setTextOrHide(now, view.now);
    setTextOrHide(best, view.best);
    setTextOrHide(note, view.note);
    heading.hidden = scroll.hidden = !view.table.rows.length;
    if (listed !== (listed = JSON.stringify(view.table))) writeTable(table, view.table);
    if (!view.figures) return;  // nothing has changed
    view.figures.forEach((given, i) => {
      for (const trace of given.figure?.data ?? []) if (trace.text === "words") trace.text = trace.customdata.map((n) => view.words[n]);
      if (!cards[i]) grids[i < SLICES ? 0 : 1].append((cards[i] = new Card({ ...given, wide: i === WIDE })).node);
      cards[i].given = given;
      drawing.add(cards[i]);
    });
  }

  const following = follow("search", first, write, send, () => `?since=${view?.revision ?? ""}`);
  element.__search = {  // for tests
    trials: () => view?.trials ?? 0, listed: () => !scroll.hidden, drawn: () => Boolean(cards[0]?.drawn) && drawing.done,
  };
  return {
    update(next) {
      if (next.name !== name) {
        [name, view] = [next.name, null];
        for (const card of cards.splice(0)) drawing.forget(card);
      }
      following.update(next);
    },
    destroy() {
      following.end();
      drawing.end();
      root.remove();
    },
  };
}
