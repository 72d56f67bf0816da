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


def app(options: Namespace) -> Row:
    """Measure response times of the app, and what open pages cost training."""
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        finished_runs(Path(folder) / "listing", 500)
        for part in (listing, first_page, recorded_players, drawing, watching):
            progress(f"measuring: {part.__name__.replace('_', ' ')}")
            rows += [{"measured": name, "value": value, "unit": unit, "target": target}
                     for name, value, unit, target in part(Path(folder) / part.__name__)]
    return {"rows": rows}


Measured = Iterator[tuple[str, float, str, str | None]]  # what, value, unit and target


def listing(root: Path) -> Measured:
    """Measure the seconds to list 500 runs in a new process."""
    code = ("import time, sys; from acenode.runs.catalogue import Catalogue; from acenode.runs.store import RunStore;"
            "t = time.perf_counter(); n = len(Catalogue(RunStore(sys.argv[1])).entries()); assert n == 500, n;"
            "print(time.perf_counter() - t)")
    done = subprocess.run([sys.executable, "-c", code, str(root)], capture_output=True, text=True, check=True)
    yield "list 500 runs in a new process", float(done.stdout), "s", "≤ 1"


def first_page(root: Path) -> Measured:
    """Measure the seconds from starting the server until the first page shows its button."""
    with browser() as chrome:
        begun = time.perf_counter()
        with server(root) as served:
            page = chrome.new_page()
            page.goto(served.url)
            page.get_by_role("button", name="Train the demo").wait_for()
            yield "server start to usable first page", time.perf_counter() - begun, "s", "≤ 5"


def recorded_players(root: Path) -> Measured:
    """Measure the seconds until a first visit shows the home page's player, and until the page of the recorded run of
    ACE with most snapshots shows its player, for each experiment that has one."""
    with browser() as chrome, server(root) as served:
        page = chrome.new_page(viewport=VIEW)

        def open_player(address: str) -> None:
            page.goto(address)
            wait_for_player(page)

        home = seconds_of(lambda: open_player(served.url))
        for _ in range(600):  # the server loads torch in the background after the first page
            with urllib.request.urlopen(f"{served.url}/lab/active") as answer:
                if json.load(answer)["devices"]:
                    break
            time.sleep(0.1)
        yield "opening Home to its player drawn", home, "s", "≤ 5"
        entries = [e for e in Catalogue(RunStore(Path("no-runs"), recorded_runs())).entries()
                   if e.method == "ace" and e.run.snapshots()]
        most = {e.experiment: e for e in sorted(entries, key=lambda e: len(e.run.snapshots()))}
        for entry in most.values():
            seconds = seconds_of(partial(open_player, f"{served.url}/{entry.experiment}?runs={entry.id}"))
            yield f"opening a recorded ACE run of {entry.experiment} to its player", seconds, "s", "≤ 3"


def drawing(root: Path) -> Measured:
    """Measure the delay from a written metric to its curve, the redraw of 2 × 20,000 points, and the player's frame
    rate."""
    store = RunStore(root)
    live = long_run(store, 200, state="running")
    long, with_maps = [long_run(store, 20_000) for _ in range(2)], [run_with_large_maps(store) for _ in range(2)]
    with browser() as chrome, server(root) as served:
        page = chrome.new_page(viewport=VIEW)
        show_curves(page, served, f"mnist?runs={live.id}", live.id, 200)
        page.wait_for_timeout(1500)
        delays = []
        for i in range(200, 215):
            before = page.evaluate(f"() => {CURVES}.__curves.drawn()")
            with open(live.path / "metrics.jsonl", "a", encoding="utf-8") as file:
                file.write(json.dumps({"kind": "step", "step": i, "epoch": 0, "L_h": 1.0, "seconds": 0.1}) + "\n")
            written = time.perf_counter()
            page.wait_for_function(f"() => {CURVES}.__curves.points('{live.id}') > {i} && "
                                   f"{CURVES}.__curves.drawn() > {before}", polling=20)
            delays.append(time.perf_counter() - written)
            page.wait_for_timeout(137 * (i % 5))  # at different moments of the page's polling cycle
        show_curves(page, served, f"mnist?runs={long[0].id},{long[1].id}", long[0].id, 20_000)
        page.wait_for_function(f"() => {CURVES}.__curves.points('{long[1].id}') === 20000", timeout=60_000)
        page.wait_for_timeout(2000)
        redraw = page.evaluate(f"() => {CURVES}.__curves.redraw()")
        page.goto(f"{served.url}/mnist?runs={','.join(run.id for run in with_maps)}")
        wait_for_player(page)
        page.wait_for_timeout(3000)
        page.evaluate(f"() => {PLAYER}.__player.play()")
        page.wait_for_timeout(4000)
        frames = page.evaluate(f"() => {PLAYER}.__player.fps()")
    yield "metric written to curve drawn, slowest of 15", max(delays), "s", "≤ 1"
    yield "redraw 2 runs of 20,000 points", redraw, "ms", "smooth"
    yield "player, 2 runs of 60 frames of 64×64 maps", frames, "frames/s", "≥ 20"


def watching(root: Path) -> Measured:
    """Measure training throughput with two open pages against none, alternating during one run."""
    store = RunStore(root)
    pattern = create(store, experiments.get("mnist").configure("ace", epochs=1000, device="cpu"))
    pattern.set_state("stopped")
    with browser() as chrome, server(root) as served:
        page = chrome.new_page()
        page.goto(f"{served.url}/mnist?from={pattern.id}")
        page.get_by_role("button", name="Train", exact=True).click()
        while not (trained := [run for run in store if run.id != pattern.id and len(run.metrics()[0]) >= 20]):
            time.sleep(0.2)
        page.close()
        alone, watched = list[Window](), list[Window]()
        for _ in range(ROUNDS):  # none, two, two, none: a slow drift affects both alike
            alone.append(next_window(trained[0]))
            tabs = [chrome.new_page(viewport=VIEW) for _ in range(2)]
            for tab in tabs:
                show_curves(tab, served, f"mnist?runs={trained[0].id}", trained[0].id)
            time.sleep(3)
            watched += [next_window(trained[0]), next_window(trained[0])]
            for tab in tabs:
                tab.close()
            time.sleep(3)
            alone.append(next_window(trained[0]))
    # iterations per second of wall time, which includes validation and writing files
    with_pages, without = (sum(count for count, _ in windows) / sum(seconds for _, seconds in windows)
                           for windows in (watched, alone))
    yield "training throughput, two open pages / none", with_pages / without, "", "≥ 0.97"


Window = tuple[int, float]  # iterations of whole epochs, and their seconds


def next_window(run: Run, least: float = WINDOW) -> Window:
    """Measure from the next epoch's end to the first epoch's end at least that many seconds later.

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
                return iterations, now - begun
    raise UserError("training in the app ended during the measurement")


# Playground ---------------------------------------------------------------------------------------------------------

PROBLEMS = {"swap": "Two points swap places", "circles": "A circle in a ring", "spirals": "Two spirals",
            "drawn": "Draw your own"}
LEAST = 20.0  # training steps a second


def playground(options: Namespace) -> Row:
    """Measure training steps and drawn frames a second of the playground's problems."""
    with tempfile.TemporaryDirectory() as folder, browser() as chrome, server(Path(folder) / "runs") as served:
        rows: list[Row] = [{"problem": name, **measure_playground(chrome, served, title)}
                           for name, title in PROBLEMS.items()]
    return {"rows": rows, "target": f"{LEAST:.0f} steps/s",
            "missed": [row["problem"] for row in rows if row["steps/s"] < LEAST]}


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
    paint = page.evaluate(f"() => {PLAYGROUND}.__playground.paintSeconds()")
    page.close()
    return {"steps/s": (last_step - step) / seconds, "frames/s": (last_drawn - drawn) / seconds,
            "one picture_seconds": paint}


# A search with 10,000 recorded trials -------------------------------------------------------------------------------

TRIALS, MOST = 10_000, 2.0  # seconds that a listing may take
CHARTS = "page: charts in view drawn as well"  # after the listing
DRAWN = "[...document.querySelectorAll('div')].find(e => e.__search)?.__search"


def search(options: Namespace) -> Row:
    """Time every listing, as a command and on the page; none may take more than two seconds."""
    with tempfile.TemporaryDirectory() as folder:
        found = measure_search(Path(folder) / "runs")
    return {"rows": [{"listing": name, "seconds": seconds} for name, seconds in found.items()],
            "missed": [name for name, seconds in found.items() if seconds > MOST and name != CHARTS]}


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

            def data() -> bytes:
                return urllib.request.urlopen(f"{served.url}/lab/search/many").read()

            data()  # imports
            found["page: data of all trials"] = seconds_of(data)
            found["page: search opened, best trials listed"] = listed = opened("searches?search=many", partial(
                page.wait_for_function, f"() => {DRAWN}?.trials() === {TRIALS} && {DRAWN}.listed()", timeout=60_000))
            found[CHARTS] = listed + seconds_of(partial(page.wait_for_function, f"() => {DRAWN}.drawn()",
                                                        timeout=60_000))
    except UserError as error:  # no browser here
        progress(f"the page is not measured: {error}")
    return found
