"""Configurations: defaults, bounds, contradictions, groups of settings, JSON, ranges of a search."""

from __future__ import annotations

from dataclasses import MISSING, fields, replace

import pytest

from acenode import UserError, experiments
from acenode.config import KEYS, SETTINGS, Config, parse
from acenode.config.groups import DEPENDS, every_group
from acenode.config.ranges import SearchRange, ranges_text, read_range, read_ranges
from acenode.config.vocabulary import check

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
    ("resnet", {"qwertz": 1}, "^there is no setting 'qwertz': resnet in mnist has epochs, batch_size, learning_rate, "
                              "momentum, weight_decay, size, crop, snapshots, analysis$"),
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


def test_every_setting_has_help_bounds_and_a_default_only_if_it_depends_on_another() -> None:
    for setting in SETTINGS.values():
        assert setting.help
        assert setting.choices or setting.high is not None or setting.type is bool
    for group in every_group():
        for f in fields(group):  # type: ignore[arg-type]
            assert f.default is MISSING or f.name in DEPENDS
    for key, (other, values) in DEPENDS.items():  # each follows the one that it depends on
        assert list(KEYS).index(other) < list(KEYS).index(key)
        assert not KEYS[other].choices or values <= set(KEYS[other].choices)
    one, same, another = (MNIST.configure("ace", seed=seed) for seed in (1, 1, 2))
    assert one == same
    assert len({one, same, another}) == 2


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


def test_intervals_and_lists_are_read() -> None:
    found = read_ranges(["learning_rate=log:1e-5..1e-2, penalty_weight=0,1e-4, 1e-3,1e-2", "f_layers=1..2"])
    assert found == (SearchRange("learning_rate", 1e-5, 1e-2, log=True),
                     SearchRange("penalty_weight", values=(0.0, 1e-4, 1e-3, 1e-2)), SearchRange("f_layers", 1, 2))
    assert [one.whole for one in found] == [False, False, True]


def test_a_setting_follows_those_it_depends_on() -> None:
    assert [one.key for one in read_ranges(["penalty_weight=0..1, attention=evolving,none, epochs=1..3"])] == [
        "epochs", "attention", "penalty_weight"]


@pytest.mark.parametrize("text", ["learning_rate=log:1e-05..0.01", "penalty_weight=0.0,0.0001", "f_layers=1..2",
                                  "detach_attention=false,true", "attention=evolving,fixed"])
def test_a_range_is_written_as_it_is_read(text: str) -> None:
    assert ranges_text(read_ranges([text])) == text
    key, _, values = text.partition("=")
    assert read_range(key, values) == read_ranges([text])[0]


def test_a_range_knows_its_values() -> None:
    interval, listed = read_ranges(["learning_rate=0.01..0.1, attention=evolving,none"])
    assert interval.contains(0.1)
    assert not interval.contains(0.11)
    assert not interval.contains(None)
    assert listed.contains("none")
    assert not listed.contains("fixed")


@pytest.mark.parametrize(("text", "message"), [
    ("learning_rate=log:0..1", "learning_rate=log:0..1: a logarithmic range must start above 0"),
    ("learning_rate=1..0.1", "goes from a smaller to a larger number"),
    ("learning_rate=0..0.1", "learning_rate must be above 0 and at most 10, not 0"),
    ("learning_rate=0.1..20", "learning_rate must be above 0 and at most 10, not 20"),
    ("learning_rate=a..b", "'a' is not a number; a range is written as 1e-5..1e-2"),
    ("learning_rate=..1", "'' is not a number"),
    ("f_layers=1..1.5", "'1.5' is not a whole number"),
    ("learning_rate=0.1", "learning_rate has one value to try: give at least two"),
    ("learning_rate=0.1, learning_rate=0.2", "learning_rate is given twice"),
    ("learning_rate=0.1,log:1..2", "takes one range"),
    ("learning_rat=0.1,0.2", "there is no setting 'learning_rat': did you mean learning_rate?"),
    ("attention=evolving..none", "attention is not a number: list the values to try, such as attention=evolving"),
    ("attention=evolving,nothing", "attention has no value 'nothing'"),
    ("seed=0,1", "seed is an argument of the command, not a setting"),
    ("fold=0,1", "fold selects the data, so it cannot be searched"),
    ("snapshots=2,4", "snapshots does not change how good a model is"),
    ("0.1,0.2", "ranges are written as learning_rate=log:1e-5..1e-2"), ("", "ranges are written as")])
def test_a_mistake_is_one_line(text: str, message: str) -> None:
    with pytest.raises(UserError) as error:
        read_ranges([text])
    assert message in str(error.value)
    assert "\n" not in str(error.value)
