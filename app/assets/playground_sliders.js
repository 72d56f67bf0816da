// Sliders for the settings; each acts while it is dragged.
import { make, setText } from "./theme.js";

const STEPS = 120;  // places of a slider with a logarithmic scale

function scaleOf({ scale, low, high, least = low }) {
  if (scale === "whole") return { max: high - low, read: (n) => low + n, place: (v) => v - low, words: String };
  const zero = scale === "log0", first = zero ? 1 : 0, ratio = Math.log(high / least);
  return {
    max: STEPS,
    read: (n) => zero && n === 0 ? 0 : Number((least * Math.exp(ratio * (n - first) / (STEPS - first))).toPrecision(2)),
    place: (v) => zero && v <= 0 ? 0 : Math.round(first + (STEPS - first) * Math.log(v / least) / ratio),
    words: (v) => v === 0 ? "0" : v < 0.001 ? v.toExponential(1) : String(v),
  };
}

// A labelled slider; changed(value) is called at every move.
export function slider(about, changed) {
  const scale = scaleOf(about), output = make("span", "value");  // not <output>, which screen readers would read aloud at every change
  const input = make("input", { type: "range", min: "0", max: String(scale.max), step: "1", "aria-label": about.title, on: {
    input: () => { show(scale.read(Number(input.value))); changed(about.key, scale.read(Number(input.value))); } } });
  function show(value) {
    setText(output, scale.words(value));
    input.setAttribute("aria-valuetext", scale.words(value));
  }
  return { node: make("label", "slider", make("span", "", about.title), input, output),
    set(value) { input.value = String(scale.place(value)); show(value); } };
}
