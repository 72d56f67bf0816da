"""The app in a real browser: train, zoom, play, stop, resume, compare, open links, and resume after a crash."""

from __future__ import annotations

import shutil
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import config
from tabs import Tab

from acenode.bench.browser import CURVES, PLAYER, Served, server
from acenode.execution.execute import create
from acenode.runs.store import Run, RunStore

pytestmark = pytest.mark.long  # the app in a browser, with runs that train

STOP = "() => [...document.querySelectorAll('button')].find(b => b.innerText.includes('Stop'))?.click()"


@pytest.fixture(scope="module")
def served(chrome: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with server(tmp_path_factory.mktemp("app") / "runs", OMP_NUM_THREADS="1") as found:
        yield found


@pytest.fixture(scope="module")
def store(served: Served) -> RunStore:
    return RunStore(served.process.args[-1])  # type: ignore[arg-type, index, union-attr]


def until(condition: Any, seconds: float = 90) -> None:
    """Wait for a condition that another process brings about."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "timed out"
        time.sleep(0.1)


def newest(store: RunStore) -> Run:
    return store.open("last")


def template(store: RunStore, **given: Any) -> Run:
    """Create a stopped run whose settings `?from=` copies into the form."""
    run = create(store, config(**given))
    run.set_state("stopped")
    return run


@pytest.fixture(scope="module")
def long_run(chrome: Any, served: Served, store: RunStore) -> Run:
    """Press Train to start a run that trains until it is stopped."""
    source = template(store, epochs=5000, batch_size=128, snapshots=100)
    tab = Tab(chrome, served).open(f"mnist?from={source.id}")
    tab.press("Train")
    until(lambda: newest(store).id != source.id)
    run = newest(store)
    tab.until(f"{tab.points(run.id)} > 3")
    tab.close()
    return run


def test_curves_update_and_keep_their_zoom(chrome: Any, served: Served, long_run: Run) -> None:
    tab = Tab(chrome, served).open(f"mnist?runs={long_run.id}")
    tab.until(f"{tab.points(long_run.id)} > 5 && {PLAYER}?.__player.settled()")
    tab.evaluate(f"{CURVES}.scrollIntoView()")
    tab.until(f"{CURVES}.__curves.ranges('losses') !== null")
    box = tab.page.locator("[data-panel=losses] .nsewdrag").first.bounding_box()
    tab.page.mouse.move(box["x"] + box["width"] * 0.2, box["y"] + box["height"] * 0.2)
    tab.page.mouse.down()
    tab.page.mouse.move(box["x"] + box["width"] * 0.6, box["y"] + box["height"] * 0.7, steps=8)
    tab.page.mouse.up()
    tab.page.wait_for_timeout(500)
    zoomed = tab.evaluate(f"{CURVES}.__curves.ranges('losses')")
    before = tab.evaluate(tab.points(long_run.id))
    drawn = tab.evaluate(f"{CURVES}.__curves.drawn()")
    tab.until(f"{tab.points(long_run.id)} > {before + 5} && {CURVES}.__curves.drawn() > {drawn}")
    assert tab.evaluate(f"{CURVES}.__curves.ranges('losses')") == zoomed
    tab.close()


def test_page_that_nobody_touches_draws_only_new_points(chrome: Any, served: Served, long_run: Run) -> None:
    tab = Tab(chrome, served).open(f"mnist?runs={long_run.id}")
    tab.until(f"{tab.points(long_run.id)} > 5 && {PLAYER}?.__player.settled()")
    tab.evaluate(f"{CURVES}.scrollIntoView()")
    panel = f"{CURVES}.querySelector('[data-panel=losses]')"
    tail, last = f"{panel}.querySelectorAll('.tail path')", f"{panel}.querySelector('.plot').data.at(-1).x.at(-1)"
    tab.until(f"{tail}.length > 0")
    with_tail = tab.evaluate(f"({{ last: {last}, ends: [...{tail}].map((path) => path.getBoundingClientRect().right), "
                             f"edge: {panel}.querySelector('.nsewdrag').getBoundingClientRect().right }})")
    assert max(with_tail["ends"]) <= with_tail["edge"] + 1  # inside the axes
    box = tab.page.locator("[data-panel=losses] .nsewdrag").first.bounding_box()
    tab.page.mouse.move(box["x"] + 20, box["y"] + 20)
    tab.until(f"{tail}.length === 0 && {last} > {with_tail['last']}")  # now the chart has the points itself
    tab.close()


def test_reload_and_second_tab_show_the_running_run(chrome: Any, served: Served, long_run: Run) -> None:
    first = Tab(chrome, served).open("mnist")
    first.until(f"{first.points(long_run.id)} > 5")  # a running run is shown by default
    address = first.page.url
    assert long_run.id in address
    second = Tab(chrome, served, "dark")
    second.page.goto(address)
    second.until(f"{second.points(long_run.id)} > 5")
    first.page.reload()
    first.until(f"{first.points(long_run.id)} > 5")
    assert long_run.status()["state"] == "running"
    first.close()
    second.close()
    assert long_run.status()["state"] == "running"  # closing all tabs does not stop the run


def test_player_plays_during_training(chrome: Any, served: Served, long_run: Run) -> None:
    tab = Tab(chrome, served).open(f"mnist?runs={long_run.id}")
    tab.until(f"{PLAYER} !== undefined && {PLAYER}.querySelectorAll('canvas').length > 3")
    tab.evaluate(f"{PLAYER}.__player.seek({{t: 0.5}})")
    tab.until(f"Math.abs({PLAYER}.__player.frame().t - 0.5) < 0.03")
    tab.until("/[?&]t=0.[45]/.test(location.search)")  # the URL keeps the position
    address = tab.page.url
    other = Tab(chrome, served)
    other.page.goto(address)
    other.until(f"{PLAYER} !== undefined && Math.abs({PLAYER}.__player.frame().t - 0.5) < 0.03")
    other.close()
    tab.evaluate(f"{PLAYER}.__player.play()")
    tab.until(f"{PLAYER}.__player.frame().t > 0.6 || {PLAYER}.__player.frame().t < 0.4")
    tab.close()


def test_stop_then_resume(chrome: Any, served: Served, long_run: Run) -> None:
    tab = Tab(chrome, served).open(f"mnist?runs={long_run.id}")
    tab.press("Stop")
    until(lambda: long_run.status()["state"] == "stopped")
    steps = long_run.status()["step"]
    tab.press("Resume")
    until(lambda: long_run.status()["state"] == "running" and long_run.status().get("step", 0) > steps + 3)
    tab.until(f"{tab.points(long_run.id)} > {steps + 3}")
    other = Tab(chrome, served).open(f"mnist?runs={long_run.id}")  # two sessions press Stop
    other.page.get_by_role("button", name="Stop", exact=True).wait_for()
    tab.page.get_by_role("button", name="Stop", exact=True).wait_for()
    tab.page.evaluate(STOP)
    other.page.evaluate(STOP)  # at once, before its button becomes Resume
    until(lambda: long_run.status()["state"] == "stopped")
    tab.close()
    other.close()


def test_compare_finished_runs(chrome: Any, served: Served, store: RunStore, trained: Path) -> None:
    names = [p.name for p in trained.iterdir() if p.name.startswith("mnist")]
    for name in names:
        shutil.copytree(trained / name, store.root / name)
    tab = Tab(chrome, served).open(f"compare?runs={','.join(names)}")
    tab.page.get_by_text("Settings that differ").wait_for()
    for name in names:
        tab.until(f"{tab.points(name)} > 0")
    tab.until(f"{PLAYER} !== undefined && {PLAYER}.querySelectorAll('canvas').length > 6")
    assert "ODE-Net" in tab.page.inner_text("body")
    scales = f"{PLAYER}.__player.scales('features')"
    tab.until(f"{scales}.length > 1")  # one player for each group
    shared = tab.evaluate(scales)
    assert all(scale == shared[0] for scale in shared)  # equal colours mean equal values
    tab.page.get_by_text("Shared scales").click()
    own = tab.evaluate(scales)
    assert all(scale != own[0] for scale in own[1:])
    assert shared[0] == [min(low for low, _ in own), max(high for _, high in own)]
    address = tab.page.url
    other = Tab(chrome, served)
    other.page.goto(address)
    for name in names:
        other.until(f"{other.points(name)} > 0")
    other.close()
    shutil.rmtree(store.root / names[0])  # deleted while a page shows it
    tab.page.reload()
    tab.page.get_by_text("Settings that differ").wait_for()
    tab.close()


def test_no_request_leaves_the_machine(chrome: Any, served: Served) -> None:
    tab = Tab(chrome, served)
    asked: list[str] = []
    tab.page.on("request", lambda request: asked.append(request.url))
    for path in ("", "mnist", "compare", "runs"):
        tab.open(path)
        tab.page.get_by_role("heading", level=1).first.wait_for()
        tab.page.wait_for_timeout(500)
    assert asked
    assert not [u for u in asked if not u.startswith((served.url, "data:", "blob:", f"ws://127.0.0.1:{served.port}"))]
    tab.close()


def test_run_of_a_killed_server_can_be_resumed(chrome: Any, tmp_path_factory: pytest.TempPathFactory) -> None:
    root = tmp_path_factory.mktemp("killed") / "runs"
    store = RunStore(root)
    often = config(epochs=5000, batch_size=128)
    often = replace(often, settings={**often.settings, "checkpoint_seconds": 0.5})  # as version 0.1 could set it
    run = create(store, often)
    run.set_state("stopped")
    with server(root) as served:
        tab = Tab(chrome, served).open(f"mnist?runs={run.id}")
        tab.press("Resume")
        until(lambda: (run.path / "checkpoints" / "last.pt").exists())
        served.process.send_signal(signal.SIGKILL)
        served.process.wait()
        tab.context.close()
    assert run.status()["state"] == "interrupted"
    with server(root, served.port) as again:
        tab = Tab(chrome, again).open(f"mnist?runs={run.id}")
        tab.press("Resume")
        until(lambda: run.status()["state"] == "running")
        tab.until(f"{tab.points(run.id)} > 3")
        tab.close()
    assert run.status()["state"] == "stopped"  # stopping the server stops the run
