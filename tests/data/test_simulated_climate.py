"""Simulated sporadic series: the published processes, reproduced exactly, and a climate with known coupling."""

import numpy as np
import pytest

from acenode.data.simulated import BRUSSELATOR_CUT, CLIMATE_DRIVES, OU_CUT, brusselator, climate, double_ou
from acenode.data.simulated import coupling as signed_coupling
from acenode.data.splits import forecast_parts, two_sided
from acenode.data.ushcn import CUT, VARIABLES

SETS = [(climate, CUT), (lambda seed=0: double_ou(seed, 400), OU_CUT), (brusselator, BRUSSELATOR_CUT)]


@pytest.mark.parametrize(("make", "cut"), SETS)
def test_a_seed_gives_the_same_series_every_time(make, cut):
    np.random.seed(1)  # noqa: NPY002 - the global state is what must not matter
    one = make(3)
    np.random.seed(2)  # noqa: NPY002
    two = make(3)
    for name in ("ids", "offsets", "t", "x", "m"):
        np.testing.assert_array_equal(getattr(one, name), getattr(two, name))
    other = make(4)
    assert len(one.x) != len(other.x) or (one.x != other.x).any()


@pytest.mark.parametrize(("make", "cut"), SETS)
@pytest.mark.parametrize("seed", [0, 1])
def test_the_arrays_are_valid_and_can_be_forecast(make, cut, seed):
    data = make(seed)
    assert data.fault() is None
    assert data.m.any(axis=1).all()
    assert np.isnan(data.label).all()
    assert two_sided(data, cut).mean() > 0.99
    assert len(forecast_parts(data, 0, cut).test) >= len(data) * 0.09


def test_the_brusselator_is_the_published_one():
    data = brusselator()
    first = slice(0, data.offsets[1])
    assert len(data) == 1000
    assert data.t[first][[0, 1, 2]].tolist() == pytest.approx([0.4, 3.4, 4.2])
    np.testing.assert_array_equal(data.x[first][:3], np.float32(
        [[1.0664879083633423, 4.643246173858643], [1.0518302917480469, 0], [0.999302327632904, 4.4304327964782715]]))
    assert data.offsets[1] == 29
    second = data.x[data.offsets[1]:data.offsets[2]]
    assert second[data.t[data.offsets[1]:data.offsets[2]] == np.float32(25.3)].tolist() == pytest.approx(
        np.array([[0.8395103216171265, 5.309178829193115]]))


def test_the_brusselator_is_observed_as_published():
    data = brusselator(5)
    points = np.diff(data.offsets)
    assert (points.min(), points.max()) == (20, 29)
    assert data.m.all(axis=1).mean() == pytest.approx(0.8, abs=0.01)
    assert (data.m.mean(axis=0) == pytest.approx([0.9, 0.9], abs=0.01))
    assert (data.horizon, data.unit, data.names) == (50.0, "", ("x", "y"))
    np.testing.assert_allclose(data.t, np.rint(data.t * 10) / 10, atol=1e-5)
    assert data.t.max() <= 49.81  # 499 steps


def test_the_double_process_has_the_published_distribution():
    data = double_ou()
    points = np.diff(data.offsets)
    assert len(data) == 10_000
    assert (points.min(), points.max()) == (16, 23)
    assert data.m.all(axis=1).mean() == pytest.approx(0.2, abs=0.005)
    assert data.m.mean(axis=0) == pytest.approx([0.6, 0.6], abs=0.005)
    assert (data.x[data.t == 0] == 0).all()
    late = data.t > 6
    for k, mean in enumerate((1, -1)):
        x = data.x[late & data.m[:, k], k]
        assert x.mean() == pytest.approx(mean, abs=0.02)
        # long-run means are uniform within ½, and around them σ² / 2θ
        assert x.std() == pytest.approx(np.sqrt(1 / 12 + 0.1**2 / 2), rel=0.03)
    early = (data.t > 0.9) & (data.t < 1.1) & data.m[:, 0]
    assert data.x[early, 0].mean() == pytest.approx(1 - np.exp(-1), abs=0.03)


def test_the_number_of_pairs_can_be_chosen():
    assert len(double_ou(count=300)) == 300


def test_the_climate_is_as_sporadic_as_the_real_one():
    data = climate()
    points = np.diff(data.offsets)
    assert len(data) == 500
    assert 55 < points.mean() < 65
    assert 1.1 < data.m.sum(axis=1).mean() < 1.3
    assert (data.names, data.horizon) == (VARIABLES, 200.0)
    assert data.t.min() < 1
    assert data.t.max() > 199
    np.testing.assert_allclose(data.t, np.rint(data.t * 10) / 10, atol=1e-4)
    after = np.add.reduceat(data.t > CUT, data.offsets[:-1])
    assert after.min() >= 3  # targets of every series
    for k in range(5):
        x = data.x[data.m[:, k], k]
        assert (x.mean(), x.std()) == pytest.approx((0, 1), abs=1e-4)


def test_the_climate_coupling_is_sparse_with_a_zero_diagonal():
    coupling = climate().coupling
    assert coupling.shape == (5, 5)
    assert (np.diag(coupling) == 0).all()
    assert (coupling > 0).sum() == 7
    np.testing.assert_array_equal(coupling, np.abs(signed_coupling(VARIABLES, CLIMATE_DRIVES)))
    assert coupling[VARIABLES.index("TMIN"), VARIABLES.index("TMAX")] > 0
    assert coupling[VARIABLES.index("TMAX"), VARIABLES.index("TMIN")] == 0


@pytest.mark.parametrize(("one", "two", "sign"), [("TMIN", "TMAX", 1), ("SNOW", "TMAX", -1), ("SNWD", "SNOW", 1)])
def test_a_driven_variable_follows_its_driver(one, two, sign):
    data = climate()
    i, k = VARIABLES.index(one), VARIABLES.index(two)
    both = data.m[:, i] & data.m[:, k]
    assert sign * np.corrcoef(data.x[both][:, [i, k]].T)[0, 1] > 0.4


def test_the_climate_has_a_yearly_cycle():
    data = climate()
    k = VARIABLES.index("TMAX")
    seen = data.m[:, k]
    angle = 2 * np.pi * data.t[seen] / (365.25 * 2500 / 18627)
    basis = np.stack([np.cos(angle), np.sin(angle), np.ones_like(angle)], axis=1)
    rest = data.x[seen, k] - basis @ np.linalg.lstsq(basis, data.x[seen, k], rcond=None)[0]
    assert 0.2 < rest.var() < 0.8  # a season, and weather beside it
