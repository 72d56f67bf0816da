// Call ask() again and again, never twice at once. It returns the milliseconds until the next call.
//
//   poll(ask, idle) → { now(), later(milliseconds), end() }
//   idle: milliseconds until the next call after one that failed, and while the page is hidden
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
    } catch {
      pause = idle;  // the server restarts; Streamlit shows that itself
    }
    asking = false;
    later(again ? 0 : document.hidden ? idle : pause);
  }

  return { now, later, end() { ended = true; clearTimeout(timer); } };
}
