"""The app's own charts as Streamlit components. Each is a module in app/assets with mount(element, data, send).

They are part of the page, not in an iframe, and fetch their data from the routes in routes.py, so that a rerun of the
page does not rebuild them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import streamlit as st

from acenode.compare.metrics import MetricFormat
from acenode.player import assets as player_assets

from . import asset_files

BASE = "lab/"
EVENTS = ("state",)  # events that a component may send; each causes at most one rerun

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


@cache
def _component(name: str) -> Callable[..., Any]:
    sheets = [path.read_text(encoding="utf-8") for file in (player_assets.PALETTE, "figures.css", f"{name}.css")
              if (path := asset_files.find(file))]
    return st.components.v2.component(
        f"acenode_{name}", css="".join(sheets),
        js=ADAPTER % {"name": name, "version": asset_files.version()}, isolate_styles=False)


def _mount(name: str, key: str, data: dict[str, Any], **more: Callable[[], None]) -> Any:
    callbacks = {f"on_{event}_change": lambda: None for event in EVENTS} | more
    return _component(name)(key=key, data={"base": BASE, **data}, **callbacks)


def curves(key: str, runs: list[dict[str, Any]], metric: MetricFormat, *, bands: bool = False) -> Any:
    """Show training curves that follow the runs; the page reruns when a run changes its state.

    Args:
        bands: draw one line for each group, with a band over its seeds.
    """
    number = {"scale": metric.scale, "digits": metric.digits, "unit": metric.unit}
    return _mount("curves", key, {"runs": runs, "metric": metric.name, "title": metric.title, "number": number,
                                  "bands": bands, "panels": None})


def player(key: str, runs: list[dict[str, Any]], start_at: float = 0.0, scroll: str | None = None) -> Any:
    """Show h(t) and its attention over time and over training, for all runs in step.

    Args:
        start_at: the share of the time at which it starts, unless the URL has a position.
        scroll: scroll to the player once for each new value.
    """
    return _mount("player", key, {"runs": runs, "startAt": start_at, "scroll": scroll})


def tour_picture(key: str, kind: str, data: dict[str, Any], start_at: float) -> Any:
    """Show a picture of the tour that follows t.

    Args:
        kind: `flow`, `swap` or `attend`; app/assets/tour_KIND.js says what its data is.
        start_at: the t at which it starts.
    """
    return _mount("tour", key, {"kind": kind, "startAt": start_at, **data})


def page_top(key: str, shown: int | str) -> Any:
    """Scroll to the top of the page whenever something else is shown there."""
    return _mount("page_top", key, {"shown": shown})


def playground(key: str, texts: dict[str, Any]) -> Any:
    """Show networks that train while one watches, with their controls.

    Args:
        texts: the titles, ranges and explanations of app/playground/texts.py.
    """
    return _mount("playground", key, texts)


def paper_tables(key: str, view: dict[str, Any], choose: Callable[[str, str], None]) -> Any:
    """Show tables of the paper with our values; `choose` is called with the table and key of a clicked cell."""
    def clicked() -> None:
        if found := st.session_state[key].get("cell"):
            choose(str(found["table"]), str(found["cell"]))

    return _mount("paper_tables", key, view, on_cell_change=clicked)


def study_grid(key: str, name: str, view: dict[str, Any]) -> Any:
    """Show the grid of a study, which follows its runs; the page reruns when a run of it starts or ends.

    Args:
        name: the study.
        view: its present grid, of `study_live.describe`.
    """
    return _mount("study_grid", key, {"name": name, "view": view})


def search_charts(key: str, name: str) -> Any:
    """Show the trials of the search with this name, which follow it; the page reruns when the search starts or ends."""
    return _mount("search_charts", key, {"name": name})


def study_figures(key: str, figures: list[dict[str, Any]]) -> Any:
    """Show figures, each with buttons that save it as SVG and as PNG.

    Args:
        figures: `name` (of the files), `title` and `figure` of each.
    """
    return _mount("figures", key, {"figures": figures})


def active_runs(key: str, states: dict[str, str]) -> Any:
    """Show running and queued runs and the devices; the page reruns when a run starts or ends.

    Args:
        states: the running and queued runs that the page knows of, each with its state.
    """
    return _mount("active_runs", key, {"states": states})
