// The text beside the pointer.
import { make, setText } from "./theme.js";

export class Tip {
  constructor() {
    this.node = make("div", { className: "tip", hidden: true });
    this.pointer = null;  // { view, panel, x, y, event }
  }

  show(views, state) {
    const { pointer, node } = this;
    const lines = pointer && views.includes(pointer.view) ? pointer.view.lines(pointer.panel, pointer.x, pointer.y, state) : null;
    node.hidden = !lines;
    if (!lines) return;
    setText(node, lines.join("\n"));
    const own = node.parentElement.getBoundingClientRect(), x = pointer.event.clientX - own.left, y = pointer.event.clientY - own.top;
    const left = x + 16 + node.offsetWidth > own.width ? x - 16 - node.offsetWidth : x + 16;
    node.style.transform = `translate(${Math.max(left, 0)}px, ${Math.max(y - node.offsetHeight - 10, 0)}px)`;
  }
}
