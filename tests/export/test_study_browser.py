"""The page of a study in a real browser, opened from disk: players are drawn, and nothing overflows a narrow screen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from export_runs import metrics, result, snapshot
from study_entries import attention_study, finished

from acenode.bench.browser import PLAYER
from acenode.compare.study_answer import report
from acenode.compare.study_grid import make_grid
from acenode.export import study as study_export
from acenode.runs.catalogue import Catalogue
from acenode.runs.store import RunStore


@pytest.mark.parametrize(("width", "scheme"), [(1300, "light"), (390, "dark")])
def test_the_page_shows_a_player_of_each_group(chrome: Any, make, tmp_path: Path, width: int, scheme: str) -> None:
    study = attention_study(question="Does attention help?", seeds=(0,))
    for entry in finished(study, {0: [0.9], 1: [0.8], 2: [0.7]}):
        make(entry.id, config=entry.config, records=metrics(), outcome=result(), snapshots={1: snapshot(1)})
    found = report(make_grid(study, Catalogue(RunStore(tmp_path)).entries()))
    page_file = study_export.export_study(found, "html", tmp_path / "study.html")
    context = chrome.new_context(color_scheme=scheme, viewport={"width": width, "height": 900})
    page, problems = context.new_page(), []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("console", lambda message: problems.append(message.text) if message.type == "error" else None)
    page.goto(page_file.as_uri())
    page.wait_for_function(f"() => {PLAYER}?.__player.frame().epoch === 1")
    labels = page.locator("#player").inner_text()
    for name in ("evolving attention", "fixed attention", "no attention"):
        assert name in labels
    assert page.locator(".study-figure .point").count() >= 3
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    context.close()
    assert problems == []
