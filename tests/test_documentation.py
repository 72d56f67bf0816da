"""README and docs: their examples run, their commands and settings exist, their quotations are up to date."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from acenode.cli.parser import make_parser
from acenode.config import SETTINGS
from acenode.player.snapshots import WORDS
from acenode.training.task import Loss, Metric, ParameterGroups, Recipe, SilentListener
from acenode.training.trainer import Trainer

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
PAGES = {page.name: page.read_text() for page in (ROOT / "docs").glob("*.md")}
EVERYTHING = {"README.md": README, **PAGES}


def blocks(text: str, language: str) -> list[str]:
    """Return the fenced code blocks of that language."""
    return re.findall(rf"```{language}\n(.*?)```", text, re.S)


def run(code: str) -> dict[str, Any]:
    scope: dict[str, Any] = {}
    exec(code, scope)
    return scope


def test_readme_is_short() -> None:
    assert len(README.split()) < 900


def test_readme_example_runs() -> None:
    (example,) = blocks(README, "python")
    scope = run(example)
    assert scope["trajectory"].h.shape == (11, 16, 4)
    assert scope["trajectory"].a.shape == (11, 16, 4, 4)
    assert torch.allclose(scope["Pairwise"].weights(scope["trajectory"].a).sum(-1), torch.ones(11, 16, 4))
    assert all(p.grad is not None for p in scope["layer"].parameters())


def test_example_of_a_layer_runs() -> None:
    run(blocks(PAGES["own-model.md"], "python")[0])  # asserts its closed form


def test_example_of_an_event_runs() -> None:
    run(blocks(PAGES["own-model.md"], "python")[1])  # asserts its closed form


class LoopTask:
    """The model and data of the loop in own-model.md, for the trainer."""

    metric, iterations = Metric("mse", higher_is_better=False), 30

    def __init__(self, scope: dict[str, Any]) -> None:
        self.scope, self.layer = scope, scope["layer"]
        self.model = nn.ModuleList([scope["layer"], scope["read_out"]])

    def groups(self, detach_attention: bool) -> ParameterGroups:
        return ParameterGroups.split(self.model, [self.layer.g], self.layer.q, detach_attention)

    def batch(self, epoch: int, iteration: int) -> None: ...

    def loss(self, batch: None, *, detach_attention: bool) -> Loss:
        return Loss(self.scope["task_loss"](), {})

    @torch.no_grad()
    def evaluate(self, split: str) -> dict[str, float]:
        return {"mse": float(self.scope["task_loss"]())}


def test_example_of_a_loop_trains_as_the_trainer_does() -> None:
    definitions, loop = blocks(PAGES["own-model.md"], "python")[2].split("for step in range(30):")
    by_loop, by_trainer = run(f"{definitions}for step in range(30):{loop}"), run(definitions)
    task = LoopTask(by_trainer)
    before = task.evaluate("validation")["mse"]
    Trainer(task, Recipe(1, 0.01, lambda p, rate, _: torch.optim.Adam(p, rate), penalty_weight=1e-3),
            SilentListener()).run()
    assert LoopTask(by_loop).evaluate("validation")["mse"] < before / 2
    for name, p in LoopTask(by_loop).model.named_parameters():
        assert torch.allclose(p, task.model.get_parameter(name), atol=1e-5), name


def test_example_of_sporadic_observations_runs() -> None:
    scope = run(blocks(PAGES["own-model.md"], "python")[3])
    assert scope["forecast"].mean.shape == (2, 3, 2)
    assert (scope["h"].shape, scope["a"].shape) == ((3, 2, 16), (3, 2, 16, 16))
    assert torch.isfinite(scope["loss"])
    assert all(p.grad is not None for p in scope["model"].parameters())


def test_example_of_influence_runs() -> None:
    (example,) = [block for block in blocks(PAGES["named.md"], "python") if "influence" in block]
    trained = next((ROOT / "runs" / "paper").glob("la-speeds-ace-*"))
    scope = run(example.replace('"last"', repr(str(trained))))
    assert scope["scores"].keys() == {"attention", "influence"}
    assert scope["jam"].difference.shape[1] == 8


def test_the_tunnel_is_shown_before_an_open_address() -> None:
    for text in (README, PAGES["app.md"]):
        assert text.index("ssh -L") < f"{text} --address".index("--address")


def test_exit_codes_are_listed() -> None:
    assert re.findall(r"^\| (\d+) \|", PAGES["command-line.md"], re.M) == ["0", "1", "2", "130"]


def test_quoted_source_is_up_to_date() -> None:
    """What extending.md shows of the source stands there word for word."""
    quoted = blocks(PAGES["extending.md"], "python")
    assert len(quoted) >= 4
    files = [*(ROOT / "acenode" / "experiments").glob("*.py"), *(ROOT / "pages").glob("*.py")]
    sources = [" ".join(file.read_text().split()) for file in files]
    for block in quoted:
        assert any(" ".join(block.split()) in source for source in sources), block


def test_units_of_time_are_listed() -> None:
    (listed,) = re.findall(r"such as `hours` \((.*?) are written out\)", " ".join(PAGES["extending.md"].split()))
    assert set(re.findall(r"`(\w+)`", listed)) == set(WORDS)


def test_all_files_of_methods_are_named() -> None:
    for path in (ROOT / "acenode" / "experiments").glob("*_methods.py"):
        assert path.name in PAGES["extending.md"]


@pytest.mark.parametrize("name", sorted(EVERYTHING))
def test_commands_parse(name: str) -> None:
    for line in re.findall(r"^(?:\.venv/bin/)?acenode ([^#\n]*)", EVERYTHING[name], re.M):
        make_parser().parse_args(line.split())


def test_commands_are_shown() -> None:
    assert len(re.findall(r"^\.venv/bin/acenode ", README, re.M)) >= 5
    assert len(re.findall(r"^acenode ", PAGES["command-line.md"], re.M)) >= 5


def test_settings_exist() -> None:
    table = PAGES["concepts.md"].split("| key | values |")[1]
    keys = {key for row in re.findall(r"^\| (`.*?`) \|", table, re.M) for key in re.findall(r"`(\w+)`", row)}
    assert {"attention", "schedule", "solver"} <= keys <= set(SETTINGS)


@pytest.mark.parametrize("name", sorted(EVERYTHING))
def test_pictures_and_links_lead_somewhere(name: str) -> None:
    folder = ROOT if name == "README.md" else ROOT / "docs"
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", EVERYTHING[name]):
        assert (folder / target).exists(), f"{name}: {target}"


def test_named_modules_exist() -> None:
    """Every `folder/file.py` and acenode module that the documents name is there."""
    for name, text in EVERYTHING.items():
        for path in re.findall(r"`((?:acenode|app|tests|pages)/[\w/]+\.py)`", text):
            assert (ROOT / path).exists(), f"{name}: {path}"
        folders = "training|execution|accelerate|ode|data|experiments|runs|results"
        for path in re.findall(rf"`((?:{folders})/[\w/]+\.py)`", text):
            assert (ROOT / "acenode" / path).exists(), f"{name}: {path}"


def test_import_needs_no_more_than_torch_and_numpy() -> None:
    """torchdiffeq itself is imported by the first solve that uses it, because it imports SciPy."""
    heavy = ("scipy", "sklearn", "torchdiffeq", "torchvision", "plotly", "streamlit", "pandas", "tqdm", "safetensors")
    code = ("import torch, sys; before = set(sys.modules); import acenode; "
            f"print([m for m in {heavy} if m in set(sys.modules) - before])")
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


@pytest.mark.parametrize("word", ["TODO", "FIXME", "XXX"])
def test_nothing_unfinished_is_left(word: str) -> None:
    assert not [name for name, text in EVERYTHING.items() if word in text]
