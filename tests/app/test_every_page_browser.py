"""Every page in one browser session: accessibility by axe-core in light and dark, requests, history, and stillness."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tabs import Tab

from acenode.bench.browser import PLAYER, Served, server, wait_for_player
from acenode.experiments import EXAMPLES, EXPERIMENTS
from acenode.runs.recorded import recorded_runs

AXE = (Path(__file__).parent / "vendor" / "axe.min.js").read_text(encoding="utf-8")
SERIOUS = ("serious", "critical")
SHOWN = "mnist"  # of the experiments, whose pages share their code; Compare shows charts of time series
NAMED = ("oscillators", "liver", "air-quality")  # of the examples of named variables: one of each task
QUIET = "document.querySelector('.stApp')?.dataset.testScriptState === 'notRunning'"
STILL = f"{QUIET} && document.getAnimations().every((one) => !(one instanceof CSSTransition))"
FIND = """async (options) => (await axe.run({ exclude: [".js-plotly-plot"] }, options)).violations.flatMap((found) =>
  found.nodes.map((node) => [found.impact, found.id, node.target.join(' '), node.failureSummary, node.html]))"""
CONTRAST = {"runOnly": {"type": "rule", "values": ["color-contrast"]}}
SHIFTS = """() => { window.__shifts = []; new PerformanceObserver((list) => window.__shifts.push(...list.getEntries()
  .filter((e) => !e.hadRecentInput).flatMap((e) => e.sources.map((s) => [s.previousRect.y, s.currentRect.y]))))
  .observe({ type: 'layout-shift' }); }"""


@pytest.fixture(scope="module")
def served(chrome: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Serve an empty folder of runs with the recorded ones beside it, as in a fresh clone."""
    with server(tmp_path_factory.mktemp("pages") / "runs", ACENODE_RECORDED=str(recorded_runs())) as found:
        yield found


@pytest.fixture(scope="module")
def tab(chrome: Any, served: Served) -> Iterator[Tab]:
    found = Tab(chrome, served)
    found.page.set_viewport_size({"width": 1400, "height": 2600})  # axe measures contrast only where it is in view
    yield found
    found.close()


def open_quietly(tab: Tab, path: str) -> None:
    """Open a page and wait until it is drawn."""
    tab.open(path)
    tab.page.locator("h1").first.wait_for()
    tab.until(f"{QUIET} && document.querySelector('.active-runs')?.childElementCount > 0")
    tab.page.wait_for_timeout(500)


def violations(tab: Tab, path: str, options: dict[str, Any]) -> list[str]:
    """Return the serious and critical violations of a page, and headings that skip a level.

    Streamlit draws what is out of date in pale colours and fades it back: contrast is measured when that is over, and
    what is found must still be there a moment later, since a part of the page may begin to be drawn while axe looks.
    """
    found: list[str] = []
    for _ in range(3):
        tab.until(STILL)
        tab.page.evaluate(AXE)
        found = [f"{path or 'home'}: {' | '.join(map(str, parts))}" for parts in tab.page.evaluate(FIND, options)
                 if parts[0] in SERIOUS or parts[1] == "heading-order"]
        if not found:
            break
        tab.page.wait_for_timeout(1500)
    return found


def check(tab: Tab, pages: list[str]) -> None:
    """Check pages in light, then their contrast in dark; the experiment's page with its form unfolded,
    pages of named variables with the map of influence and their last tab."""
    found = []
    for path in pages:
        tab.page.emulate_media(color_scheme="light")
        open_quietly(tab, path)
        if path == SHOWN:
            tab.press("Change")
            tab.page.get_by_text("Hyperparameters", exact=True).click()
            tab.page.get_by_text("Train the ablation set").first.click()
            tab.page.mouse.move(0, 0)
            tab.page.get_by_role("button", name="Add to queue").wait_for()
            tab.until(QUIET)
            tab.page.wait_for_timeout(1000)
        if path in NAMED:
            wait_for_player(tab.page)
            tab.page.get_by_label("Map", exact=True).select_option("influence")
            tab.until(f"{PLAYER}.__player.words()[0].includes('largest influence')")
            tab.page.get_by_role("tab").last.click()  # what if, where there is a forecast
            tab.until(QUIET)
            tab.page.wait_for_timeout(500)
        found += violations(tab, path, {})
        tab.page.emulate_media(color_scheme="dark")
        tab.until("getComputedStyle(document.querySelector('.stApp')).colorScheme === 'dark'")
        tab.page.wait_for_timeout(500)
        found += violations(tab, f"{path} (dark)", CONTRAST)
    assert not found, "\n".join(found)
    assert not tab.failed  # no request was answered by an error


def test_home_has_no_serious_violation(tab: Tab) -> None:
    check(tab, [""])


@pytest.mark.long
def test_no_page_has_a_serious_violation(tab: Tab) -> None:
    open_quietly(tab, "")
    links = tab.page.locator("[data-testid=stSidebarNavLink]").evaluate_all("all => all.map(e => e.pathname.slice(1))")
    pages = [name for name in links if name not in {*EXPERIMENTS, *EXAMPLES} or name in (SHOWN, *NAMED)]
    assert {"", "tour", "paper", "mnist", *NAMED, "compare", "runs"} <= set(pages)
    check(tab, pages)


def test_back_from_compare_needs_one_press(tab: Tab) -> None:
    open_quietly(tab, "runs")
    tab.page.locator("[data-testid=stSidebarNavLink][href$='/compare']").click()
    tab.until("location.pathname.endsWith('/compare') && location.search.includes('runs=')")
    tab.until(QUIET)
    tab.page.go_back()
    tab.until("location.pathname.endsWith('/runs')")
    tab.page.get_by_role("heading", name="Runs", exact=True).wait_for()


def test_home_stands_still(tab: Tab) -> None:
    """The first seconds are those in which the server loads torch and the sidebar learns of the devices."""
    open_quietly(tab, "")
    wait_for_player(tab.page)
    tab.page.evaluate(SHIFTS)
    tab.page.wait_for_timeout(3500)
    assert tab.evaluate("window.__shifts") == []
