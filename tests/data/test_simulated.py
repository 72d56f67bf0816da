"""Simulated series: shaped like the real ones, with known coupling and labels that need to be learned."""

import numpy as np
import pytest

from acenode.data.simulated import BRUSSELATOR_CUT, OU_CUT, brusselator, climate, double_ou, icu, movement
from acenode.data.splits import two_sided
from acenode.data.ushcn import CUT, VARIABLES

SETS = {"icu": icu, "movement": movement, "climate": climate, "brusselator": brusselator,
        "double_ou": lambda seed=0: double_ou(seed, 400)}
CUTS = {"climate": CUT, "brusselator": BRUSSELATOR_CUT, "double_ou": OU_CUT}


@pytest.mark.parametrize("name", SETS)
def test_a_seed_gives_the_same_valid_series_every_time(name):
    np.random.seed(1)  # noqa: NPY002 - the global state is what must not matter
    one, other = SETS[name](3), SETS[name](4)
    np.random.seed(2)  # noqa: NPY002
    two = SETS[name](3)
    for part in ("ids", "offsets", "t", "x", "m", "label", "group"):
        np.testing.assert_array_equal(getattr(one, part), getattr(two, part))
    assert one.x.shape != other.x.shape or (one.x != other.x).any()
    for data in (one, other):
        assert data.fault() is None
        assert data.m.any(axis=1).all()
        if name in CUTS:
            assert np.isnan(data.label).all()
            assert two_sided(data, CUTS[name]).mean() > 0.99
        else:
            assert (data.t[data.offsets[:-1]] == 0).all()


# Times, observed values, and the means of times, values (with their deviation) and labels of each set; then the sum of
# its coupling. With these numbers, deaths and activities can be learned from several variables or points, and not from
# one.
NUMBERS = {
    "icu": (19880, 71990, 23.47237, 65.05777, 45.25673, 0.22500, 3.44),
    "movement": (15928, 47784, 1.99030, 1.68950, 1.46682, 2.84041, 61),
    "climate": (30080, 36069, 100.74736, 0.00000, 1.00000, 0.00000, 2.85),
    "brusselator": (24409, 43920, 24.91114, 2.71417, 1.80161, 0.00000, 1.7),
    "double_ou": (7774, 9366, 5.01029, 0.01161, 0.97001, 0.00000, 0),
}
LINKS = {"icu": 15, "movement": 10, "climate": 7, "brusselator": 2, "double_ou": 0}


@pytest.mark.parametrize("name", NUMBERS)
def test_the_numbers_do_not_change(name):
    data = SETS[name]()
    x, coupling = data.x[data.m], np.zeros((1, 1)) if data.coupling is None else data.coupling
    assert (len(data.t), data.m.sum(), data.t.mean(), x.mean(), x.std(), np.nan_to_num(data.label).mean(),
            coupling.sum()) == pytest.approx(NUMBERS[name], abs=2e-5)
    assert ((coupling > 0).sum(), np.diag(coupling).any()) == (LINKS[name], False)


def test_sets_have_the_shape_of_the_real_ones():
    stays, moves, stations = icu(), movement(), climate()
    assert (len(stays), stays.unit, stays.horizon, stays.names[0]) == (480, "h", 48.0, "HR")
    assert (len(stations), stations.names, stations.horizon) == (500, VARIABLES, 200.0)
    assert np.add.reduceat(stations.t > CUT, stations.offsets[:-1]).min() >= 3  # targets of every series
    driven, driver = VARIABLES.index("SNOW"), VARIABLES.index("TMAX")
    assert (stations.coupling[driven, driver] > 0, stations.coupling[driver, driven]) == (True, 0)
    points = np.diff(moves.offsets)
    assert (len(moves), points.min(), points.max()) == (400, 30, 50)
    assert (moves.m.reshape(-1, 4, 3).sum(axis=1) == 1).all()  # one tag at a time


def test_the_processes_are_the_published_ones():
    data = brusselator()
    assert (len(data), data.offsets[1], data.horizon) == (1000, 29, 50.0)
    assert data.t[:3].tolist() == pytest.approx([0.4, 3.4, 4.2])
    np.testing.assert_array_equal(data.x[:3], np.float32(
        [[1.0664879083633423, 4.643246173858643], [1.0518302917480469, 0], [0.999302327632904, 4.4304327964782715]]))
    second = slice(data.offsets[1], data.offsets[2])
    assert data.x[second][data.t[second] == np.float32(25.3)][0].tolist() == pytest.approx(
        [0.8395103216171265, 5.309178829193115])
    pairs = double_ou()
    assert (len(pairs), np.diff(pairs.offsets).min(), np.diff(pairs.offsets).max()) == (10_000, 16, 23)
    assert pairs.m.mean(axis=0) == pytest.approx([0.6, 0.6], abs=0.005)
    for k, mean in enumerate((1, -1)):  # long-run means are uniform within ½, and around them σ² / 2θ
        x = pairs.x[(pairs.t > 6) & pairs.m[:, k], k]
        assert x.mean() == pytest.approx(mean, abs=0.02)
        assert x.std() == pytest.approx(np.sqrt(1 / 12 + 0.1**2 / 2), rel=0.03)
