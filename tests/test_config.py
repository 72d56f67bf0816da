"""Configurations: defaults, bounds, contradictions, JSON in and out."""

from __future__ import annotations

import pytest

from acenode import UserError, experiments
from acenode.config import FIELDS, SETTINGS, Config, parse

MNIST = experiments.get("mnist")


def test_the_papers_best_settings_are_the_defaults() -> None:
    for name, rate, tolerance, weight in (("mnist", 1e-2, 1e-4, 1e-4), ("svhn", 5e-2, 1e-5, 1e-3),
                                          ("cifar10", 1e-2, 1e-5, 1e-3)):
        c = experiments.get(name).configure("ace", "full")
        assert (c.learning_rate, c.rtol, c.atol, c.penalty_weight) == (rate, tolerance, tolerance, weight)
        assert (c.epochs, c.batch_size, c.solver, c.schedule) == (160, 128, "dopri5", "alternating")
        assert c.weight_decay == (1e-5 if name == "cifar10" else 0)
        assert experiments.get(name).configure("odenet", "full").weight_decay == 0


def test_round_trip() -> None:
    for method in MNIST.methods:
        config = MNIST.configure(method, seed=3, device="cpu")
        assert Config.from_dict(config.to_dict()) == config


def test_settings_without_a_meaning_are_absent() -> None:
    assert MNIST.configure("resnet").solver is None
    assert MNIST.configure("odenet").attention is None
    assert MNIST.configure("ace", attention="fixed").schedule is None
    assert MNIST.configure("ace", attention="none").initial is None
    assert MNIST.configure("ace", attention="none").q_layers is None
    assert MNIST.configure("odenet", solver="rk4").rtol is None
    assert MNIST.configure("odenet", solver="rk4").step_size == 0.1
    assert MNIST.configure("ace", penalty="none").penalty_weight is None


@pytest.mark.parametrize(("method", "given", "words"), [
    ("resnet", {"attention": "fixed"}, "attention has no meaning for resnet in mnist"),
    ("odenet", {"penalty": "l1"}, "penalty has no meaning for odenet"),
    ("ace", {"attention": "fixed", "penalty": "l1"}, "penalty has no meaning with attention=fixed"),
    ("ace", {"attention": "none", "q_layers": 1}, "q_layers has no meaning with initial=none"),
    ("ace", {"solver": "rk4", "rtol": 1e-3}, "rtol has no meaning with solver=rk4"),
    ("ace", {"step_size": 0.1}, "step_size has no meaning with solver=dopri5"),
    ("ace", {"seminorm": True}, "seminorm has no meaning with gradient=backprop"),
    ("ace", {"attention": "frozen"}, "attention has no value 'frozen': choose one of evolving, fixed, none"),
    ("ace", {"epochs": 0}, "epochs must be at least 1"),
    ("ace", {"learning_rate": 0.0}, "learning_rate must be above 0"),
    ("ace", {"learning_rate": float("nan")}, "learning_rate must be a finite number"),
    ("ace", {"epochs": 1.5}, "epochs must be a whole number"),
    ("ace", {"seed": -1}, "seed must be at least 0"),
    ("ace", {"atention": "fixed"}, "no setting 'atention': did you mean attention"),
    ("transformer", {}, "mnist has no method 'transformer': choose one of resnet"),
])
def test_contradictions_and_bounds(method: str, given: dict, words: str) -> None:
    with pytest.raises(UserError, match=words):
        MNIST.configure(method, **given)


@pytest.mark.parametrize(("key", "text", "value"), [
    ("epochs", "3", 3), ("rtol", "1e-3", 1e-3), ("seminorm", "yes", True), ("attention", "fixed", "fixed"),
    ("detach_attention", "false", False),
])
def test_parse(key: str, text: str, value: object) -> None:
    assert parse(key, text) == value


@pytest.mark.parametrize(("key", "text", "words"), [
    ("epochs", "three", "a whole number, not 'three'"), ("rtol", "", "a number"),
    ("seminorm", "maybe", "true or false"),
    ("seed", "3", "seed is no setting but an argument"), ("nonsense", "1", "no setting 'nonsense'"),
])
def test_parse_refuses(key: str, text: str, words: str) -> None:
    with pytest.raises(UserError, match=words):
        parse(key, text)


def test_every_setting_explains_itself() -> None:
    for name in SETTINGS:
        meta = FIELDS[name].metadata
        assert meta["help"]
        assert meta["choices"] or meta["high"] is not None or FIELDS[name].type == "bool | None"
