"""Algorithm 1: which parameters each phase updates and by which gradient; validation, best parameters, stopping."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
import torch
from problems import relative
from torch import Tensor, nn

from acenode import UserError, experiments
from acenode.experiments.base import recipe_of
from acenode.training.task import Loss, Metric, ParameterGroups, Recipe, SilentListener
from acenode.training.trainer import Trainer, TrainingError, parameter_norm

RATE, WEIGHT = 0.1, 0.03


class Toy:
    """L = ½(θ_f θ_g x − y)², whose gradients are simple; records which group trains and which split is evaluated."""

    metric = Metric("error", higher_is_better=False)
    iterations = 3

    def __init__(self) -> None:
        self.model = nn.ParameterDict({"f": torch.tensor([0.5, -0.3]), "g": torch.tensor([0.7, 0.2])}).double()
        self.asked: list[str] = []
        self.validation = iter([3.0, 1.0, 2.0, 4.0])

    def groups(self, detach_attention: bool) -> ParameterGroups:
        return ParameterGroups([self.model["f"]], [self.model["g"]], [self.model["g"]])

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


class RecordingListener(SilentListener):
    """Keeps everything the trainer reports; asks to stop after `stop_at` checks."""

    def __init__(self, stop_at: int | None = None) -> None:
        self.records: list[dict[str, Any]] = []
        self.epochs: list[dict[str, Any]] = []
        self.states: list[dict[str, Any]] = []
        self.stop_at, self.asked = stop_at, 0

    def stop_requested(self) -> bool:
        self.asked += 1
        return self.stop_at is not None and self.asked > self.stop_at

    def on_steps(self, records: list[dict[str, Any]]) -> None:
        self.records += records

    def on_epoch(self, record: dict[str, Any]) -> None:
        self.epochs.append(record)

    def on_checkpoint(self, state: dict[str, Any]) -> None:
        self.states.append(state)


def trainer(epochs: int = 1, listener: RecordingListener | None = None, **settings: Any) -> Trainer:
    def sgd(parameters: Any, lr: float, is_attention: bool) -> torch.optim.Optimizer:
        return torch.optim.SGD(parameters, lr=lr)

    recipe = Recipe(epochs, RATE, sgd, **{"penalty": "l2", "penalty_weight": WEIGHT, **settings})
    return Trainer(Toy(), recipe, listener or RecordingListener())


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
def test_updates_follow_algorithm_1(schedule: str) -> None:
    t = trainer(schedule=schedule)
    t.run()
    f, g = by_hand(schedule)
    assert relative(t.task.model["f"], f) < 1e-6  # type: ignore[index]
    assert relative(t.task.model["g"], g) < 1e-6  # type: ignore[index]


@pytest.mark.parametrize(("setting", "allowed"), [
    ({"schedule": "alternate"}, "schedule has no value 'alternate': choose one of alternating, joint, epoch"),
    ({"penalty": "L2"}, "penalty has no value 'L2': choose one of l1, l2, none"),
    ({"schedule": "epoch"}, "at least 2 epochs"),
])
def test_a_wrong_recipe_is_refused(setting: dict[str, str], allowed: str) -> None:
    with pytest.raises(UserError, match=allowed):
        trainer(**setting)


def test_each_phase_fixes_the_other_parameters() -> None:
    t = trainer()
    t.run()
    assert t.task.asked == ["main", "attention"] * 3 + ["validation"]  # type: ignore[attr-defined]
    t = trainer(epochs=2, schedule="epoch")
    t.run()
    assert t.task.asked == ["main"] * 3 + ["validation"] + ["attention"] * 3 + ["validation"]  # type: ignore[attr-defined]


@pytest.mark.parametrize(("kind", "expected"), [("l1", 0.9), ("l2", (0.49 + 0.04) ** 0.5)])
def test_penalty_is_the_norm_of_all_entries_of_theta_g(kind: str, expected: float) -> None:
    split = [nn.Parameter(torch.tensor([0.7])), nn.Parameter(torch.tensor([-0.2]))]
    assert parameter_norm(split, kind).item() == pytest.approx(expected)
    listener = RecordingListener()
    t = trainer(listener=listener, penalty=kind)
    plain = RecordingListener()
    trainer(listener=plain, penalty="none").run()
    t.run()
    assert listener.records[0]["L_a"] - plain.records[0]["L_a"] == pytest.approx(WEIGHT * expected)


def test_validation_selects_the_best_epoch_and_the_test_set_is_not_read() -> None:
    listener = RecordingListener()
    t = trainer(epochs=4, listener=listener)
    t.run()
    assert t.best.value == 1.0
    assert t.best.epoch == 1
    assert [e["best"] for e in listener.epochs] == [True, True, False, False]
    assert t.best.model is not None
    assert not torch.equal(t.best.model["f"], t.task.model["f"])  # type: ignore[index]
    assert "test" not in t.task.asked  # type: ignore[attr-defined]


class Tied(Toy):
    """A toy whose error is the same from the second epoch on, while its loss falls, rises and is NaN."""

    metric = Metric("error", higher_is_better=False, tie_breaker="loss")

    def __init__(self, first: int = 0) -> None:
        super().__init__()
        pairs = [(2.0, 0.1), (1.0, 0.9), (1.0, 0.4), (1.0, 0.6), (1.0, float("nan")), (3.0, 0.0)]
        self.measured = iter(pairs[first:])

    def evaluate(self, split: str) -> dict[str, float]:
        return dict(zip(("error", "loss"), next(self.measured), strict=True))


def tied(listener: RecordingListener, first: int = 0) -> Trainer:
    return Trainer(Tied(first), Recipe(6, RATE, lambda p, lr, _: torch.optim.SGD(p, lr=lr)), listener)


def test_a_second_measure_decides_between_epochs_with_the_same_metric() -> None:
    listener = RecordingListener()
    t = tied(listener)
    t.run()
    assert [e["best"] for e in listener.epochs] == [True, True, True, False, False, False]
    assert (t.best.value, t.best.epoch) == (1.0, 2)


@pytest.mark.parametrize("metric", [
    Metric("acc"), Metric("error", selection="acc"), Metric("error", tie_breaker="acc")])
def test_a_metric_that_is_not_evaluated_is_named(metric: Metric, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Tied, "metric", metric)
    with pytest.raises(UserError, match=r"^evaluate\('validation'\) returns no 'acc', .* it returns error, loss$"):
        tied(RecordingListener()).run()


@pytest.mark.parametrize(("known", "best"), [(True, 2), (False, 3)])
def test_a_resumed_run_knows_the_second_measure_of_its_best_epoch(known: bool, best: int) -> None:
    """With a checkpoint that lacks it, the first equal epoch whose second measure is known is better."""
    part = RecordingListener(stop_at=4 * 3)  # in the fourth epoch, after the best one
    assert tied(part).run() is False
    assert part.states[-1]["best"]["epoch"] == 2
    if not known:
        del part.states[-1]["best"]["tie"]
    again = tied(RecordingListener(), first=3)
    again.load_state_dict(part.states[-1])
    assert again.run() is True
    assert again.best.epoch == best


def records_of(listener: RecordingListener) -> list[dict[str, Any]]:
    return [{k: v for k, v in r.items() if k not in ("seconds", "elapsed")} for r in listener.records + listener.epochs]


def resumed(part: RecordingListener) -> Trainer:
    """Finish a training of three epochs that was interrupted in the second one."""
    again = trainer(epochs=3, listener=part)
    again.task.validation = iter([1.0, 2.0])  # type: ignore[attr-defined]
    again.load_state_dict(part.states[-1])
    part.stop_at = None
    assert again.run() is True
    return again


def test_stopped_and_resumed_training_gives_the_same_numbers() -> None:
    whole, part = RecordingListener(), RecordingListener(stop_at=5)  # checked before every iteration and validation
    uninterrupted = trainer(epochs=3, listener=whole)
    uninterrupted.run()
    first = trainer(epochs=3, listener=part)
    assert first.run() is False
    assert (first.epoch, first.iteration) == (1, 1)
    again = resumed(part)
    assert records_of(part) == records_of(whole)
    assert torch.equal(again.task.model["g"], uninterrupted.task.model["g"])  # type: ignore[index]


@pytest.mark.parametrize("how", ["crash", "stop before", "stop within"])
def test_interrupted_validation_loses_no_training(how: str) -> None:
    """A checkpoint is written even if validation fails, so no iteration is repeated."""
    whole, part = RecordingListener(), RecordingListener(stop_at=7 if how == "stop before" else None)
    trainer(epochs=3, listener=whole).run()
    first = trainer(epochs=3, listener=part)
    evaluate, seen = first.task.evaluate, []

    def ends_early(split: str) -> dict[str, float]:
        seen.append(split)
        if len(seen) < 2:
            return evaluate(split)
        if how == "crash":
            raise InterruptedError
        return {}

    first.task.evaluate = ends_early  # type: ignore[method-assign]
    with contextlib.suppress(InterruptedError):
        assert first.run() is False
    assert (first.epoch, first.iteration, len(part.epochs)) == (1, 3, 1)
    again = resumed(part)
    assert again.task.asked.count("main") == 3  # type: ignore[attr-defined]
    assert records_of(part) == records_of(whole)
    assert again.best.value == 1.0


def test_one_checkpoint_an_epoch_and_another_before_validation_if_it_is_due() -> None:
    listener = RecordingListener()
    trainer(epochs=2, listener=listener).run()
    assert [(s["epoch"], s["iteration"]) for s in listener.states] == [(1, 0), (2, 0)]
    listener = RecordingListener()
    listener.checkpoint_due = lambda: True  # type: ignore[method-assign]
    trainer(epochs=2, listener=listener).run()
    assert [(s["epoch"], s["iteration"]) for s in listener.states] == [(0, 3), (1, 0), (1, 3), (2, 0)]


@pytest.mark.parametrize("schedule", ["alternating", "joint"])
@pytest.mark.parametrize("frozen", ["f", "g"])
def test_frozen_parameters_stay_frozen(schedule: str, frozen: str) -> None:
    t = trainer(schedule=schedule)
    before = {name: p.detach().clone() for name, p in t.task.model.named_parameters()}
    t.task.model[frozen].requires_grad_(False)  # type: ignore[index]
    t.run()
    for name, p in t.task.model.named_parameters():
        assert p.requires_grad == (name != frozen)
        assert torch.equal(p, before[name]) == (name == frozen)
        assert (p.grad is None) == (name == frozen)


def test_training_with_everything_frozen_is_refused() -> None:
    task = Toy()
    task.model.requires_grad_(False)
    with pytest.raises(UserError, match="every parameter is frozen: set requires_grad"):
        Trainer(task, Recipe(1, RATE, lambda p, lr, _: torch.optim.SGD(p, lr=lr)), RecordingListener())


def test_learning_rate_follows_the_schedule() -> None:
    listener = RecordingListener()
    trainer(epochs=2, listener=listener, rate=lambda progress: 0.1 if progress >= 0.5 else 1.0).run()
    assert [r["lr"] for r in listener.records] == pytest.approx([RATE] * 3 + [RATE / 10] * 3)


@pytest.mark.parametrize(("remedy", "advice"), [("", ""), ("lower step_size", " or lower step_size")])
def test_a_nan_loss_raises_an_error_with_advice(remedy: str, advice: str) -> None:
    listener = RecordingListener()
    t = trainer(listener=listener, remedy=remedy)
    t.task.batch = lambda epoch, iteration: torch.tensor([torch.nan, 1.0]).double()  # type: ignore[method-assign]
    expected = rf"L_h became nan at step 0: lower the learning rate \(now 0\.1\){advice}$"
    with pytest.raises(TrainingError, match=expected):
        t.run()
    assert listener.states == []  # the last good checkpoint stays


@pytest.mark.parametrize(("experiment", "method", "given", "remedy"), [
    ("mnist", "ace", {}, "tighten rtol and atol"),
    ("mnist", "ace", {"solver": "rk4", "step_size": 0.1}, "lower step_size (now 0.1)"),
    ("mnist", "resnet", {}, ""),
    ("ushcn", "ace", {}, "lower step_size (now 0.5)"),
    ("ushcn", "gru-simple", {}, ""),
])
def test_the_advice_names_settings_of_the_run(experiment: str, method: str, given: dict, remedy: str) -> None:
    config = experiments.get(experiment).configure(method, **given)
    assert recipe_of(config, torch.optim.SGD, lambda progress: 1.0).remedy == remedy
