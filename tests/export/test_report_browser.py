"""The report in a real browser, opened from disk: the player works, and nothing is loaded."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from acenode.bench.browser import PLAYER
from acenode.export import export
from acenode.runs.store import Run

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


def test_it_plays_and_draws(page: Any, ace: Run, tmp_path: Path) -> None:
    open_player(page, ace, tmp_path)
    page.get_by_role("button", name="Play").click()
    page.wait_for_function(f"() => {PLAYER}.__player.frame().t > 0.05")
    page.get_by_role("button", name="Pause").click()
    colours = page.evaluate("""() => [...document.querySelectorAll('.ace-player .panel canvas')].map((canvas) => {
        const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
        return new Set(new Uint32Array(data.buffer)).size; })""")
    assert len(colours) == 5
    assert min(colours) > 5
    background = page.evaluate("() => getComputedStyle(document.querySelector('.ace-player')).backgroundColor")
    dark = page.evaluate("() => matchMedia('(prefers-color-scheme: dark)').matches")
    assert background == ("rgb(26, 32, 39)" if dark else "rgb(255, 255, 255)")


def test_it_says_why_nothing_moves(page: Any, ace: Run, tmp_path: Path) -> None:
    run = Run(Path(shutil.copytree(ace.path, tmp_path / "still")))
    *others, last = run.snapshots()
    for path in others:
        path.unlink()
    arrays = dict(np.load(last))
    arrays["a"] = np.broadcast_to(arrays["a"][:1, :1], arrays["a"].shape)
    np.savez_compressed(last, **arrays)
    open_player(page, run, tmp_path)
    assert page.get_by_label("Training epoch").is_disabled()
    page.locator(".ace-player output", has_text="only epoch 2 was kept").wait_for()
    note = "In this run the attention hardly changes with t, and hardly differs between samples."
    page.locator(".ace-player [role=note]", has_text=note).wait_for()


def test_it_says_what_it_shows_and_is_labelled(page: Any, ace: Run, tmp_path: Path) -> None:
    open_player(page, ace, tmp_path)
    page.locator(".ace-player").focus()
    page.keyboard.press("End")
    page.locator(".ace-player [aria-live]").filter(has_text="After epoch 2, time t = 1.00").wait_for(state="attached")
    words = page.evaluate(f"() => {PLAYER}.__player.words()")[0]
    for part in ("class", "predicted", "state at (", "largest weight", "% of the state passes"):
        assert part in words
    unlabelled = page.evaluate("""() => [...document.querySelectorAll('.ace-player .panel canvas')].filter((canvas) =>
        canvas.getAttribute('role') !== 'img' || !canvas.getAttribute('aria-label')
        || !document.getElementById(canvas.getAttribute('aria-describedby')).textContent).length""")
    assert unlabelled == 0
    assert page.get_by_label("Time (t)").get_attribute("aria-valuetext") == "1.00"
    assert page.get_by_label("Training epoch").get_attribute("aria-valuetext") == "epoch 2"


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


def test_a_run_without_attention_says_so(page: Any, resnet: Run, tmp_path: Path) -> None:
    page.goto(export(resnet, "html", tmp_path / "report.html").as_uri())
    page.get_by_text("This method has no attention: the state h(t) evolves alone.").wait_for()
