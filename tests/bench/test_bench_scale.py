"""`acenode bench scale`: each part, with few runs."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path

import pytest

from acenode import UserError
from acenode.bench import PART_NAMES
from acenode.bench.process_cost import Cost, cost_of, cpu_seconds, descendants, memory
from acenode.bench.scale import PARTS, parts_of
from acenode.bench.scale_head import measure_head
from acenode.bench.scale_rates import Rate, Rates, measure_rates
from acenode.bench.scale_search import measure_search
from acenode.bench.scale_trials import measure_trials


def quiet(line: str) -> None:
    """Print nothing."""


def test_parts_are_chosen_by_name() -> None:
    assert ",".join(PARTS) == PART_NAMES
    assert parts_of("head, rates") == ["head", "rates"]
    with pytest.raises(UserError, match="bench scale has no part 'tail'"):
        parts_of("tail")


def test_rates_are_a_table_of_workers_and_ways() -> None:
    found = Rates([Rate("threads", 1, 6, 60.0, 12.0), Rate("ray", 1, 6, 30.0, 20.0), Rate("threads", 2, 6, 40.0, 13.0)])
    assert "360 (12.0 s)" in found.text
    assert "720 (20.0 s)" in found.text
    assert found.text.splitlines()[-1].split()[0] == "2"


def test_costs_are_of_this_process_and_its_children() -> None:
    spent = cost_of(lambda: sum(range(300_000)))
    assert spent.seconds > 0
    assert spent.cpu > 0
    assert Cost(3.0, 2.0) - Cost(1.0, 1.0) == Cost(2.0, 1.0) == Cost(4.0, 2.0) / 2
    assert str(Cost(1.5, 0.25)) == "1.50 s (250.0 ms)"
    assert cpu_seconds([os.getpid()]) > 0
    assert memory([os.getpid()]) > 10_000_000
    assert os.getpid() in descendants(os.getppid())
    assert cpu_seconds([2**30]) == 0  # there is no such process


@pytest.mark.long
def test_trials_without_training_are_measured(tmp_path: Path) -> None:
    found = measure_trials(tmp_path, quiet, sizes=(20, 60), workers=5)
    assert [one.trials for one in found.sizes] == [20, 60]
    for one in found.sizes:
        assert set(one.choosing) == {"tpe, pruner median", "random, pruner none"}
        assert all(cost.cpu > 0 for cost in one.choosing.values())
        assert one.first_listing.seconds > 0
    assert found.each_worker.receiving.cpu > 0
    assert "5 workers wait for the scheduler at 60 trials" in found.text


@pytest.mark.long
def test_a_small_head_rates_and_search_are_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_worker_niceness", "0")
    rates = measure_rates(tmp_path / "rates", quiet, workers=(1,), ways=("threads", "ray"), runs=1)
    assert [rate.runs for rate in rates.rates] == [1, 1]
    head = measure_head(tmp_path / "head", quiet, queued=3, streaming=3, seconds=2.5)
    assert (head.queued, head.streaming) == (3, 3)
    assert head.bytes_a_second > 0
    assert head.keeper_memory > 0
    assert head.ray_memory > head.keeper_memory
    found = measure_search(tmp_path / "search", quiet, trials=3)
    assert sum(found.counts.values()) == 3
    assert found.epochs > 0
    assert found.best is not None
    assert asdict(found)["trials"] == 3
    for text in (rates.text, head.text, found.text):
        assert text
