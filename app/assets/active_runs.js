// The list of running and queued runs and of the devices in the sidebar; it refreshes itself.
import { poll } from "./poll.js";
import { at, duration, make } from "./theme.js";

const INTERVAL = 3000, IDLE_INTERVAL = 6000;  // milliseconds between two requests
const MAX_RUNS = 6;

const plural = new Intl.PluralRules("en", { type: "ordinal" });
const ordinal = (n) => `${n}${{ one: "st", two: "nd", few: "rd" }[plural.select(n)] ?? "th"}`;

function statusOf(run, gpus) {
  if (run.state === "queued") return run.place ? `${ordinal(run.place)} in queue` : "Queued";
  const status = run.seconds_left ? `${duration(run.seconds_left)} left` : run.progress >= 1 ? "Testing" : "Starting";
  const [kind, index] = run.device.split(":");
  return kind === "cuda" && gpus > 1 ? `${status} on GPU ${index}` : status;
}

function runLink(run, gpus) {
  const filled = make("span");
  filled.style.width = `${100 * (run.progress ?? 0)}%`;
  const link = make("a", "active-run", make("span", "active-name", run.name),
    make("span", "active-status", statusOf(run, gpus)),
    make("span", "ace-bar", filled));
  link.href = at(`${encodeURIComponent(run.experiment)}?runs=${encodeURIComponent(run.id)}`);
  link.target = "_self";
  return link;
}

function deviceLine({ title, load, memory_used: used, memory_total: total }) {
  const parts = [load];
  if (used !== null) parts.push(`${(used / 2 ** 30).toFixed(1)} of ${(total / 2 ** 30).toFixed(0)}\u00a0GiB`);
  return make("div", "active-device", make("strong", "", title), make("span", "", parts.join(" · ")));
}

// Roles that the list of pages in Streamlit's sidebar lacks: its sections are items, and the links in them are not.
function mend() {
  for (const section of document.querySelectorAll("[data-testid=stSidebarNavItems] > div")) {
    section.setAttribute("role", "listitem");
    for (const item of section.querySelectorAll(":scope > li")) item.setAttribute("role", "none");
  }
}

// Set the roles now and whenever the sidebar of this element changes; return a function that ends it.
function mendSidebar(element) {
  const observer = new MutationObserver(mend), sidebar = element.closest("[data-testid=stSidebar]");
  if (sidebar) observer.observe(sidebar, { childList: true, subtree: true });
  mend();
  return () => observer.disconnect();
}

const described = (states) => Object.entries(states).map(([id, state]) => `${id} ${state}`).sort().join();

export function mount(element, data, send) {
  element.className = "active-runs";
  let shown = described(data.states), destroyed = false;

  async function refresh() {
    const { runs, devices } = await (await fetch(at(`${data.base}active`))).json();
    if (destroyed) return IDLE_INTERVAL;
    const gpus = devices.filter(({ name }) => name !== "cpu").length;
    const children = runs.slice(0, MAX_RUNS).map((run) => runLink(run, gpus));
    if (runs.length > MAX_RUNS) children.push(make("div", "active-note", `${runs.length - MAX_RUNS} more`));
    if (!runs.length) children.push(make("div", "active-note", "Idle"));
    element.replaceChildren(...children, ...devices.map(deviceLine));
    const states = described(Object.fromEntries(runs.map((run) => [run.id, run.state])));
    if (states !== shown) send("state", shown = states);  // the page reruns and shows these
    return runs.length ? INTERVAL : IDLE_INTERVAL;
  }

  const release = mendSidebar(element), polling = poll(refresh, IDLE_INTERVAL);
  polling.now();
  return { update(changed) { shown = described(changed.states); polling.now(); }, destroy() { destroyed = true; polling.end(); release(); } };
}
