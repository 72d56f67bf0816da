"""The ranges of a search: what is read from text, and what a mistake is told."""

from __future__ import annotations

import pytest

from acenode import UserError
from acenode.config.ranges import SearchRange, ranges_text, read_range, read_ranges


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
