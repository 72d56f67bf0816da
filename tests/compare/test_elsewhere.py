"""Results from other papers: every value has a protocol and a source, and belongs to an experiment."""

from __future__ import annotations

from acenode.compare import paper
from acenode.experiments import EXPERIMENTS


def test_every_value_has_its_protocol_and_source() -> None:
    for result in paper.PUBLISHED:
        assert result.experiment in EXPERIMENTS
        assert any(c.isdigit() for c in result.value)
        assert len(result.protocol) > 10
        assert result.source.text
        assert result.source.url.startswith("https://")


def test_no_value_is_listed_twice() -> None:
    keys = [(r.experiment, r.method, r.metric, r.value, r.source) for r in paper.PUBLISHED]
    assert len(set(keys)) == len(keys)


def test_results_of_an_experiment() -> None:
    found = paper.published_results("physionet")
    assert {r.experiment for r in found} == {"physionet"}
    assert ("mTAND", "0.858") in {(r.method, r.value) for r in found}
    assert paper.published_results("unknown") == []
