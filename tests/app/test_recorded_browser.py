"""A first visit in a real browser: Home plays a recorded run and shows recorded results, and recorded runs open."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from tabs import Tab

from acenode.bench.browser import PLAYER, Served, server, wait_for_player
from acenode.bench.pages import recorded_ace_runs
from acenode.runs.recorded import recorded_runs
from acenode.runs.store import RunStore

SCHEMES = {1400: "light", 900: "dark", 390: "light"}
TOP_OF_RESULTS = "[...document.querySelectorAll('h2')].find(e => e.innerText.includes('Recorded results'))" \
    ".getBoundingClientRect().top - document.querySelector('h1').getBoundingClientRect().top"
REST_IS_DRAWN = "document.fonts.status === 'loaded' && !document.querySelector('[data-testid=stSkeleton]')" \
    " && document.querySelector('.stApp')?.dataset.testScriptState === 'notRunning'"
DOWNLOADED = "performance.getEntriesByType('resource').filter(e => e.name.includes('/lab/film/'))" \
    ".map(e => e.transferSize)"
MAX_BYTES = 6e6  # of the descriptions and arrays that the player reads before it is drawn, and the epochs beside it


@pytest.fixture(scope="module")
def served(chrome: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Serve an empty folder of runs with the recorded ones beside it, as in a fresh clone."""
    with server(tmp_path_factory.mktemp("fresh") / "runs", ACENODE_RECORDED=str(recorded_runs())) as found:
        yield found


@pytest.mark.parametrize("width", [pytest.param(w, marks=pytest.mark.long if w == 900 else []) for w in SCHEMES])
def test_home_shows_the_player_and_results_and_nothing_moves(width: int, chrome: Any, served: Served) -> None:
    tab = Tab(chrome, served, SCHEMES[width])
    tab.page.set_viewport_size({"width": width, "height": 1000})
    held: list[Any] | None = []  # requests of the player, which waits for its data while the rest is drawn
    tab.page.route("**/lab/film/**", lambda route: route.continue_() if held is None else held.append(route))
    tab.open("")
    tab.page.get_by_text("Latest results").first.wait_for()
    tab.until(f"{PLAYER} !== undefined && {REST_IS_DRAWN}")
    tab.page.wait_for_timeout(500)
    before = tab.evaluate(TOP_OF_RESULTS)
    waiting, held = held, None
    for route in waiting:
        route.continue_()
    wait_for_player(tab.page)
    tab.page.wait_for_timeout(800)
    assert tab.evaluate(TOP_OF_RESULTS) == pytest.approx(before, abs=1)
    assert tab.evaluate("document.querySelectorAll('.ace-results section').length") >= 3
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    assert tab.evaluate(f"{PLAYER}.querySelectorAll('canvas').length") > 3
    assert re.search(r"(patient|station) \d+", tab.evaluate(f"{PLAYER}.__player.words()[0]"))
    if width == 390:  # the player follows the title, and fits the screen
        box = tab.page.locator(".ace-player").bounding_box()
        title = tab.page.locator("h1").bounding_box()
        assert box["y"] - title["y"] < 300
        assert box["height"] < 700
        assert title["y"] >= tab.page.get_by_test_id("stHeader").bounding_box()["height"] - 1
    tab.close()


def test_a_run_that_is_not_behind_the_papers_value_says_so(chrome: Any, served: Served) -> None:
    folder = recorded_runs()
    assert folder is not None
    short = next(r for r in RunStore(folder, folder) if r.id.startswith("cifar10-ace")
                 and (r.config().get("epochs"), r.config().get("size")) == (20, "small"))  # the table's have 40 epochs
    tab = Tab(chrome, served).open(f"cifar10?runs={short.id}")
    tab.page.get_by_text("The Paper page shows the mean of other runs").wait_for()
    assert tab.page.inner_text("h1").endswith("shown: full data")
    tab.close()


def test_a_run_behind_the_papers_value_names_the_mean_and_the_epoch_that_was_tested(chrome: Any,
                                                                                    served: Served) -> None:
    tab = Tab(chrome, served).open("activity")
    words = tab.page.get_by_text("One of the runs whose mean the Paper page shows")
    words.wait_for()
    assert re.search(r"3 seeds, 70 epochs\)\. The test values are those of epoch \d+ of 70", words.inner_text())
    assert tab.page.inner_text("h1").endswith("shown: a part of the full data")
    tab.close()


def test_home_moves_through_time_epochs_samples_and_kinds_of_attention(chrome: Any, served: Served) -> None:
    tab = Tab(chrome, served).open("")
    wait_for_player(tab.page)
    header = ".ace-player header"
    assert "ACE" in tab.page.inner_text(header)
    assert tab.evaluate(f"{PLAYER}.__player.frame().t") > 0  # not at t = 0, where nothing has happened yet
    for name, position in (("Time (t)", "t"), ("Training epoch", "epoch")):
        slider = tab.page.get_by_label(name, exact=True)
        before = tab.evaluate(f"{PLAYER}.__player.frame().{position}")
        slider.focus()
        tab.page.keyboard.press("Home")
        tab.until(f"{PLAYER}.__player.frame().{position} < {before}")
    tab.page.locator(".ace-player .probes button").nth(3).click()
    tab.until(f"{PLAYER}.__player.frame().probe === 3")
    tab.page.get_by_role("radio", name="none", exact=True).click()
    tab.until(f"!document.querySelector('{header}').innerText.includes('ACE')"
              " || document.body.innerText.includes('This method has no attention')")
    tab.until("location.search.includes('attention=none')")
    tab.page.get_by_role("radio", name="evolving", exact=True).click()
    tab.until(f"document.querySelector('{header}').innerText.includes('ACE')")
    wait_for_player(tab.page)
    tab.page.locator(".ace-results a").first.click()  # opens the runs behind a value
    tab.until("location.pathname.endsWith('/paper') && location.search.includes('cell=')")
    tab.close()


@pytest.mark.parametrize("entry", [
    pytest.param(entry, id=entry.experiment, marks=[] if entry.experiment == "physionet" else pytest.mark.long)
    for entry in recorded_ace_runs()])
def test_a_recorded_run_of_ace_opens_with_little_to_load(entry: Any, chrome: Any, served: Served) -> None:
    """`acenode bench app` measures the seconds."""
    tab = Tab(chrome, served).open(f"{entry.experiment}?runs={entry.id}")
    wait_for_player(tab.page)
    sizes = tab.evaluate(DOWNLOADED)
    assert 2 <= len(sizes) <= 5  # the description, the last epoch, and those beside it
    assert sum(sizes) < MAX_BYTES
    assert "recorded" in tab.page.inner_text(".ace-player header")
    tab.close()


def test_a_run_without_snapshots_says_so_where_others_have_a_player(chrome: Any, served: Served) -> None:
    folder = recorded_runs()
    assert folder is not None
    run = next(r for r in RunStore(folder, folder) if not r.snapshots())
    tab = Tab(chrome, served).open(f"{run.config().experiment}?runs={run.id}")
    tab.page.get_by_text("The snapshots of this recorded run were not kept").wait_for()
    assert tab.page.get_by_role("button", name="Play").is_hidden()
    tab.close()


@pytest.mark.long
def test_the_form_comes_into_view_when_a_runs_settings_are_copied(chrome: Any, served: Served) -> None:
    tab = Tab(chrome, served).open("mnist")
    wait_for_player(tab.page)
    button = tab.page.get_by_role("button", name="Repeat with changes").first
    for _ in range(2):  # the second time the form is open already
        button.scroll_into_view_if_needed()
        tab.page.mouse.wheel(0, 600)
        tab.until("document.querySelector('h1').getBoundingClientRect().top < 0")
        button.click()
        tab.page.get_by_text("The form has the settings of").wait_for()
        tab.until("document.querySelector('h1').getBoundingClientRect().top >= 0")
    tab.close()
