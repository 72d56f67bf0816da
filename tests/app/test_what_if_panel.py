"""The panel that holds a variable of a forecast."""

import numpy as np
import pytest
from acenode_app import what_if
from acenode_app.what_if import figure, words

from acenode.results.influence import Held, WhatIf


@pytest.fixture
def found() -> WhatIf:
    t = np.linspace(60, 120, 5)
    without = np.tile([60.0, 50.0], (5, 1))
    return WhatIf(("north", "south"), ("mph", "mph"), t, without, without - [[0, 0], [20, 5], [20, 8], [0, 3], [0, 1]])


def test_the_forecast_is_drawn_with_and_without(found):
    drawn = figure(found, Held("north", 40.0, 60, 90), "minutes")
    assert [trace.name for trace in drawn.data] == ["as it is", "held"] * 2
    assert drawn.layout.shapes[0].x1 == 90


def test_it_says_who_changes_most(found):
    assert words(found, Held("north", 40.0, 60, 90)) == "south changes most, by up to 8 mph."
    same = WhatIf(found.names, found.units, found.t, found.without, found.without)
    assert "none attends to it" in words(same, Held("north", 40.0, 60, 90))


def test_runs_without_influence_are_not_offered():
    assert what_if.offered([]) == []
