"""The lab's own charts as Streamlit components: each is a module of app/assets with mount(element, data, send).

They are mounted in the page itself and fetch what they draw (app/routes.py), so they live on while the page reruns.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import streamlit as st

from acenode.results.metric_format import MetricFormat

ASSETS = Path(__file__).parent / "assets"
BASE = "lab/"
EVENTS = ("state",)  # what a component may send, each at most one rerun

ADAPTER = """
const parts = new WeakMap();
export default function ({ data, parentElement, setTriggerValue }) {
  const found = parts.get(parentElement);
  if (found) {
    found.data = data;
    found.part?.update(data);
    return found.leave;
  }
  const box = document.createElement("div");
  parentElement.appendChild(box);
  const mine = { data, part: null, gone: false };
  mine.leave = () => {
    mine.gone = true;
    mine.part?.destroy();
    box.remove();
    parts.delete(parentElement);
  };
  parts.set(parentElement, mine);
  import(new URL("lab/assets/%(name)s.js?v=%(version)s", document.baseURI).href).then(({ mount }) => {
    if (!mine.gone) mine.part = mount(box, mine.data, (event, value) => setTriggerValue(event, value));
  }, () => { box.textContent = "The lab's server does not answer: reload the page once it runs again."; });
  return mine.leave;
}
"""


def version() -> str:
    """Changes with any asset, so that no browser runs old code."""
    parts = (p.read_bytes() for p in sorted(ASSETS.iterdir()) if p.is_file())
    return hashlib.sha256(b"".join(parts)).hexdigest()[:12]


@cache
def _component(name: str) -> Callable[..., Any]:
    css = ASSETS / f"{name}.css"
    return st.components.v2.component(
        f"acenode_{name}", css=css.read_text(encoding="utf-8") if css.exists() else None,
        js=ADAPTER % {"name": name, "version": version()}, isolate_styles=False)


def _mount(name: str, key: str, data: dict[str, Any]) -> Any:
    callbacks = {f"on_{event}_change": lambda: None for event in EVENTS}
    return _component(name)(key=key, data={"base": BASE, **data}, **callbacks)


def curves(key: str, runs: list[dict[str, Any]], metric: MetricFormat, *, bands: bool = False,
           scroll: str | None = None) -> Any:
    """Training curves that follow the runs; a change of a run's state reruns the page. A new `scroll` shows them."""
    return _mount("curves", key, {"runs": runs, "metric": metric.name, "title": metric.title, "bands": bands,
                                  "panels": None, "scroll": scroll})


def player(key: str, runs: list[dict[str, Any]]) -> Any:
    """h(t) and its attention over time and over training, all runs in step."""
    return _mount("player", key, {"runs": runs})


def now(key: str) -> Any:
    """What trains and waits; a run that comes or goes reruns the page."""
    return _mount("now", key, {})


def hero(key: str) -> Any:
    """The two ODEs feeding each other, from a recorded trajectory."""
    return _mount("hero", key, {})
