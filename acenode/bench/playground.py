"""`acenode bench playground`: training steps and drawn frames a second of the playground, in a real browser."""

from __future__ import annotations

import json
import tempfile
import time
from argparse import Namespace
from pathlib import Path
from typing import Any

from acenode.bench.browser import PLAYGROUND, Served, browser, server

SECONDS = 10.0  # measured on each problem, after SETTLE seconds of training
SETTLE = 3.0
LEAST = 20.0  # training steps a second
TITLES = {"swap": "Two points swap places", "circles": "A circle in a ring", "spirals": "Two spirals",
          "drawn": "Draw your own"}
FRAME = f"{PLAYGROUND}?.__playground.frame()"


def run(options: Namespace) -> int:
    """Measure and print; the exit status is 1 if a problem trains fewer than LEAST steps a second."""
    with tempfile.TemporaryDirectory() as folder, browser() as chrome, server(Path(folder) / "runs") as served:
        result = {name: measure(chrome, served, title) for name, title in TITLES.items()}
    print(json.dumps(result) if options.json else render(result))
    return int(min(found["steps_a_second"] for found in result.values()) < LEAST)


def measure(chrome: Any, served: Served, title: str) -> dict[str, float]:
    """Open the page, choose a problem, and count steps and drawn frames over some seconds."""
    page = chrome.new_page(viewport={"width": 1400, "height": 1000})
    page.goto(f"{served.url}/playground")
    page.wait_for_function(f"() => {FRAME}?.step > 0", timeout=60_000)
    page.get_by_role("button", name=title, exact=True).click()
    page.wait_for_timeout(1000 * SETTLE)
    begun, (step, drawn) = time.perf_counter(), _counts(page)
    page.wait_for_timeout(1000 * SECONDS)
    (last_step, last_drawn), seconds = _counts(page), time.perf_counter() - begun
    paint = page.evaluate(f"() => {PLAYGROUND}.__playground.paintSeconds()")
    page.close()
    return {"steps_a_second": (last_step - step) / seconds, "frames_a_second": (last_drawn - drawn) / seconds,
            "paint_seconds": paint}


def _counts(page: Any) -> tuple[int, int]:
    """Return the step that the page shows, and how many frames it has drawn."""
    step, drawn = page.evaluate(f"() => [{FRAME}.step, {PLAYGROUND}.__playground.drawn()]")
    return step, drawn


def render(result: dict[str, dict[str, float]]) -> str:
    """Format the measurements as a table."""
    lines = [f"{'problem':<12}{'steps/s':>10}{'frames/s':>10}{'one picture':>14}   target: {LEAST:.0f} steps/s"]
    lines += [f"{name:<12}{found['steps_a_second']:>10.1f}{found['frames_a_second']:>10.1f}"
              f"{1000 * found['paint_seconds']:>11.1f} ms" for name, found in result.items()]
    return "\n".join(lines)
