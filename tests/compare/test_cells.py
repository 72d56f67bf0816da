"""The cells of the paper's tables: which runs count, how they are marked and written, and which are missing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from catalogue_entries import entry

from acenode.compare import cells
from acenode.compare.cells import MARKS, Measured, mark, measure, missing, paper_value_note
from acenode.compare.groups import unfinished
from acenode.compare.paper import CELLS
from acenode.compare.table import measured as table_rows
from acenode.compare.table import to_records
from acenode.experiments import EXPERIMENTS
from acenode.files import write_json
from acenode.runs.catalogue import Entry

MNIST_ACE = CELLS["mnist/ace/accuracy"]  # 99.68 ± 0.03 in the paper


def full(method: str = "ace", value: float | None = 0.9, *, experiment: str = "mnist", metric: str = "accuracy",
         **given: Any) -> Entry:
    found = entry(method, value, experiment=experiment, data="full", **given)
    return replace(found, metric=metric, test={} if value is None else {metric: value})


def ushcn(count: int = 1, **given: Any) -> list[Entry]:
    return [full(experiment="ushcn", metric="mse", fold=i, seed=i, **given) for i in range(count)]


@pytest.mark.parametrize(("key", "difference", "std", "n", "expected"), [
    ("physionet/ace/auc", 0.003, 0.001, 3, "within"), ("physionet/ace/auc", -0.003, 0.001, 3, "within"),  # as printed
    ("physionet/ace/auc", 0.0031, 0.001, 3, "better"), ("physionet/ace/auc", -0.0031, 0.001, 3, "worse"),
    ("physionet/ace/auc", -0.0048, 0.008, 3, "within"),  # √(0.003²/5 + 0.008²/3) = 0.00481
    ("physionet/ace/auc", -0.0049, 0.008, 3, "worse"),
    ("physionet/ace/auc", 0.0032, None, 1, "within"),  # √(0.003²/5 + 0.003²) = 0.00329
    ("physionet/ace/auc", 0.0034, None, 1, "better"),
    ("ushcn/ace/mse", -0.04, 0.01, 5, "better"), ("ushcn/ace/mse", 0.04, 0.01, 5, "worse")])
def test_marks_follow_the_rule(key: str, difference: float, std: float | None, n: int, expected: str) -> None:
    assert mark(CELLS[key], CELLS[key].printed.mean + difference, std, n) == expected


def test_an_ablation_without_a_deviation_takes_that_of_its_method() -> None:
    assert cells.printed_std(CELLS["mnist/ace/large/accuracy"]) == 0.03
    assert cells.printed_std(CELLS["physionet-vitals/ace/extrapolation/dense/mse"]) == 0.028
    assert all(cells.printed_std(cell) > 0 for cell in CELLS.values())


def test_mean_and_deviation_are_in_the_printed_unit() -> None:
    found = measure(MNIST_ACE, [full(value=v, seed=i) for i, v in enumerate((0.996, 0.997, 0.998))])
    assert (found.mean, found.std) == (pytest.approx(99.7), pytest.approx(0.1))
    assert found.difference == pytest.approx(0.02)
    assert (found.seeds, found.folds, found.epochs, found.n, found.mark) == ((0, 1, 2), (), 160, 3, "within")
    vitals = full(value=0.002, experiment="physionet-vitals", metric="mse", task="extrapolation")
    assert measure(CELLS["physionet-vitals/ace/extrapolation/mse"], [vitals]).mean == pytest.approx(2.0)
    assert measure(CELLS["physionet-vitals/ace/interpolation/mse"], [vitals]).mark == "missing"
    found = measure(MNIST_ACE, [full(value=0.5, created=1.0), full(value=0.6, created=2.0), full(value=0.4)])
    assert (found.n, found.mean) == (1, pytest.approx(60))  # the latest run of a seed


def test_only_runs_with_the_settings_of_the_cell_count() -> None:
    others = [full(schedule="joint"), full(size="large"), full(attention="none"), full("odenet"), full(epochs=10),
              full(value=None), entry("ace", 0.9)]
    assert measure(MNIST_ACE, others).n == 0
    assert measure(CELLS["mnist/ace/large/accuracy"], others).n == 1
    assert measure(MNIST_ACE, [full(device="cpu", snapshots=5, analysis=False, epochs=20)]).epochs == 20
    dense = full(experiment="physionet", metric="auc", initial="dense")
    assert measure(CELLS["physionet/ace/dense/auc"], [dense]).n == 1
    assert measure(CELLS["physionet/ace/auc"], [dense]).n == 0
    printed = ushcn(preset="printed")
    assert measure(CELLS["ushcn/ace/mse"], printed).mark == "missing"
    assert measure(CELLS["ushcn/ace/mse"], printed, preset="printed").n == 1
    assert measure(MNIST_ACE, [replace(full(), search="rates")]).n == 0  # a trial


def test_the_longest_runs_with_enough_seeds_are_measured() -> None:
    short = [full(seed=i, epochs=20) for i in range(3)]
    some = [full(seed=i, epochs=160, value=0.95) for i in range(2)]
    assert measure(MNIST_ACE, short + some).epochs == 20
    assert measure(MNIST_ACE, short + some, seeds=2).epochs == 160
    assert measure(MNIST_ACE, short[:1] + some).epochs == 160
    assert measure(MNIST_ACE, [*short, *some, full(seed=2, epochs=160)]).epochs == 160


def test_notes_say_what_a_reader_must_know() -> None:
    def note(key: str, *entries: Entry) -> str:
        return measure(CELLS[key], entries).note

    assert "20 epochs, 160 in the paper" in note("mnist/ace/accuracy", full(epochs=20))
    assert "learning rate 0.05, 0.01 in the paper" in note("cifar10/ace/accuracy", full(experiment="cifar10"))
    assert "learning rate" not in note("mnist/ace/accuracy", full())
    assert "rebuilt from files" in note("mnist/ace/accuracy", replace(full(), data_note="rebuilt from files."))
    assert "2 of 5 folds" in note("ushcn/ace/mse", *ushcn(2))
    assert "folds" not in note("ushcn/ace/mse", *ushcn(5))
    assert "the paper prints no deviation" in note("mnist/ace/large/accuracy", full(size="large"))


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


# Words --------------------------------------------------------------------------------------------------------------


def test_texts_of_a_cell() -> None:
    found = measure(MNIST_ACE, [full(value=v, seed=s, epochs=40) for s, v in enumerate((0.9950, 0.9960))])
    assert cells.printed_text(MNIST_ACE) == "99.68 ± 0.03"
    assert cells.mean_text(MNIST_ACE, found) == "99.55 ± 0.07"
    assert cells.difference_text(MNIST_ACE, found) == "−0.13"
    assert cells.difference_text(MNIST_ACE, replace(found, difference=-0.001)) == "0.00"
    assert cells.repeats_text(found) == "2 seeds, 40 of 160 epochs"
    assert cells.mark_text(found) == "▼ worse"
    sized = replace(found, entries=(replace(found.entries[0], params=283_338),))
    assert (MNIST_ACE.printed.params, cells.params_text(MNIST_ACE, sized)) == ("0.28M", "0.28M")
    assert cells.params_text(CELLS["ushcn/ace/mse"], sized) == ""  # the paper prints none
    none = Measured()
    assert (cells.mean_text(MNIST_ACE, none), cells.difference_text(MNIST_ACE, none), cells.repeats_text(none),
            cells.mark_text(none)) == ("–", "", "", "○ not measured")
    single = measure(MNIST_ACE, [full(epochs=40)])
    assert (single.mark, cells.shown_mark(single), cells.mark_text(single)) == ("worse", "single", "◇ one run")


def test_marks_are_told_apart_without_colours_and_the_legend_states_their_rule() -> None:
    assert len({m.symbol for m in MARKS.values()}) == len({m.word for m in MARKS.values()}) == 6
    assert all(f"{m.symbol} {m.word}" in cells.mark_legend() for m in MARKS.values())
    for legend in (cells.mark_legend(), cells.terminal_legend()):
        assert "the larger of two numbers: the paper's standard deviation, and the standard error" in legend
        assert "our own runs" in legend


def test_cells_that_are_not_compared_are_counted_apart() -> None:
    text = cells.count_sentence(["within", "better", "better", "worse", "partial", "single", "missing", "missing"])
    assert text == ("Of the paper's 8 values 6 are measured: 1 within the margin of error, 2 better, 1 worse, 1 "
                    "from a single run and 1 on partial data. Single runs and values on partial data are not compared "
                    "with the paper's.")
    assert cells.count_sentence(["within", "single"]).endswith("Single runs are not compared with the paper's.")
    assert cells.count_sentence(["within"] * 2) == ("All 2 of the paper's values are measured: 2 within the margin of "
                                                    "error, 0 better and 0 worse.")


def test_cells_of_shorter_runs_are_counted() -> None:
    def cell(found: str, epochs: int, printed: int) -> Measured:
        return Measured(mark=found, epochs=epochs, paper_epochs=printed)  # type: ignore[arg-type]

    mnist, whole = {"mnist/ace/accuracy": cell("within", 40, 160)}, {"physionet/ace/auc": cell("worse", 30, 30)}
    assert cells.length_sentence(mnist | whole | {
        "cifar10/ace/accuracy": cell("worse", 20, 160), "mnist/odenet/accuracy": cell("within", 40, 160),
        "ushcn/ace/mse": cell("worse", 120, 300)}) == (
        "4 values, 2 of the worse ones among them, come from shorter training than the paper's: MNIST and CIFAR10 20 "
        "to 40 of 160 epochs; USHCN climate 120 of 300 epochs.")
    assert cells.length_sentence(mnist) == (
        "1 value comes from shorter training than the paper's: MNIST 40 of 160 epochs.")
    assert cells.length_sentence(whole) == ""


def test_a_run_is_told_how_it_is_related_to_the_value_of_the_paper_page() -> None:
    def cifar10(value: float = 0.8, **given: Any) -> Entry:
        return full(value=value, experiment="cifar10", **given)

    long, short = [cifar10(0.82 + 0.01 * seed, seed=seed, epochs=40) for seed in range(3)], cifar10(epochs=20)
    mean = "83.00 ± 1.00% (3 seeds, 40 of 160 epochs)"
    assert paper_value_note(long[0], [*long, short]) == f"One of the runs whose mean the Paper page shows: {mean}."
    assert paper_value_note(short, [*long, short]) == (
        f"The Paper page shows the mean of other runs of this method, {mean}. This run has 20 epochs.")
    assert paper_value_note(short, [short]) is None
    for given, words in (({"epochs": 10}, "10 epochs, where 40 are usual, and "), ({"epochs": 40}, "")):
        assert paper_value_note(cifar10(learning_rate=0.001, **given), []) == (
            f"This run counts for no value of the Paper page: it has {words}learning rate 0.001 instead of 0.05.")
    for other in (entry("ace", 0.9, experiment="mnist"), replace(cifar10(), search="found"),
                  replace(cifar10(), state="running"), cifar10(attention="none")):
        assert paper_value_note(other, []) is None  # no cell could show it
