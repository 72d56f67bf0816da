"""The panel that holds a variable of a forecast."""

from dataclasses import replace

import numpy as np
import pytest
from acenode_app.results import what_if
from acenode_app.results.what_if import figure, words

from acenode.compare.influence import Held, WhatIf


@pytest.fixture
def found() -> WhatIf:
    t = np.linspace(60, 120, 5)
    without = np.tile([60.0, 50.0], (5, 1))
    return WhatIf(("north", "south"), ("mph", "mph"), t, without, without - [[0, 0], [20, 5], [20, 8], [0, 3], [0, 1]],
                  np.array([10.0, 5.0]))


def test_the_forecast_is_drawn_with_and_without_and_the_largest_change_named(found):
    drawn = figure(found, Held("north", 40.0, 60, 90), "minutes")
    assert [trace.name for trace in drawn.data] == ["as it is", "held"] * 2
    assert drawn.layout.shapes[0].x1 == 90
    assert words(found, Held("north", 40.0, 60, 90)) == "south changes most, by up to 8 mph (1.6 standard deviations)."
    same = replace(found, held=found.without)
    assert "none attends to it" in words(same, Held("north", 40.0, 60, 90))


def test_changes_are_compared_in_standard_deviations():
    """Ten variables: the first changes most in its own unit, the last for its standard deviation in the data."""
    without = np.stack([np.linspace(0, 1000, 5), *np.ones((9, 5))], 1)
    change = np.array([3.0, *[0.5] * 8, 0.02])
    found = WhatIf(tuple("abcdefghij"), ("",) * 10, np.arange(5.0), without, without + change,
                   np.array([1000.0, *[2.0] * 8, 0.01]))
    assert found.sizes == pytest.approx([0.003, *[0.25] * 8, 2.0])
    held = Held("b", 1.5, 0, 4)
    assert words(found, held) == "j changes most, by up to 0.02 (2 standard deviations)."
    drawn = figure(found, held, "days")
    shown = [axis.title.text for axis in drawn.select_yaxes()]
    assert len(shown) == what_if.DRAWN
    assert "j" in shown
    assert "a" not in shown
