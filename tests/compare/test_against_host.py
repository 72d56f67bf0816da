"""ACE against the method that it extends, for the head of an experiment's page."""

from __future__ import annotations

from dataclasses import replace

import pytest
from catalogue_entries import entry

from acenode import experiments
from acenode.compare.against_host import Compared, compared
from acenode.runs.entry import Entry

CIFAR10, OSCILLATORS = experiments.get("cifar10"), experiments.get("oscillators")


def runs(name: str, method: str, values: list[float], data: str = "full", partial: bool = False,
         **given: object) -> list[Entry]:
    """Return a finished run for each value, with seeds from 0."""
    metric = experiments.get(name).metric.name
    found = [entry(method, value, experiment=name, data=data, seed=seed, **given) for seed, value in enumerate(values)]
    return [replace(e, metric=metric, test={metric: e.value}, partial=partial) for e in found]


def only(found: list[Compared]) -> Compared:
    assert len(found) == 1
    return found[0]


def test_a_difference_that_leaves_out_zero_decides() -> None:
    ace, host = [0.90, 0.91, 0.92], [0.80, 0.81, 0.82]
    found = only(compared(CIFAR10, [*runs("cifar10", "ace", ace, epochs=40), *runs("cifar10", "odenet", host,
                                                                                    epochs=40)]))
    assert (found.verdict, found.measure, found.where) == ("ahead", "accuracy", "on the full data")
    assert (found.ace.title, found.ace.value) == ("ACE-ODE-Net", "91.00 ± 1.00%")
    assert (found.host.title, found.host.value) == ("ODE-Net", "81.00 ± 1.00%")
    assert found.repeats == "3 seeds, 40 of 160 epochs"
    assert found.numbers == "difference +10.00 points, 95% interval +10.00 to +10.00"
    assert found.ace.cell == "cifar10/ace/accuracy"


def test_a_lower_error_is_better() -> None:
    ace, host = [0.02, 0.03, 0.025], [0.31, 0.30, 0.32]
    found = only(compared(OSCILLATORS, [*runs("oscillators", "ace", ace, "sample"),
                                        *runs("oscillators", "no-attention", host, "sample")]))
    assert (found.verdict, found.measure, found.where) == ("ahead", "MSE", "")
    assert found.host.title == "No attention"
    assert found.numbers.startswith("difference −0.285, 95% interval ")
    assert found.repeats == "3 seeds, 80 epochs"
    assert found.host.runs == tuple(f"oscillators-no-attention-{seed}-0.0" for seed in range(3))


def test_too_few_runs_are_not_judged() -> None:
    found = only(compared(CIFAR10, [*runs("cifar10", "ace", [0.9], epochs=40),
                                    *runs("cifar10", "odenet", [0.8], epochs=40)]))
    assert found.verdict == "open"
    assert found.numbers == "only 1 run of ACE, 3 are needed"


def test_a_part_of_the_data_is_named() -> None:
    found = only(compared(experiments.get("activity"), [
        *runs("activity", "ace", [0.7, 0.9, 0.8], partial=True),
        *runs("activity", "latent-ode", [0.8, 0.7, 0.9], partial=True)]))
    assert (found.verdict, found.where) == ("open", "on a part of the data")


@pytest.mark.parametrize("measured", [[], runs("cifar10", "ace", [0.9] * 3, epochs=40)])
def test_nothing_is_said_unless_both_are_measured(measured: list[Entry]) -> None:
    assert compared(CIFAR10, measured) == []


def test_runs_on_the_sample_of_a_set_of_the_paper_do_not_count() -> None:
    sample = [run for method in ("ace", "odenet") for run in runs("cifar10", method, [0.9, 0.8, 0.7], "sample")]
    assert compared(CIFAR10, sample) == []


def test_each_measure_of_the_paper_is_compared_but_silhouettes() -> None:
    found = compared(experiments.get("ushcn"), [
        replace(run, test={"mse": 0.5 + 0.01 * run.seed, "negll": 1.0 + 0.1 * run.seed})
        for method in ("ace", "gru-ode-bayes") for run in runs("ushcn", method, [0.5, 0.6, 0.7])])
    assert [each.measure for each in found] == ["MSE", "NegLL"]
