"""Journeys through the app in a real browser, on one server with the recorded runs and three of the user's own."""

from __future__ import annotations

import re
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import Tab, config
from importing_tables import wide

from acenode.bench.browser import CURVES, PLAYER, PLAYGROUND, Served, server, wait_for_player
from acenode.execution.execute import create
from acenode.experiments import EXAMPLES, EXPERIMENTS
from acenode.runs.recorded import recorded_runs
from acenode.runs.store import RunStore

AXE = (Path(__file__).parent / "vendor" / "axe.min.js").read_text(encoding="utf-8")
FIND = """async (options) => (await axe.run({ exclude: [".js-plotly-plot"] }, options)).violations.flatMap((found) =>
  found.nodes.map((node) => [found.impact, found.id, node.target.join(' '), node.failureSummary, node.html]))"""
CONTRAST = {"runOnly": {"type": "rule", "values": ["color-contrast"]}}
QUIET = "document.querySelector('.stApp')?.dataset.testScriptState === 'notRunning'"
STILL = f"{QUIET} && document.getAnimations().every((one) => !(one instanceof CSSTransition))"
SHIFTS = """() => { window.__shifts = []; new PerformanceObserver((list) => window.__shifts.push(...list.getEntries()
  .filter((e) => !e.hadRecentInput).flatMap((e) => e.sources.map((s) => [s.previousRect.y, s.currentRect.y]))))
  .observe({ type: 'layout-shift' }); }"""
TOP_OF_RESULTS = "[...document.querySelectorAll('h2')].find(e => e.innerText.includes('Recorded results'))" \
    ".getBoundingClientRect().top - document.querySelector('h1').getBoundingClientRect().top"
DRAWN = f"document.fonts.status === 'loaded' && !document.querySelector('[data-testid=stSkeleton]') && {QUIET}"
DOWNLOADED = "performance.getEntriesByType('resource').filter(e => e.name.includes('/lab/film/'))" \
    ".map(e => e.transferSize)"
CELL = "document.querySelector('.st-key-paper-cell')"  # the opened cell of the Paper page
PICTURE = "[...document.querySelectorAll('div')].find(e => e.__tour)"
FRAME = f"{PLAYGROUND}?.__playground.frame()"
GRID = "[...document.querySelectorAll('.study-scroll td[data-state]')]"
CHARTS = "[...document.querySelectorAll('div')].find(e => e.__search)"
SUMMARY = "document.querySelector('.search-charts .summary')?.textContent ?? ''"


def no_overflow(tab: Tab, width: int) -> None:
    assert tab.evaluate("document.documentElement.scrollWidth") <= width


def violations(tab: Tab, path: str, options: dict[str, Any]) -> list[str]:
    """Return the serious and critical violations of a page that axe-core finds, and headings that skip a level.

    Streamlit draws what is out of date in pale colours and fades it back: contrast is measured when that is over, and
    what is found must still be there a moment later.
    """
    found: list[str] = []
    for _ in range(3):
        tab.until(STILL)
        tab.page.evaluate(AXE)
        found = [f"{path or 'home'}: {' | '.join(map(str, parts))}" for parts in tab.page.evaluate(FIND, options)
                 if parts[0] in ("serious", "critical") or parts[1] == "heading-order"]
        if not found:
            break
        tab.page.wait_for_timeout(1500)
    return found


def check_access(tab: Tab, pages: list[str]) -> None:
    """Check pages in light, and their contrast in dark."""
    found = []
    for path in pages:
        tab.page.emulate_media(color_scheme="light")
        tab.open(path)
        tab.page.locator("h1").first.wait_for()
        tab.until(f"{QUIET} && document.querySelector('.active-runs')?.childElementCount > 0")
        if path == "mnist":
            tab.press("Change")
            tab.page.get_by_text("Hyperparameters", exact=True).click()
            tab.page.get_by_text("Train the ablation set").first.click()
            tab.page.mouse.move(0, 0)
            tab.page.get_by_role("button", name="Add to queue").wait_for()
        if path in EXAMPLES:
            wait_for_player(tab.page)
            tab.page.get_by_label("Map", exact=True).select_option("influence")
            tab.until(f"{PLAYER}.__player.words()[0].includes('largest influence')")
            tab.page.get_by_role("tab").last.click()  # what if, where there is a forecast
        tab.page.wait_for_timeout(500)
        found += violations(tab, path, {})
        tab.page.emulate_media(color_scheme="dark")
        tab.until("getComputedStyle(document.querySelector('.stApp')).colorScheme === 'dark'")
        tab.page.wait_for_timeout(500)
        found += violations(tab, f"{path} (dark)", CONTRAST)
    assert not found, "\n".join(found)
    assert not tab.failed  # no request was answered by an error


@pytest.mark.parametrize("width", [1400, 390])
def test_home_shows_the_player_and_results_and_nothing_moves(width: int, chrome: Any, served: Served) -> None:
    tab = Tab(chrome, served)
    tab.page.set_viewport_size({"width": width, "height": 1000})
    held: list[Any] | None = []  # requests of the player, which waits for its data while the rest is drawn
    tab.page.route("**/lab/film/**", lambda route: route.continue_() if held is None else held.append(route))
    tab.open("")
    tab.page.get_by_text("Latest results").first.wait_for()
    tab.until(f"{PLAYER} !== undefined && {DRAWN}")
    tab.page.wait_for_timeout(500)
    before = tab.evaluate(TOP_OF_RESULTS)
    waiting, held = held, None
    for route in waiting:
        route.continue_()
    wait_for_player(tab.page)
    tab.page.evaluate(SHIFTS)
    tab.page.wait_for_timeout(1500)
    assert tab.evaluate(TOP_OF_RESULTS) == pytest.approx(before, abs=1)
    assert tab.evaluate("window.__shifts") == []
    assert tab.evaluate("document.querySelectorAll('.ace-results section').length") >= 3
    no_overflow(tab, width)
    assert re.search(r"(patient|station) \d+", tab.evaluate(f"{PLAYER}.__player.words()[0]"))
    if width == 390:  # the player follows the title, and fits the screen
        box, title = tab.page.locator(".ace-player").bounding_box(), tab.page.locator("h1").bounding_box()
        assert box["y"] - title["y"] < 300
        assert box["height"] < 700
        assert title["y"] >= tab.page.get_by_test_id("stHeader").bounding_box()["height"] - 1
    tab.close()


def test_from_home_through_kinds_of_attention_to_the_paper_and_back(chrome: Any, served: Served) -> None:
    tab = Tab(chrome, served)
    tab.page.set_viewport_size({"width": 1400, "height": 2600})  # axe measures contrast only where it is in view
    check_access(tab, [""])
    tab.page.set_viewport_size({"width": 1400, "height": 1000})
    header = ".ace-player header"
    wait_for_player(tab.page)
    for name, position in (("Time (t)", "t"), ("Training epoch", "epoch")):
        slider = tab.page.get_by_label(name, exact=True)
        before = tab.evaluate(f"{PLAYER}.__player.frame().{position}")
        slider.focus()
        tab.page.keyboard.press("Home")
        tab.until(f"{PLAYER}.__player.frame().{position} < {before}")
    tab.page.get_by_role("radio", name="none", exact=True).click()
    tab.until(f"!document.querySelector('{header}').innerText.includes('ACE')"
              " || document.body.innerText.includes('This method has no attention')")
    tab.until("location.search.includes('attention=none')")
    tab.page.get_by_role("radio", name="evolving", exact=True).click()
    tab.until(f"document.querySelector('{header}').innerText.includes('ACE')")
    wait_for_player(tab.page)
    tab.page.locator(".ace-results a").first.click()  # opens the runs behind a value
    tab.until("location.pathname.endsWith('/paper') && location.search.includes('cell=')")
    tab.until(f"{CELL} && {QUIET}")
    tab.page.click("[data-cell='svhn/ace/accuracy']")
    tab.until(f"{CELL}?.innerText.includes('SVHN classification: ACE-ODE-Net') && {CURVES} !== undefined")
    tab.until(f"{CELL}.getBoundingClientRect().top < innerHeight / 2")  # the page has scrolled to it
    tab.page.go_back()
    tab.until(f"!{CELL}?.innerText.includes('SVHN classification')")
    tab.page.click("[data-cell='physionet/ace/auc'] >> nth=1")  # a cell in two tables opens where it was clicked
    tab.until(f"{CELL}?.innerText.includes('Type of attention: ACE, PhysioNet (AUC)')")
    tab.page.get_by_role("button", name="Close", exact=True).focus()
    tab.page.keyboard.press("Enter")
    tab.until(f"!{CELL} && !location.search.includes('cell')")
    tab.until("document.activeElement.dataset.cell === 'physionet/ace/auc'")
    for width in (390, 1400):
        tab.page.set_viewport_size({"width": width, "height": 900})
        tab.page.wait_for_timeout(300)
        no_overflow(tab, width)
    tab.open("runs")
    tab.page.get_by_role("heading", name="Runs", exact=True).wait_for()
    tab.page.locator("[data-testid=stSidebarNavLink][href$='/compare']").click()
    tab.until(f"location.pathname.endsWith('/compare') && location.search.includes('runs=') && {QUIET}")
    tab.page.go_back()  # one press leaves Compare, whose chosen runs are no entries of the history
    tab.until("location.pathname.endsWith('/runs')")
    tab.close()


def test_an_experiment_opens_with_its_result_and_little_to_load_and_the_form_unfolds(chrome: Any,
                                                                                      served: Served) -> None:
    tab = Tab(chrome, served)
    for name, width in (("physionet", 390), ("mnist", 1400)):
        tab.page.set_viewport_size({"width": width, "height": 844 if width < 500 else 1000})
        tab.open(name)
        wait_for_player(tab.page)
        if name == "physionet":
            sizes = tab.evaluate(DOWNLOADED)
            assert 2 <= len(sizes) <= 5  # the description, the last epoch, and those beside it
            assert sum(sizes) < 6e6
            assert "recorded" in tab.page.inner_text(".ace-player header")
        tab.until(f"{CURVES} !== undefined && document.querySelector('[data-testid=stMetric]') !== null && {QUIET}")
        tab.evaluate("document.querySelector('[data-testid=stMain]').scrollTo(0, 0)")
        title, line, player, score, curves = tab.evaluate(
            f"[...['h1', '.st-key-form-line'].map(s => document.querySelector(s)), {PLAYER}, document."
            f"querySelector('[data-testid=stMetric]'), {CURVES}].map(e => e.getBoundingClientRect().top)")
        order = [title, player, line, score, curves] if width < 500 else [title, line, player, score, curves]
        assert order == sorted(order)
        assert player < 420  # on the first screen
        no_overflow(tab, width)
    assert not tab.page.get_by_text("Hyperparameters").first.is_visible()  # the form is folded
    tab.press("Change")
    tab.page.get_by_text("How attention starts (q)").first.wait_for()
    tab.press("Close")
    tab.page.get_by_text("Hyperparameters").first.wait_for(state="hidden")
    folder = recorded_runs()
    assert folder is not None
    bare = next(run for run in RunStore(folder, folder) if not run.snapshots())
    tab.open(f"{bare.config().experiment}?runs={bare.id}")
    tab.page.get_by_text("The snapshots of this recorded run were not kept").wait_for()
    assert tab.page.get_by_role("button", name="Play").is_hidden()
    tab.close()


def test_in_the_playground_the_node_fails_and_the_others_swap_the_points(chrome: Any, served: Served) -> None:
    tab = Tab(chrome, served)
    sent: list[Any] = []
    tab.page.on("websocket", lambda socket: socket.on("framereceived", lambda frame: sent.append(frame)))
    tab.open("playground")
    tab.until(f"{FRAME}?.running && {FRAME}.step > 0")  # it trains at once
    for name in ("augmented", "ace"):
        tab.until(f"{PLAYGROUND}.__playground.words('{name}').includes('The points have swapped')")
    tab.until(f"{FRAME}.step > 60")
    reruns = len(sent)
    assert "Neither overtakes the other" in tab.evaluate(f"{PLAYGROUND}.__playground.words('node')")
    node, augmented, ace = tab.evaluate(f"{FRAME}.networks.map((network) => network.losses.at(-1))")
    assert node > 0.24  # both points in the middle
    assert max(augmented, ace) < 0.05
    assert "Neither overtakes" in tab.page.locator(".ace-playground section canvas").first.get_attribute("aria-label")
    tab.press("❚❚ Pause")
    tab.until(f"{FRAME}.running === false")
    losses = []
    for _ in range(2):  # the same steps give the same numbers; by keyboard
        tab.press("Rewind")
        tab.until(f"{FRAME}.step === 0")
        tab.page.get_by_role("button", name="One step").focus()
        for n in (1, 2, 3):
            tab.page.keyboard.press("Enter")
            tab.until(f"{FRAME}.step === {n}")
        losses.append(tab.evaluate(f"{FRAME}.networks.map((network) => network.losses)"))
    assert losses[0] == losses[1]
    assert len(sent) == reruns  # frames and commands do not rerun the page
    tab.page.get_by_label("Learning rate", exact=True).focus()
    tab.page.keyboard.press("End")
    tab.until(f"{FRAME}.settings.learning_rate === 0.1 && {FRAME}.step === 3")  # goes on
    tab.page.get_by_label("Hidden units (starts again)", exact=True).focus()
    tab.page.keyboard.press("Home")
    tab.until(f"{FRAME}.settings.hidden === 2 && {FRAME}.step === 0")
    tab.page.get_by_label("Time (t)", exact=True).focus()
    tab.page.keyboard.press("Home")
    tab.press("▶ Play t")
    tab.until(f"{PLAYGROUND}.__playground.t() > 0.5")
    tab.press("❚❚ Pause t")
    tab.page.set_viewport_size({"width": 390, "height": 1000})
    tab.page.get_by_role("button", name="Draw your own").click()
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
    no_overflow(tab, 390)
    tab.close()


@pytest.mark.long
def test_the_tour_from_home_through_all_steps_and_back(chrome: Any, served: Served) -> None:
    def step(number: int, kind: str = "") -> None:
        tab.until(f"document.querySelector('.stMain h2')?.innerText.startsWith('{number}. ')")
        if kind:
            tab.until(f"document.querySelectorAll('.ace-tour').length === 1 && {PICTURE}?.__tour.kind() === '{kind}' "
                      f"&& {PICTURE}?.__tour.words() !== ''")

    def slide(label: str, key: str) -> None:
        tab.page.get_by_label(label, exact=True).focus()
        tab.page.keyboard.press(key)

    tab = Tab(chrome, served).open("")
    tab.page.get_by_role("link", name="A tour in five steps").click()
    step(1, "flow")
    slide("Time (t)", "End")
    tab.until(f"{PICTURE}?.__tour.words().includes('At t = 1.00, 120 of 120 points')")
    tab.press("▶ Play")
    tab.until(f"{PICTURE}?.__tour.state().t < 1")  # it starts again from the beginning
    tab.page.get_by_role("button", name="Next").click()
    step(2, "swap")
    slide("Time (t)", "End")
    tab.until(f"{PICTURE}?.__tour.words().includes('after training: 1.00')")
    tab.press("One more coordinate")
    tab.until(f"{PICTURE}?.__tour.words().includes('orange is below blue')")
    tab.page.get_by_role("button", name="Next").focus()
    tab.page.keyboard.press("Enter")
    step(3, "attend")
    tab.page.locator(".ace-tour .choices button").nth(1).click()
    tab.until(f"{PICTURE}?.__tour.state().choice === 1")
    slide("Coordinate (i)", "Home")
    tab.until(f"{PICTURE}?.__tour.words().includes('hours, coordinate 1 is')")
    box = tab.page.locator(".ace-tour canvas").bounding_box()
    tab.page.mouse.move(box["x"] + 150, box["y"] + box["height"] - 60)  # one of the last rows of the map
    tab.until(f"{PICTURE}?.__tour.state().row > 15")
    tab.page.get_by_role("button", name="Next").click()
    step(4)
    wait_for_player(tab.page)
    slide("Training epoch", "Home")
    tab.until("location.search.includes('step=4') && location.search.includes('epoch=0')")
    tab.page.get_by_role("button", name="Next").click()
    step(5)
    tab.until("document.querySelector('.st-key-tour-scores')?.innerText.includes('better than none')")
    tab.page.get_by_role("button", name="Attention", exact=False).first.click()
    step(3)
    tab.page.go_back()
    step(5)
    tab.page.set_viewport_size({"width": 390, "height": 700})
    for number, kind in {1: "flow", 2: "swap", 3: "attend"}.items():
        tab.open(f"tour?step={number}")
        step(number, kind)
        no_overflow(tab, 390)
        bottom, top = tab.evaluate("[document.querySelector('.ace-tour canvas').getBoundingClientRect().bottom,"
                                   " document.querySelector('.st-key-tour-turn').getBoundingClientRect().top]")
        assert bottom < top  # the picture above the button that leaves it
    tab.page.get_by_role("button", name="Next").click()
    step(4)
    tab.until("document.querySelector('.stMain h1')?.getBoundingClientRect().top >= 0")  # read from its top
    tab.close()


@pytest.mark.long
def test_no_page_has_a_serious_violation(chrome: Any, served: Served) -> None:
    tab = Tab(chrome, served).open("")
    tab.page.set_viewport_size({"width": 1400, "height": 2600})
    links = tab.page.locator("[data-testid=stSidebarNavLink]")
    links.first.wait_for(state="attached")
    names = links.evaluate_all("all => all.map(e => e.pathname.slice(1))")
    named = ("oscillators", "liver", "air-quality")  # of the examples of named variables: one of each task
    pages = [name for name in names if name not in {*EXPERIMENTS, *EXAMPLES} or name in ("mnist", *named)]
    assert {"tour", "paper", "mnist", *named, "compare", "runs"} <= set(pages)
    check_access(tab, [page for page in pages if page])
    tab.close()


def until(condition: Any, seconds: float = 120) -> None:
    """Wait for a condition that another process brings about."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "timed out"
        time.sleep(0.1)


@pytest.mark.long
def test_curves_follow_a_run_that_is_stopped_and_resumed_in_two_tabs(chrome: Any, served: Served,
                                                                     own_runs: RunStore) -> None:
    source = create(own_runs, config(epochs=5000, batch_size=128, snapshots=100))
    source.set_state("stopped")  # its settings are copied into the form
    tab = Tab(chrome, served).open(f"mnist?from={source.id}")
    tab.press("Train")
    until(lambda: own_runs.open("last").id != source.id)
    run = own_runs.open("last")
    tab.until(f"{tab.points(run.id)} > 5 && {PLAYER}?.__player.settled()")
    tab.evaluate(f"{CURVES}.scrollIntoView()")
    tab.until(f"{CURVES}.__curves.ranges('losses') !== null")
    box = tab.page.locator("[data-panel=losses] .nsewdrag").first.bounding_box()
    tab.page.mouse.move(box["x"] + box["width"] * 0.2, box["y"] + box["height"] * 0.2)
    tab.page.mouse.down()
    tab.page.mouse.move(box["x"] + box["width"] * 0.6, box["y"] + box["height"] * 0.7, steps=8)
    tab.page.mouse.up()
    tab.page.wait_for_timeout(500)
    zoomed = tab.evaluate(f"{CURVES}.__curves.ranges('losses')")
    before, drawn = tab.evaluate(tab.points(run.id)), tab.evaluate(f"{CURVES}.__curves.drawn()")
    tab.until(f"{tab.points(run.id)} > {before + 5} && {CURVES}.__curves.drawn() > {drawn}")
    assert tab.evaluate(f"{CURVES}.__curves.ranges('losses')") == zoomed
    tab.evaluate(f"{PLAYER}.__player.seek({{t: 0.5}})")
    tab.until("/[?&]t=0.[45]/.test(location.search)")  # the URL keeps the position
    other = Tab(chrome, served, "dark")
    other.page.goto(tab.page.url)  # a second tab shows the same
    other.until(f"{PLAYER} !== undefined && Math.abs({PLAYER}.__player.frame().t - 0.5) < 0.03")
    tab.page.goto("about:blank")
    other.close()
    assert run.status()["state"] == "running"  # closing all tabs does not stop the run
    tab.open(f"mnist?runs={run.id}")
    tab.press("Stop")
    until(lambda: run.status()["state"] == "stopped")
    steps = run.status()["step"]
    tab.press("Resume")
    until(lambda: run.status()["state"] == "running" and run.status().get("step", 0) > steps + 3)
    tab.until(f"{tab.points(run.id)} > {steps + 3}")
    other = Tab(chrome, served).open(f"mnist?runs={run.id}")
    for one in (tab, other):
        one.page.get_by_role("button", name="Stop", exact=True).wait_for()
    for one in (tab, other):  # at once, before the button of the second becomes Resume
        one.evaluate("[...document.querySelectorAll('button')].find(b => b.innerText.includes('Stop'))?.click()")
    until(lambda: run.status()["state"] == "stopped")
    tab.close()
    other.close()


@pytest.mark.long
def test_a_study_and_a_search_fill_in_and_a_file_is_imported_and_trained(chrome: Any, served: Served,
                                                                         tmp_path: Path) -> None:
    tab = Tab(chrome, served).open("")
    tab.page.get_by_role("link", name="Study: does attention help?").click()  # first click
    tab.page.get_by_role("button", name="Start").wait_for()
    tab.page.get_by_text("Trial: 1 epoch").click()  # second
    tab.page.get_by_text("9 runs").first.wait_for()
    tab.press("Start")  # third
    tab.until(f"{GRID}.length === 9 && {GRID}.some(e => e.dataset.state === 'running')")
    tab.evaluate("{ document.querySelector('.study-scroll').__kept = true; }")
    tab.until(f"{GRID}.every(e => e.dataset.state === 'finished')")
    assert tab.evaluate("document.querySelector('.study-scroll').__kept")
    tab.page.get_by_text("All runs are finished").wait_for()
    tab.until("/95% interval [−+]/.test(document.body.innerText)")
    with tab.page.expect_download() as expected:
        tab.press("Table as LaTeX")
    assert "\\begin{table}" in expected.value.path().read_text()
    tab.page.get_by_role("link", name="All studies").click()
    tab.until("location.search === ''")
    tab.page.set_viewport_size({"width": 390, "height": 844})
    tab.page.get_by_role("link", name="Does attention help, and").click()
    tab.until(f"location.search === '?study=mnist-attention' && {GRID}.length === 9")
    no_overflow(tab, 390)
    tab.page.set_viewport_size({"width": 1400, "height": 1000})

    tab.open("searches?experiment=mnist")
    tab.page.get_by_role("button", name="Start", exact=True).wait_for()
    tab.page.get_by_label("Method").click()
    tab.page.get_by_role("option", name="ResNet", exact=True).click()
    tab.until(f"document.querySelector('[aria-label=Name]').value === 'mnist-resnet' && {QUIET}")  # drawn for ResNet
    tab.page.get_by_text("Hyperparameters", exact=True).click()
    for label, value in {"Epochs": "1", "Batch size": "512", "From": "0.001", "Trials": "4"}.items():
        field = tab.page.get_by_label(label, exact=True).first
        field.fill(value)
        field.press("Enter")
        tab.until(QUIET)
    tab.press("Start")
    tab.until("location.search === '?search=mnist-resnet'")
    tab.until(f"{CHARTS}?.__search.trials() >= 1 && {CHARTS}.__search.drawn()")
    tab.evaluate("{ document.querySelector('.search-charts .plot .main-svg').__kept = true; }")
    tab.until(f"/^4 of 4 trials finished/.test({SUMMARY})")
    tab.page.get_by_text("All trials are done").wait_for()
    assert tab.evaluate("document.querySelector('.search-charts .plot .main-svg').__kept")

    tab.open("your-data")
    file = tmp_path / "wind.csv"
    file.write_text(wide(100))
    tab.page.locator("input[type=file]").set_input_files(file)
    tab.page.locator(".js-plotly-plot").first.wait_for()
    assert "2 variables, 7% gaps" in tab.page.inner_text("[data-testid=stMain]")
    tab.page.get_by_role("button", name="Import", exact=False).last.click()
    tab.page.get_by_role("button", name="Train to forecast").wait_for()
    epochs = tab.page.get_by_label("Epochs")
    epochs.fill("1")
    epochs.press("Enter")
    tab.press("Train to forecast")
    tab.page.get_by_text("Strongest influences").wait_for()
    assert "95% interval" in tab.page.inner_text("[data-testid=stMain]")
    tab.close()


@pytest.mark.long
def test_a_run_of_a_killed_server_can_be_resumed(chrome: Any, tmp_path: Path) -> None:
    store = RunStore(tmp_path / "runs")
    often = config(epochs=5000, batch_size=128)
    often = replace(often, settings={**often.settings, "checkpoint_seconds": 0.5})  # as version 0.1 could set it
    run = create(store, often)
    run.set_state("stopped")
    with server(store.root) as first:
        tab = Tab(chrome, first).open(f"mnist?runs={run.id}")
        tab.press("Resume")
        until(lambda: (run.path / "checkpoints" / "last.pt").exists())
        first.process.send_signal(signal.SIGKILL)
        first.process.wait()
        tab.context.close()
    assert run.status()["state"] == "interrupted"
    with server(store.root, first.port) as again:
        tab = Tab(chrome, again).open(f"mnist?runs={run.id}")
        tab.press("Resume")
        until(lambda: run.status()["state"] == "running")
        tab.until(f"{tab.points(run.id)} > 3")
        tab.close()
    assert run.status()["state"] == "stopped"  # stopping the server stops the run


@pytest.mark.long
def test_a_run_on_ray_is_trained_watched_and_stopped(chrome: Any, tmp_path: Path) -> None:
    pytest.importorskip("ray")

    def of_ray(run: str) -> list[Path]:
        """Return the processes of Ray that train a run: Ray gives them the name of the task."""
        return [path for path in Path("/proc").glob("[0-9]*/cmdline")
                if path.exists() and (words := path.read_bytes()).startswith(b"ray::") and run.encode() in words]

    store = RunStore(tmp_path / "runs")
    source = create(store, config(epochs=5000, batch_size=128))
    source.set_state("stopped")
    with server(store.root, options=["--on", "ray"], OMP_NUM_THREADS="1") as own:
        tab = Tab(chrome, own).open(f"mnist?from={source.id}")
        tab.press("Train")
        for words in (r"1 of \d+ workers in use", r"Ray, \d+ CPUs? on 1 machine"):
            tab.page.get_by_text(re.compile(words)).wait_for()
        run = store.open("last")
        tab.until(f"{tab.points(run.id)} > 3")
        assert of_ray(run.id)
        tab.press("Stop")
        tab.page.get_by_role("button", name="Resume", exact=True).wait_for()
        assert (run.path / "checkpoints" / "last.pt").exists()
        tab.close()
    assert not of_ray(run.id)
