"""Simulated series: shaped like the real ones, with known coupling and labels that need to be learned."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from acenode.data.activity import CLASSES, NAMES
from acenode.data.simulated import icu, movement
from acenode.data.splits import record_split, trial_split


def records(data):
    for start, stop in zip(data.offsets[:-1], data.offsets[1:], strict=True):
        yield data.t[start:stop], data.x[start:stop], data.m[start:stop]


def regression():
    return make_pipeline(StandardScaler(), LogisticRegression(C=0.3, max_iter=500))


@pytest.mark.parametrize("make", [icu, movement])
def test_a_seed_gives_the_same_series_every_time(make):
    np.random.seed(1)  # noqa: NPY002 - the global state is what must not matter
    one = make(3)
    np.random.seed(2)  # noqa: NPY002
    two = make(3)
    for name in ("ids", "offsets", "t", "x", "m", "label", "group", "coupling"):
        np.testing.assert_array_equal(getattr(one, name), getattr(two, name))
    assert len(one.x) != len(make(4).x) or (one.x != make(4).x).any()


@pytest.mark.parametrize("make", [icu, movement])
@pytest.mark.parametrize("seed", [0, 1])
def test_the_arrays_are_valid(make, seed):
    data = make(seed)
    assert data.fault() is None
    assert len(data.names) == len(set(data.names)) == 12
    assert (data.t[data.offsets[:-1]] == 0).all()
    assert data.m.any(axis=1).all()


@pytest.mark.parametrize("make", [icu, movement])
def test_the_coupling_is_sparse_with_a_zero_diagonal(make):
    coupling = make().coupling
    assert coupling.shape == (12, 12)
    assert (coupling >= 0).all()
    assert 8 <= (coupling > 0).sum() <= 24
    assert (np.diag(coupling) == 0).all()


def test_stays_are_as_irregular_as_real_ones():
    data = icu()
    points = np.diff(data.offsets)
    assert len(data) == 480
    assert 35 < points.mean() < 45
    assert points.std() > 8
    assert 3 <= data.m.sum(axis=1).mean() <= 4
    ever = np.logical_or.reduceat(data.m, data.offsets[:-1])
    assert 0.05 < 1 - ever.mean() < 0.25  # some variables are never observed in a record
    assert 0.2 <= data.label.mean() <= 0.25
    assert (data.unit, data.horizon) == ("h", 48.0)
    parts = record_split(data.ids)
    for part in (parts.train, parts.validation, parts.test):
        assert 0.1 < data.label[part].mean() < 0.35
    pulse = data.x[:, 0][data.m[:, 0]]
    assert data.names[0] == "HR"
    assert pulse.min() >= 30
    assert 70 < np.median(pulse) < 110


def auc(features, label):
    chance = cross_val_predict(regression(), features, label, cv=5, method="predict_proba")[:, 1]
    return roc_auc_score(label, chance)


def test_death_can_be_learned_from_values_but_not_from_times():
    data = icu()
    usual = data.x.sum(axis=0) / data.m.sum(axis=0)
    means = np.array([np.where(m.any(0), x.sum(0) / np.maximum(m.sum(0), 1), usual) for _, x, m in records(data)])
    looks = np.array([[len(t), *m.mean(axis=0)] for t, _, m in records(data)])
    assert 0.85 < auc(means, data.label) < 0.95
    assert auc(looks, data.label) < 0.65
    assert max(auc(means[:, [j]], data.label) for j in range(12)) < 0.9  # it takes several variables


def test_a_driven_variable_follows_its_driver():
    data = icu()
    late = [(x[m[:, j], j][-3:].mean(), x[m[:, k], k][-3:].mean())
            for j, k in [(data.names.index("Temp"), data.names.index("WBC"))]
            for _, x, m in records(data) if m[:, j].any() and m[:, k].any()]
    assert data.coupling[data.names.index("Temp"), data.names.index("WBC")] > 0
    assert data.coupling[data.names.index("WBC"), data.names.index("Temp")] == 0
    assert np.corrcoef(np.array(late).T)[0, 1] > 0.3


def test_movements_read_one_tag_at_a_time():
    data = movement()
    points = np.diff(data.offsets)
    assert len(data) == 400
    assert (points.min(), points.max()) == (30, 50)
    assert data.names == NAMES
    assert data.classes == CLASSES
    tags = data.m.reshape(-1, 4, 3)
    assert (tags.sum(axis=1) == 1).all()
    assert data.pointwise
    share = np.bincount(data.label, minlength=7) / len(data.label)
    assert share.min() > 0.015
    assert share.max() < 0.35
    changes = [len(np.unique(data.label[a:b])) > 1 for a, b in zip(data.offsets[:-1], data.offsets[1:], strict=True)]
    assert 0.4 < np.mean(changes) < 0.9  # activities switch within windows
    assert set(data.group) == {1, 2, 3, 4, 5}
    assert len(trial_split(data.group).train) == 240


def carried(data):
    """Return the last position of each tag, relative to their mean in x and y, and its change since the one before."""
    rows = []
    for _, x, m in records(data):
        last = before = np.full((4, 3), np.nan)
        for values, seen in zip(x.reshape(-1, 4, 3), m.reshape(-1, 4, 3), strict=True):
            before, last = np.where(seen, last, before), np.where(seen, values, last)
            across = last[:, :2] - np.nanmean(last[:, :2], axis=0)
            move = last - before
            rows.append([*np.hypot(*across.T), *last[:, 2], *np.hypot(*move[:, :2].T), *move[:, 2]])
    return np.nan_to_num(np.array(rows), nan=0.5)


def test_activities_can_be_learned_from_several_points_but_not_from_one():
    data = movement()
    parts = trial_split(data.group)
    train, test = data.take(parts.train), data.take(parts.test)

    def accuracy(features):
        return regression().fit(features(train), train.label).score(features(test), test.label)

    assert 0.8 < accuracy(carried) < 0.97
    assert accuracy(lambda data: np.hstack([data.x, data.m])) < 0.65
