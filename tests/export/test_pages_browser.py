"""Reports and studies in a real browser, opened from disk: figures and players are drawn, and nothing is loaded."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from export_runs import metrics, result, snapshot
from study_entries import attention_study, finished

from acenode.bench.browser import PLAYER
from acenode.compare.study_answer import report
from acenode.compare.study_grid import make_grid
from acenode.export import export
from acenode.export import study as study_export
from acenode.runs.catalogue import Catalogue
from acenode.runs.store import Run, RunStore

FRAME = f"() => {PLAYER}?.__player.frame()"


@pytest.fixture(params=["light", pytest.param("dark", marks=pytest.mark.long)])
def page(request: pytest.FixtureRequest, chrome: Any) -> Iterator[Any]:
    """A page that fails the test on any script error, console error or request."""
    context = chrome.new_context(color_scheme=request.param, viewport={"width": 1300, "height": 900})
    found, problems = context.new_page(), []
    found.on("pageerror", lambda error: problems.append(str(error)))
    found.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
    found.on("request", lambda asked: None if asked.url.startswith(("file:", "data:", "blob:")) else
             problems.append(asked.url))
    yield found
    context.close()
    assert problems == []


def open_player(page: Any, run: Run, out: Path) -> None:
    page.goto(export(run, "html", out / "report.html").as_uri())
    page.evaluate("() => document.getElementById('player').scrollIntoView()")
    page.wait_for_function(f"() => {PLAYER}?.__player.frame().epoch === 2")


def shown(page: Any) -> tuple[float, int, int]:
    found = page.evaluate(FRAME)
    return round(found["t"], 3), found["epoch"], found["probe"]


def test_keyboard_sliders_and_probes(page: Any, ace: Run, tmp_path: Path) -> None:
    open_player(page, ace, tmp_path)
    assert shown(page) == (0.0, 2, 0)
    player = page.locator(".ace-player")
    player.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    assert shown(page) == (0.125, 1, 0)  # one of nine frames, one epoch
    page.get_by_label("Time (t)").fill("0.5")
    page.locator(".probes button").nth(2).click()
    assert shown(page) == (0.5, 1, 2)
    page.wait_for_function("() => location.search === '?t=0.5&epoch=1&probe=2'")
    page.reload()
    page.wait_for_function(f"() => {PLAYER}?.__player.frame().epoch === 1")
    assert shown(page) == (0.5, 1, 2)


def test_a_narrow_page_shows_one_panel_at_a_time(page: Any, ace: Run, tmp_path: Path) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    open_player(page, ace, tmp_path)
    panels = page.locator(".ace-player .panel:visible figcaption")
    assert panels.all_inner_texts() == ["Attention, mean over channels (sigmoid(a))"]
    assert page.locator(".ace-player").bounding_box()["height"] < 700
    assert not page.get_by_label("Speed").is_visible()
    page.get_by_role("button", name="Options").press("Enter")
    assert page.get_by_label("Speed").is_visible()
    page.get_by_role("button", name="Over time").press("Enter")
    panels.filter(has_text="Share of the state that passes").wait_for()
    assert panels.count() == 1
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_the_page_shows_a_player_of_each_group(page: Any, make, tmp_path: Path) -> None:
    study = attention_study(question="Does attention help?", seeds=(0,))
    for entry in finished(study, {0: [0.9], 1: [0.8], 2: [0.7]}):
        make(entry.id, config=entry.config, records=metrics(), outcome=result(), snapshots={1: snapshot(1)})
    found = report(make_grid(study, Catalogue(RunStore(tmp_path)).entries()))
    file = study_export.export_study(found, "html", tmp_path / "study.html")
    for width in (1300, 390):
        page.set_viewport_size({"width": width, "height": 900})
        page.goto(file.as_uri())
        page.wait_for_function(f"() => {PLAYER}?.__player.frame().epoch === 1")
        labels = page.locator("#player").inner_text()
        for name in ("evolving attention", "fixed attention", "no attention"):
            assert name in labels
        assert page.locator(".study-figure .point").count() >= 3
        assert page.evaluate("document.documentElement.scrollWidth") <= width
