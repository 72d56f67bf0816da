"""The app in a real browser: `acenode bench app`, `playground` and `search`."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
import urllib.request
from argparse import Namespace
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from acenode import experiments
from acenode.bench import Row, progress, seconds_of
from acenode.bench.browser import CURVES, PLAYER, PLAYGROUND, Served, browser, server, show_curves, wait_for_player
from acenode.bench.synthetic import finished_runs, long_run, run_with_large_maps, synthetic_search
from acenode.errors import UserError
from acenode.execution.execute import create
from acenode.runs.catalogue import Catalogue
from acenode.runs.questions import SearchStore
from acenode.runs.recorded import recorded_runs
from acenode.runs.store import Run, RunStore
from acenode.search.journal import SearchJournal

VIEW = {"width": 1400, "height": 1000}
WINDOW, ROUNDS = 20.0, 3  # least seconds measured with and without open pages, and how often
Measured = Iterator[tuple[str, float, str]]  # what, value and target


def app(options: Namespace) -> Row:
    """Measure response times of the app, and what open pages cost training."""
    rows = list[Row]()
    with tempfile.TemporaryDirectory() as folder, browser() as chrome:
        for part in (opening, drawing, watching):
            progress(part.__name__)
            rows += [{"measured": name, "value": value, "target": target}
                     for name, value, target in part(chrome, Path(folder) / part.__name__)]
    return {"rows": rows}


def opening(chrome: Any, root: Path) -> Measured:
    """Measure the time to list 500 runs, to start the server, and to open the page of the recorded run of ACE with most
    snapshots of each experiment."""
    finished_runs(root, 500)
    yield "seconds to list 500 runs", seconds_of(Catalogue(RunStore(root)).entries), "≤ 1"
    begun, page = time.perf_counter(), chrome.new_page(viewport=VIEW)
    with server(root.with_name("empty")) as served:
        page.goto(served.url)
        page.get_by_role("button", name="Train the demo").wait_for()
        yield "seconds from the server's start to a usable page", time.perf_counter() - begun, "≤ 5"
        while not json.loads(urllib.request.urlopen(f"{served.url}/lab/active").read())["devices"]:
            time.sleep(0.1)  # the server loads torch in the background
        entries = [e for e in Catalogue(RunStore(Path("no-runs"), recorded_runs())).entries()
                   if e.method == "ace" and e.run.snapshots()]
        most = {e.experiment: e for e in sorted(entries, key=lambda e: len(e.run.snapshots()))}
        for path in ("", *(f"{entry.experiment}?runs={entry.id}" for entry in most.values())):
            begun = time.perf_counter()
            page.goto(f"{served.url}/{path}")
            wait_for_player(page)
            yield f"seconds from opening /{path.partition('?')[0]} to its player", time.perf_counter() - begun, "≤ 3"


def drawing(chrome: Any, root: Path) -> Measured:
    """Measure the delay from a written metric to its curve, the redraw of 2 × 20,000 points, and the player's frame
    rate."""
    store = RunStore(root)
    live = long_run(store, 200, state="running")
    long, with_maps = [long_run(store, 20_000) for _ in range(2)], [run_with_large_maps(store) for _ in range(2)]
    with server(root) as served:
        page = chrome.new_page(viewport=VIEW)
        show_curves(page, served, f"mnist?runs={live.id}", live.id, 200)
        page.wait_for_timeout(1500)
        delays = []
        for i in range(200, 215):
            before = page.evaluate(f"() => {CURVES}.__curves.drawn()")
            with open(live.path / "metrics.jsonl", "a", encoding="utf-8") as file:
                file.write(json.dumps({"kind": "step", "step": i, "epoch": 0, "L_h": 1.0, "seconds": 0.1}) + "\n")
            delays.append(seconds_of(partial(
                page.wait_for_function, f"() => {CURVES}.__curves.points('{live.id}') > {i} && "
                                        f"{CURVES}.__curves.drawn() > {before}", polling=20)))
            page.wait_for_timeout(137 * (i % 5))  # at different moments of the page's polling cycle
        yield "seconds from a written metric to its curve, slowest of 15", max(delays), "≤ 1"
        show_curves(page, served, f"mnist?runs={long[0].id},{long[1].id}", long[0].id, 20_000)
        page.wait_for_function(f"() => {CURVES}.__curves.points('{long[1].id}') === 20000", timeout=60_000)
        page.wait_for_timeout(2000)
        yield "ms to redraw 2 runs of 20,000 points", page.evaluate(f"() => {CURVES}.__curves.redraw()"), "smooth"
        page.goto(f"{served.url}/mnist?runs={','.join(run.id for run in with_maps)}")
        wait_for_player(page)
        page.wait_for_timeout(3000)
        page.evaluate(f"() => {PLAYER}.__player.play()")
        page.wait_for_timeout(4000)
        frames = page.evaluate(f"() => {PLAYER}.__player.fps()")
        yield "frames/s of 2 runs with 60 frames of 64×64 maps", frames, "≥ 20"


def watching(chrome: Any, root: Path) -> Measured:
    """Measure training throughput with two open pages against none, alternating during one run."""
    store = RunStore(root)
    pattern = create(store, experiments.get("mnist").configure("ace", epochs=1000, device="cpu"))
    pattern.set_state("stopped")
    with server(root) as served:
        page = chrome.new_page()
        page.goto(f"{served.url}/mnist?from={pattern.id}")
        page.get_by_role("button", name="Train", exact=True).click()
        while not (trained := [run for run in store if run.id != pattern.id and len(run.metrics()[0]) >= 20]):
            time.sleep(0.2)
        page.close()
        alone, watched = list[float](), list[float]()
        for _ in range(ROUNDS):  # none, two, two, none: a slow drift affects both alike
            alone.append(throughput(trained[0]))
            tabs = [chrome.new_page(viewport=VIEW) for _ in range(2)]
            for tab in tabs:
                show_curves(tab, served, f"mnist?runs={trained[0].id}", trained[0].id)
            time.sleep(3)
            watched += [throughput(trained[0]), throughput(trained[0])]
            for tab in tabs:
                tab.close()
            time.sleep(3)
            alone.append(throughput(trained[0]))
    yield "training throughput, two open pages / none", sum(watched) / sum(alone), "≥ 0.97"


def throughput(run: Run, least: float = WINDOW) -> float:
    """Return iterations a second from the next epoch's end to the first epoch's end at least `least` seconds later.

    Only whole epochs compare: step records arrive in batches, and one validation more or less would hide the effect.
    """
    begun, iterations, offset = None, 0, run.metrics()[1]
    while run.status()["state"] == "running":
        time.sleep(0.02)
        records, offset = run.metrics(offset)
        now = time.perf_counter()
        for record in records:
            if record["kind"] == "step":
                iterations += 1
            elif begun is None:
                begun, iterations = now, 0
            elif now - begun >= least:
                return iterations / (now - begun)
    raise UserError("training in the app ended during the measurement")


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
