"""README's promises: its example runs, its commands exist, importing is light."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from acenode.cli import _parser
from acenode.config import SETTINGS

README = (Path(__file__).parents[1] / "README.md").read_text()


def test_the_example_runs() -> None:
    scope = run_example(0)
    assert scope["trajectory"].h.shape == (11, 16, 4)
    assert scope["trajectory"].a.shape == (11, 16, 4, 4)
    assert torch.allclose(scope["Pairwise"].weights(scope["trajectory"].a).sum(-1), torch.ones(11, 16, 4))
    assert all(p.grad is not None for p in scope["layer"].parameters())


def test_the_example_of_sporadic_series_runs() -> None:
    scope = run_example(1)
    assert scope["said"].mean.shape == (2, 3, 2)
    assert (scope["h"].shape, scope["a"].shape) == ((3, 2, 16), (3, 2, 16, 16))
    assert torch.isfinite(scope["loss"])
    assert all(p.grad is not None for p in scope["model"].parameters())


def run_example(n: int) -> dict:
    scope: dict = {}
    exec(re.findall(r"```python\n(.*?)```", README, re.S)[n], scope)
    return scope


def test_its_commands_are_understood() -> None:
    lines = re.findall(r"^\.venv/bin/acenode ([^#\n]*)", README, re.M)
    assert len(lines) >= 5
    for line in lines:
        _parser().parse_args(line.split())


def test_its_settings_exist() -> None:
    table = README.split("| key | values |")[1].split("\n\n")[0]
    keys = {key for row in re.findall(r"^\| (`.*?`) \|", table, re.M) for key in re.findall(r"`(\w+)`", row)}
    assert keys
    assert keys <= set(SETTINGS)


def test_its_pictures_are_there() -> None:
    for name in re.findall(r"!\[.*?\]\((.*?)\)", README):
        assert (Path(__file__).parents[1] / name).exists()


def test_import_needs_no_more_than_torch_and_numpy() -> None:
    """torchdiffeq itself comes with the first solve that wants it, since it brings SciPy."""
    heavy = ("scipy", "sklearn", "torchdiffeq", "torchvision", "plotly", "streamlit", "pandas", "tqdm", "safetensors")
    code = ("import torch, sys; before = set(sys.modules); import acenode; "
            f"print([m for m in {heavy} if m in set(sys.modules) - before])")
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


@pytest.mark.parametrize("word", ["TODO", "FIXME", "BENCH\n"])
def test_nothing_unfinished_is_left(word: str) -> None:
    assert word not in README
