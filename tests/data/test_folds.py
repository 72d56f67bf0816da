"""Folds of a forecasting set: equal to the published ones, and without series that cannot be forecast."""

import numpy as np
import pytest
from sklearn.model_selection import train_test_split

from acenode.data.series import SeriesArrays
from acenode.data.splits import forecast_folds, forecast_parts, two_sided
from acenode.errors import UserError


def series(*times: list[float]) -> SeriesArrays:
    t = np.concatenate(times).astype(np.float32)
    N, P = len(times), len(t)
    return SeriesArrays(
        np.arange(N).astype(str), np.concatenate([[0], np.cumsum([len(one) for one in times])]).astype(np.int64), t,
        np.ones((P, 1), np.float32), np.ones((P, 1), bool), np.full(N, np.nan, np.float32), ("x",), (),
        np.zeros(N, np.int64), "", 10.0)


def test_1114_series_give_the_published_folds():
    folds = forecast_folds(1114)
    assert folds[0].test[:6].tolist() == [154, 561, 284, 466, 950, 259]
    for fold in folds:
        assert (len(fold.train), len(fold.validation), len(fold.test)) == (801, 201, 112)
        together = np.concatenate([fold.train, fold.validation, fold.test])
        assert np.sort(together).tolist() == list(range(1114))


@pytest.mark.parametrize("count", [3, 10, 57, 500, 1107, 1114])
def test_any_number_of_series_follows_the_published_recipe(count):
    np.random.seed(432)  # noqa: NPY002 - the recipe's own generator
    for fold in forecast_folds(count):
        others, test = train_test_split(np.arange(count), test_size=0.1)
        train, validation = train_test_split(others, test_size=0.2)
        np.testing.assert_array_equal(fold.train, train)
        np.testing.assert_array_equal(fold.validation, validation)
        np.testing.assert_array_equal(fold.test, test)


def test_folds_neither_use_nor_change_the_global_generator():
    np.random.seed(1)  # noqa: NPY002
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    one = forecast_folds(50)
    assert (np.random.get_state()[1] == before).all()  # noqa: NPY002
    np.random.seed(2)  # noqa: NPY002
    assert (forecast_folds(50)[4].train == one[4].train).all()


def test_two_series_are_too_few():
    with pytest.raises(UserError, match="2 series are too few"):
        forecast_folds(2)


def test_a_row_at_the_cut_counts_as_before_it():
    data = series([1, 4], [1, 4.1], [4, 5], [4.1, 5], [3])
    assert two_sided(data, 4).tolist() == [False, True, True, False, False]


def test_series_on_one_side_of_the_cut_are_only_trained_on():
    drawn = forecast_folds(30)[2]
    one_sided = {int(drawn.test[0]), int(drawn.validation[1]), int(drawn.train[2])}
    data = series(*([1.0, 2.0] if i in one_sided else [1.0, 9.0] for i in range(30)))
    fold = forecast_parts(data, 2, 4.0)
    assert fold.test.tolist() == drawn.test[1:].tolist()
    assert fold.validation.tolist() == np.delete(drawn.validation, 1).tolist()
    assert fold.train.tolist() == drawn.train.tolist()


def test_a_fold_with_nothing_to_forecast_is_refused():
    with pytest.raises(UserError, match="no series for validation has rows on both sides of time 4"):
        forecast_parts(series(*([1.0, 2.0] for _ in range(10))), 0, 4.0)


@pytest.mark.parametrize("fold", [-1, 5])
def test_there_are_five_folds(fold):
    with pytest.raises(UserError, match="choose 0 to 4"):
        forecast_parts(series(*([1.0, 9.0] for _ in range(10))), fold, 4.0)
