"""The cells of the paper's tables: what is printed, which runs count, how they are marked, and which are missing."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from catalogue_entries import entry

from acenode.compare import paper
from acenode.compare.cells import mark, measure, missing, printed_std
from acenode.compare.groups import unfinished
from acenode.compare.paper import CELLS, TABLES
from acenode.compare.table import measured as table_rows
from acenode.compare.table import to_records
from acenode.errors import UserError
from acenode.experiments import EXPERIMENTS
from acenode.files import write_json
from acenode.runs.catalogue import Entry

MNIST_ACE = CELLS["mnist/ace/accuracy"]


def full(method: str = "ace", value: float | None = 0.9, *, experiment: str = "mnist", metric: str = "accuracy",
         **given: Any) -> Entry:
    found = entry(method, value, experiment=experiment, data="full", **given)
    return dataclasses.replace(found, metric=metric, test={} if value is None else {metric: value})


def test_every_value_of_the_paper_is_one_cell() -> None:
    assert len(CELLS) == 79
    values = [value for rows in paper.VALUES.values() for value in rows.values()]
    assert sorted(map(id, values)) == sorted(id(cell.printed) for cell in CELLS.values())
    for cell in CELLS.values():
        config = cell.config()
        other = None if cell.metric == EXPERIMENTS[cell.experiment].metric.name else cell.metric
        if cell.metric != "silhouette":
            assert paper.value(config, other) == cell.printed
        assert TABLES[cell.table].cells.count(cell) == 1


def test_tables_are_as_printed() -> None:
    ushcn, size, attention = (TABLES[name] for name in ("ushcn", "size", "attention"))
    assert ushcn.columns == ("MSE", "NegLL")
    assert [str(c.printed) for c in ushcn.rows[-1].cells if c] == ["0.38 ± 0.03", "0.94 ± 0.05"]
    assert size.columns == ("CIFAR10", "SVHN", "MNIST")
    assert [c.printed.mean for row in size.rows for c in row.cells if c] == [85.99, 96.01, 99.68, 88.12, 96.12, 99.58]
    assert [c.printed.mean for row in attention.rows for c in row.cells if c] == pytest.approx(
        [0.793, 56.9, 0.838, 55.1, 0.853, 85.9])


@pytest.mark.parametrize(("difference", "std", "n", "expected"), [
    (0.003, 0.001, 3, "within"), (-0.003, 0.001, 3, "within"),  # the printed deviation itself
    (0.0031, 0.001, 3, "better"), (-0.0031, 0.001, 3, "worse"),
    (-0.0048, 0.008, 3, "within"), (-0.0049, 0.008, 3, "worse"),  # √(0.003²/5 + 0.008²/3) = 0.00481
    (0.0032, None, 1, "within"), (0.0034, None, 1, "better"),  # √(0.003²/5 + 0.003²) = 0.00329
])
def test_marks_follow_the_rule(difference: float, std: float | None, n: int, expected: str) -> None:
    cell = CELLS["physionet/ace/auc"]
    assert mark(cell, cell.printed.mean + difference, std, n) == expected


def test_a_lower_error_is_better() -> None:
    cell = CELLS["ushcn/ace/mse"]
    assert mark(cell, 0.34, 0.01, 5) == "better"
    assert mark(cell, 0.42, 0.01, 5) == "worse"


def test_an_ablation_without_a_deviation_takes_that_of_its_method() -> None:
    assert printed_std(CELLS["mnist/ace/large/accuracy"]) == 0.03
    assert printed_std(CELLS["physionet-vitals/ace/extrapolation/dense/mse"]) == 0.028
    assert all(printed_std(cell) > 0 for cell in CELLS.values())


def test_mean_and_deviation_are_in_the_printed_unit() -> None:
    found = measure(MNIST_ACE, [full(value=v, seed=i) for i, v in enumerate((0.996, 0.997, 0.998))])
    assert (found.mean, found.std) == (pytest.approx(99.7), pytest.approx(0.1))
    assert found.difference == pytest.approx(0.02)
    assert (found.seeds, found.folds, found.epochs, found.n, found.mark) == ((0, 1, 2), (), 160, 3, "within")
    vitals = full(value=0.002, experiment="physionet-vitals", metric="mse", task="extrapolation")
    assert measure(CELLS["physionet-vitals/ace/extrapolation/mse"], [vitals]).mean == pytest.approx(2.0)
    assert measure(CELLS["physionet-vitals/ace/interpolation/mse"], [vitals]).mark == "missing"


def test_only_runs_with_the_settings_of_the_cell_count() -> None:
    sample = entry("ace", 0.9)
    others = [full(schedule="joint"), full(size="large"), full(attention="none"), full("odenet"), full(epochs=10),
              full(value=None), sample]
    assert measure(MNIST_ACE, others).n == 0
    assert measure(CELLS["mnist/ace/large/accuracy"], others).n == 1
    assert measure(MNIST_ACE, [full(device="cpu", snapshots=5, analysis=False, epochs=20)]).epochs == 20
    dense = full(experiment="physionet", metric="auc", initial="dense")
    assert measure(CELLS["physionet/ace/dense/auc"], [dense]).n == 1
    assert measure(CELLS["physionet/ace/auc"], [dense]).n == 0


def test_the_longest_runs_with_enough_seeds_are_measured() -> None:
    short = [full(seed=i, epochs=20) for i in range(3)]
    some = [full(seed=i, epochs=160, value=0.95) for i in range(2)]
    assert measure(MNIST_ACE, short + some).epochs == 20
    assert measure(MNIST_ACE, short + some, seeds=2).epochs == 160
    assert measure(MNIST_ACE, short[:1] + some).epochs == 160
    assert measure(MNIST_ACE, [*short, *some, full(seed=2, epochs=160)]).epochs == 160
    assert "20 epochs, 160 in the paper" in measure(MNIST_ACE, short).note


def test_the_note_names_a_learning_rate_that_is_not_printed() -> None:
    found = measure(CELLS["cifar10/ace/accuracy"], [full(experiment="cifar10")])
    assert "learning rate 0.05, 0.01 in the paper" in found.note
    assert "learning rate" not in measure(MNIST_ACE, [full()]).note


def test_the_latest_run_of_a_seed_counts() -> None:
    found = measure(MNIST_ACE, [full(value=0.5, created=1.0), full(value=0.6, created=2.0), full(value=0.4)])
    assert (found.n, found.mean) == (1, pytest.approx(60))


def test_partial_data_is_measured_and_not_compared() -> None:
    part = dataclasses.replace(full(value=0.9, experiment="activity", seed=0), partial=True)
    cell = CELLS["activity/ace/accuracy"]
    found = measure(cell, [part])
    assert (found.mean, found.difference, found.mark) == (pytest.approx(90), None, "partial")
    whole = full(value=0.86, experiment="activity", seed=1)
    found = measure(cell, [part, whole])
    assert (found.mean, found.mark, found.seeds) == (pytest.approx(86), "within", (1,))
    assert len(missing(cell, [part], 1)) == 0
    assert len(missing(cell, [part], 1, partial=False)) == 1


def test_a_note_on_the_data_is_shown() -> None:
    run = dataclasses.replace(full(), data_note="rebuilt from the station files")
    assert "rebuilt from the station files" in measure(MNIST_ACE, [run]).note


def test_a_note_says_how_many_folds_there_are() -> None:
    runs = [full(experiment="ushcn", metric="mse", fold=i, seed=i) for i in range(5)]
    assert "2 of 5 folds" in measure(CELLS["ushcn/ace/mse"], runs[:2]).note
    assert "folds" not in measure(CELLS["ushcn/ace/mse"], runs).note


def test_silhouettes_are_read_from_the_result(tmp_path: Path) -> None:
    run = dataclasses.replace(full(experiment="cifar10", value=0.86), path=tmp_path)
    cell = CELLS["cifar10/ace/silhouette"]
    assert measure(cell, [run]).mark == "missing"  # no analysis
    write_json(tmp_path / "result.json", {"test": {"accuracy": 0.86}, "silhouette": {"features": 0.54, "tsne": 0.9}})
    measured = measure(cell, [run])
    assert measured.mean == pytest.approx(0.54)
    assert measured.note.endswith("silhouette of the features, that of their t-SNE is 0.9000; "
                                  "the paper does not say which it takes")
    assert measure(CELLS["cifar10/ace/accuracy"], [run]).mean == pytest.approx(86)


def test_a_silhouette_without_a_tsne_has_a_shorter_note(tmp_path: Path) -> None:
    write_json(tmp_path / "result.json", {"test": {"accuracy": 0.86}, "silhouette": {"features": 0.54, "tsne": None}})
    run = dataclasses.replace(full(experiment="cifar10", value=0.86), path=tmp_path)
    assert measure(CELLS["cifar10/ace/silhouette"], [run]).note.endswith(
        "silhouette of the features; the paper does not say which it takes")


def test_missing_runs_are_complete_configurations() -> None:
    assert [(c.seed, c.get("epochs")) for c in missing(MNIST_ACE, [])] == [(0, 40), (1, 40), (2, 40)]
    assert [c.seed for c in missing(MNIST_ACE, [full(seed=1, epochs=40)], 4)] == [0, 2, 3]
    assert [c.seed for c in missing(MNIST_ACE, [full(seed=7, epochs=40)], 2)] == [0]  # any seed counts
    assert [c.get("epochs") for c in missing(MNIST_ACE, [full(seed=0, epochs=20)], 1, epochs=160)] == [160]
    assert missing(MNIST_ACE, [full(seed=i) for i in range(3)]) == []  # 160 epochs are more than 40
    ushcn = missing(CELLS["ushcn/ace/negll"], [full(experiment="ushcn", metric="negll", fold=2, seed=5)], 1)
    assert [(c.seed, c.get("fold")) for c in ushcn] == [(i, i) for i in (0, 1, 3, 4)]
    assert ushcn == missing(CELLS["ushcn/ace/mse"], [full(experiment="ushcn", metric="mse", fold=2, seed=5)], 1)


def test_queued_and_running_runs_are_not_missing_and_stopped_ones_are() -> None:
    for state, left in (("queued", 2), ("running", 2), ("stopped", 3), ("failed", 3), ("interrupted", 3)):
        run = dataclasses.replace(full(value=None, epochs=40), state=state)
        assert len(missing(MNIST_ACE, [run])) == left
        again = unfinished(MNIST_ACE.config(0, 40), [run])
        assert (again is run) == (left == 3)
    assert unfinished(MNIST_ACE.config(1, 40), [dataclasses.replace(full(value=None), state="stopped")]) is None


def test_the_table_of_an_experiment_agrees_with_its_cells() -> None:
    runs = [full(method, value=0.9 + 0.01 * i, seed=i, epochs=epochs)
            for method, epochs in (("ace", 40), ("odenet", 160)) for i in range(3)]
    rows = {row["method"]: row for row in to_records(table_rows(EXPERIMENTS["mnist"], runs)) if row["n"]}
    for method in ("ace", "odenet"):
        cell = CELLS[f"mnist/{method}/accuracy"]
        found = measure(cell, runs)
        assert (rows[method]["mean"], rows[method]["std"], rows[method]["n"]) == (
            pytest.approx(found.mean), pytest.approx(found.std), found.n)
        assert rows[method]["paper"] == str(cell.printed)
        assert rows[method]["changed"].get("epochs", 160) == found.epochs


def test_printed_settings_are_a_preset() -> None:
    cell = CELLS["ushcn/ace/mse"]
    chosen, printed = (cell.config(preset=preset) for preset in ("chosen", "printed"))
    assert (chosen.get("learning_rate"), chosen.get("epochs")) == (1e-3, 120)
    assert (printed.get("learning_rate"), printed.get("epochs")) == (1e-4, 300)
    assert "preset" not in printed.to_dict()
    run = full(experiment="ushcn", metric="mse", preset="printed")
    assert measure(cell, [run]).mark == "missing"
    assert measure(cell, [run], preset="printed").n == 1
    with pytest.raises(UserError, match="there is no preset 'best': choose chosen or printed"):
        cell.config(preset="best")
