"""A study in a real browser: three clicks from Home, the grid fills in, the answer has an interval, and it is saved."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tabs import Tab

from acenode.bench.browser import PLAYER, Served, server, wait_for_player
from acenode.compare.study_grid import group_config
from acenode.execution.execute import create
from acenode.files import write_json
from acenode.runs.process import identity
from acenode.runs.questions import Study, StudyGroup, StudyStore
from acenode.runs.store import RunStore

pytestmark = pytest.mark.long  # the app in a browser, with runs that train

FOLDER = Path(__file__).parents[2] / "build" / "screenshots"
CELLS = "[...document.querySelectorAll('.study-scroll td[data-state]')]"
SIZES = {1400: "light", 900: "dark", 390: "dark"}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("study") / "runs"


@pytest.fixture(scope="module")
def served(chrome: Any, root: Path) -> Iterator[Served]:
    with server(root, OMP_NUM_THREADS="1") as found:
        yield found


def keep(tab: Tab, name: str) -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    (FOLDER / f"{name}.png").write_bytes(tab.page.screenshot())


def save(tab: Tab, name: str) -> Path:
    """Press a button that downloads a file."""
    with tab.page.expect_download() as expected:
        tab.press(name)
    return expected.value.path()


def test_the_study_of_attention_from_home_to_latex(chrome: Any, served: Served, root: Path) -> None:
    tab = Tab(chrome, served).open("")
    tab.page.get_by_role("link", name="Study: does attention help?").click()  # first click
    tab.page.get_by_role("button", name="Start").wait_for()
    assert not list(RunStore(root))
    tab.page.get_by_text("Trial: 1 epoch").click()  # second
    tab.page.get_by_text("9 runs").first.wait_for()
    keep(tab, "study-form-light")
    tab.press("Start")  # third
    tab.until(f"{CELLS}.length === 9 && {CELLS}.some(e => e.dataset.state === 'running')")
    tab.evaluate("{ document.querySelector('.study-scroll').__kept = true; }")
    now = tab.page.locator(".study-now")
    now.wait_for()
    assert "attention, seed" in now.inner_text()
    keep(tab, "study-running-light")
    tab.until(f"{CELLS}.filter(e => e.dataset.state === 'finished').length >= 4")
    assert tab.evaluate("document.querySelector('.study-scroll').__kept")  # it was updated, not drawn anew
    tab.until(f"{CELLS}.every(e => e.dataset.state === 'finished')")
    tab.page.get_by_text("All runs are finished").wait_for()
    tab.until("/95% interval [−+]/.test(document.body.innerText)")
    names = tab.page.locator(".study-scroll tbody th").all_inner_texts()
    assert [name.splitlines()[0] for name in names] == ["evolving attention", "fixed attention", "no attention"]
    assert "majority class" in tab.page.locator(".study-table").inner_text()
    wait_for_player(tab.page)
    labels = tab.evaluate(f"{PLAYER}.innerText")
    assert labels.index("evolving attention") < labels.index("fixed attention") < labels.index("no attention")
    assert "\\begin{table}" in save(tab, "Table as LaTeX").read_text()
    html = save(tab, "HTML page").read_text()
    assert "Does attention help" in html
    assert "evolving attention" in html
    assert save(tab, "Every run by group as PNG").read_bytes().startswith(b"\x89PNG")
    assert save(tab, "Every run by group as SVG").read_text().startswith("<svg")
    for width, scheme in SIZES.items():
        show_at(tab, width, scheme)
    tab.close()


def show_at(tab: Tab, width: int, scheme: str) -> None:
    """Check that the page fits a width with whole names, and keep a picture."""
    tab.page.emulate_media(color_scheme=scheme)
    tab.page.set_viewport_size({"width": width, "height": 844 if width < 500 else 1000})
    tab.evaluate("document.querySelector('[data-testid=stMain]').scrollTo(0, 0)")
    tab.page.wait_for_timeout(700)
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    names = "[...document.querySelectorAll('.study-scroll tbody th')]"
    assert tab.evaluate(f"{names}.every(e => e.scrollWidth <= e.clientWidth)")
    keep(tab, f"study-{width}-{scheme}")


def test_the_run_that_trains_is_in_view_among_many(chrome: Any, served: Served, root: Path) -> None:
    groups = tuple(StudyGroup("ace", {"learning_rate": 0.01 * n}) for n in range(1, 16))
    study = Study("many", "mnist", groups, seeds=tuple(range(12)))
    store = RunStore(root)
    StudyStore(store).write(study)
    run = create(store, group_config(study, groups[-1], study.repeats[-1]))
    write_json(run.path / "status.json", {"state": "running", "error": None, "progress": 0.4, "epoch": 4, "epochs": 12,
                                          "seconds": 30.0, "heartbeat": time.time(), "process": identity()})
    tab = Tab(chrome, served).open("studies?study=many")
    tab.until(f"{CELLS}.length === 180")
    tab.page.wait_for_timeout(300)
    inside = ("(([own, box]) => own.top >= box.top && own.bottom <= box.bottom && own.left >= box.left && own.right <= "
              "box.right && own.bottom <= innerHeight)(['td[data-state=running]', '.study-scroll'].map(s => document."
              "querySelector(s).getBoundingClientRect()))")
    assert tab.evaluate(inside)
    keep(tab, "study-many-light")
    tab.close()


def test_the_address_names_the_study_that_is_shown(chrome: Any, served: Served, root: Path) -> None:
    groups = tuple(StudyGroup("ace", {"attention": kind}) for kind in ("evolving", "fixed"))
    StudyStore(RunStore(root)).write(Study("kept-address", "mnist", groups))
    tab = Tab(chrome, served).open("studies")
    tab.page.get_by_role("link", name="kept-address").click()
    tab.until("location.search === '?study=kept-address'")
    tab.page.get_by_role("link", name="All studies").click()
    tab.until("location.search === ''")
