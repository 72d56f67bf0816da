"""Configurations: defaults, bounds, contradictions, groups of settings, JSON."""

from __future__ import annotations

from dataclasses import MISSING, fields, replace
from typing import get_args, get_origin, get_type_hints

import pytest

from acenode import UserError, experiments
from acenode.config import KEYS, SETTINGS, Config, parse
from acenode.config.groups import Settings
from acenode.config.vocabulary import ARGUMENTS, DEPENDS, check

MNIST = experiments.get("mnist")


def test_defaults_are_the_papers_best_settings() -> None:
    for name, rate, tolerance, weight in (("mnist", 1e-2, 1e-4, 1e-4), ("svhn", 5e-2, 1e-5, 1e-3),
                                          ("cifar10", 1e-2, 1e-5, 1e-3)):
        c = experiments.get(name).configure("ace", "full", preset="printed")
        expected = {"learning_rate": rate, "rtol": tolerance, "atol": tolerance, "penalty_weight": weight,
                    "epochs": 160, "batch_size": 128, "solver": "dopri5", "schedule": "alternating",
                    "weight_decay": 1e-5 if name == "cifar10" else 0}
        assert {key: c.get(key) for key in expected} == expected
        assert experiments.get(name).configure("odenet", "full").get("weight_decay") == 0


def test_a_configuration_survives_json() -> None:
    for method in MNIST.methods:
        config = MNIST.configure(method, seed=3, device="cpu")
        assert Config.from_dict(config.to_dict()) == config


def test_settings_a_method_does_not_use_are_absent() -> None:
    assert MNIST.configure("resnet").get("solver") is None
    assert MNIST.configure("odenet").get("attention") is None
    assert MNIST.configure("ace", attention="fixed").get("schedule") is None
    assert MNIST.configure("ace", attention="none").get("initial") is None
    assert MNIST.configure("ace", attention="none").get("q_layers") is None
    assert MNIST.configure("odenet", solver="rk4").get("rtol") is None
    assert MNIST.configure("odenet", solver="rk4").get("step_size") == 0.1
    assert MNIST.configure("ace", penalty="none").get("penalty_weight") is None


@pytest.mark.parametrize(("method", "given", "words"), [
    ("resnet", {"attention": "fixed"}, "attention does not apply to resnet in mnist"),
    ("odenet", {"penalty": "l1"}, "penalty does not apply to odenet"),
    ("ace", {"attention": "fixed", "penalty": "l1"}, "penalty does not apply to attention=fixed"),
    ("ace", {"attention": "none", "q_layers": 1}, "q_layers does not apply to initial=none"),
    ("ace", {"solver": "rk4", "rtol": 1e-3}, "rtol does not apply to solver=rk4"),
    ("ace", {"step_size": 0.1}, "step_size does not apply to solver=dopri5"),
    ("ace", {"seminorm": True}, "seminorm does not apply to gradient=backprop"),
    ("ace", {"attention": "frozen"}, "attention has no value 'frozen': choose one of evolving, fixed, none"),
    ("ace", {"epochs": 0}, "epochs must be at least 1"),
    ("ace", {"learning_rate": 0.0}, "learning_rate must be above 0"),
    ("ace", {"learning_rate": float("nan")}, "learning_rate must be a finite number"),
    ("ace", {"epochs": 1.5}, "epochs must be a whole number"),
    ("ace", {"seed": -1}, "seed must be at least 0"),
    ("ace", {"atention": "fixed"}, "no setting 'atention': did you mean attention"),
    ("transformer", {}, "mnist has no method 'transformer': choose one of resnet"),
])
def test_contradictions_and_values_out_of_bounds_are_refused(method: str, given: dict, words: str) -> None:
    with pytest.raises(UserError, match=words):
        MNIST.configure(method, **given)


def test_values_that_are_equal_but_of_another_type_are_refused_once_one_was_accepted() -> None:
    assert check("epochs", 1) == 1
    for value in (True, 1.0, [1]):
        with pytest.raises(UserError, match="epochs must be"):
            check("epochs", value)
    assert type(check("learning_rate", 1)) is float


@pytest.mark.parametrize(("key", "text", "value"), [
    ("epochs", "3", 3), ("rtol", "1e-3", 1e-3), ("seminorm", "yes", True), ("attention", "fixed", "fixed"),
    ("detach_attention", "false", False),
])
def test_text_is_parsed_to_a_value(key: str, text: str, value: object) -> None:
    assert parse(key, text) == value


@pytest.mark.parametrize(("key", "text", "words"), [
    ("epochs", "three", "a whole number, not 'three'"), ("rtol", "", "a number"),
    ("seminorm", "maybe", "true or false"),
    ("seed", "3", "seed is an argument of the command, not a setting"), ("nonsense", "1", "no setting 'nonsense'"),
    ("gru_units", "3", "gru_units is a constant and cannot be set"),
])
def test_text_that_is_no_value_is_refused(key: str, text: str, words: str) -> None:
    with pytest.raises(UserError, match=words):
        parse(key, text)


def test_every_setting_has_help_and_bounds() -> None:
    for setting in SETTINGS.values():
        assert setting.help
        assert setting.choices or setting.high is not None or setting.type is bool


def every_group(base: type[Settings] = Settings) -> list[type[Settings]]:
    return [group for child in base.__subclasses__() for group in (child, *every_group(child))]


@pytest.mark.parametrize("group", every_group(), ids=lambda group: group.__name__)
def test_a_group_has_the_types_of_its_settings(group: type[Settings]) -> None:
    hints = get_type_hints(group)
    for f in fields(group):
        kind = hints[f.name]
        if kind == float | None:
            kind = float
        assert (str if get_origin(kind) is not None and get_args(kind) else kind) is KEYS[f.name].type
        assert f.default is MISSING or f.name in DEPENDS, "only a setting that depends on another has a default"


def test_every_setting_is_in_a_group() -> None:
    in_groups = {f.name for group in every_group() for f in fields(group)}
    assert in_groups == KEYS.keys() - ARGUMENTS - {"checkpoint_seconds"}  # only in runs of version 0.1


@pytest.mark.parametrize("name", experiments.EXPERIMENTS)
@pytest.mark.parametrize("data", ["sample", "full"])
def test_every_method_reads_all_its_groups(name: str, data: str) -> None:
    experiment = experiments.get(name)
    for method in experiment.methods.values():
        config = experiment.configure(method.name, data)
        for group in method.groups:
            assert all(getattr(config.part(group), f.name) is not None or f.name == "step_size" for f in fields(group))
        assert config.settings.keys() <= method.uses


def test_a_missing_default_is_an_error_that_names_the_setting() -> None:
    def without_learning_rate(*given: object) -> dict:
        return {k: v for k, v in MNIST.defaults(*given).items() if k != "learning_rate"}  # type: ignore[arg-type]

    with pytest.raises(UserError, match="mnist has no default for learning_rate with method ace"):
        replace(MNIST, defaults=without_learning_rate).configure("ace")
    config = MNIST.configure("ace")
    damaged = replace(config, settings={k: v for k, v in config.settings.items() if k != "rtol"})
    with pytest.raises(UserError, match="the configuration of ace in mnist lacks rtol"):
        MNIST.count(damaged)


def test_an_unknown_setting_lists_those_of_the_method() -> None:
    with pytest.raises(UserError) as raised:
        MNIST.configure("resnet", qwertz=1)
    assert str(raised.value) == ("there is no setting 'qwertz': resnet in mnist has epochs, batch_size, learning_rate, "
                                 "momentum, weight_decay, size, crop, snapshots, analysis")


def test_equal_configurations_have_equal_hashes() -> None:
    one, same, other = (MNIST.configure("ace", seed=seed) for seed in (1, 1, 2))
    assert one == same
    assert len({one, same, other}) == 2
