"""The cells of the paper's tables: which runs count, how they are marked and written, and which are missing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from catalogue_entries import entry, full

from acenode.compare import cells
from acenode.compare.cells import MARKS, Measured, mark, measure, missing, paper_value_note
from acenode.compare.groups import unfinished
from acenode.compare.paper import CELLS
from acenode.files import write_json
from acenode.runs.catalogue import Entry

MNIST_ACE = CELLS["mnist/ace/accuracy"]  # 99.68 ± 0.03 in the paper


def ushcn(count: int = 1, **given: Any) -> list[Entry]:
    return [full(experiment="ushcn", metric="mse", fold=i, seed=i, **given) for i in range(count)]


@pytest.mark.parametrize(("key", "difference", "std", "n", "expected"), [
    ("physionet/ace/auc", 0.003, 0.001, 3, "within"),  # as printed
    ("physionet/ace/auc", 0.0031, 0.001, 3, "better"), ("physionet/ace/auc", -0.0031, 0.001, 3, "worse"),
    ("physionet/ace/auc", -0.0048, 0.008, 3, "within"),  # √(0.003²/5 + 0.008²/3) = 0.00481
    ("physionet/ace/auc", -0.0049, 0.008, 3, "worse"),
    ("physionet/ace/auc", 0.0032, None, 1, "within"),  # √(0.003²/5 + 0.003²) = 0.00329
    ("physionet/ace/auc", 0.0034, None, 1, "better"),
    ("ushcn/ace/mse", -0.04, 0.01, 5, "better"), ("ushcn/ace/mse", 0.04, 0.01, 5, "worse"),
    # an ablation without a deviation takes that of its method, 0.03 and 0.028
    ("mnist/ace/large/accuracy", 0.03, 0.001, 3, "within"), ("mnist/ace/large/accuracy", 0.031, 0.001, 3, "better"),
    ("physionet-vitals/ace/extrapolation/dense/mse", 0.029, 0.001, 3, "worse")])
def test_marks_follow_the_rule(key: str, difference: float, std: float | None, n: int, expected: str) -> None:
    assert mark(CELLS[key], CELLS[key].printed.mean + difference, std, n) == expected


def test_mean_and_deviation_are_in_the_printed_unit() -> None:
    found = measure(MNIST_ACE, [full(value=v, seed=i) for i, v in enumerate((0.996, 0.997, 0.998))])
    assert (found.mean, found.std, found.difference) == pytest.approx((99.7, 0.1, 0.02))
    assert (found.seeds, found.folds, found.epochs, found.n, found.mark) == ((0, 1, 2), (), 160, 3, "within")
    vitals = full(value=0.002, experiment="physionet-vitals", metric="mse", task="extrapolation")
    assert measure(CELLS["physionet-vitals/ace/extrapolation/mse"], [vitals]).mean == pytest.approx(2.0)
    assert measure(CELLS["physionet-vitals/ace/interpolation/mse"], [vitals]).mark == "missing"
    found = measure(MNIST_ACE, [full(value=0.5, created=1.0), full(value=0.6, created=2.0), full(value=0.4)])
    assert (found.n, found.mean) == (1, pytest.approx(60))  # the latest run of a seed


def test_only_runs_with_the_settings_of_the_cell_count() -> None:
    others = [full(schedule="joint"), full(size="large"), full(attention="none"), full("odenet"), full(epochs=10),
              full(value=None), entry("ace", 0.9), replace(full(), search="rates")]
    assert measure(MNIST_ACE, others).n == 0
    assert measure(CELLS["mnist/ace/large/accuracy"], others).n == 1
    assert measure(MNIST_ACE, [full(device="cpu", snapshots=5, analysis=False, epochs=20)]).epochs == 20
    dense = full(experiment="physionet", metric="auc", initial="dense")
    assert [measure(CELLS[key], [dense]).n for key in ("physionet/ace/dense/auc", "physionet/ace/auc")] == [1, 0]
    printed = ushcn(preset="printed")
    assert measure(CELLS["ushcn/ace/mse"], printed).mark == "missing"
    assert measure(CELLS["ushcn/ace/mse"], printed, preset="printed").n == 1


def test_the_longest_runs_with_enough_seeds_are_measured() -> None:
    short, long = ([full(seed=i, epochs=epochs) for i in range(3)] for epochs in (20, 160))
    for runs, seeds, epochs in ((short + long[:2], None, 20), (short + long[:2], 2, 160),
                                (short[:1] + long[:2], None, 160), (short + long, None, 160)):
        assert measure(MNIST_ACE, runs, seeds=seeds).epochs == epochs


@pytest.mark.parametrize(("key", "runs", "words", "there"), [
    ("mnist/ace/accuracy", [full(epochs=20)], "20 epochs, 160 in the paper", True),
    ("cifar10/ace/accuracy", [full(experiment="cifar10")], "learning rate 0.05, 0.01 in the paper", True),
    ("mnist/ace/accuracy", [full()], "learning rate", False),
    ("mnist/ace/accuracy", [replace(full(), data_note="rebuilt from files.")], "rebuilt from files", True),
    ("ushcn/ace/mse", ushcn(2), "2 of 5 folds", True), ("ushcn/ace/mse", ushcn(5), "folds", False),
    ("mnist/ace/large/accuracy", [full(size="large")], "the paper prints no deviation", True)])
def test_notes_say_what_a_reader_must_know(key: str, runs: list[Entry], words: str, there: bool) -> None:
    assert (words in measure(CELLS[key], runs).note) == there


def test_partial_data_is_measured_and_not_compared() -> None:
    part, whole = (full(value=v, experiment="activity", seed=i) for i, v in enumerate((0.9, 0.86)))
    part, cell = replace(part, partial=True), CELLS["activity/ace/accuracy"]
    found = measure(cell, [part])
    assert (found.mean, found.difference, found.mark) == (pytest.approx(90), None, "partial")
    found = measure(cell, [part, whole])
    assert (found.mean, found.mark, found.seeds) == (pytest.approx(86), "within", (1,))
    assert (len(missing(cell, [part], 1)), len(missing(cell, [part], 1, partial=False))) == (0, 1)


@pytest.mark.parametrize(("tsne", "ending"), [(0.9, ", that of their t-SNE is 0.9000"), (None, "")])
def test_silhouettes_are_read_from_the_result(tmp_path: Path, tsne: float | None, ending: str) -> None:
    run, cell = replace(full(experiment="cifar10", value=0.86), path=tmp_path), CELLS["cifar10/ace/silhouette"]
    assert measure(cell, [run]).mark == "missing"  # no analysis
    write_json(tmp_path / "result.json", {"test": {"accuracy": 0.86}, "silhouette": {"features": 0.54, "tsne": tsne}})
    found = measure(cell, [run])
    assert found.mean == pytest.approx(0.54)
    assert found.note.endswith(f"silhouette of the features{ending}; the paper does not say which it takes")
    assert measure(CELLS["cifar10/ace/accuracy"], [run]).mean == pytest.approx(86)


def test_missing_runs_are_complete_configurations() -> None:
    assert [(c.seed, c.get("epochs")) for c in missing(MNIST_ACE, [])] == [(0, 40), (1, 40), (2, 40)]
    assert [c.seed for c in missing(MNIST_ACE, [full(seed=1, epochs=40)], 4)] == [0, 2, 3]
    assert [c.seed for c in missing(MNIST_ACE, [full(seed=7, epochs=40)], 2)] == [0]  # any seed counts
    assert [c.get("epochs") for c in missing(MNIST_ACE, [full(seed=0, epochs=20)], 1, epochs=160)] == [160]
    assert missing(MNIST_ACE, [full(seed=i) for i in range(3)]) == []  # 160 epochs are more than 40
    third = full(experiment="ushcn", metric="negll", fold=2, seed=5)
    left = missing(CELLS["ushcn/ace/negll"], [third], 1)
    assert [(c.seed, c.get("fold")) for c in left] == [(i, i) for i in (0, 1, 3, 4)]


@pytest.mark.parametrize(("state", "left"), [
    ("queued", 2), ("running", 2), ("stopped", 3), ("failed", 3), ("interrupted", 3)])
def test_queued_and_running_runs_are_not_missing_and_stopped_ones_are(state: str, left: int) -> None:
    run = replace(full(value=None, epochs=40), state=state)
    assert len(missing(MNIST_ACE, [run])) == left
    assert (unfinished(MNIST_ACE.config(0, 40), [run]) is run) == (left == 3)
    assert unfinished(MNIST_ACE.config(1, 40), [run]) is None


def test_texts_of_a_cell() -> None:
    found = measure(MNIST_ACE, [full(value=v, seed=s, epochs=40) for s, v in enumerate((0.9950, 0.9960))])
    assert cells.difference_text(MNIST_ACE, replace(found, difference=-0.001)) == "0.00"
    sized = replace(found, entries=(replace(found.entries[0], params=283_338),))
    assert (MNIST_ACE.printed.params, cells.params_text(MNIST_ACE, sized)) == ("0.28M", "0.28M")
    assert cells.params_text(CELLS["ushcn/ace/mse"], sized) == ""  # the paper prints none
    none = Measured()
    assert (cells.mean_text(MNIST_ACE, none), cells.difference_text(MNIST_ACE, none), cells.repeats_text(none)) == (
        "–", "", "")
    single = measure(MNIST_ACE, [full(epochs=40)])
    assert (single.mark, cells.shown_mark(single), cells.mark_text(single)) == ("worse", "single", "◇ one run")


def test_marks_are_told_apart_without_colours() -> None:
    assert len({m.symbol for m in MARKS.values()}) == len({m.word for m in MARKS.values()}) == 6


def test_cells_that_are_not_compared_are_counted_apart() -> None:
    assert cells.count_sentence(["within", "better", "better", "worse", "partial", "single", "missing", "missing"]) == (
        "Of the paper's 8 values 6 are measured: 1 within the margin of error, 2 better, 1 worse, 1 from a single run "
        "and 1 on partial data. Single runs and values on partial data are not compared with the paper's.")
    assert cells.count_sentence(["within"] * 2) == (
        "All 2 of the paper's values are measured: 2 within the margin of error, 0 better and 0 worse.")


def test_cells_of_shorter_runs_are_counted() -> None:
    found = {key: Measured(mark=mark, epochs=epochs, paper_epochs=printed) for key, mark, epochs, printed in (
        ("mnist/ace/accuracy", "within", 40, 160), ("cifar10/ace/accuracy", "worse", 20, 160),
        ("mnist/odenet/accuracy", "within", 40, 160), ("ushcn/ace/mse", "worse", 120, 300),
        ("physionet/ace/auc", "worse", 30, 30))}
    assert cells.length_sentence(found) == (
        "4 values, 2 of the worse ones among them, come from shorter training than the paper's: MNIST and CIFAR10 20 "
        "to 40 of 160 epochs; USHCN climate 120 of 300 epochs.")
    assert cells.length_sentence({"physionet/ace/auc": found["physionet/ace/auc"]}) == ""


def test_a_run_is_told_how_it_is_related_to_the_value_of_the_paper_page() -> None:
    def cifar10(value: float = 0.8, **given: Any) -> Entry:
        return full(value=value, experiment="cifar10", **given)

    long, short = [cifar10(0.82 + 0.01 * seed, seed=seed, epochs=40) for seed in range(3)], cifar10(epochs=20)
    mean = "83.00 ± 1.00% (3 seeds, 40 of 160 epochs)"
    assert paper_value_note(long[0], [*long, short]) == f"One of the runs whose mean the Paper page shows: {mean}."
    assert paper_value_note(short, [*long, short]) == (
        f"The Paper page shows the mean of other runs of this method, {mean}. This run has 20 epochs.")
    for given, words in (({"epochs": 10}, "10 epochs, where 40 are usual, and "), ({"epochs": 40}, "")):
        assert paper_value_note(cifar10(learning_rate=0.001, **given), []) == (
            f"This run counts for no value of the Paper page: it has {words}learning rate 0.001 instead of 0.05.")
    for other in (short, entry("ace", 0.9, experiment="mnist"), replace(cifar10(), search="found"),
                  replace(cifar10(), state="running"), cifar10(attention="none")):
        assert paper_value_note(other, [other]) is None  # alone, or no cell could show it
