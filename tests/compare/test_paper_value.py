"""How a run is related to the value that the Paper page shows for its method."""

from __future__ import annotations

import dataclasses
from typing import Any

from catalogue_entries import entry

from acenode.compare.cells import paper_value_note
from acenode.runs.catalogue import Entry


def cifar10(value: float = 0.8, **given: Any) -> Entry:
    found = entry("ace", value, experiment="cifar10", data="full", **given)
    return dataclasses.replace(found, metric="accuracy", test={"accuracy": value})


LONG = [cifar10(0.82 + 0.01 * seed, seed=seed, epochs=40) for seed in range(3)]


def test_a_run_behind_the_value_names_the_mean() -> None:
    short = cifar10(epochs=20)
    assert paper_value_note(LONG[0], [*LONG, short]) == (
        "One of the runs whose mean the Paper page shows: 83.00 ± 1.00% (3 seeds, 40 of 160 epochs).")
    assert paper_value_note(short, [short]) is None


def test_a_shorter_run_names_the_value_of_longer_ones() -> None:
    short = cifar10(0.79, epochs=20)
    assert paper_value_note(short, [*LONG, short]) == (
        "The Paper page shows the mean of other runs of this method, 83.00 ± 1.00% (3 seeds, 40 of 160 epochs). "
        "This run has 20 epochs.")


def test_a_run_with_other_settings_names_them() -> None:
    other = cifar10(epochs=10, learning_rate=0.001)
    assert paper_value_note(other, [other]) == (
        "This run counts for no value of the Paper page: it has 10 epochs, where 40 are usual, and learning rate 0.001 "
        "instead of 0.05.")
    assert paper_value_note(cifar10(learning_rate=0.001, epochs=40), []) == (
        "This run counts for no value of the Paper page: it has learning rate 0.001 instead of 0.05.")


def test_runs_that_no_cell_could_show_need_no_words() -> None:
    assert paper_value_note(entry("ace", 0.9, experiment="mnist"), []) is None  # the sample
    assert paper_value_note(dataclasses.replace(cifar10(), search="found"), []) is None
    assert paper_value_note(dataclasses.replace(cifar10(), state="running"), []) is None
    assert paper_value_note(cifar10(attention="none"), []) is None  # no cell has ACE without attention
