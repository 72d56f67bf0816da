"""README and docs: examples run, commands and settings exist, quotations and figures are up to date."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from acenode.cli.parser import make_parser
from acenode.compare import against_host, verdict
from acenode.compare.against_host import contests
from acenode.compare.cells import measure_all
from acenode.config import SETTINGS
from acenode.experiments.forecast_task import ObservedTargets
from acenode.player.snapshots import WORDS
from acenode.runs.catalogue import Catalogue
from acenode.runs.recorded import recorded_runs
from acenode.runs.store import RunStore
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


def test_readme_example_runs() -> None:
    (example,) = blocks(README, "python")
    scope = run(example)
    assert scope["trajectory"].h.shape == (11, 16, 4)
    assert scope["trajectory"].a.shape == (11, 16, 4, 4)
    assert torch.allclose(scope["Pairwise"].weights(scope["trajectory"].a).sum(-1), torch.ones(11, 16, 4))
    assert all(p.grad is not None for p in scope["layer"].parameters())


def test_examples_of_a_layer_and_of_an_event_run() -> None:
    for example in blocks(PAGES["own-model.md"], "python")[:2]:
        run(example)  # asserts its closed form


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


@pytest.mark.parametrize("name", sorted(EVERYTHING))
def test_commands_parse(name: str) -> None:
    for line in re.findall(r"^(?:\.venv/bin/)?acenode ([^#\n]*)", EVERYTHING[name], re.M):
        make_parser().parse_args(line.split())


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
        folders = "training|execution|accelerate|ode|data|experiments|runs|compare|player|search"
        for path in re.findall(rf"`((?:{folders})/[\w/]+\.py)`", text):
            assert (ROOT / "acenode" / path).exists(), f"{name}: {path}"
        for module, names in re.findall(r"^from (acenode[\w.]*) import (.+)$", text, re.M):
            for one in names.split(", "):
                assert hasattr(importlib.import_module(module), one), f"{name}: {module}.{one}"


def findings() -> list[verdict.Contest]:
    folder = recorded_runs()
    assert folder is not None
    entries = Catalogue(RunStore(folder, folder)).entries()
    return [verdict.judge(contest) for contest in contests(measure_all(entries))]


def test_readme_and_results_give_the_answer_of_the_recorded_runs() -> None:
    found = findings()
    answer = f"{against_host.summary(found)} {against_host.prediction_note(found)}".strip()
    for name in ("README.md", "docs/results.md"):
        text = (ROOT / name).read_text(encoding="utf-8").replace("**", "")
        assert answer in " ".join(text.split()), f"{name} should say: {answer}"


def test_results_have_the_table_of_comparisons() -> None:
    rows = against_host.table(findings())
    lines = [list(rows[0]), ["---"] * len(rows[0]), *(list(row.values()) for row in rows)]
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    assert table in (ROOT / "docs" / "results.md").read_text(encoding="utf-8"), f"docs/results.md should have\n{table}"


def test_other_draws_of_the_targets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two series with five times each, one value a time; the k-th squared error is k²."""
    series, k = np.repeat([0, 1], 5), np.tile(np.arange(5.0), 2)
    at = ObservedTargets(series, np.zeros(10, int), 150 + k, k, np.zeros(10))
    monkeypatch.syspath_prepend(ROOT / "docs")
    redraw = importlib.import_module("ushcn_errors").redraw
    assert redraw(at, 3, draws=4) == pytest.approx((0 + 1 + 4) / 3)  # three of the first three: no choice
    among_all = redraw(at, 100, draws=4000)
    assert among_all.mean() == pytest.approx(np.mean(k**2), rel=0.02)
    assert among_all.min() >= 5 / 3


def test_links_above_a_strength(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Three variables: the strong link is found by the attention, the weak ones are not; and the recorded runs."""
    monkeypatch.syspath_prepend(ROOT / "docs")
    module = importlib.import_module("named_links")
    result = {"coupling": {"known": [[0, 0.9, 0.2], [0, 0, 0.3], [0, 0, 0]]},
              "attention": {"mean": [[0, 3, 0], [1, 0, 0], [1, 1, 0]]}}
    assert module.scores(result, 0.5) == {"attention": 1.0}
    assert module.scores(result, 0.0)["attention"] == pytest.approx(1 / 3)
    monkeypatch.setattr(sys, "argv", ["named_links.py"])
    module.main()
    out = capsys.readouterr().out
    assert "correlation: 0.900" in out
    assert "ace, 3 runs: attention 0.821, influence 0.831" in out
