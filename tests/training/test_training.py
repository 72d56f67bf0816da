"""Algorithm 1: who is updated when, by which gradient; validation, best parameters, the test set."""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from problems import relative
from quick import QUICK
from torch import Tensor, nn

from acenode import UserError, experiments
from acenode.data.batches import DeviceImages
from acenode.execution.execute import create, execute
from acenode.experiments import image_task
from acenode.experiments.base import recipe_of
from acenode.experiments.image_task import ImageTask
from acenode.runs.store import RunStore
from acenode.training.passes import norm_of
from acenode.training.task import Groups, Loss, Metric, Recipe
from acenode.training.trainer import Trainer, TrainingError

RATE, WEIGHT = 0.1, 0.03


class Toy:
    """L = ½(θ_f θ_g x − y)²: gradients by hand. It counts what it is asked."""

    metric = Metric("error", higher_is_better=False)
    iterations = 3

    def __init__(self) -> None:
        self.model = nn.ParameterDict({"f": torch.tensor([0.5, -0.3]), "g": torch.tensor([0.7, 0.2])}).double()
        self.asked: list[str] = []
        self.validation = iter([3.0, 1.0, 2.0, 4.0])

    def groups(self, detach_attention: bool) -> Groups:
        return Groups([self.model["f"]], [self.model["g"]], [self.model["g"]])

    def batch(self, epoch: int, iteration: int) -> Tensor:
        return torch.tensor([1.0 + epoch, 2.0 - iteration], dtype=torch.float64)

    def loss(self, batch: Tensor, *, detach_attention: bool) -> Loss:
        f, g = self.model["f"], self.model["g"].detach() if detach_attention else self.model["g"]
        self.asked.append("main" if f.requires_grad and not self.model["g"].requires_grad else
                          "attention" if not f.requires_grad else "both")
        return Loss(0.5 * ((f * g * batch).sum() - 1).square(), {})

    def evaluate(self, split: str) -> dict[str, float]:
        self.asked.append(split)
        return {"error": next(self.validation)}


class Ear:
    def __init__(self, stop_at: int | None = None) -> None:
        self.records: list[dict[str, Any]] = []
        self.epochs: list[dict[str, Any]] = []
        self.states: list[dict[str, Any]] = []
        self.stop_at, self.asked = stop_at, 0

    def stop_asked(self) -> bool:
        self.asked += 1
        return self.stop_at is not None and self.asked > self.stop_at

    def steps(self, records: list[dict[str, Any]]) -> None:
        self.records += records

    def epoch(self, record: dict[str, Any]) -> None:
        self.epochs.append(record)

    def checkpoint(self, state: dict[str, Any]) -> None:
        self.states.append(state)

    def checkpoint_due(self) -> bool:
        return False


def trainer(epochs: int = 1, ear: Ear | None = None, **settings: Any) -> Trainer:
    def sgd(parameters: Any, lr: float, is_attention: bool) -> torch.optim.Optimizer:
        return torch.optim.SGD(parameters, lr=lr)

    recipe = Recipe(epochs, RATE, sgd, **{"penalty": "l2", "penalty_weight": WEIGHT, **settings})
    return Trainer(Toy(), recipe, ear or Ear())


def by_hand(schedule: str, iterations: int = 3) -> tuple[Tensor, Tensor]:
    f, g = (torch.tensor(v, dtype=torch.float64) for v in ([0.5, -0.3], [0.7, 0.2]))
    for i in range(iterations):
        x = torch.tensor([1.0, 2.0 - i], dtype=torch.float64)
        if schedule == "joint":
            slope = (f * g * x).sum() - 1
            f, g = f - RATE * slope * g * x, g - RATE * (slope * f * x + WEIGHT * g / g.norm())
            continue
        f = f - RATE * ((f * g * x).sum() - 1) * g * x  # phase two sees this update
        g = g - RATE * (((f * g * x).sum() - 1) * f * x + WEIGHT * g / g.norm())
    return f, g


@pytest.mark.parametrize("schedule", ["alternating", "joint"])
def test_updates_are_those_of_the_algorithm(schedule: str) -> None:
    t = trainer(schedule=schedule)
    t.run()
    f, g = by_hand(schedule)
    assert relative(t.task.model["f"], f) < 1e-6  # type: ignore[index]
    assert relative(t.task.model["g"], g) < 1e-6  # type: ignore[index]


def test_a_schedule_by_epochs_needs_two() -> None:
    with pytest.raises(UserError, match="at least 2 epochs"):
        trainer(epochs=1, schedule="epoch")


def test_phases_fix_the_other_group() -> None:
    t = trainer()
    t.run()
    assert t.task.asked == ["main", "attention"] * 3 + ["validation"]  # type: ignore[attr-defined]
    t = trainer(epochs=2, schedule="epoch")
    t.run()
    assert t.task.asked == ["main"] * 3 + ["validation"] + ["attention"] * 3 + ["validation"]  # type: ignore[attr-defined]


@pytest.mark.parametrize(("kind", "expected"), [("l1", 0.9), ("l2", (0.49 + 0.04) ** 0.5)])
def test_penalty_is_the_norm_of_all_of_theta_g(kind: str, expected: float) -> None:
    split = [nn.Parameter(torch.tensor([0.7])), nn.Parameter(torch.tensor([-0.2]))]
    assert norm_of(split, kind).item() == pytest.approx(expected)
    ear = Ear()
    t = trainer(ear=ear, penalty=kind)
    plain = Ear()
    trainer(ear=plain, penalty="none").run()
    t.run()
    assert ear.records[0]["L_a"] - plain.records[0]["L_a"] == pytest.approx(WEIGHT * expected)


def test_validation_keeps_the_best_and_never_reads_the_test_set() -> None:
    ear = Ear()
    t = trainer(epochs=4, ear=ear)
    t.run()
    assert t.best.value == 1.0
    assert t.best.epoch == 1
    assert [e["best"] for e in ear.epochs] == [True, True, False, False]
    assert t.best.model is not None
    assert not torch.equal(t.best.model["f"], t.task.model["f"])  # type: ignore[index]
    assert "test" not in t.task.asked  # type: ignore[attr-defined]


def test_stopping_and_going_on_changes_nothing() -> None:
    whole, part = Ear(), Ear(stop_at=5)  # asked before every iteration and every validation
    uninterrupted = trainer(epochs=3, ear=whole)
    uninterrupted.run()
    first = trainer(epochs=3, ear=part)
    assert first.run() is False
    assert (first.epoch, first.iteration) == (1, 1)
    again = trainer(epochs=3, ear=part)
    again.task.validation = iter([1.0, 2.0])  # type: ignore[attr-defined]
    again.load_state_dict(part.states[-1])
    part.stop_at = None
    assert again.run() is True
    strip = [{k: v for k, v in r.items() if k != "seconds"} for r in whole.records]
    assert strip == [{k: v for k, v in r.items() if k != "seconds"} for r in part.records]
    assert torch.equal(again.task.model["g"], uninterrupted.task.model["g"])  # type: ignore[index]


def records_of(ear: Ear) -> list[dict[str, Any]]:
    return [{k: v for k, v in r.items() if k not in ("seconds", "elapsed")} for r in ear.records + ear.epochs]


@pytest.mark.parametrize("how", ["dies", "is stopped before", "is stopped within"])
def test_an_epoch_whose_validation_does_not_end_is_not_lost(how: str) -> None:
    """Its checkpoint is there before validation begins, so no iteration is done twice."""
    whole, part = Ear(), Ear(stop_at=7 if how == "is stopped before" else None)
    trainer(epochs=3, ear=whole).run()
    first = trainer(epochs=3, ear=part)
    evaluate, seen = first.task.evaluate, []

    def ends_early(split: str) -> dict[str, float]:
        seen.append(split)
        if len(seen) < 2:
            return evaluate(split)
        if how == "dies":
            raise InterruptedError
        return {}

    first.task.evaluate = ends_early  # type: ignore[method-assign]
    with contextlib.suppress(InterruptedError):
        assert first.run() is False
    assert (first.epoch, first.iteration, len(part.epochs)) == (1, 3, 1)
    again = trainer(epochs=3, ear=part)
    again.task.validation = iter([1.0, 2.0])  # type: ignore[attr-defined]
    again.load_state_dict(part.states[-1])
    part.stop_at = None
    assert again.run() is True
    assert again.task.asked.count("main") == 3  # type: ignore[attr-defined]
    assert records_of(part) == records_of(whole)
    assert again.best.value == 1.0


def test_an_evaluation_of_images_stops_between_its_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stopped in validation and in testing, and resumed: the numbers of a run that never was."""
    monkeypatch.setattr(image_task, "EVALUATION_BATCH", 50)
    quick = {**QUICK, "epochs": 2, "solver": "rk4", "step_size": 0.5}
    store, settings = RunStore(tmp_path), experiments.get("mnist").configure("odenet", **quick)
    whole, part = create(store, settings), create(store, settings)
    assert execute(whole, tmp_path).state == "finished"
    evaluate, take = ImageTask.evaluate, DeviceImages.take
    stop, asked, wanted = threading.Event(), list[str](), "validation"

    def told(self: ImageTask, split: str) -> dict[str, float]:
        asked.append(split)
        found = evaluate(self, split)
        asked[-1] += "" if found else " given up"
        return found

    def counted(self: DeviceImages, rows: Any) -> Any:
        if asked[-1] == wanted:
            stop.set()
        return take(self, rows)

    monkeypatch.setattr(ImageTask, "evaluate", told)
    monkeypatch.setattr(DeviceImages, "take", counted)
    assert execute(part, tmp_path, stop=stop).state == "stopped"
    assert asked == ["validation given up"]
    stop.clear()
    asked, wanted = [], "test"
    assert execute(part, tmp_path, stop=stop).state == "stopped"
    assert asked == ["validation", "validation", "test given up"]
    assert part.result() is None
    stop.clear()
    asked, wanted = [], "nothing"
    assert execute(part, tmp_path, stop=stop).state == "finished"
    assert asked == ["test", "test"]
    first, second = ([{k: v for k, v in r.items() if k not in ("seconds", "elapsed")} for r in run.metrics()[0]]
                     for run in (part, whole))
    assert first == second
    for key in ("test", "test_last", "confusion"):
        assert part.result()[key] == whole.result()[key]  # type: ignore[index]


def test_learning_rate_follows_the_schedule() -> None:
    ear = Ear()
    trainer(epochs=2, ear=ear, rate=lambda progress: 0.1 if progress >= 0.5 else 1.0).run()
    assert [r["lr"] for r in ear.records] == pytest.approx([RATE] * 3 + [RATE / 10] * 3)


@pytest.mark.parametrize(("remedy", "said"), [("", ""), ("lower step_size", " or lower step_size")])
def test_a_loss_that_is_not_finite_ends_training_in_words(remedy: str, said: str) -> None:
    ear = Ear()
    t = trainer(ear=ear, remedy=remedy)
    t.task.batch = lambda epoch, iteration: torch.tensor([torch.nan, 1.0]).double()  # type: ignore[method-assign]
    with pytest.raises(TrainingError, match=rf"L_h became nan at step 0: lower the learning rate \(now 0\.1\){said}$"):
        t.run()
    assert ear.states == []  # the last good checkpoint stays


@pytest.mark.parametrize(("experiment", "method", "given", "remedy"), [
    ("mnist", "ace", {}, "tighten rtol and atol"),
    ("mnist", "ace", {"solver": "rk4", "step_size": 0.1}, "lower step_size (now 0.1)"),
    ("mnist", "resnet", {}, ""),
    ("ushcn", "ace", {}, "lower step_size (now 0.5)"),
    ("ushcn", "gru-simple", {}, ""),
])
def test_the_advice_names_what_a_run_has(experiment: str, method: str, given: dict, remedy: str) -> None:
    config = experiments.get(experiment).configure(method, **given)
    assert recipe_of(config, torch.optim.SGD, lambda progress: 1.0).remedy == remedy


def test_gradient_norms_are_reported() -> None:
    ear = Ear()
    trainer(ear=ear).run()
    slope = 0.5 * 0.7 - 0.3 * 0.2 * 2 - 1
    assert ear.records[0]["grad_h"] == pytest.approx(abs(slope) * (0.7**2 + 0.4**2) ** 0.5)
    assert {"L_h", "L_a", "grad_h", "grad_a", "lr", "seconds", "step", "epoch"} <= ear.records[0].keys()
