"""Series as flat arrays: their checks, subsets, files, scales; splits of all kinds; and what variables mean."""

import re
from dataclasses import replace

import numpy as np
import pytest
from sklearn.model_selection import train_test_split

from acenode.data import activity, physionet, series, ushcn, variables
from acenode.data.series import Scale, SeriesArrays
from acenode.data.splits import (
    forecast_folds,
    forecast_parts,
    record_split,
    stratified_holdout,
    trial_split,
    two_sided,
)
from acenode.errors import UserError


def small(pointwise=False) -> SeriesArrays:
    """Three records of 2, 1 and 3 points, two variables."""
    m = np.array([[1, 0], [1, 1], [0, 1], [1, 1], [0, 0], [1, 0]], bool)
    label = np.array([0, 1, 1, 0, 1, 0], np.int64) if pointwise else np.array([1, np.nan, 0], np.float32)
    return SeriesArrays.from_points(
        ["a", "b", "c"], np.array([0, 0, 1, 2, 2, 2]), np.array([0, 1, 0, 0, 0.5, 2]), np.arange(1, 13).reshape(6, 2),
        m, ("u", "v"), horizon=2.0, unit="h", label=label, classes=("no", "yes"), group=np.array([1, 1, 2]),
        coupling=np.array([[0, 1.0], [0, 0]]))


def changed(a: SeriesArrays, name: str, index, value) -> SeriesArrays:
    array = getattr(a, name).copy()
    array[index] = value
    return replace(a, **{name: array})


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
def test_series_are_taken_by_record_and_saved_without_change(tmp_path, pointwise):
    a = small(pointwise)
    assert (a.fault(), a.pointwise, len(a)) == (None, pointwise, 3)
    b = a.take(np.array([2, 0]))
    assert b.fault() is None
    assert (b.ids.tolist(), b.offsets.tolist(), b.t.tolist()) == (["c", "a"], [0, 3, 5], [0, 0.5, 2, 0, 1])
    np.testing.assert_array_equal(b.x, a.x[[3, 4, 5, 0, 1]])
    np.testing.assert_array_equal(b.label, a.label[[3, 4, 5, 0, 1] if pointwise else [2, 0]])
    assert b.group.tolist() == [2, 1]
    assert len(a.take(np.array([], int))) == 0
    np.testing.assert_array_equal(a.take(a.group == 1).ids, ["a", "b"])
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


def test_the_comparable_scale_divides_by_the_maximum_and_the_standard_one_by_the_deviation():
    scale = Scale.comparable(X, M)
    assert scale.shift.tolist() == [2, 3, -1, 5, 0]
    assert scale.scale.tolist() == [6, 3, -1, 5, 1]  # a largest value of 0 is replaced
    rng = np.random.default_rng(0)
    m = rng.random((500, 3)) < 0.4
    x = np.where(m, rng.normal([5, -3, 100], [2, 0.1, 30], (500, 3)), 0).astype(np.float32)
    y = Scale.standard(x, m).apply(x, m)
    for j in range(3):
        assert (y[m[:, j], j].mean(), y[m[:, j], j].std()) == pytest.approx((0, 1), abs=1e-4)
    assert Scale.standard(X, M).scale[[1, 2, 3, 4]].tolist() == [1, 1, 1, 1]  # what never varies is only shifted
    for fit in (Scale.comparable, Scale.standard):
        y = fit(X, M).apply(X, M)
        assert y.dtype == np.float32
        assert (y[~M] == 0).all()
        np.testing.assert_allclose(fit(X, M).invert(y)[M], X[M], atol=1e-5)


# Splits -------------------------------------------------------------------------------------------------------------

LABELS = np.repeat([3, 0, 7, 1], [50, 31, 17, 2])


@pytest.mark.parametrize("count", [1, 7, 33, 50, 99])
def test_holdout_is_exact_and_keeps_each_class_within_one_of_its_share(count):
    train, held = stratified_holdout(LABELS, count, seed=5)
    assert len(held) == count
    assert (np.diff(train) > 0).all()
    np.testing.assert_array_equal(np.sort(np.concatenate([train, held])), np.arange(100))
    for label, size in ((3, 50), (0, 31), (7, 17), (1, 2)):
        assert abs((LABELS[held] == label).sum() - count * size / 100) < 1
    np.testing.assert_array_equal(held, stratified_holdout(LABELS, count, seed=5)[1])


def test_holdout_rounds_by_largest_remainder():
    labels = np.repeat([0, 1, 2], [6, 3, 1])
    for count, classes in ((5, [3, 2, 0]), (4, [3, 1, 0])):  # of shares 3, 1.5 and 0.5, and 2.4, 1.2 and 0.4
        _, held = stratified_holdout(labels, count, seed=0)
        assert np.bincount(labels[held], minlength=3).tolist() == classes


@pytest.mark.parametrize(("count", "sizes"), [(4000, (2560, 640, 800)), (5, (3, 1, 1))])
def test_records_are_split_by_fifths_in_any_order(count, sizes):
    ids = np.array([f"{i:04d}" for i in range(count)])
    shuffled = np.random.default_rng(3).permutation(ids)
    parts, mixed = record_split(count), record_split(shuffled)
    assert tuple(len(part) for part in parts) == sizes
    np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.arange(count))
    for one, other, named in zip(parts, mixed, record_split(ids), strict=True):
        assert (np.diff(one) > 0).all()
        assert set(ids[one]) == set(shuffled[other])
        np.testing.assert_array_equal(one, named)
    assert count == 5 or (parts.test != record_split(count, seed=43).test).any()


def test_no_trial_is_in_two_parts():
    assert [part.tolist() for part in trial_split(np.array([5, 1, 4, 2, 3, 1, 5]))] == [[1, 3, 4, 5], [2], [0, 6]]


@pytest.mark.parametrize("count", [3, 10, 57, 1114])
def test_folds_follow_the_published_recipe(count):
    np.random.seed(432)  # noqa: NPY002 - the recipe's own generator
    folds = forecast_folds(count)
    for fold in folds:
        others, test = train_test_split(np.arange(count), test_size=0.1)
        for ours, published in zip(fold, (*train_test_split(others, test_size=0.2), test), strict=True):
            np.testing.assert_array_equal(ours, published)


def times_of(*times: list[float]) -> SeriesArrays:
    t, record = np.concatenate(times), np.repeat(np.arange(len(times)), [len(one) for one in times])
    return SeriesArrays.from_points(np.arange(len(times)).astype(str), record, t, np.ones((len(t), 1)),
                                    np.ones((len(t), 1), bool), ("x",), horizon=10.0)


def test_series_on_one_side_of_the_cut_are_only_trained_on():
    assert two_sided(times_of([1, 4], [1, 4.1], [4, 5], [4.1, 5], [3]), 4).tolist() == [False, True, True, False, False]
    drawn = forecast_folds(30)[2]
    one_sided = {int(drawn.test[0]), int(drawn.validation[1]), int(drawn.train[2])}
    fold = forecast_parts(times_of(*([1.0, 2.0] if i in one_sided else [1.0, 9.0] for i in range(30))), 2, 4.0)
    assert fold.test.tolist() == drawn.test[1:].tolist()
    assert fold.validation.tolist() == np.delete(drawn.validation, 1).tolist()
    assert fold.train.tolist() == drawn.train.tolist()


@pytest.mark.parametrize(("split", "words"), [
    *((lambda count=count: stratified_holdout(LABELS, count, 0), f"cannot hold {count} of 100 .*from 1 to 99")
      for count in (-1, 0, 100)),
    (lambda: record_split(2), "2 records are too few"), (lambda: forecast_folds(2), "2 series are too few"),
    (lambda: trial_split(np.array([1, 2, 3, 5])), "no records of trial 4"),
    (lambda: forecast_parts(times_of(*([1.0, 2.0] for _ in range(10))), 0, 4.0),
     "no series for validation has rows on both sides of time 4"),
    (lambda: forecast_parts(times_of([1.0, 9.0]), 5, 4.0), "choose 0 to 4"),
    (lambda: forecast_parts(times_of([1.0, 9.0]), -1, 4.0), "choose 0 to 4")])
def test_impossible_splits_are_refused(split, words):
    with pytest.raises(UserError, match=words):
        split()


def test_variables_have_meanings_units_and_subjects():
    for names, known in ((physionet.VARIABLES, variables.PHYSIONET), (ushcn.VARIABLES, variables.USHCN),
                         (activity.NAMES, variables.ACTIVITY)):
        assert set(names) == set(known)
    assert [(variables.unit(name), variables.title(name)) for name in ("HR", "x1")] == [
        ("beats a minute", "HR · heart rate"), ("", "x1")]
    for subject, id, name in (("patient", "132539", "patient 132539"), ("window", "A01/0025", "window A01/0025"),
                              ("patient", "stay012", "stay012"), ("", "7", "7")):
        assert variables.subject_name(subject, id) == name
