"""The first two steps of every experiment, method and setting, against recorded losses, gradient norms and evaluations.

`tests/same_numbers.py first tests/first_steps.json` records them again where a change of the numbers is meant.
"""

import json
from pathlib import Path

import pytest
from same_numbers import cases, first_steps, key_of

RECORDED = json.loads(Path(__file__).with_name("first_steps.json").read_text())
DIVERGES = ("ushcn", "ace", {"impute": "true"})  # its losses of 1e17 have no digits in common between machines


@pytest.mark.parametrize("case", [case for case in cases() if case != DIVERGES], ids=lambda case: key_of(*case))
def test_the_first_steps_of_training_are_the_recorded_ones(case: tuple[str, str, dict[str, str]]) -> None:
    for found, recorded in zip(first_steps(*case), RECORDED[key_of(*case)], strict=True):
        assert found.keys() == recorded.keys()
        for name, value in found.items():  # a step more or less where machines round differently
            assert value == pytest.approx(recorded[name], rel=0.02 if name.startswith("nfe") else 2e-3), name
