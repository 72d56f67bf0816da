// The playground's thread on the server: frames come from a route, commands go to it.
import { at } from "./theme.js";
import { bytes } from "./player_run.js";

const PAUSE_MS = 55;  // at least, between two requests for frames
const RETRY_MS = 2000;

// This tab's name for its playground, which survives a reload of the page.
function ownName() {
  const key = "acenode-playground";
  try {
    const found = sessionStorage.getItem(key);
    if (/^[0-9a-f]{32}$/.test(found)) return found;
  } catch { /* storage is blocked: a name for this visit */ }
  const name = [...crypto.getRandomValues(new Uint8Array(16))].map((b) => b.toString(16).padStart(2, "0")).join("");
  try { sessionStorage.setItem(key, name); } catch { /* as above */ }
  return name;
}

// An array of the server: { shape, data }; `data` becomes a Float32Array.
function decode(array) {
  if (array && typeof array.data === "string") array.data = new Float32Array(bytes(array.data).buffer);
}

function decodeFrame(frame) {
  decode(frame.problem.targets);
  for (const { picture } of frame.networks) for (const part of Object.values(picture ?? {})) decode(part);
  return frame;
}

const wait = (ms, signal) => new Promise((done) => {
  const timer = setTimeout(done, ms);
  signal.addEventListener("abort", () => { clearTimeout(timer); done(); }, { once: true });
});

const visible = (signal) => new Promise((done) => {
  if (!document.hidden) { done(); return; }
  const look = () => { if (!document.hidden) { document.removeEventListener("visibilitychange", look); done(); } };
  document.addEventListener("visibilitychange", look);
  signal.addEventListener("abort", done, { once: true });
});

// shown(frame) is called with every new frame, failed(words) with errors and with "" when the server answers again.
export function connect(base, shown, failed) {
  const address = at(`${base}playground/${ownName()}`), stop = new AbortController(), { signal } = stop;
  let after = 0, broken = false;

  async function follow() {
    while (!signal.aborted) {
      await visible(signal);
      const began = performance.now();
      let words = "The server does not respond. Training continues when it is running again.";
      try {
        const answer = await fetch(`${address}?after=${after}`, { signal });
        if (answer.status === 503) words = (await answer.json()).error ?? words;  // too many playgrounds
        if (!answer.ok) throw new Error(String(answer.status));
        const frame = await answer.json();
        if (broken) { broken = false; failed(""); }
        if (frame.serial !== undefined) {
          after = frame.serial;
          shown(decodeFrame(frame));
        }
      } catch {
        if (signal.aborted) return;
        broken = true;
        after = 0;  // a new server counts from the beginning
        failed(words);
        await wait(RETRY_MS, signal);
      }
      const rest = PAUSE_MS - (performance.now() - began);
      if (rest > 0) await wait(rest, signal);
    }
  }

  async function send(action, values = {}) {
    try {
      const answer = await fetch(address, { method: "POST", headers: { "Content-Type": "application/json" }, signal,
        body: JSON.stringify(action === "set" ? { action, values } : { action }) });
      failed(answer.ok ? "" : (await answer.json()).error);
    } catch {
      if (!signal.aborted) failed("The server does not respond.");
    }
  }

  follow();
  return { send, stop: () => stop.abort() };
}
