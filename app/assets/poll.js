// Call ask() again and again, never twice at once. It returns the milliseconds until the next call.
//
//   poll(ask, idle) → { now(), later(milliseconds), end() }
//   idle: milliseconds until the next call after one that failed, and while the page is hidden
import { at } from "./theme.js";

export function poll(ask, idle) {
  let timer = 0, asking = false, again = false, ended = false;

  function later(milliseconds) {
    clearTimeout(timer);
    if (!ended) timer = setTimeout(now, milliseconds);
  }

  async function now() {
    again = asking;  // the running call is followed by another
    if (asking || ended) return;
    asking = true;
    clearTimeout(timer);
    let pause = idle;
    try {
      pause = await ask();
    } catch { /* the server restarts; Streamlit shows that itself */ }
    asking = false;
    later(again ? 0 : document.hidden ? idle : pause);
  }

  const look = () => { if (!document.hidden) now(); };
  document.addEventListener("visibilitychange", look);
  return { now, later, end() { ended = true; clearTimeout(timer); document.removeEventListener("visibilitychange", look); } };
}

const INTERVAL = 1200, IDLE_INTERVAL = 6000;  // milliseconds between two requests, while a question trains and otherwise

// Ask the server for a study or a search: draw(answer) is called with every answer, and send("state", …) when its states change.
//
//   follow(kind, { name, base, view }, draw, send, query) → { update(data), end() }
//   view: an answer that the page has drawn already; query() ends the address
export function follow(kind, first, draw, send, query = () => "") {
  let data = first, states = first.view?.states, ended = false;
  const polling = poll(async () => {
    const { base, name } = data, answer = await fetch(at(`${base}${kind}/${encodeURIComponent(name)}${query()}`));
    if (!answer.ok) return IDLE_INTERVAL;
    const next = await answer.json();
    if (ended || name !== data.name) return 0;  // another one is shown by now
    draw(next);
    if (states !== undefined && states !== next.states) send("state", next.states);
    states = next.states;
    return next.busy ? INTERVAL : IDLE_INTERVAL;
  }, IDLE_INTERVAL);
  const ask = () => data.view ? polling.later(INTERVAL) : polling.now();
  ask();
  return {
    update(next) {
      if (next.view || next.name !== data.name) states = next.view?.states;
      data = next;
      ask();
    },
    end() { ended = true; polling.end(); },
  };
}
