"""Screenshots of every page in light and dark, kept under build/screenshots/ for inspection."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from acenode_app.services import Services
from conftest import RunFolder
from PIL import Image
from tabs import Tab

from acenode.bench.browser import CURVES, PLAYER, Served, server
from acenode.runs.store import Run

EMPTY = {"": "Train the demo", "svhn": "Press", "compare": "No runs to compare", "runs": "No runs yet"}
FOLDER = Path(__file__).parents[2] / "build" / "screenshots"


@pytest.fixture(scope="module")
def runs(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    """Put three finished runs, a failed and a running one into one folder."""
    root = tmp_path_factory.mktemp("shots") / "runs"
    root.mkdir()
    run_folder = RunFolder(Services(root, root), trained)
    first, second, third = sorted(run_folder.finished(), key=lambda run: run.id)
    failed = run_folder.failed("underflow in dt at t=0.31 with step 1e-9: loosen rtol and atol, or lower the "
                               "learning rate")
    running = run_folder.running()
    return {"first": first, "second": second, "third": third, "failed": failed, "running": running}


@pytest.fixture(scope="module")
def served(chrome: Any, runs: dict[str, Run]) -> Iterator[Served]:
    with server(runs["first"].path.parent) as found:
        yield found


@pytest.fixture(scope="module")
def empty(chrome: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with server(tmp_path_factory.mktemp("empty") / "runs") as found:
        yield found


def keep(tab: Tab, name: str, scheme: str) -> None:
    """Save a screenshot and check that it has many colours and the background of the colour scheme."""
    data = tab.page.screenshot()
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / f"{name}-{scheme}.png").write_bytes(data)
    image = Image.open(io.BytesIO(data)).convert("RGB")
    assert len(image.getcolors(1 << 24) or []) > 60
    background = max(image.getcolors(1 << 24) or [], key=lambda c: c[0])[1]
    assert (sum(background) > 3 * 128) == (scheme == "light")
    assert "This page failed" not in tab.page.inner_text("body")


@pytest.mark.long
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages(scheme: str, chrome: Any, served: Served, runs: dict[str, Run]) -> None:
    tab = Tab(chrome, served, scheme)
    page = tab.page
    tab.open("")
    page.get_by_text("Latest results").wait_for()
    page.wait_for_timeout(1500)
    keep(tab, "home", scheme)

    first = runs["first"].id
    tab.open(f"mnist?runs={first},{runs['third'].id}")
    tab.until(f"{tab.points(first)} > 0 && {PLAYER}?.__player.settled()")
    keep(tab, "experiment", scheme)
    tab.evaluate(f"{CURVES}.scrollIntoView()")
    page.wait_for_timeout(800)
    keep(tab, "curves", scheme)
    tab.evaluate(f"{PLAYER}.scrollIntoView()")
    tab.evaluate(f"{PLAYER}.__player.seek({{t: 0.6}})")
    page.wait_for_timeout(1500)
    keep(tab, "player", scheme)
    page.get_by_text("Confusion matrices").scroll_into_view_if_needed()
    page.locator(".js-plotly-plot .heatmaplayer").first.wait_for(state="attached")
    keep(tab, "results", scheme)
    page.get_by_role("tab", name="t-SNE").click()
    page.wait_for_timeout(800)
    keep(tab, "tsne", scheme)

    tab.open("mnist?data=full")
    page.get_by_role("button", name="Download and prepare").wait_for()
    page.get_by_text("Hyperparameters").click()
    page.get_by_text("Train the ablation set").first.click()
    page.get_by_role("button", name="Add to queue").scroll_into_view_if_needed()
    keep(tab, "form", scheme)

    tab.open(f"mnist?runs={runs['failed'].id}")
    page.get_by_role("button", name="Resume").wait_for()
    tab.until(f"{tab.points(runs['failed'].id)} > 0")
    page.get_by_text("underflow in dt").first.scroll_into_view_if_needed()
    keep(tab, "failed", scheme)
    tab.close()


@pytest.mark.long
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_results(scheme: str, chrome: Any, served: Served, runs: dict[str, Run]) -> None:
    tab = Tab(chrome, served, scheme)
    page = tab.page
    names = [runs[k].id for k in ("first", "second", "third")]
    tab.open(f"compare?runs={','.join(names)}")
    tab.until(f"{tab.points(names[0])} > 0")
    page.wait_for_timeout(1000)
    keep(tab, "compare", scheme)
    page.get_by_text("Settings that differ").scroll_into_view_if_needed()
    page.wait_for_timeout(500)
    keep(tab, "compare-settings", scheme)
    tab.evaluate(f"{PLAYER}.scrollIntoView()")
    page.wait_for_timeout(1500)
    keep(tab, "compare-players", scheme)

    tab.open(f"runs?runs={names[0]}")
    page.get_by_role("button", name="Create HTML report").wait_for()
    keep(tab, "runs", scheme)
    tab.press("Delete")
    page.get_by_role("button", name="Delete permanently").wait_for()
    keep(tab, "delete", scheme)
    tab.press("Cancel")
    page.get_by_role("button", name="Delete permanently").wait_for(state="detached")
    assert runs["first"].path.exists()
    tab.close()


@pytest.mark.long
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_empty_states(scheme: str, chrome: Any, empty: Served) -> None:
    tab = Tab(chrome, empty, scheme)
    for path, words in EMPTY.items():
        tab.open(path)
        tab.page.get_by_text(words).first.wait_for()
        tab.page.wait_for_timeout(700)
        keep(tab, f"empty-{path or 'home'}", scheme)
    tab.close()
