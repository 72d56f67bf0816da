"""The paper's values and tables, how metrics are written, and what others have published."""

from __future__ import annotations

import pytest

from acenode.compare import paper
from acenode.compare.metrics import metric_format, metric_name
from acenode.compare.paper import CELLS, TABLES
from acenode.config import Config
from acenode.errors import UserError
from acenode.experiments import EXPERIMENTS


def config(experiment: str, method: str, *, data: str = "full", **settings: str) -> Config:
    """Return an object with the settings that `paper` reads."""
    return Config(experiment=experiment, method=method, data=data, settings=settings)


@pytest.mark.parametrize(("given", "shown"), [
    (config("physionet", "ace", attention="evolving", initial="correlation"), "0.853 ± 0.003"),
    (config("physionet-vitals", "ace", task="extrapolation", attention="fixed"), "2.113 ×10⁻³"),
    (config("activity", "ace", attention="evolving", initial="dense"), "56.9"),
    (config("mnist", "ace", attention="evolving", initial="conv"), "99.68 ± 0.03"),
    (config("mnist", "odenet", size="large"), "None"),
    (config("mnist", "ace", size="large", attention="fixed"), "None"),
    (config("physionet-vitals", "ace"), "None"),  # which task?
    (config("physionet-vitals", "ode-rnn", task="extrapolation"), "None"),
    (config("physionet-vitals", "ace", task="interpolation", attention="fixed"), "None"),
    (config("activity", "latent-poisson"), "None"),
    (config("physionet", "ace", attention="none"), "None"),
    (config("physionet", "ace", attention="fixed", initial="dense"), "None"),
    (config("mnist", "ace", attention="fixed"), "None"),
    (config("galaxies", "ace"), "None"),
])
def test_what_the_paper_prints(given: Config, shown: str) -> None:
    assert str(paper.value(given)) == shown


def test_only_the_whole_full_data_is_compared_with_it() -> None:
    given = config("physionet", "ace")
    assert paper.beside(given, {})
    assert paper.beside(given, {"epochs": 3}) is None  # a tenth of the usual ones
    assert paper.beside(given, {"epochs": 4})
    assert paper.beside(given, {"epochs": 30, "rtol": 0.1}) is None
    assert paper.beside(given, {}, partial=True) is None
    assert paper.beside(config("physionet", "ace", data="sample"), {}) is None


def test_every_value_of_the_paper_is_one_cell() -> None:
    assert len(CELLS) == 79
    values = [value for rows in paper.VALUES.values() for value in rows.values()]
    assert sorted(map(id, values)) == sorted(id(cell.printed) for cell in CELLS.values())
    for cell in CELLS.values():
        other = None if cell.metric == EXPERIMENTS[cell.experiment].metric.name else cell.metric
        if cell.metric != "silhouette":
            assert paper.value(cell.config(), other) == cell.printed
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
