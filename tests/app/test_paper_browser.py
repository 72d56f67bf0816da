"""The Paper page in a real browser, on some of the recorded runs: cells, player, Back, and what is missing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from recorded_part import recorded_part
from tabs import Tab

from acenode.bench.browser import CURVES, PLAYER, Served, server

RUNS = "document.querySelector('.st-key-paper-cell')"  # the opened cell's runs
FOCUS = "document.activeElement.dataset"
PLACE = """(() => {
    const found = [...document.querySelectorAll(".paper-table strong, .st-key-paper-cell")];
    const names = found.map((e) => e.matches("strong") ? e.innerText : "runs"), i = names.indexOf("runs");
    return names.slice(i - 1, i + 2);
})()"""  # the runs, with the tables before and after them
DRAWN = f"{PLAYER} !== undefined && {PLAYER}.querySelectorAll('canvas').length > 4"


@pytest.fixture(scope="module")
def served(chrome: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    root = tmp_path_factory.mktemp("paper")
    some = recorded_part(root / "recorded", mnist_ace=3, mnist_rknet=1, ushcn_ace=5)
    with server(root / "runs", ACENODE_RECORDED=str(some), ACENODE_DATA=str(root / "data")) as found:
        yield found


@pytest.fixture(scope="module")
def tab(chrome: Any, served: Served) -> Iterator[Tab]:
    """Share one tab, whose cache saves most of the time of loading a page."""
    made = Tab(chrome, served)
    yield made
    made.close()


def cell(key: str, table: int = 0) -> str:
    return f"[data-cell='{key}'] >> nth={table}"


def test_a_cell_opens_its_runs_and_back_returns(tab: Tab) -> None:
    tab.open("paper")
    tab.page.click(cell("mnist/ace/accuracy"))
    tab.until(DRAWN)
    tab.until(f"{RUNS}.innerText.includes('MNIST classification: ACE-ODE-Net')")
    tab.until(f"{CURVES} !== undefined")
    tab.until("location.search.includes('cell=mnist')")
    header = "document.querySelector('[data-testid=stHeader]').getBoundingClientRect().bottom"
    tab.until(f"{RUNS}.getBoundingClientRect().top < innerHeight / 2")  # the page has scrolled to it
    assert tab.evaluate(f"{RUNS}.getBoundingClientRect().top >= {header}")
    assert tab.evaluate(PLACE) == ["MNIST classification", "runs", "SVHN classification"]
    tab.page.click(cell("svhn/ace/accuracy"))
    tab.until(f"{RUNS}?.innerText.includes('SVHN classification: ACE-ODE-Net')")
    tab.until(f"{PLACE}.join() === 'SVHN classification,runs,CIFAR10 classification'")
    tab.page.go_back()
    tab.until(f"{PLACE}.join() === 'MNIST classification,runs,SVHN classification'")
    tab.page.click(cell("ushcn/ace/mse"))
    tab.until(f"{RUNS}?.innerText.includes('USHCN forecasting: ACE-GRU-ODE-Bayes, MSE')")
    tab.until(DRAWN)
    tab.page.go_back()
    tab.until(f"{RUNS}?.innerText.includes('MNIST classification: ACE-ODE-Net')")
    assert tab.evaluate("document.querySelector('.cell[aria-current]').dataset.cell") == "mnist/ace/accuracy"
    tab.page.go_back()
    tab.until(f"!{RUNS}")


def test_a_cell_in_two_tables_opens_where_it_was_clicked(tab: Tab) -> None:
    tab.open("paper")
    tab.page.click(cell("physionet/ace/auc", table=1))
    tab.until(f"{RUNS}?.innerText.includes('Type of attention: ACE, PhysioNet (AUC)')")
    assert tab.evaluate(f"{FOCUS}.table") == "attention"
    marked = "[...document.querySelectorAll('.cell[aria-current]')].map(e => e.dataset.table)"
    assert tab.evaluate(marked) == ["attention"]
    tab.page.reload()
    tab.until(f"{RUNS}?.innerText.includes('Type of attention: ACE, PhysioNet (AUC)')")


def test_the_keyboard_opens_and_closes_a_cell(tab: Tab) -> None:
    tab.open("paper")
    tab.page.focus(cell("mnist/ace/accuracy"))
    tab.page.keyboard.press("Enter")
    tab.until(DRAWN)
    assert tab.evaluate(f"{FOCUS}.cell") == "mnist/ace/accuracy"
    tab.page.focus(cell("cifar10/ace/accuracy"))  # its table moves above the runs
    tab.page.keyboard.press("Enter")
    tab.until(f"{PLACE}.join() === 'CIFAR10 classification,runs,Silhouette of image features'")
    tab.until(f"{FOCUS}.cell === 'cifar10/ace/accuracy'")
    tab.page.get_by_role("button", name="Close", exact=True).focus()
    tab.page.keyboard.press("Enter")
    tab.until(f"!{RUNS} && !location.search.includes('cell')")
    tab.until(f"{FOCUS}.cell === 'cifar10/ace/accuracy'")


def test_a_click_on_the_opened_cell_scrolls_to_its_runs(tab: Tab) -> None:
    tab.open("paper?cell=ushcn%2Face%2Fmse")
    tab.until(f"{RUNS}?.getBoundingClientRect().top < innerHeight / 2")
    tab.until(DRAWN)
    tab.evaluate("document.querySelector('h1').scrollIntoView()")
    tab.until(f"{RUNS}.getBoundingClientRect().top > innerHeight")
    tab.evaluate("document.querySelector('.cell[aria-current]').click()")
    tab.until(f"{RUNS}.getBoundingClientRect().top < innerHeight / 2")


def test_the_queue_says_the_time_and_offers_the_data(tab: Tab) -> None:
    tab.open("paper?cell=mnist%2Frknet%2Faccuracy")
    tab.until("/planned seeds, folds and epochs . [0-9]+ epochs each . [0-9.]+ (s|min|h) on NVIDIA H200/"
              f".test({RUNS}?.innerText)")
    tab.page.get_by_role("button", name="Download and prepare").wait_for()


def test_tables_fit_the_page(tab: Tab) -> None:
    tab.open("paper")
    tab.until("document.querySelectorAll('.paper-table').length >= 11 && document.querySelector('.js-plotly-plot')")
    assert tab.evaluate("[...document.querySelectorAll('.paper-table .mark')].every(e => e.innerText.length > 3)")
    folder = Path(__file__).parents[2] / "build" / "screenshots"
    folder.mkdir(parents=True, exist_ok=True)
    for width, scheme in ((1400, "light"), (900, "dark"), (390, "light")):
        tab.page.set_viewport_size({"width": width, "height": 900})
        tab.page.emulate_media(color_scheme=scheme)
        tab.page.wait_for_timeout(300)
        assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")
        tab.page.screenshot(path=folder / f"paper-{width}-{scheme}.png")
