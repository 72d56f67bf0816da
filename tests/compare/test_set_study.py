"""The study of an imported set: what it compares, and the coupling and errors that its runs found."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from trained_sets import import_set, tiny, trained

from acenode.compare.influence import FoundCoupling, coupling_text, found_coupling, is_uniform
from acenode.compare.study_answer import (
    TrivialReference,
    caption,
    coupling_caution,
    own_unit_errors,
    report,
    ridge_words,
    study_references,
)
from acenode.compare.study_grid import make_grid, reserved_names, set_study
from acenode.runs.catalogue import Catalogue
from acenode.runs.questions import Study, StudyGroup
from acenode.runs.store import RunStore


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ACENODE_DATA", str(tmp_path / "data"))
    import_set(tmp_path / "data", "clinic")
    return tmp_path / "data"


def test_it_compares_ace_with_the_same_model_without_attention(root: Path) -> None:
    study = set_study("clinic", "forecast")
    assert [group.method for group in study.groups] == ["ace", "no-attention"]
    assert (study.seeds, study.baseline, study.held) == ((0, 1, 2), 1, {})
    assert set_study("clinic", "forecast", 3).held == {"epochs": 3}
    assert set_study("clinic", "forecast", 3).name != study.name  # both can be stored
    assert len(make_grid(study, []).cells) == 6


def test_trained_runs_answer_it(root: Path, tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    for method in ("ace", "no-attention"):
        trained(root, runs, "clinic", method)
    held = {k: v for k, v in tiny("clinic").settings.items() if k in tiny("clinic", "no-attention").settings}
    study = Study("tiny", "clinic", (StudyGroup("ace"), StudyGroup("no-attention")), held=held, seeds=(0,), baseline=1)
    catalogue = Catalogue(RunStore(runs))
    grid = make_grid(study, catalogue.entries())
    assert grid.finished == 2
    found = report(grid, study_references(grid, root))
    assert {"mean", "last value", "ridge"} <= {reference.name for reference in found.references}
    assert found.answer.text.startswith("No group beats repeating the last value (")  # one epoch
    assert "your data (Imported from mine.csv" in caption(grid)
    caution = coupling_caution(grid.rows[0], found.references, grid.measure, "forecast")
    assert caution.startswith("The model forecasts worse than ridge regression here (0.")
    assert caution.endswith("), so read its coupling with care.")
    best = min(reference.value for reference in found.references)
    assert f" against {grid.measure.number(best)})" in caution  # as in the table
    assert coupling_caution(grid.rows[0], [TrivialReference("ridge", 1e9)], grid.measure, "forecast") == ""
    assert coupling_caution(grid.rows[0], [], grid.measure, "forecast") == ""
    assert ridge_words(found.references, "forecast").startswith("ridge: linear regression on the recent values of all")
    assert ridge_words([TrivialReference("last value", 1.0)], "forecast") == ""
    coupling = found_coupling(grid.rows[0])
    assert coupling is not None
    assert coupling.names == ("pulse", "pressure")
    assert coupling.influence.sum(1) == pytest.approx([1, 1])
    assert coupling.attention is not None
    assert coupling.attention.sum(1) == pytest.approx([1, 1], abs=1e-3)
    without = found_coupling(grid.rows[1])
    assert without is not None
    assert without.attention is None
    assert coupling_text(without) == ""  # without attention nothing is exchanged
    errors = own_unit_errors(grid.rows)
    assert [row["Variable"] for row in errors] == ["pulse", "pressure"]
    assert list(errors[0])[1:3] == [row.name for row in grid.rows]
    assert "last value" in errors[0]
    assert "clinic" in reserved_names(catalogue)


def test_the_strongest_influences_are_named() -> None:
    shares = np.array([[0.5, 0.5, 0.0], [0.1, 0.2, 0.7], [0.3, 0.0, 0.7]])
    found = FoundCoupling(("a", "b", "c"), None, shares, 3)
    assert coupling_text(found, 2) == "b ← c (70%), a ← b (50%)"


def test_equal_rows_of_attention_are_noticed() -> None:
    assert is_uniform(np.array([[0.3, 0.7], [0.31, 0.69]]))
    assert not is_uniform(np.array([[0.3, 0.7], [0.7, 0.3]]))
