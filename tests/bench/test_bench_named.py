"""`acenode bench named`: both implementations, and the projection of a large set's epoch."""

from __future__ import annotations

import pytest
import torch

from acenode.bench import named
from acenode.cli import main


def test_a_set_has_the_size_that_it_promises() -> None:
    made = named.large_set(4, 12, 6)
    assert (len(made.variables), len(made.parts["train"]), made.series[0].x.shape) == (4, 6, (12, 4))
    trainer = named.trainer_of(named.large_experiment(made), torch.device("cpu"), named.PLAIN)
    assert trainer.task.batch(0, 0).times is not None  # every series has the same targets
    assert trainer.task.batch(0, 0).target.t.shape[1] == 6


@pytest.mark.long
def test_bench_named_prints_the_ratio_and_an_epoch(capsys: pytest.CaptureFixture[str],
                                                   monkeypatch: pytest.MonkeyPatch) -> None:
    small = named.large_set(4, 12, 6)
    monkeypatch.setattr(named, "large_set", lambda: small)
    assert main(["bench", "named", "--repeats", "1", "--device", "cpu"]) == 0
    text = capsys.readouterr().out
    assert "speedup: " in text
    assert "4 variables, batch 6: " in text
    assert "an epoch of 5,000 series: " in text
