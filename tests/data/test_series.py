"""Series as flat arrays: their checks, subsets, files, scales and splits."""

import re
from dataclasses import replace

import numpy as np
import pytest

from acenode.data import series
from acenode.data.series import Scale, SeriesArrays
from acenode.data.splits import record_split, trial_split
from acenode.errors import UserError


def small(pointwise=False) -> SeriesArrays:
    """Three records of 2, 1 and 3 points, two variables."""
    m = np.array([[1, 0], [1, 1], [0, 1], [1, 1], [0, 0], [1, 0]], bool)
    x = np.where(m, np.arange(1, 13).reshape(6, 2), 0).astype(np.float32)
    label = np.array([0, 1, 1, 0, 1, 0], np.int64) if pointwise else np.array([1, np.nan, 0], np.float32)
    return SeriesArrays(
        ids=np.array(["a", "b", "c"]), offsets=np.array([0, 2, 3, 6]), t=np.array([0, 1, 0, 0, 0.5, 2], np.float32),
        x=x, m=m, label=label, names=("u", "v"), classes=("no", "yes"), group=np.array([1, 1, 2]), unit="h",
        horizon=2.0, coupling=np.array([[0, 1.0], [0, 0]]),
    )


def changed(a: SeriesArrays, name: str, index, value) -> SeriesArrays:
    array = getattr(a, name).copy()
    array[index] = value
    return replace(a, **{name: array})


@pytest.mark.parametrize("pointwise", [False, True])
def test_valid_series_have_no_fault(pointwise):
    assert small(pointwise).fault() is None
    assert small(pointwise).pointwise == pointwise
    assert len(small()) == 3


FAULTS = {
    "times do not increase": lambda a: changed(a, "t", 1, 0),
    "times leave 0 to 2 h": lambda a: changed(a, "t", 5, 2.5),
    "not a number": lambda a: changed(a, "x", (0, 0), np.nan),
    "unobserved value is not 0": lambda a: changed(a, "x", (4, 1), 1),
    "none of the 2 classes": lambda a: changed(a, "label", 0, 2),
    "do not cut": lambda a: changed(a, "offsets", 1, 3),
    "the same id": lambda a: changed(a, "ids", 1, "a"),
    "horizon": lambda a: replace(a, horizon=0.0),
    "m is uint8": lambda a: replace(a, m=a.m.astype(np.uint8)),
    r"x is float32 \(5, 2\)": lambda a: replace(a, x=a.x[:5]),
    r"label is float32 \(2,\)": lambda a: replace(a, label=a.label[:2]),
    "coupling": lambda a: replace(a, coupling=np.zeros((3, 3))),
}


@pytest.mark.parametrize("words", FAULTS)
def test_a_fault_is_described(words):
    assert re.search(words, FAULTS[words](small()).fault() or "")


@pytest.mark.parametrize("pointwise", [False, True])
def test_take_returns_whole_records_in_the_given_order(pointwise):
    a = small(pointwise)
    b = a.take(np.array([2, 0]))
    assert b.fault() is None
    assert b.ids.tolist() == ["c", "a"]
    assert b.offsets.tolist() == [0, 3, 5]
    assert b.t.tolist() == [0, 0.5, 2, 0, 1]
    np.testing.assert_array_equal(b.x, a.x[[3, 4, 5, 0, 1]])
    np.testing.assert_array_equal(b.label, a.label[[3, 4, 5, 0, 1] if pointwise else [2, 0]])
    assert b.group.tolist() == [2, 1]
    assert len(a.take(np.array([], int))) == 0
    np.testing.assert_array_equal(a.take(a.group == 1).ids, ["a", "b"])


@pytest.mark.parametrize("pointwise", [False, True])
def test_a_saved_file_loads_unchanged(tmp_path, pointwise):
    a = small(pointwise)
    series.save(tmp_path / "set.npz", a, {"skipped": {"lines": 3}})
    b, notes = series.load(tmp_path / "set.npz")
    assert notes == {"skipped": {"lines": 3}}
    for name in ("ids", "offsets", "t", "x", "m", "label", "group", "coupling"):
        np.testing.assert_array_equal(getattr(b, name), getattr(a, name))
        assert getattr(b, name).dtype == getattr(a, name).dtype
    assert (b.names, b.classes, b.unit, b.horizon) == (a.names, a.classes, a.unit, a.horizon)
    series.save(tmp_path / "set.npz", replace(a, coupling=None))
    assert series.load(tmp_path / "set.npz")[0].coupling is None


def test_an_inconsistent_file_is_refused(tmp_path):
    path = tmp_path / "set.npz"
    series.save(path, small())
    with np.load(path) as stored:
        arrays = dict(stored)
    for name, array, words in (
        ("values", arrays["values"][1:], "fit together"),
        ("mask", arrays["mask"].astype(float), "fit together"),
        ("about", np.array("{}"), "fit together"),
        ("about", np.array(str(arrays["about"]).replace('"format": 1', '"format": 0')), "another version"),
        ("t", arrays["t"][::-1], "do not increase"),
    ):
        np.savez(path, **{**arrays, name: array})
        with pytest.raises(ValueError, match=words):
            series.load(path)


X = np.array([[2, 0, -1, 5, 0], [4, 0, -1, 5, 0], [6, 3, 0, 5, 0]], np.float32)
M = np.array([[1, 0, 1, 1, 0], [1, 0, 1, 1, 0], [1, 1, 0, 1, 0]], bool)


def test_the_comparable_scale_divides_by_the_maximum_not_the_range():
    scale = Scale.comparable(X, M)
    assert scale.shift.tolist() == [2, 3, -1, 5, 0]
    assert scale.scale.tolist() == [6, 3, -1, 5, 1]
    np.testing.assert_allclose(scale.apply(X, M)[:, 0], [0, 2 / 6, 4 / 6], rtol=1e-6)
    zero = Scale.comparable(np.zeros((2, 1), np.float32), np.ones((2, 1), bool))
    assert zero.scale.tolist() == [1]  # a largest value of 0 is replaced


def test_the_standard_scale_gives_mean_0_and_deviation_1():
    rng = np.random.default_rng(0)
    m = rng.random((500, 3)) < 0.4
    x = np.where(m, rng.normal([5, -3, 100], [2, 0.1, 30], (500, 3)), 0).astype(np.float32)
    y = Scale.standard(x, m).apply(x, m)
    for j in range(3):
        assert y[m[:, j], j].mean() == pytest.approx(0, abs=1e-4)
        assert y[m[:, j], j].std() == pytest.approx(1, abs=1e-4)
    assert Scale.standard(X, M).scale[[1, 2, 3, 4]].tolist() == [1, 1, 1, 1]  # what never varies is only shifted


@pytest.mark.parametrize("fit", [Scale.comparable, Scale.standard])
def test_unobserved_values_stay_0(fit):
    y = fit(X, M).apply(X, M)
    assert y.dtype == np.float32
    assert (y[~M] == 0).all()
    np.testing.assert_allclose(fit(X, M).invert(y)[M], X[M], atol=1e-5)


@pytest.mark.parametrize(("count", "sizes"), [(4000, (2560, 640, 800)), (8000, (5120, 1280, 1600)), (5, (3, 1, 1))])
def test_records_are_split_by_fifths(count, sizes):
    parts = record_split(count)
    assert (len(parts.train), len(parts.validation), len(parts.test)) == sizes
    together = np.concatenate([parts.train, parts.validation, parts.test])
    np.testing.assert_array_equal(np.sort(together), np.arange(count))
    for part in (parts.train, parts.validation, parts.test):
        assert (np.diff(part) > 0).all()


def test_a_split_does_not_depend_on_the_order_of_the_records():
    ids = np.array([f"{i:03d}" for i in range(50)])
    shuffled = np.random.default_rng(3).permutation(ids)
    for part in ("train", "validation", "test"):
        assert set(ids[getattr(record_split(ids), part)]) == set(shuffled[getattr(record_split(shuffled), part)])
        np.testing.assert_array_equal(getattr(record_split(ids), part), getattr(record_split(50), part))
    assert (record_split(50).test != record_split(50, seed=43).test).any()


def test_too_few_records_are_refused():
    with pytest.raises(UserError, match="2 records are too few"):
        record_split(2)


def test_no_trial_is_in_two_parts():
    parts = trial_split(np.array([5, 1, 4, 2, 3, 1, 5]))
    assert parts.train.tolist() == [1, 3, 4, 5]
    assert parts.validation.tolist() == [2]
    assert parts.test.tolist() == [0, 6]
    with pytest.raises(UserError, match="no records of trial 4"):
        trial_split(np.array([1, 2, 3, 5]))
