// Ticks below the time slider, at the times when the chosen probe's state jumped.
const SVG = "http://www.w3.org/2000/svg";
const ATTRIBUTES = { class: "rug", viewBox: "0 0 1000 1", preserveAspectRatio: "none", "aria-hidden": "true" };

export class Rug {
  constructor() {
    this.node = document.createElementNS(SVG, "svg");
    this.path = document.createElementNS(SVG, "path");
    for (const [name, value] of Object.entries(ATTRIBUTES)) this.node.setAttribute(name, value);
    this.node.append(this.path);
  }

  show(jumps, [start, end]) {
    if (jumps === this.jumps && start === this.start && end === this.end) return;
    Object.assign(this, { jumps, start, end });
    this.path.setAttribute("d", jumps.map((t) => `M${((t - start) / (end - start || 1) * 1000).toFixed(1)},0V1`).join(""));
  }
}
