"""The app's own charts as Streamlit components. Each is a module in app/assets with mount(element, data, send).

They are part of the page, not in an iframe, and fetch their data from the routes in routes.py, so that a rerun of the
page does not rebuild them. A page sends its player first and waits, two seconds at most, until the browser has read the
player's data: the rest of the page keeps it busy for seconds.
"""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import streamlit as st

from acenode.compare.metrics import MetricFormat
from acenode.player import assets as player_assets

from .results.live_curves import series_of
from .services import is_served

FOLDERS = (Path(__file__).parent / "assets", player_assets.FOLDER)  # reports use the player as well
SHEETS = (player_assets.PALETTE, "figures.css", "pictures.css")  # of all components
BASE = "lab/"
LIMIT = 2.0  # seconds that the rest waits at most, such as for a page in a hidden tab, which reads nothing
DRAWING = 0.1  # seconds in which the browser draws what it has read
PLAYER_START = 0.6  # of the time that a player shows at first: attention has moved by then

ADAPTER = """
const mounted = new WeakMap(), scrolled = new WeakMap();
function scrollOnce(element, wanted) {
  if (!wanted || scrolled.get(element) === wanted) return;
  scrolled.set(element, wanted);
  element.style.scrollMarginTop = "4rem";  // height of the page's header
  requestAnimationFrame(() => {
    const { top } = element.getBoundingClientRect();
    if (top < 0 || top > window.innerHeight / 2) element.scrollIntoView({ behavior: "smooth", block: "start" });
  });
}
export default function ({ data, parentElement, setTriggerValue }) {
  const found = mounted.get(parentElement);
  scrollOnce(parentElement, data.scroll);
  if (found) {
    found.data = data;
    found.component?.update(data);
    return found.unmount;
  }
  const box = document.createElement("div");
  parentElement.appendChild(box);
  const own = { data, component: null, removed: false };
  own.unmount = () => {
    own.removed = true;
    own.component?.destroy();
    box.remove();
    mounted.delete(parentElement);
  };
  mounted.set(parentElement, own);
  import(new URL("lab/assets/%(version)s/%(name)s.js", document.baseURI).href).then(({ mount }) => {
    if (!own.removed) own.component = mount(box, own.data, (event, value) => setTriggerValue(event, value));
  }, () => { box.textContent = "The server does not respond. Reload the page when it is running again."; });
  return own.unmount;
}
"""


def find_asset(name: str) -> Path | None:
    return next((folder / name for folder in FOLDERS if (folder / name).is_file()), None)


@cache
def assets_version() -> str:
    """Return a hash of all files: part of their address, so that a browser keeps them until one changes."""
    contents = (p.read_bytes() for folder in FOLDERS for p in sorted(folder.iterdir()) if p.is_file())
    return hashlib.sha256(b"".join(contents)).hexdigest()[:12]


@cache
def _component(name: str) -> Callable[..., Any]:
    sheets = [path.read_text(encoding="utf-8") for file in (*SHEETS, f"{name}.css")
              if (path := find_asset(file))]
    return st.components.v2.component(f"acenode_{name}", css="".join(sheets), isolate_styles=False,
                                      js=ADAPTER % {"name": name, "version": assets_version()})


def show(name: str, key: str, data: dict[str, Any], **more: Callable[[], None]) -> Any:
    """Show the component of app/assets/NAME.js, which says what its data is; `more` are callbacks `on_EVENT_change`."""
    callbacks = {"on_state_change": lambda: None} | more  # an event that any component may send: the page reruns
    return _component(name)(key=key, data={"base": BASE, **data}, **callbacks)


def curves(key: str, runs: list[dict[str, Any]], metric: MetricFormat, *, bands: bool = False) -> Any:
    """Show training curves that follow the runs; with `bands`, one line for each group, with a band over its seeds. The
    page reruns when a run changes its state."""
    number = {"scale": metric.scale, "digits": metric.digits, "unit": metric.unit}
    given = [{key: run[key] for key in ("id", "label", "live") if key in run} for run in runs]
    return show("curves", key, {"runs": given, "series": series_of(runs, bands), "metric": metric.name,
                                "title": metric.title, "number": number})


def player(key: str, runs: list[dict[str, Any]], start_at: float = 0.0, scroll: str | None = None) -> Any:
    """Show h(t) and its attention over time and over training, for all runs in step.

    Args:
        start_at: the share of the time at which it starts, unless the URL has a position.
        scroll: scroll to the player once for each new value.
    """
    return show("player", key, {"runs": runs, "startAt": start_at, "scroll": scroll})


def paper_tables(key: str, view: dict[str, Any]) -> Any:
    """Show tables of the paper with our values. The URL keeps the clicked cell, so that Back returns to the one before,
    whose player has the other parameters."""
    def clicked() -> None:
        if found := st.session_state[key].get("cell"):
            st.query_params.from_dict({"cell": str(found["cell"]), "table": str(found["table"])})

    return show("paper_tables", key, view, on_cell_change=clicked)


_changed = threading.Condition()
_waiting: list[set[str]] = []  # for each page that waits: the runs whose data its player has not read yet


@contextmanager
def before_the_rest(page: str, runs: Iterable[str]) -> Iterator[None]:
    """Wait at the end of the block, in which the player is sent, until a browser has read the data of these runs."""
    # only at the first run of a page in a session: later the player is on the page already, perhaps out of view
    if not is_served() or st.session_state.get("player first") == page:
        yield
        return
    st.session_state["player first"], missing = page, set(runs)
    with _changed:
        _waiting.append(missing)
    try:
        yield
        with _changed:
            sent = _changed.wait_for(lambda: not missing, LIMIT)
        if sent:
            time.sleep(DRAWING)
    finally:
        with _changed:
            _waiting[:] = [others for others in _waiting if others is not missing]


def data_sent(run: str) -> None:
    with _changed:
        for missing in _waiting:
            missing.discard(run)
        _changed.notify_all()
