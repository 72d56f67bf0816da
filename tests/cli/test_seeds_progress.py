"""Progress of `acenode train --seeds`: which seed a value belongs to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from acenode.cli import main
from acenode.cli.progress import SeedsBar


def status(epoch: int, value: float | None) -> dict[str, Any]:
    return {"epoch": epoch, "epochs": 2, "metric": "accuracy", "validation": value, "best": value, "phase": "training",
            "seconds": 1.5 * epoch, "seconds_left": 3.0 - 1.5 * epoch, "progress": epoch / 2}


def test_seeds_that_train_together_share_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    with SeedsBar("three", False, [[0, 1, 2]], together=True) as bar:
        bar.show_seed(1, status(0, None))
        for epoch, order in ((1, (1, 0, 2)), (2, (2, 1, 0))):
            for seed in order:
                bar.show_seed(seed, status(epoch, 0.25 + seed / 8))
    found = capsys.readouterr()
    assert found.out == "three\n"
    assert found.err == ("epoch 1/2: validation accuracy 0.2500, 0.3750, 0.5000 (seeds 0, 1, 2), 1.5 s, 2 s left\n"
                         "epoch 2/2: validation accuracy 0.2500, 0.3750, 0.5000 (seeds 0, 1, 2), 3.0 s\n")


def test_a_seed_that_fails_does_not_hold_back_the_others(capsys: pytest.CaptureFixture[str]) -> None:
    with SeedsBar("two", False, [[0, 1, 2]], together=True) as bar:
        for epoch in (1, 2):
            for seed in (0, 2):
                bar.show_seed(seed, status(epoch, 0.5))
    assert [line.partition("),")[0] for line in capsys.readouterr().err.splitlines()] == [
        f"epoch {epoch}/2: validation accuracy 0.5000, 0.5000 (seeds 0, 2" for epoch in (1, 2)]


def test_seeds_that_train_one_after_another_each_have_a_line(tmp_path: Path, few_digits: None,
                                                             capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "mnist", "--method", "resnet", "--seeds", "0-1", "--epochs", "1", "--device", "cpu",
                 "--set", "batch_size=512", "--set", "snapshots=2", "--set", "analysis=false"]) == 0
    found = capsys.readouterr()
    assert "seeds 0, 1\n" in found.out
    lines = [line for line in found.err.splitlines() if line.startswith("epoch ")]
    assert [line.partition("(")[2].partition(")")[0] for line in lines] == ["seed 0", "seed 1"]
