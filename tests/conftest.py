"""Fixtures of all tests: separate folders for runs and data, and short training runs; puts the helpers on the path."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
os.environ["ACENODE_RECORDED"] = ""  # tests, and the servers they start, read recorded runs only where they say so

from quick_settings import quick_settings

from acenode import experiments
from acenode.bench.browser import browser
from acenode.data.images import ImageArrays, digits
from acenode.errors import UserError
from acenode.execution.execute import Outcome, create, execute
from acenode.runs.store import RunStore

FEWER = 4  # one digit of so many


@pytest.fixture(autouse=True)
def _own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACENODE_RUNS", str(tmp_path / "runs"))
    if "ACENODE_DATA" not in os.environ:  # set to run the tests on real data
        monkeypatch.setenv("ACENODE_DATA", str(tmp_path / "data"))


@pytest.fixture
def exact(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make convolutions on a GPU deterministic and in full single precision (no TF32)."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    monkeypatch.setattr(torch.backends.cudnn, "deterministic", True)


@pytest.fixture(scope="session")
def chrome() -> Iterator[Any]:
    """Start the one browser that all tests of a process share, or skip the test if there is none."""
    try:
        with browser() as found:
            yield found
    except UserError as error:
        pytest.skip(str(error))


@pytest.fixture
def few_digits() -> Iterator[None]:
    """Make the sample of an image set every fourth digit of it."""
    def fewer(colour: bool = False, seed: int = 0) -> ImageArrays:
        d = digits(colour, seed)
        return ImageArrays(d.x_train[::FEWER], d.y_train[::FEWER], d.x_test[::FEWER], d.y_test[::FEWER], d.classes)

    with pytest.MonkeyPatch.context() as patch:  # of its own: a test may undo its changes
        patch.setattr("acenode.experiments.images.digits", fewer)
        yield


@pytest.fixture
def train(tmp_path: Path, few_digits: None) -> Callable[..., Outcome]:
    """Train quickly on a quarter of the bundled digits: train("ace", attention="fixed")."""

    def go(method: str, experiment: str = "mnist", store: Path | None = None, **given: Any) -> Outcome:
        config = experiments.get(experiment).configure(method, **quick_settings(method, {"batch_size": 128} | given))
        return execute(create(RunStore(store or tmp_path / "runs"), config), tmp_path / "data")

    return go


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if not torch.cuda.is_available():
        for item in items:
            if item.get_closest_marker("cuda"):
                item.add_marker(pytest.mark.skip(reason="no CUDA device"))
