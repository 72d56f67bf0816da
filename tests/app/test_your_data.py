"""The page Your data without a browser: upload, correct, preview, import, rename, delete twice, train, answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from acenode_app.services import Services
from acenode_app.your_data import training
from conftest import Page, no_exception, page_text, wait_for_times
from importing_tables import labelled, long, wide
from streamlit.testing.v1 import AppTest
from trained_sets import TINY, import_set, trained

from acenode.compare.influence import FoundCoupling
from acenode.compare.study_answer import TrivialReference
from acenode.config import Config
from acenode.data.importing.store import ImportedSets
from acenode.runs.questions import StudyStore


@pytest.fixture
def sets(services: Services, monkeypatch: pytest.MonkeyPatch) -> ImportedSets:
    monkeypatch.setenv("ACENODE_DATA", str(services.data_root))
    return ImportedSets(services.data_root)


def uploaded(page: Page, name: str, content: str | bytes) -> AppTest:
    app = page("your-data")
    app.file_uploader[0].set_value((name, content.encode() if isinstance(content, str) else content, "text/csv"))
    return no_exception(app.run())


def by_key(elements: Any, end: str) -> Any:
    return next(element for element in elements if element.key.endswith(end))


def cells(app: AppTest, place: int, head: str) -> list[str]:
    """Return a column of a table, as it is read."""
    return [text.replace("\\", "") for text in app.table[place].value[head]]


def test_a_wide_file_is_previewed_and_imported(page: Page, sets: ImportedSets) -> None:
    app = uploaded(page, "Wind park.csv", wide())
    assert by_key(app.selectbox, "/time").value == "time"
    assert "2 variables, 7% gaps" in page_text(app)
    assert cells(app, 0, "Variable") == ["wind (m/s)", "power (kW)"]
    assert cells(app, 0, "Gaps")[0] == "0.0%"
    no_exception(by_key(app.button, "/import").click().run())
    assert sets.names() == ["wind-park"]
    assert app.title[0].value == "wind\\-park"  # the set is open
    assert not (sets.folder / "wind-park" / "original.csv").exists()


@pytest.mark.parametrize(("content", "words"), [
    (wide, ("windows of about 20 times", "A window is 20 hours long and the next one starts 1 hour later",
            "most rows of the file are in about", "Split by time: the first 64% of the time is for training")),
    (labelled, ("24 series of about", "Split by series: 64% for training", "in proportion to the classes")),
    (long, ("24 series of about 8 times in 7 hours, 2 variables",))])
def test_the_preview_says_how_the_file_is_cut_and_split(content: Callable[[], str], words: tuple[str, ...], page: Page,
                                                        sets: ImportedSets) -> None:
    app = uploaded(page, "wind.csv", content())
    seen = page_text(app)
    assert [text for text in words if text not in seen] == []
    assert ("A window is" in seen) == (content is wide)
    if content is long:
        assert by_key(app.selectbox, "/variable").value == "variable"


def test_columns_can_be_corrected(page: Page, sets: ImportedSets) -> None:
    app = uploaded(page, "ward.csv", labelled())
    assert by_key(app.selectbox, "/label").value == "label"
    assert "Classes: ill 12, well 12" in page_text(app)
    by_key(app.selectbox, "/label").set_value("(none)").run()
    assert "The first 2 days of each are given" in page_text(app)
    by_key(app.selectbox, "/id").set_value("(none)").run()
    assert "has the same time" in page_text(app)
    assert "--id" not in app.error[0].value
    assert sets.names() == []


@pytest.mark.parametrize(("content", "words"), [(b"PK\x03\x04", "zip archive"),
                                                (b"time,a,b\n1,2\n", "Row 2 has 2 cells")])
def test_a_bad_file_gets_its_sentence(page: Page, sets: ImportedSets, content: bytes, words: str) -> None:
    app = uploaded(page, "bad.csv", content)
    assert words in app.error[0].value
    assert not sets.folder.exists()


def test_sets_are_renamed_and_deleted_after_asking_twice(page: Page, sets: ImportedSets) -> None:
    import_set(sets.folder.parent, "clinic")
    app = page("your-data")
    for name, error in (("mnist", "choose another"), ("hospital", "")):
        app.button(key="your-data/rename/clinic").click().run()
        app.text_input(key="your-data/new/clinic").set_value(name).run()
        app.button(key="your-data/save/clinic").click().run()
        assert error in "".join(e.value for e in app.error)
        assert sets.names() == ["clinic" if error else name]
    app.button(key="your-data/delete/hospital").click().run()
    assert sets.names() == ["hospital"]
    app.button(key="your-data/keep/hospital").click().run()
    app.button(key="your-data/delete/hospital").click().run()
    app.button(key="your-data/sure/hospital").click().run()
    assert sets.names() == []
    assert "None yet" in page_text(app)
    assert "no imported set gone here" in page_text(page("your-data", set="gone"))


def test_training_and_its_answer(page: Page, services: Services, sets: ImportedSets, started: list[Config],
                                 monkeypatch: pytest.MonkeyPatch) -> None:
    """The plan stands above the data; Train queues it as a study; with finished runs the page answers in words and
    draws any series."""
    import_set(services.data_root, "wind")
    monkeypatch.setattr("acenode.experiments.imported.imported_values", lambda source: {
        **{k: v for k, v in TINY.items() if k != "device"}, "relative_to": "last"})
    app = page("your-data", set="wind")
    wait_for_times()
    for words in ("**6 runs**, about 6 min here, one after the other", "same data, split, epochs and three seeds",
                  "Parameters: ", "A window is 12 hours long"):
        assert words in page_text(app.run())
    no_exception(app.button(key="your-data/wind/train").click().run())
    assert [(c.method, c.seed) for c in started] == [(m, s) for s in range(3) for m in ("ace", "no-attention")]
    assert StudyStore(services.store).exists("wind-ace")
    for method in ("ace", "no-attention"):
        trained(services.data_root, services.store.root, "wind", method)
    monkeypatch.setattr("acenode.compare.study_answer.study_references", lambda *given: [
        TrivialReference("last value", 0.0), TrivialReference("ridge", 0.01)])
    app = page("your-data", set="wind")
    for words in ("No group beats repeating the last value", "cannot be told with 1 seed", "Strongest influences",
                  "The model forecasts worse than repeating the last value here (",
                  "Ridge: linear regression on the recent values of all variables."):
        assert words in page_text(app)
    assert cells(app, 0, "Group")[:2] == ["ACE", "No attention"]
    assert "power (kW)" in cells(app, 1, "Variable")
    assert not app.dataframe  # which cuts what does not fit, while tables wrap
    assert by_key(app.selectbox, "/series").value in range(67)
    own = page("wind")  # the set has the page of an experiment too
    assert "your data" in own.title[0].value
    assert "the sample" not in page_text(own)


@pytest.mark.parametrize(("dark", "page_colour"), [(False, (255, 255, 255)), (True, (15, 20, 29))])
def test_numbers_of_the_coupling_map_are_readable(dark: bool, page_colour: tuple[int, ...]) -> None:
    """Every number has a contrast of at least 4.5 to its cell, as WCAG asks for."""
    shares = np.linspace(0, 0.56, 81).reshape(9, 9)
    found = FoundCoupling(tuple("abcdefghi"), shares, shares.T, 3)
    for title, figure in training.coupling_figures(found, dark=dark).items():
        z, numbers = np.array(figure.data[0].z), figure.layout.annotations
        assert len(numbers) == z.size, title
        for number in numbers:
            opacity = 0.03 + 0.97 * z[number.y, number.x] / z.max()
            cell = [opacity * blue + (1 - opacity) * page
                    for blue, page in zip((43, 98, 217), page_colour, strict=True)]
            levels = sorted([luminance(cell), {"white": 1.0, "black": 0.0}[number.font.color]])
            assert (levels[1] + 0.05) / (levels[0] + 0.05) >= 4.5


def luminance(colour: list[float]) -> float:
    linear = [c / 255 / 12.92 if c / 255 <= 0.04045 else ((c / 255 + 0.055) / 1.055) ** 2.4 for c in colour]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
