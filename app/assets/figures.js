// Charts that Python makes: Plotly, loaded once for a page, the page's colours, and cards that keep their charts.
//
//   mount(element, { figures: [{ name, title, figure }], base }) shows figures with buttons that save them as SVG and as PNG.
import { at, button, Colours, coloursOf, dressed, make, setText, setTextOrHide } from "./theme.js";

const RETRY = 2000;  // milliseconds before Plotly is loaded again
const ENLARGED = 3;  // a PNG is so many times as large as the chart
const PAPER = { ink: "#1b2433", panel: "#ffffff", line: "#d9dfe9", font: "system-ui, sans-serif" };  // of a saved figure
const CONFIG = { displaylogo: false, responsive: true, scrollZoom: false, doubleClick: "autosize", showTips: false,
  displayModeBar: "hover", modeBarButtons: [["toImage", "zoom2d", "pan2d", "autoScale2d"]] };

function plotly(base) {
  if (window.Plotly) return Promise.resolve(window.Plotly);
  return window.__plotlyLoading ??= new Promise((resolve) => {
    const script = make("script", { src: at(`${base}plotly.js`) });
    script.onload = () => window.Plotly ? resolve(window.Plotly) : script.onerror();
    script.onerror = () => {
      script.remove();
      window.__plotlyLoading = undefined;
      setTimeout(() => plotly(base).then(resolve), RETRY);
    };
    document.head.append(script);
  });
}

export class Card {
  constructor({ title = "", hint = "", wide = false } = {}, ...more) {
    [this.plot, this.empty, this.dirty] = [make("div", "plot"), make("p", "empty", "Loading…"), false];
    [this.title, this.hint] = [make("span", "title", title), make("span", "key", hint)];
    this.head = make("figcaption", "", this.title, this.hint, ...more);
    this.body = make("div", "body", this.plot, this.empty);
    this.node = make("figure", { className: wide ? "card wide" : "card", "aria-label": title }, this.head, this.body);
  }

  get drawn() { return Boolean(this.plot._fullLayout); }

  // Shows a figure, or says why there is none; `any` is false if all of its curves are hidden.
  draw(figure, colours, reason = "", any = figure !== null) {
    setTextOrHide(this.empty, any ? "" : reason);
    this.plot.classList.toggle("empty-plot", !any);
    if (!figure) return;
    const { data, layout } = dressed(figure, colours);
    window.Plotly.react(this.plot, data, layout, CONFIG);
  }
}

// Calls draw(card, colours) for cards below `root` that have changed, or all of them when the page's colours change: one after the
// other so that the page answers in between, and only while they can be seen or nearly.
export class Drawing {
  // appeared() is called whenever other cards can be seen.
  constructor(root, base, draw, canDraw = () => true, appeared = () => {}) {
    Object.assign(this, { draw, canDraw, cards: new Map(), seen: new Set(), timer: 0, ended: false });
    this.observer = new IntersectionObserver((entries) => {
      for (const { target, isIntersecting } of entries) this.seen[isIntersecting ? "add" : "delete"](this.cards.get(target));
      appeared();
      this.next();
    }, { rootMargin: "200px" });
    this.look = () => this.next();
    document.addEventListener("visibilitychange", this.look);
    this.colours = new Colours((old) => coloursOf(root, old), () => this.again());
    plotly(base).then(this.look);
  }

  watch(card) {
    if (this.cards.has(card.node)) return;
    this.cards.set(card.node, card);
    this.observer.observe(card.node);
  }

  add(card) {
    card.dirty = true;
    this.watch(card);
    this.next();
  }

  // Draw all cards that have been drawn, or were to be, anew.
  again() {
    for (const card of this.cards.values()) card.dirty ||= card.drawn;
    this.next();
  }

  ready() { return document.hidden || this.ended || !window.Plotly ? [] : [...this.seen].filter((card) => card?.dirty && this.canDraw(card)); }

  next() {
    if (!this.timer && this.ready().length) this.timer = setTimeout(() => {
      this.timer = 0;
      const [card] = this.ready();
      if (!card) return;
      card.dirty = false;
      this.draw(card, this.colours.now);
      this.next();
    });
  }

  forget(card) {
    this.seen.delete(card);
    this.cards.delete(card.node);
    this.observer.unobserve(card.node);
    if (card.drawn) window.Plotly.purge(card.plot);
    card.node.remove();
  }

  get done() { return !this.timer && !this.ready().length; }

  end() {
    this.ended = true;
    this.colours.end();
    clearTimeout(this.timer);
    for (const card of [...this.cards.values()]) this.forget(card);
    this.observer.disconnect();
    document.removeEventListener("visibilitychange", this.look);
  }
}

async function save({ name, figure }, format) {
  const { width, height = 360 } = figure.layout, size = { format, width: width ?? 900, height, scale: format === "png" ? ENLARGED : 1 };
  make("a", { href: await window.Plotly.toImage(dressed(figure, PAPER), size), download: `${name}.${format}` }).click();
}

export function mount(element, first) {
  let cards = [], drawn = "";
  element.className = "ace ace-figures study-figures";
  const drawing = new Drawing(element, first.base, (card, colours) => card.draw(card.given.figure, colours));
  function create() {
    const card = new Card({}, ...["svg", "png"].map((kind) => button(kind.toUpperCase(), () => save(card.given, kind), { "data-kind": kind })));
    element.append(card.node);
    return card;
  }
  function update({ figures }) {
    const text = JSON.stringify(figures);
    if (text === drawn) return;
    drawn = text;
    while (cards.length > figures.length) drawing.forget(cards.pop());
    figures.forEach((given, i) => {
      const card = cards[i] ??= create();
      card.given = given;
      setText(card.title, given.title);
      card.node.setAttribute("aria-label", given.title);
      for (const one of card.head.querySelectorAll("button")) one.setAttribute("aria-label", `${given.title} as ${one.textContent}`);
      card.plot.style.height = `${given.figure.layout.height ?? 360}px`;
      drawing.add(card);
    });
  }
  update(first);
  return { update, destroy: () => drawing.end() };
}
