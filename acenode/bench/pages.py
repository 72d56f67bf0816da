"""The app in a real browser: `acenode bench app`, `playground` and `search`."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
import urllib.request
from argparse import Namespace
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from acenode.bench import Row, progress, seconds_of
from acenode.bench.browser import PLAYGROUND, Served, browser, server, wait_for_player
from acenode.bench.synthetic import finished_runs, synthetic_search
from acenode.errors import UserError
from acenode.runs.catalogue import Catalogue
from acenode.runs.questions import SearchStore
from acenode.runs.recorded import recorded_runs
from acenode.runs.store import RunStore
from acenode.search.journal import SearchJournal

VIEW = {"width": 1400, "height": 1000}


def app(options: Namespace) -> Row:
    """Measure the time to list 500 runs, to start the server, and to open Home and the recorded run of ACE with most
    snapshots of each experiment."""
    rows = list[Row]()
    with tempfile.TemporaryDirectory() as folder, browser() as chrome:
        page = chrome.new_page(viewport=VIEW)

        def add(name: str, target: str, work: Callable[[], object]) -> None:
            rows.append({"measured": name, "seconds": seconds_of(work), "target": target})

        def opened(path: str) -> None:
            page.goto(f"{served.url}/{path}")
            wait_for_player(page)

        finished_runs(Path(folder) / "listing", 500)
        add("list 500 runs", "≤ 1", Catalogue(RunStore(Path(folder) / "listing")).entries)
        begun = time.perf_counter()
        with server(Path(folder) / "runs") as served:
            page.goto(served.url)
            page.get_by_role("button", name="Train the demo").wait_for()
            rows.append({"measured": "server start to usable first page", "seconds": time.perf_counter() - begun,
                         "target": "≤ 5"})
            add("open Home, player drawn", "≤ 5", partial(opened, ""))
            for _ in range(600):  # the server loads torch in the background
                if json.loads(urllib.request.urlopen(f"{served.url}/lab/active").read())["devices"]:
                    break
                time.sleep(0.1)
            entries = [e for e in Catalogue(RunStore(Path("no-runs"), recorded_runs())).entries()
                       if e.method == "ace" and e.run.snapshots()]
            most = {e.experiment: e for e in sorted(entries, key=lambda e: len(e.run.snapshots()))}
            for entry in most.values():
                add(f"open a run of {entry.experiment}, player drawn", "≤ 3",
                    partial(opened, f"{entry.experiment}?runs={entry.id}"))
    return {"rows": rows}


# Playground ---------------------------------------------------------------------------------------------------------

PROBLEMS = ("Two points swap places", "A circle in a ring", "Two spirals", "Draw your own")


def playground(options: Namespace) -> Row:
    """Measure training steps and drawn frames a second of the playground's problems."""
    with tempfile.TemporaryDirectory() as folder, browser() as chrome, server(Path(folder) / "runs") as served:
        return {"rows": [{"problem": title, **measure_playground(chrome, served, title)} for title in PROBLEMS],
                "target": "20 steps/s"}


def measure_playground(chrome: Any, served: Served, title: str) -> dict[str, float]:
    """Choose a problem, let it train for three seconds, and count its steps and drawn frames for ten."""
    frame, page = f"{PLAYGROUND}?.__playground.frame()", chrome.new_page(viewport=VIEW)

    def counts() -> tuple[int, int]:
        step, drawn = page.evaluate(f"() => [{frame}.step, {PLAYGROUND}.__playground.drawn()]")
        return step, drawn

    page.goto(f"{served.url}/playground")
    page.wait_for_function(f"() => {frame}?.step > 0", timeout=60_000)
    page.get_by_role("button", name=title, exact=True).click()
    page.wait_for_timeout(3_000)
    begun, (step, drawn) = time.perf_counter(), counts()
    page.wait_for_timeout(10_000)
    (last_step, last_drawn), seconds = counts(), time.perf_counter() - begun
    page.close()
    return {"steps/s": (last_step - step) / seconds, "frames/s": (last_drawn - drawn) / seconds}


# A search with 10,000 recorded trials -------------------------------------------------------------------------------

TRIALS = 10_000
DRAWN = "[...document.querySelectorAll('div')].find(e => e.__search)?.__search"


def search(options: Namespace) -> Row:
    """Time every listing, as a command and on the page."""
    with tempfile.TemporaryDirectory() as folder:
        found = measure_search(Path(folder) / "runs")
    return {"rows": [{"listing": name, "seconds": seconds} for name, seconds in found.items()],
            "target": "2 seconds, but for the charts"}


def measure_search(root: Path) -> dict[str, float]:
    """Return the seconds of every listing by its name."""
    store = SearchStore(RunStore(root))
    made = synthetic_search(store, "many", TRIALS)
    found = {"read the journal": seconds_of(SearchJournal(store.journal("many"), made.ranges).refresh)}
    for words in (["list"], ["show", "many"]):
        command = [sys.executable, "-m", "acenode.cli", "search", *words, "--runs", str(root)]
        found[f"acenode search {words[0]} (whole command)"] = seconds_of(
            partial(subprocess.run, command, check=True, capture_output=True))
    try:
        with browser() as chrome, server(root) as served:
            page = chrome.new_page(viewport=VIEW)

            def opened(path: str, ready: Callable[[], object]) -> float:
                return seconds_of(lambda: (page.goto(f"{served.url}/{path}"), ready()))

            opened("searches", page.locator("h1").first.wait_for)
            found["page: list of searches opened"] = opened(
                "searches", page.get_by_text(f"of {TRIALS} trials finished").wait_for)
            found["page: search opened, best trials listed"] = listed = opened("searches?search=many", partial(
                page.wait_for_function, f"() => {DRAWN}?.trials() === {TRIALS} && {DRAWN}.listed()", timeout=60_000))
            found["page: charts in view drawn as well"] = listed + seconds_of(
                partial(page.wait_for_function, f"() => {DRAWN}.drawn()", timeout=60_000))
    except UserError as error:  # no browser here
        progress(f"the page is not measured: {error}")
    return found
