// What trains and waits now, and how busy the devices are: a small list that keeps itself up to date.
import { at, duration, make } from "./theme.js";

const PERIOD = 2000, SLOW = 6000;

export function mount(element, data, send) {
  element.className = "now";
  let seen = null, timer = 0, gone = false, asking = false;

  function row(run) {
    const line = make("a", "now-run");
    line.href = at(`${encodeURIComponent(run.experiment)}?runs=${encodeURIComponent(run.id)}`);
    line.target = "_self";
    const name = [run.experiment, run.method, ...(run.settings ? [run.settings] : []), `seed ${run.seed}`].join(" · ");
    line.append(make("span", "now-name", name));
    const left = run.state === "queued" ? `waits, number ${run.place}` : run.seconds_left ? `${duration(run.seconds_left)} left` : "starting";
    line.append(make("span", "now-left", left));
    const bar = make("span", "now-bar"), full = make("span", "now-full");
    full.style.width = `${100 * (run.progress ?? 0)}%`;
    bar.append(full);
    line.append(bar);
    return line;
  }

  function device(d) {
    const parts = [`${d.running} of ${d.workers} at work`];
    if (d.utilisation !== null) parts.push(`${Math.round(100 * d.utilisation)}% busy`);
    if (d.memory_used !== null) parts.push(`${(d.memory_used / 2 ** 30).toFixed(1)} of ${(d.memory_total / 2 ** 30).toFixed(0)} GiB`);
    const line = make("div", "now-device");
    line.append(make("strong", "", d.title), make("span", "", parts.join(" · ")));
    return line;
  }

  async function look() {
    if (asking) return;  // its end asks again
    asking = true;
    clearTimeout(timer);
    let pause = PERIOD;
    try {
      const answer = await (await fetch(at(`${data.base}active`))).json();
      if (gone) return;
      const children = answer.runs.slice(0, 6).map(row);
      if (answer.runs.length > 6) children.push(make("div", "now-quiet", `and ${answer.runs.length - 6} more`));
      if (!answer.runs.length) children.push(make("div", "now-quiet", "Nothing trains."));
      element.replaceChildren(...children, ...answer.devices.map(device));
      const states = answer.runs.map((run) => `${run.id} ${run.state}`).join();
      if (seen !== null && states !== seen) send("state", states);
      seen = states;
      if (!answer.runs.length) pause = SLOW;
    } catch {
      pause = SLOW;  // the server restarts; Streamlit says so itself
    }
    asking = false;
    if (!gone) timer = setTimeout(look, document.hidden ? SLOW : pause);
  }

  look();
  return { update() { look(); }, destroy() { gone = true; clearTimeout(timer); } };
}
