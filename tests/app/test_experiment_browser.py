"""An experiment's page in a real browser: the result first at every width, tabs, the form, and landing on training."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tabs import Tab

from acenode.bench.browser import CURVES, PLAYER, Served, server, wait_for_player
from acenode.runs.recorded import recorded_runs
from acenode.runs.store import RunStore

pytestmark = pytest.mark.long  # the app in a browser, with runs that train

SCHEMES = {1400: "light", 900: "dark", 390: "light"}
FOLDER = Path(__file__).parents[2] / "build" / "screenshots"
PANELS = f"[...{CURVES}.querySelectorAll('[data-panel]')].map(e => e.dataset.panel).join()"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory, trained: Path) -> Path:
    root = tmp_path_factory.mktemp("experiment") / "runs"
    shutil.copytree(trained, root, ignore=shutil.ignore_patterns("data"))
    return root


@pytest.fixture(scope="module")
def served(chrome: Any, root: Path) -> Iterator[Served]:
    with server(root, ACENODE_RECORDED=str(recorded_runs()), OMP_NUM_THREADS="1") as found:
        yield found


def keep(tab: Tab, name: str) -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / f"{name}.png").write_bytes(tab.page.screenshot())


@pytest.mark.parametrize(("name", "width"), [  # an own run, a recorded one
    pytest.param(name, width, marks=[] if (name, width) in (("mnist", 1400), ("physionet", 390)) else pytest.mark.long)
    for name in ("mnist", "physionet") for width in SCHEMES])
def test_the_result_comes_first(name: str, width: int, chrome: Any, served: Served) -> None:
    tab = Tab(chrome, served, SCHEMES[width])
    tab.page.set_viewport_size({"width": width, "height": 844 if width < 500 else 1000})
    tab.open(name)
    wait_for_player(tab.page)
    tab.until(f"{CURVES} !== undefined && document.querySelector('[data-testid=stMetric]') !== null")
    tab.evaluate("document.querySelector('[data-testid=stMain]').scrollTo(0, 0)")
    title, line, player, score, curves = tab.evaluate(
        f"[...['h1', '.st-key-form-line'].map(s => document.querySelector(s)), {PLAYER}, document."
        f"querySelector('[data-testid=stMetric]'), {CURVES}].map(e => e.getBoundingClientRect().top)")
    order = [title, player, line, score, curves] if width < 500 else [title, line, player, score, curves]
    assert order == sorted(order)
    assert player < 420  # on the first screen
    assert tab.evaluate("(document.querySelector('[data-testid=stHeader]')?.getBoundingClientRect().bottom ?? 0) <= "
                        "document.querySelector('h1').getBoundingClientRect().bottom - 20")  # not under the header
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    assert not tab.page.get_by_text("Hyperparameters").first.is_visible()  # the form is folded
    keep(tab, f"first-{name}-{width}-{SCHEMES[width]}")
    tab.close()


def test_no_toolbar_covers_data_on_a_narrow_screen(chrome: Any, served: Served) -> None:
    tab = Tab(chrome, served)
    tab.page.set_viewport_size({"width": 390, "height": 844})
    tab.open("runs")
    table = tab.page.get_by_test_id("stDataFrame").first
    table.wait_for()
    table.hover()
    tab.page.wait_for_timeout(300)
    assert not tab.page.locator("[data-testid=stElementToolbar]:visible").count()
    tab.open("mnist")
    tab.until(f"{CURVES} !== undefined && {PLAYER}?.__player.settled()")
    tab.evaluate(f"{CURVES}.scrollIntoView()")
    tab.page.locator("[data-panel=losses] .nsewdrag").first.hover()
    assert not tab.page.locator(".modebar:visible").count()
    tab.close()


def test_the_line_unfolds_into_the_form_and_diagnostics_are_a_tab(chrome: Any, served: Served) -> None:
    tab = Tab(chrome, served).open("mnist")
    tab.until(f"{CURVES} !== undefined && {PLAYER}?.__player.settled()")
    assert tab.evaluate(PANELS) == "metric,losses"
    tab.page.get_by_role("tab", name="Diagnostics").click()
    tab.until(f"{PANELS} === 'nfe,dt,gradients,seconds,lr'")
    tab.evaluate(f"{CURVES}.scrollIntoView()")
    tab.page.locator("[data-panel=nfe]").get_by_text("Function evaluations (NFE)").wait_for()
    tab.page.get_by_role("tab", name="Accuracy and loss").click()
    tab.until(f"{PANELS} === 'metric,losses'")
    tab.press("Change")
    tab.page.get_by_text("Hyperparameters").first.wait_for()
    tab.page.get_by_text("How attention starts (q)").first.wait_for()
    keep(tab, "form-unfolded-light")
    tab.press("Close")
    tab.page.get_by_text("Hyperparameters").first.wait_for(state="hidden")
    tab.close()


def test_the_demo_lands_on_the_moving_result(chrome: Any, served: Served, root: Path) -> None:
    before = {run.id for run in RunStore(root)}
    tab = Tab(chrome, served).open("")
    tab.press("Train the demo")
    tab.until("location.pathname.endsWith('/mnist')")
    wait_for_player(tab.page)
    (run,) = [run for run in RunStore(root) if run.id not in before]
    assert run.id in tab.page.url
    assert tab.evaluate(f"{PLAYER}.getBoundingClientRect().top < window.innerHeight / 2")
    tab.until(f"{PLAYER}.__player.frame().epoch > 0")  # follows the newest snapshot
    tab.until(f"{tab.points(run.id)} > 0")
    keep(tab, "training-light")
    tab.press("Stop")
    tab.page.get_by_role("button", name="Resume").wait_for()
    tab.close()
