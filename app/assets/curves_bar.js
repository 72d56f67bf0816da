// What the reader sets: smoothing, axis and scale, kept from visit to visit, and the legend that hides and shows.
import { AXES } from "./curves_panels.js";
import { clamp, make } from "./theme.js";

const REMEMBERED = "acenode.curves";

function recall() {
  try { return JSON.parse(localStorage.getItem(REMEMBERED)) ?? {}; } catch { return {}; }
}

export function remember(settings) {
  try { localStorage.setItem(REMEMBERED, JSON.stringify(settings)); } catch { /* a private window keeps nothing */ }
}

export function settingsOf(given) {
  const settings = { smoothing: 0, log: false, x: "step", two: false, ...given, ...recall() };
  settings.smoothing = clamp(Number(settings.smoothing) || 0, 0, 0.99);
  if (!Object.hasOwn(AXES, settings.x)) settings.x = "step";
  return settings;
}

// A box to tick for settings[key].
export function checkbox(words, settings, key, changed) {
  const box = make("input", { type: "checkbox", checked: Boolean(settings[key]),
    on: { input: () => { settings[key] = box.checked; changed(); } } });
  return make("label", "", box, words);
}

export function bar(settings, changed) {
  const said = make("output", "", settings.smoothing.toFixed(2));
  const slider = make("input", { type: "range", min: 0, max: 0.99, step: 0.01, value: settings.smoothing, on: { input: () => {
    settings.smoothing = Number(slider.value);
    said.textContent = settings.smoothing.toFixed(2);
    changed();
  } } });
  const select = make("select", { on: { input: () => { settings.x = select.value; changed(); } } },
    ...Object.keys(AXES).map((kind) => make("option", { value: kind }, kind)));
  select.value = settings.x;
  const log = checkbox("Log scale for losses", settings, "log", changed);
  return { node: make("div", "bar", make("label", "", "Smoothing", slider, said), make("label", "", "x axis", select), log), log };
}

// One button a series: a click hides or shows it, a double click shows it alone or all again.
export function drawLegend(legend, series, hidden, changed) {
  const press = () => series.forEach((one, i) => legend.children[i].setAttribute("aria-pressed", String(!hidden.has(one.key))));
  const act = (change) => () => { change(); press(); changed(); };
  legend.hidden = series.length < 2;
  legend.replaceChildren(...series.map((one) => {
    const swatch = make("span", "swatch");
    swatch.style.backgroundColor = one.colour;
    return make("button", { type: "button", title: "Click to hide or show, double-click to show it alone", on: {
      click: act(() => { if (!hidden.delete(one.key)) hidden.add(one.key); }),
      dblclick: act(() => {
        const alone = series.every((other) => (other === one) !== hidden.has(other.key));
        hidden.clear();
        if (!alone) for (const other of series) if (other !== one) hidden.add(other.key);
      }),
    } }, swatch, make("span", "name", one.label));
  }));
  press();
}
