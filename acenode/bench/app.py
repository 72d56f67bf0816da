"""`acenode bench app`: response times of the app in a real browser, and what open pages cost training."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
import urllib.request
from argparse import Namespace
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from acenode import experiments
from acenode.bench.browser import CURVES, PLAYER, Served, browser, server, show_curves, show_player, wait_for_player
from acenode.bench.synthetic_runs import finished_runs, long_run, run_with_large_maps
from acenode.errors import UserError
from acenode.execution.execute import create
from acenode.runs.catalogue import Catalogue
from acenode.runs.entry import Entry
from acenode.runs.recorded import recorded_runs
from acenode.runs.store import Run, RunStore

WINDOW, ROUNDS = 20.0, 3  # least seconds measured with and without open pages, and how often
POLL = 0.02  # seconds between two looks for an epoch's end


def run(options: Namespace) -> int:
    """Measure and print."""
    result = measure()
    print(json.dumps(result) if options.json else render(result))
    return 0


def measure() -> dict[str, float]:
    """Return every measurement by its name."""
    found: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        finished_runs(root / "many", 500)
        for words, part, name in (("listing runs", listing, "many"), ("first page", first_page, "empty"),
                                  ("recorded runs in the player", recorded_players, "first"),
                                  ("curves and frames", drawing, "drawn"),
                                  ("training with open pages, 6 min", watching, "watched")):
            print(f"measuring: {words}", file=sys.stderr, flush=True)
            found |= part(root / name)
    return found


# Measurements -------------------------------------------------------------------------------------------------------


def listing(root: Path) -> dict[str, float]:
    """Measure the seconds to list 500 runs in a new process."""
    code = ("import time, sys; from acenode.runs.catalogue import Catalogue; from acenode.runs.store import RunStore;"
            "t = time.perf_counter(); n = len(Catalogue(RunStore(sys.argv[1])).entries()); assert n == 500, n;"
            "print(time.perf_counter() - t)")
    done = subprocess.run([sys.executable, "-c", code, str(root)], capture_output=True, text=True, check=True)
    return {"list_500_seconds": float(done.stdout)}


def first_page(root: Path) -> dict[str, float]:
    """Measure the seconds from starting the server until the first page shows its button."""
    with browser() as chrome:
        begun = time.perf_counter()
        with server(root) as served:
            page = chrome.new_page()
            page.goto(served.url)
            page.get_by_role("button", name="Train the demo").wait_for()
            return {"first_page_seconds": time.perf_counter() - begun}


def recorded_players(root: Path) -> dict[str, float]:
    """Measure the seconds until a first visit shows the home page's player, and until the page of a recorded run of ACE
    shows its player, for each experiment that has one; the slowest of these."""
    with browser() as chrome, server(root) as served:
        page = chrome.new_page(viewport={"width": 1400, "height": 1000})
        home = _seconds_to_player(page, served.url)
        _wait_until_warm(served)
        opened = {entry.experiment: _seconds_to_player(page, f"{served.url}/{entry.experiment}?runs={entry.id}")
                  for entry in recorded_ace_runs()}
    return {"home_player_seconds": home, "recorded_player_seconds": max(opened.values(), default=0.0),
            **{f"recorded_player_seconds_{name}": seconds for name, seconds in opened.items()}}


def recorded_ace_runs() -> list[Entry]:
    """Return for each experiment the recorded run of ACE with most snapshots, if any."""
    entries = [e for e in Catalogue(RunStore(Path("no-runs"), recorded_runs())).entries() if e.method == "ace"]
    most = {}
    for entry in sorted(entries, key=lambda e: len(e.run.snapshots())):
        if entry.run.snapshots():
            most[entry.experiment] = entry
    return list(most.values())


def _wait_until_warm(served: Served) -> None:
    """Wait until the server has loaded torch, which it does in the background after the first page."""
    for _ in range(600):
        with urllib.request.urlopen(f"{served.url}/lab/active") as answer:
            if json.load(answer)["devices"]:
                return
        time.sleep(0.1)
    raise UserError("the app's server did not load torch within a minute")


def _seconds_to_player(page: Any, address: str) -> float:
    begun = time.perf_counter()
    page.goto(address)
    wait_for_player(page)
    return time.perf_counter() - begun


def drawing(root: Path) -> dict[str, float]:
    """Measure the delay from a written metric to its curve, the redraw of 2 × 20,000 points, and the player's frame
    rate."""
    store = RunStore(root)
    live = long_run(store, 200, state="running")
    long = [long_run(store, 20_000) for _ in range(2)]
    with_maps = [run_with_large_maps(store) for _ in range(2)]
    with browser() as chrome, server(root) as served:
        page = chrome.new_page(viewport={"width": 1400, "height": 1000})
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
        show_player(page, served, f"mnist?runs={','.join(run.id for run in with_maps)}")
        page.wait_for_timeout(3000)
        page.evaluate(f"() => {PLAYER}.__player.play()")
        page.wait_for_timeout(4000)
        frames = page.evaluate(f"() => {PLAYER}.__player.fps()")
    return {"metric_to_curve_seconds": max(delays), "redraw_2x20000_seconds": redraw / 1000,
            "player_frames_a_second": frames}


def watching(root: Path) -> dict[str, float]:
    """Measure training throughput with two open pages against none, alternating during one run."""
    store = RunStore(root)
    pattern = create(store, experiments.get("mnist").configure("ace", epochs=1000, device="cpu"))
    pattern.set_state("stopped")
    with browser() as chrome, server(root) as served:
        page = chrome.new_page()
        page.goto(f"{served.url}/mnist?from={pattern.id}")
        page.get_by_role("button", name="Train", exact=True).click()
        trained = _wait_for_steps(store, pattern.id, 20)
        page.close()
        alone: list[EpochWindow] = []
        watched: list[EpochWindow] = []
        for _ in range(ROUNDS):  # none, two, two, none: a slow drift affects both alike
            alone.append(next_window(trained))
            tabs = [chrome.new_page(viewport={"width": 1400, "height": 1000}) for _ in range(2)]
            for tab in tabs:
                show_curves(tab, served, f"mnist?runs={trained.id}", trained.id)
            time.sleep(3)
            watched += [next_window(trained), next_window(trained)]
            for tab in tabs:
                tab.close()
            time.sleep(3)
            alone.append(next_window(trained))
    return {"watched_throughput": throughput(watched) / throughput(alone),
            "watched_throughput_median": _median_iteration(alone) / _median_iteration(watched),
            "iterations_a_second": throughput(alone), "iteration_seconds": _median_iteration(alone)}


@dataclass(frozen=True)
class EpochWindow:
    """Whole epochs of a run: their wall time, and the recorded seconds of each iteration."""

    seconds: float
    iterations: list[float]


def throughput(windows: list[EpochWindow]) -> float:
    """Return iterations per second of wall time, which includes validation and writing files."""
    return sum(len(w.iterations) for w in windows) / sum(w.seconds for w in windows)


def _median_iteration(windows: list[EpochWindow]) -> float:
    return median(seconds for w in windows for seconds in w.iterations)


def next_window(run: Run, least: float = WINDOW) -> EpochWindow:
    """Measure from the next epoch's end to the first epoch's end at least that many seconds later.

    Only whole epochs compare: step records arrive in batches, and one validation more or less would hide the effect.
    """
    begun, iterations, offset = None, list[float](), run.metrics()[1]
    while run.status()["state"] == "running":
        time.sleep(POLL)
        records, offset = run.metrics(offset)
        now = time.perf_counter()
        for record in records:
            if record["kind"] == "step":
                iterations.append(record["seconds"])
            elif begun is None:
                begun, iterations = now, []
            elif now - begun >= least:
                return EpochWindow(now - begun, iterations)
    raise UserError("training in the app ended during the measurement")


def _wait_for_steps(store: RunStore, other_than: str, count: int) -> Run:
    """Wait until a run other than the given one has recorded that many steps."""
    for _ in range(600):
        for run in store:
            if run.id != other_than and len(run.metrics()[0]) >= count:
                return run
        time.sleep(0.2)
    raise UserError("training did not start in the app")


def render(result: dict[str, float]) -> str:
    """Format the measurements as a table with their targets."""
    lines = [
        ("list 500 runs in a new process", f"{result['list_500_seconds']:.2f} s", "≤ 1 s"),
        ("server start to usable first page", f"{result['first_page_seconds']:.1f} s", "≤ 5 s"),
        ("opening Home to its player drawn", f"{result['home_player_seconds']:.1f} s", "≤ 5 s"),
        ("opening a recorded ACE run to its player, slowest", f"{result['recorded_player_seconds']:.1f} s", "≤ 3 s"),
        ("metric written to curve drawn, slowest of 15", f"{result['metric_to_curve_seconds']:.2f} s", "≤ 1 s"),
        ("redraw 2 runs of 20,000 points", f"{1000 * result['redraw_2x20000_seconds']:.0f} ms", "smooth"),
        ("player, 2 runs of 60 frames of 64×64 maps", f"{result['player_frames_a_second']:.0f} frames/s", "≥ 20"),
        ("training throughput, two open pages / none", f"{result['watched_throughput']:.3f}", "≥ 0.97"),
        ("  the same from median iteration times", f"{result['watched_throughput_median']:.3f}", ""),
    ]
    return "\n".join(f"{name:<52}{value:>16}   {target}" for name, value, target in lines)

