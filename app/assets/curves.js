// Live training curves of one or several runs: metrics are polled, stored in columns, downsampled and drawn.
//
//   mount(element, data, send) → { update(data), destroy() }
//   data = { runs: [{ id, label, group, colour, live }], metric, title, number, bands, panels, settings, base: "lab/" }
//
// Calls send("state", { id, state }) when a run changes its state. Without `panels`, results and diagnostics are tabs.
import { Cards } from "./curves_cards.js";
import { controls, drawLegend, initialSettings, saveSettings, tabs } from "./curves_controls.js";
import { coloursOf } from "./curves_figure.js";
import { panelsOf } from "./curves_panels.js";
import { Poller } from "./curves_polling.js";
import { Run } from "./curves_run.js";
import { seriesOf } from "./curves_series.js";
import { StatusStrips } from "./curves_status.js";
import { plotly } from "./load_plotly.js";
import { make } from "./theme.js";

const THEME_INTERVAL = 1000, RETRY = 2000;  // milliseconds: between checks of the page's colours, before loading Plotly again

export function mount(element, data, send) {
  const view = { runs: new Map(), series: [], hidden: new Set(), settings: initialSettings(data.settings), metric: "", title: "", number: null, theme: null };
  const settingsChanged = () => { saveSettings(view.settings); cards.scheduler.drawAll(); };
  const strips = new StatusStrips(), bar = controls(view.settings, settingsChanged), cards = new Cards(view, settingsChanged);
  const connectionLost = make("p", { className: "lost", role: "status", hidden: true }, "Connection lost. Trying again…");
  const legend = make("div", "legend"), kinds = tabs((chosen) => { diagnostics = chosen; arrange(); cards.scheduler.drawAll(); });
  const root = make("div", "ace-curves", strips.node, connectionLost, make("div", "top", kinds.node, bar.node), legend, cards.node);
  const poller = new Poller(view.runs, {
    nextIn: () => cards.scheduler.nextIn(),
    received: (changed) => { if (changed) cards.dataChanged(); strips.write(view.runs, view); },
    stateChanged: (run, state) => send?.("state", { id: run.given.id, state }),
    connection: (lost) => { connectionLost.hidden = !lost; },
  });
  let lastData = "", destroyed = false, diagnostics = false, panels = null;

  // Returns true if the page has changed its colours.
  function readTheme() {
    const before = JSON.stringify(view.theme);
    view.theme = coloursOf(root);
    if (JSON.stringify(view.theme) === before) return false;
    root.style.colorScheme = view.theme.dark ? "dark" : "light";  // for the browser's own checkboxes and lists
    return true;
  }

  function update(given) {
    const text = JSON.stringify(given), same = text === lastData;
    lastData = text;
    if (!same) show(given);
    poller.refresh(given.base);  // also with equal data: a run may have been resumed
  }

  function show(given) {
    const { runs } = view, wanted = new Set(given.runs.map((run) => run.id));
    for (const id of runs.keys()) if (!wanted.has(id)) runs.delete(id);
    for (const run of given.runs) {
      if (runs.has(run.id)) runs.get(run.id).given = run; else runs.set(run.id, new Run(run));
    }
    view.metric = given.metric;
    view.title = given.title ?? given.metric;
    view.number = given.number;
    view.series = seriesOf(given, runs);
    drawLegend(legend, view.series, view.hidden, () => cards.scheduler.drawAll());
    panels = given.panels ?? null;
    kinds.name(view.title);
    kinds.node.hidden = panels !== null;
    arrange();
    strips.write(runs, view);
    readTheme();
    cards.scheduler.drawAll();
  }

  function arrange() {
    cards.arrange(panels ?? panelsOf(diagnostics));
    bar.log.hidden = !cards.panels.has("losses");
  }

  function load() {
    plotly(data.base).then((Plotly) => { if (!destroyed) cards.start(Plotly); }, () => { if (!destroyed) setTimeout(load, RETRY); });
  }

  function destroy() {
    destroyed = true;
    clearInterval(themeTimer);
    poller.destroy();
    cards.destroy();
    root.remove();
    delete element.__curves;
  }

  element.append(root);
  element.__curves = {  // for tests and benchmarks
    points: (id) => view.runs.get(id)?.steps.length ?? 0,
    drawn: () => cards.drawn,
    lag: () => cards.scheduler.lag,
    ranges: (name) => cards.ranges(name),
    redraw: () => cards.scheduler.redraw(),
  };
  update(data);
  load();
  const themeTimer = setInterval(() => { if (!document.hidden && readTheme()) cards.scheduler.drawAll(); }, THEME_INTERVAL);
  return { update, destroy };
}
