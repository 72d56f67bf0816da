"""The paper's values and tables, how metrics are written, and what others have published."""

from __future__ import annotations

from typing import Any

import pytest

from acenode.compare import paper
from acenode.compare.groups import printed_beside
from acenode.compare.metrics import metric_format, metric_name
from acenode.compare.paper import CELLS, TABLES
from acenode.config import Config
from acenode.errors import UserError
from acenode.experiments import EXPERIMENTS


@pytest.mark.parametrize(("experiment", "method", "settings", "shown"), [
    ("physionet", "ace", {"initial": "correlation"}, "0.853 ± 0.003"),
    ("physionet-vitals", "ace", {"task": "extrapolation", "attention": "fixed"}, "2.113 ×10⁻³"),
    ("activity", "ace", {"initial": "dense"}, "56.9"), ("mnist", "ace", {"initial": "conv"}, "99.68 ± 0.03"),
    ("mnist", "odenet", {"size": "large"}, "None"), ("mnist", "ace", {"size": "large"}, "99.58"),
    ("mnist", "ace", {"size": "large", "attention": "fixed"}, "None"),
    ("physionet-vitals", "ace", {"task": "interpolation", "attention": "fixed"}, "None"),
    ("physionet", "ace", {"attention": "none"}, "None"), ("mnist", "ace", {"attention": "fixed"}, "None"),
    ("physionet", "ace", {"epochs": 3}, "None"),  # a tenth of the usual ones
    ("physionet", "ace", {"epochs": 4}, "0.853 ± 0.003"), ("physionet", "ace", {"rtol": 0.1}, "None")])
def test_what_the_paper_prints(experiment: str, method: str, settings: dict[str, Any], shown: str) -> None:
    assert str(printed_beside(EXPERIMENTS[experiment].configure(method, "full", **settings))) == shown


def test_only_the_whole_full_data_is_compared_with_it() -> None:
    full, sample = (EXPERIMENTS["physionet"].configure("ace", data) for data in ("full", "sample"))
    assert printed_beside(full)
    assert printed_beside(full, partial=True) is None
    assert printed_beside(sample) is None
    assert printed_beside(Config(experiment="galaxies", method="ace", data="full", settings={})) is None


def test_every_value_of_the_paper_is_one_cell() -> None:
    assert len(CELLS) == 79
    values = [value for rows in paper.VALUES.values() for value in rows.values()]
    assert sorted(map(id, values)) == sorted(id(cell.printed) for cell in CELLS.values())
    for cell in CELLS.values():
        assert printed_beside(cell.config(), metric=cell.metric) == cell.printed
        assert TABLES[cell.table].cells.count(cell) == 1


def test_tables_are_as_printed() -> None:
    ushcn, size, attention = (TABLES[name] for name in ("ushcn", "size", "attention"))
    assert ushcn.columns == ("MSE", "NegLL")
    assert [str(c.printed) for c in ushcn.cells[-2:]] == ["0.38 ± 0.03", "0.94 ± 0.05"]
    assert size.columns == ("CIFAR10", "SVHN", "MNIST")
    assert [c.printed.mean for c in size.cells] == [85.99, 96.01, 99.68, 88.12, 96.12, 99.58]
    assert [c.printed.mean for c in attention.cells] == pytest.approx(
        [0.793, 56.9, 0.838, 55.1, 0.853, 85.9])


def test_printed_settings_are_a_preset() -> None:
    cell = CELLS["ushcn/ace/mse"]
    chosen, printed = (cell.config(preset=preset) for preset in ("chosen", "printed"))
    assert [(c.get("learning_rate"), c.get("epochs")) for c in (chosen, printed)] == [(1e-3, 120), (1e-4, 300)]
    with pytest.raises(UserError, match="there is no preset 'best': choose chosen or printed"):
        cell.config(preset="best")


def test_metrics_have_units_digits_and_a_direction() -> None:
    assert metric_format("accuracy", "mnist").text(0.98765, 0.0012) == "98.77 ± 0.12%"
    assert metric_format("auc", "physionet").text(0.8534) == "0.853"
    assert metric_format("mse", "physionet-vitals").text(0.0020251) == "2.025 ×10⁻³"
    assert metric_format("mse", "elsewhere").text(0.38, 0.012) == "0.38 ± 0.012"
    assert metric_format("score").text(float("nan")) == "–"
    assert metric_format("auc").title == "AUC"
    assert [metric_format(name).higher_is_better for name in ("mse", "loss", "auc", "accuracy")] == [
        False, False, True, True]  # by its name, where no experiment registers it
    assert (metric_name("ushcn"), metric_name("nobody-knows")) == ("mse", "")
