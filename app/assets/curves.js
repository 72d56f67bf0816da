// The training curves of one or several runs, live: records are polled, kept in columns and drawn thinned.
//
//   mount(element, data, send) → { update(data), destroy() }
//   data = { runs: [{ id, label, group, colour, live }], metric, title, bands, panels, settings, scroll, base: "lab/" }
//
// `send` is told ("state", { id, state }) when a run's state changes; a new `scroll` brings the curves into view once.
import { bar, drawLegend, remember, settingsOf } from "./curves_bar.js";
import { Cards } from "./curves_card.js";
import { Feed } from "./curves_feed.js";
import { coloursOf } from "./curves_figure.js";
import { Run } from "./curves_run.js";
import { seriesOf } from "./curves_series.js";
import { Strips } from "./curves_strip.js";
import { plotly } from "./load_plotly.js";
import { make } from "./theme.js";

const WATCH = 500, RETRY = 2000;  // milliseconds: looking at the page's colours, loading Plotly again

export function mount(element, data, send) {
  const view = { runs: new Map(), series: [], hidden: new Set(), settings: settingsOf(data.settings), metric: "", title: "", theme: null };
  const changed = () => { remember(view.settings); cards.pace.all(); };
  const strips = new Strips(), controls = bar(view.settings, changed), cards = new Cards(view, changed);
  const lost = make("p", { className: "lost", role: "status", hidden: true }, "Connection lost, trying again…"), legend = make("div", "legend");
  const root = make("div", "ace-curves", strips.node, lost, controls.node, legend, cards.node);
  const feed = new Feed(view.runs, {
    next: () => cards.pace.next(),
    heard: (news) => { if (news) cards.news(); strips.write(view.runs, view); },
    state: (run, state) => send?.("state", { id: run.given.id, state }),
    lost: (away) => { lost.hidden = !away; },
  });
  let said = "", scrolled = null, destroyed = false;

  // Whether the page has changed its colours.
  function readTheme() {
    const before = JSON.stringify(view.theme);
    view.theme = coloursOf(root);
    if (JSON.stringify(view.theme) === before) return false;
    root.style.colorScheme = view.theme.dark ? "dark" : "light";  // boxes and lists of the browser's own
    return true;
  }

  function update({ scroll = null, ...given }) {
    const text = JSON.stringify(given), same = text === said;
    said = text;
    if (!same) show(given);
    feed.refresh(given.base);  // the same again: perhaps a run was resumed, but there is nothing to draw yet
    if (scroll !== null && scroll !== scrolled) requestAnimationFrame(() => element.scrollIntoView({ behavior: "smooth", block: "start" }));
    scrolled = scroll;
  }

  function show(given) {
    const { runs } = view, wanted = new Set(given.runs.map((run) => run.id));
    for (const id of runs.keys()) if (!wanted.has(id)) runs.delete(id);
    for (const run of given.runs) {
      if (runs.has(run.id)) runs.get(run.id).given = run; else runs.set(run.id, new Run(run));
    }
    view.metric = given.metric;
    view.title = given.title ?? given.metric;
    view.series = seriesOf(given, runs);
    drawLegend(legend, view.series, view.hidden, () => cards.pace.all());
    cards.arrange(given.panels);
    controls.log.hidden = !cards.panels.has("losses");
    strips.write(runs, view);
    readTheme();
    cards.pace.all();
  }

  function load() {
    plotly(data.base).then((Plotly) => { if (!destroyed) cards.begin(Plotly); }, () => { if (!destroyed) setTimeout(load, RETRY); });
  }

  function destroy() {
    destroyed = true;
    clearInterval(watch);
    feed.end();
    cards.end();
    root.remove();
    element.classList.remove("ace-curves-place");
    delete element.__curves;
  }

  element.classList.add("ace-curves-place");
  element.append(root);
  element.__curves = {
    points: (id) => view.runs.get(id)?.steps.length ?? 0,
    drawn: () => cards.drawn,
    lag: () => cards.pace.lag,
    ranges: (name) => cards.ranges(name),
    redraw: () => cards.pace.redraw(),
  };
  update(data);
  load();
  const watch = setInterval(() => { if (!document.hidden && readTheme()) cards.pace.all(); }, WATCH);
  return { update, destroy };
}
