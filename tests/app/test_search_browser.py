"""A search in a real browser: chosen in the form, its charts fill in without flicker, and fit two widths."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tabs import Tab

from acenode.bench.browser import Served, server
from acenode.bench.synthetic import synthetic_search
from acenode.runs.questions import SearchStore
from acenode.runs.store import RunStore
from acenode.search.journal import SearchJournal

pytestmark = pytest.mark.long  # the app in a browser, with runs that train

FOLDER = Path(__file__).parents[2] / "build" / "screenshots"
CHARTS = "[...document.querySelectorAll('div')].find(e => e.__search)"
SIZES = {1400: "light", 390: "dark"}
QUIET = "document.querySelector('.stApp')?.dataset.testScriptState === 'notRunning'"
SUMMARY = "document.querySelector('.search-charts .summary')?.textContent ?? ''"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("search") / "runs"


@pytest.fixture(scope="module")
def served(chrome: Any, root: Path) -> Iterator[Served]:
    with server(root, OMP_NUM_THREADS="1") as found:
        yield found


MIDDLE = "(e => e.getBoundingClientRect().top + e.getBoundingClientRect().height / 2)"


def test_the_link_to_the_form_is_beside_the_choice(chrome: Any, served: Served) -> None:
    tab = Tab(chrome, served).open("searches")
    parts = [f"document.querySelector('.st-key-search-new {part}')" for part in ("[role=group]", "a")]
    tab.until(f"{parts[0]} && {parts[1]} && {QUIET}")
    choice, link = (tab.evaluate(f"{MIDDLE}({part})") for part in parts)
    assert abs(choice - link) < 2
    tab.close()


def test_the_link_to_all_searches_is_below_the_header(chrome: Any, served: Served) -> None:
    tab = Tab(chrome, served)
    tab.page.set_viewport_size({"width": 390, "height": 844})
    tab.open("searches?search=nothing")
    link, header = "[data-testid=stMain] .stPageLink a", "[data-testid=stHeader]"
    tab.until(f"document.querySelector('{link}') && {QUIET}")
    assert (tab.evaluate(f"document.querySelector('{link}').getBoundingClientRect().top")
            >= tab.evaluate(f"document.querySelector('{header}').getBoundingClientRect().bottom"))
    tab.close()


def test_a_search_from_the_form_to_its_end(chrome: Any, served: Served, root: Path) -> None:
    store = SearchStore(RunStore(root))
    tab = Tab(chrome, served).open("searches?experiment=mnist")
    tab.page.get_by_role("button", name="Start", exact=True).wait_for()
    tab.page.get_by_label("Method").click()
    tab.page.get_by_role("option", name="ResNet", exact=True).click()
    tab.until(f"document.querySelector('[aria-label=Name]').value === 'mnist-resnet' && {QUIET}")  # drawn for ResNet
    tab.page.get_by_text("Hyperparameters", exact=True).click()
    values = {"Epochs": "1", "Batch size": "512", "From": "0.001", "Trials": "4"}
    fields = {label: tab.page.get_by_label(label, exact=True).first for label in values}
    for label, field in fields.items():
        field.evaluate("e => { e.__kept = true; }")
        field.fill(values[label])
        field.press("Enter")
        tab.until(QUIET)
    tab.page.get_by_text("4 trials").first.wait_for()
    tab.until(QUIET)
    assert {label: field.input_value() for label, field in fields.items()} == values
    assert all(field.evaluate("e => e.__kept") for field in fields.values())  # a replaced field would lose the focus
    tab.press("Start")
    tab.until("location.search === '?search=mnist-resnet'")
    tab.until(f"{CHARTS}?.__search.trials() >= 1")
    tab.until(f"{CHARTS}.__search.drawn() && / [1-4] of 4 trials finished/.test(' ' + {SUMMARY})")
    tab.evaluate("{ document.querySelector('.search-charts .plot .main-svg').__kept = true; }")
    tab.until(f"/^4 of 4 trials finished/.test({SUMMARY})")
    tab.page.get_by_text("All trials are done").wait_for()
    assert tab.evaluate("document.querySelector('.search-charts .plot .main-svg').__kept")  # updated, not drawn anew
    trials = SearchJournal(store.journal("mnist-resnet"), store.read("mnist-resnet").ranges).refresh()
    assert [trial.state for trial in trials] == ["finished"] * 4
    assert trials[0].default
    assert [run.result() for run in store.runs] == [None] * 4
    tab.close()


def test_the_charts_fit_and_have_labelled_axes(chrome: Any, served: Served, root: Path) -> None:
    synthetic_search(SearchStore(RunStore(root)), "many", 200)
    tab = Tab(chrome, served).open("searches?search=many")
    tab.until(f"{CHARTS}?.__search.trials() === 200 && {CHARTS}.__search.drawn()")
    FOLDER.mkdir(parents=True, exist_ok=True)
    for width, scheme in SIZES.items():
        tab.page.emulate_media(color_scheme=scheme)
        tab.page.set_viewport_size({"width": width, "height": 2600})
        tab.page.wait_for_timeout(1500)
        assert tab.evaluate("document.documentElement.scrollWidth") <= width
        tab.page.screenshot(path=FOLDER / f"search-{width}-{scheme}.png")
    titles = tab.evaluate("[...document.querySelectorAll('.search-charts .xtitle, .search-charts .ytitle')]"
                          ".map(e => e.textContent)")
    for title in ("Trial", "Validation accuracy (%)", "Share of the importance (%)", "Learning rate"):
        assert title in titles
    assert tab.page.locator(".search-scroll tbody tr").count() == 10
    tab.close()


def test_the_best_trials_are_listed_before_charts_and_trials_read_once(chrome: Any, served: Served, root: Path) -> None:
    synthetic_search(SearchStore(RunStore(root)), "listed", 200)
    tab = Tab(chrome, served)
    asked: list[str] = []
    tab.page.on("request", lambda request: "/lab/search/listed" in request.url and asked.append(request.url))
    tab.page.route("**/lab/plotly.js", lambda route: None)  # is never answered, so the page may never be loaded
    tab.page.goto(f"{served.url}/searches?search=listed", wait_until="commit")
    tab.until(f"{CHARTS}?.__search.trials() === 200 && {CHARTS}.__search.listed()")
    assert tab.page.locator(".search-scroll tbody tr").count() == 10
    assert asked[0].endswith("?since=")
    assert tab.evaluate("performance.getEntriesByType('resource').find(e => e.name.includes('/lab/search/'))"
                        ".initiatorType") == "link"  # before Streamlit starts
    assert not any(url.endswith("?since=") for url in asked[1:])  # the early answer was used
    tab.close()
