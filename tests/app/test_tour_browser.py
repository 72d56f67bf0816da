"""The tour in a real browser: all five steps from Home, touched with mouse and keyboard, and back again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tabs import Tab

from acenode.bench.browser import PLAYER, Served, server, wait_for_player
from acenode.runs.recorded import recorded_runs

pytestmark = pytest.mark.long  # every step of the tour in a browser

PICTURE = "[...document.querySelectorAll('div')].find(e => e.__tour)"
FOLDER = Path(__file__).parents[2] / "build" / "screenshots"
SCHEMES = {1400: "light", 900: "dark", 390: "light"}


@pytest.fixture(scope="module")
def served(chrome: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Serve an empty folder of runs with the recorded ones beside it, as in a fresh clone."""
    with server(tmp_path_factory.mktemp("fresh") / "runs", ACENODE_RECORDED=str(recorded_runs())) as found:
        yield found


def heading(tab: Tab, number: int) -> None:
    """Wait until a step is shown."""
    tab.until(f"document.querySelector('.stMain h2')?.innerText.startsWith('{number}. ')")


def picture(tab: Tab, kind: str) -> None:
    """Wait until the picture of a kind is drawn, and that of the step before has gone."""
    tab.until(f"document.querySelectorAll('.ace-tour').length === 1 && {PICTURE}?.__tour.kind() === '{kind}' && "
              f"{PICTURE}?.__tour.words() !== ''")


def words(tab: Tab) -> str:
    return str(tab.evaluate(f"{PICTURE}?.__tour.words()"))


def drag(tab: Tab, label: str, key: str) -> None:
    """Move a slider with a key."""
    slider = tab.page.get_by_label(label, exact=True)
    slider.focus()
    tab.page.keyboard.press(key)


def test_the_tour_from_home_through_all_steps_and_back(chrome: Any, served: Served) -> None:
    tab = Tab(chrome, served).open("")
    tab.page.get_by_role("link", name="A tour in five steps").click()
    heading(tab, 1)
    picture(tab, "flow")
    drag(tab, "Time (t)", "End")
    tab.until(f"{PICTURE}?.__tour.words().includes('At t = 1.00, 120 of 120 points')")
    tab.press("▶ Play")
    tab.until(f"{PICTURE}?.__tour.state().t < 1")  # it starts again from the beginning

    tab.page.get_by_role("button", name="Next").click()
    heading(tab, 2)
    picture(tab, "swap")
    tab.until("location.search.includes('step=2')")
    drag(tab, "Time (t)", "End")
    tab.until(f"{PICTURE}?.__tour.state().t === 1")
    assert "below blue" not in words(tab)
    assert "after training: 1.00" in words(tab)
    tab.press("One more coordinate")
    tab.until(f"{PICTURE}?.__tour.words().includes('orange is below blue')")
    assert "after training: 0.00" in words(tab)

    tab.page.get_by_role("button", name="Next").focus()
    tab.page.keyboard.press("Enter")
    heading(tab, 3)
    picture(tab, "attend")
    before = words(tab)
    tab.page.locator(".ace-tour .choices button").nth(1).click()
    tab.until(f"{PICTURE}?.__tour.state().choice === 1")
    assert words(tab) != before
    drag(tab, "Coordinate (i)", "Home")
    tab.until(f"{PICTURE}?.__tour.words().includes('hours, coordinate 1 is')")
    assert tab.page.get_by_label("Coordinate (i)", exact=True).get_attribute("aria-valuetext") == words(tab)
    box = tab.page.locator(".ace-tour canvas").bounding_box()
    tab.page.mouse.move(box["x"] + 150, box["y"] + box["height"] - 60)  # one of the last rows of the map
    tab.until(f"{PICTURE}?.__tour.state().row > 15")

    tab.page.get_by_role("button", name="Next").click()
    heading(tab, 4)
    wait_for_player(tab.page)
    drag(tab, "Training epoch", "Home")
    tab.until(f"{PLAYER}?.__player.frame().epoch === 0")
    tab.until("location.search.includes('step=4') && location.search.includes('epoch=0')")

    tab.page.get_by_role("button", name="Next").click()
    heading(tab, 5)
    tab.until("!document.querySelector('.st-key-tour-player')")  # the player of the step before
    wait_for_player(tab.page)
    tab.until("document.querySelector('.st-key-tour-scores')?.innerText.includes('better than none')")
    tab.page.locator(".ace-player .probes button").nth(3).click()
    tab.until(f"{PLAYER}?.__player.frame().probe === 3")
    tab.page.get_by_role("radio", name="none", exact=True).click()
    tab.until("document.body.innerText.includes('This method has no attention')")
    assert tab.evaluate(f"{PLAYER}?.__player.frame().probe") == 3  # the same sample
    tab.open("tour?step=5&on=mnist")
    heading(tab, 5)
    tab.until("document.querySelector('.st-key-tour-scores')?.innerText.includes('3 seeds')")

    tab.page.get_by_role("button", name="Attention", exact=False).first.click()
    heading(tab, 3)
    tab.page.go_back()
    heading(tab, 5)
    tab.close()


def test_the_next_step_is_read_from_its_top(chrome: Any, served: Served) -> None:
    tab = Tab(chrome, served)
    tab.page.set_viewport_size({"width": 390, "height": 700})
    tab.open("tour?step=3")
    picture(tab, "attend")
    tab.page.get_by_role("button", name="Next").evaluate("node => node.scrollIntoView({block: 'start'})")
    tab.until("document.querySelector('.stMain').scrollTop > 100")
    tab.page.get_by_role("button", name="Next").click()
    heading(tab, 4)
    tab.until("document.querySelector('.stMain h1')?.getBoundingClientRect().top >= 0")
    tab.close()


@pytest.mark.parametrize("width", list(SCHEMES))
def test_steps_fit_the_window(width: int, chrome: Any, served: Served) -> None:
    tab = Tab(chrome, served, SCHEMES[width])
    tab.page.set_viewport_size({"width": width, "height": 1000})
    FOLDER.mkdir(parents=True, exist_ok=True)
    for number, kind in {1: "flow", 2: "swap", 3: "attend"}.items():
        tab.open(f"tour?step={number}")
        heading(tab, number)
        picture(tab, kind)
        assert tab.evaluate("document.documentElement.scrollWidth") <= width
        canvas = tab.page.locator(".ace-tour canvas").bounding_box()
        assert canvas["width"] > 0.8 * min(width - 32, 500)
        assert canvas["x"] + canvas["width"] <= width
        tab.page.locator(".ace-tour canvas").scroll_into_view_if_needed()
        tab.page.screenshot(path=FOLDER / f"tour-{number}-{width}-{SCHEMES[width]}.png")
    tab.close()


@pytest.mark.parametrize("width", [900, 390])
def test_narrow_pages_have_the_picture_above_the_button_that_leaves_it(width: int, chrome: Any, served: Served) -> None:
    tab = Tab(chrome, served)
    tab.page.set_viewport_size({"width": width, "height": 1000})
    tab.open("tour")
    picture(tab, "flow")
    bottom, top = tab.evaluate("[document.querySelector('.ace-tour canvas').getBoundingClientRect().bottom,"
                               " document.querySelector('.st-key-tour-turn').getBoundingClientRect().top]")
    assert bottom < top
    tab.close()
