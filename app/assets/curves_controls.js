// The reader's controls: smoothing, x axis and scale, which the browser remembers, and the legend that hides and shows series.
import { AXES } from "./curves_panels.js";
import { clamp, make } from "./theme.js";

const STORAGE_KEY = "acenode.curves";

function loadSettings() {
  try { return JSON.parse(localStorage.getItem(STORAGE_KEY)) ?? {}; } catch { return {}; }
}

export function saveSettings(settings) {
  try { localStorage.setItem(STORAGE_KEY, JSON.stringify(settings)); } catch { /* not available in a private window */ }
}

// The defaults, overridden by the given settings and those from an earlier visit.
export function initialSettings(given) {
  const settings = { smoothing: 0, log: false, x: "step", two: false, ...given, ...loadSettings() };
  settings.smoothing = clamp(Number(settings.smoothing) || 0, 0, 0.99);
  if (!Object.hasOwn(AXES, settings.x)) settings.x = "step";
  return settings;
}

// A checkbox for settings[key].
export function checkbox(label, settings, key, changed) {
  const box = make("input", { type: "checkbox", checked: Boolean(settings[key]),
    on: { input: () => { settings[key] = box.checked; changed(); } } });
  return make("label", "", box, label);
}

export function controls(settings, changed) {
  const value = make("output", "", settings.smoothing.toFixed(2));
  const slider = make("input", { type: "range", min: 0, max: 0.99, step: 0.01, value: settings.smoothing, on: { input: () => {
    settings.smoothing = Number(slider.value);
    value.textContent = settings.smoothing.toFixed(2);
    changed();
  } } });
  const select = make("select", { on: { input: () => { settings.x = select.value; changed(); } } },
    ...Object.entries(AXES).map(([kind, { title }]) => make("option", { value: kind }, title)));
  select.value = settings.x;
  const log = checkbox("Log scale for losses", settings, "log", changed);
  return { node: make("div", "bar", make("label", "", "Smoothing", slider, value), make("label", "", "X axis", select), log), log };
}

// One button for each series: a click hides or shows it, a double click shows only it, or all again.
export function drawLegend(legend, series, hidden, changed) {
  const showPressed = () => series.forEach((one, i) => legend.children[i].setAttribute("aria-pressed", String(!hidden.has(one.key))));
  const handler = (change) => () => { change(); showPressed(); changed(); };
  legend.hidden = series.length < 2;
  legend.replaceChildren(...series.map((one) => {
    const swatch = make("span", "swatch");
    swatch.style.backgroundColor = one.colour;
    return make("button", { type: "button", title: "Click to hide or show. Double-click to show only this one.", on: {
      click: handler(() => { if (!hidden.delete(one.key)) hidden.add(one.key); }),
      dblclick: handler(() => {
        const alone = series.every((other) => (other === one) !== hidden.has(other.key));
        hidden.clear();
        if (!alone) for (const other of series) if (other !== one) hidden.add(other.key);
      }),
    } }, swatch, make("span", "name", one.label));
  }));
  showPressed();
}

// Two tabs, results and diagnostics; calls chosen(diagnostics) when another one is selected.
export function tabs(chosen) {
  const buttons = [false, true].map((diagnostics) => make("button", { type: "button", role: "tab", on: { click: () => select(diagnostics) } }));
  buttons[1].textContent = "Diagnostics";
  buttons[1].title = "Function evaluations (NFE), step size of the solver, gradient norms, seconds per step, learning rate";
  const node = make("div", { className: "tabs", role: "tablist", "aria-label": "Curves" }, ...buttons);
  const select = (diagnostics) => {
    buttons.forEach((button, i) => button.setAttribute("aria-selected", String(Boolean(i) === diagnostics)));
    chosen(diagnostics);
  };
  node.addEventListener("keydown", ({ key }) => {
    if (key !== "ArrowLeft" && key !== "ArrowRight") return;
    const next = buttons.find((button) => button.getAttribute("aria-selected") === "false");
    next.click();
    next.focus();
  });
  buttons.forEach((button, i) => button.setAttribute("aria-selected", String(i === 0)));
  return { node, name: (title) => { buttons[0].textContent = `${title.replace(/^./, (c) => c.toUpperCase())} and loss`; } };
}
