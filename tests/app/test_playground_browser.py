"""The playground in a real browser: who swaps the points, the controls by mouse and keyboard, narrow screens."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tabs import Tab

from acenode.bench.browser import PLAYGROUND, Served, server

FOLDER = Path(__file__).parents[2] / "build" / "screenshots"
FRAME = f"{PLAYGROUND}?.__playground.frame()"


@pytest.fixture(scope="module")
def served(chrome: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with server(tmp_path_factory.mktemp("playground") / "runs") as found:
        yield found


def words(tab: Tab, name: str) -> str:
    return str(tab.evaluate(f"{PLAYGROUND}.__playground.words('{name}')"))


def losses(tab: Tab) -> list[list[float]]:
    return list(tab.evaluate(f"{FRAME}.networks.map((network) => network.losses)"))


def three_steps(tab: Tab) -> list[list[float]]:
    """Rewind and take three steps, by keyboard."""
    tab.press("Rewind")
    tab.until(f"{FRAME}.step === 0")
    tab.page.get_by_role("button", name="One step").focus()
    for n in (1, 2, 3):
        tab.page.keyboard.press("Enter")
        tab.until(f"{FRAME}.step === {n}")
    return losses(tab)


def test_the_node_fails_and_the_others_swap_the_points(chrome: Any, served: Served,
                                                       capsys: pytest.CaptureFixture[str]) -> None:
    tab = Tab(chrome, served)
    messages: list[Any] = []
    tab.page.on("websocket", lambda socket: socket.on("framereceived", lambda data: messages.append(data)))
    tab.open("playground")
    tab.until(f"{FRAME}?.running && {FRAME}.step > 0")  # it trains at once
    for name in ("augmented", "ace"):
        tab.until(f"{PLAYGROUND}.__playground.words('{name}').includes('The points have swapped')")
    tab.until(f"{FRAME}.step > 60")
    reruns = len(messages)
    measured = tab.evaluate(f"[{FRAME}.stepsASecond, {PLAYGROUND}.__playground.fps(), {FRAME}.serial]")
    with capsys.disabled():
        print(f"\nplayground: {measured[0]:.0f} steps/s, {measured[1]:.0f} frames/s while tests run", end=" ")
    assert "Neither overtakes the other" in words(tab, "node")
    assert "go around each other" in words(tab, "augmented")
    assert "f reads different h′ at the same h" in words(tab, "ace")
    node, augmented, ace = (values[-1] for values in losses(tab))
    assert node > 0.24  # both points in the middle
    assert max(augmented, ace) < 0.05
    label = tab.page.locator(".ace-playground section canvas").first.get_attribute("aria-label")
    assert label is not None
    assert "Neither overtakes" in label

    tab.press("❚❚ Pause")
    tab.until(f"{FRAME}.running === false")
    first = three_steps(tab)
    assert [len(values) for values in first] == [3, 3, 3]
    assert three_steps(tab) == first
    assert len(messages) == reruns  # frames and commands do not rerun the page

    rate = tab.page.get_by_label("Learning rate", exact=True)
    rate.focus()
    tab.page.keyboard.press("End")
    tab.until(f"{FRAME}.settings.learning_rate === 0.1 && {FRAME}.step === 3")  # goes on
    tab.page.get_by_label("Hidden units (starts again)", exact=True).focus()
    tab.page.keyboard.press("Home")
    tab.until(f"{FRAME}.settings.hidden === 2 && {FRAME}.step === 0")
    tab.page.get_by_label("Time (t)", exact=True).focus()
    tab.page.keyboard.press("Home")
    tab.until(f"{PLAYGROUND}.__playground.t() === 0")
    tab.press("▶ Play t")
    tab.until(f"{PLAYGROUND}.__playground.t() > 0.5")
    tab.press("❚❚ Pause t")
    tab.close()


@pytest.mark.long
def test_paths_are_drawn_with_the_mouse_on_a_narrow_screen(chrome: Any, served: Served) -> None:
    tab, width = Tab(chrome, served, "dark"), 390
    tab.page.set_viewport_size({"width": width, "height": 1000})
    tab.open("playground")
    tab.page.get_by_role("button", name="Draw your own").focus()
    tab.page.keyboard.press("Enter")
    tab.until(f"{FRAME}?.problem.name === 'drawn'")
    tab.press("Clear")
    pad = tab.page.locator(".ace-playground .pad canvas")
    pad.scroll_into_view_if_needed()
    box = pad.bounding_box()
    for start, end in (((0.3, 0.3), (0.7, 0.6)), ((0.3, 0.6), (0.7, 0.3))):
        tab.page.mouse.move(box["x"] + start[0] * box["width"], box["y"] + start[1] * box["height"])
        tab.page.mouse.down()
        tab.page.mouse.move(box["x"] + end[0] * box["width"], box["y"] + end[1] * box["height"], steps=6)
        tab.page.mouse.up()
    tab.until(f"{FRAME}.settings.strokes.length === 2 && {FRAME}.problem.targets.shape.join() === '6,2,2'")
    tab.until(f"{FRAME}.step > 2")
    tab.press("Whirl")
    tab.until(f"{FRAME}.problem.colour.length === 3")
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    assert tab.evaluate("[...document.querySelectorAll('.ace-playground *')].every((e) => "
                        f"e.getBoundingClientRect().right <= {width})")
    FOLDER.mkdir(parents=True, exist_ok=True)
    tab.page.screenshot(path=FOLDER / "playground-390-dark.png")
    tab.page.reload()  # the playground is the server's: it is still there
    tab.until(f"{FRAME}?.problem.colour.length === 3")
    tab.close()
