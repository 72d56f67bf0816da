"""The digits that come with scikit-learn, and splits by class."""

import numpy as np
import pytest
from sklearn.datasets import load_digits

from acenode.data.images import LUMINANCE, MIN_CONTRAST, digits
from acenode.data.splits import stratified_holdout
from acenode.errors import UserError


@pytest.mark.parametrize(("colour", "channels"), [(False, 1), (True, 3)])
def test_digits_have_the_layout_of_the_real_sets(colour, channels):
    data = digits(colour)
    assert data.x_train.shape == (1438, 8, 8, channels)
    assert data.x_test.shape == (359, 8, 8, channels)
    assert data.y_train.shape == (1438,)
    assert data.y_test.shape == (359,)
    for array in (data.x_train, data.y_train, data.x_test, data.y_test):
        assert array.dtype == np.uint8
    assert data.classes == tuple("0123456789")


def test_every_digit_appears_once_in_the_full_range():
    data = digits()
    ours = np.concatenate([data.x_train, data.x_test])[..., 0]
    assert ours.min() == 0
    assert ours.max() == 255
    bunch = load_digits()
    known = np.column_stack([np.rint(bunch.data * 255 / 16), bunch.target])
    found = np.column_stack([ours.reshape(-1, 64), np.concatenate([data.y_train, data.y_test])])
    np.testing.assert_array_equal(np.sort(found, axis=0), np.sort(known.astype(np.uint8), axis=0))
    assert {row.tobytes() for row in found} == {row.tobytes() for row in known.astype(np.uint8)}


def test_the_test_share_of_each_class_is_a_fifth():
    data = digits()
    share = np.bincount(data.y_test) / np.bincount(np.concatenate([data.y_train, data.y_test]))
    np.testing.assert_allclose(share, 0.2, atol=0.006)


def test_the_split_is_the_same_for_every_seed():
    for array in ("x_train", "y_train", "x_test", "y_test"):
        np.testing.assert_array_equal(getattr(digits(seed=0), array), getattr(digits(seed=9), array))
    np.testing.assert_array_equal(digits(colour=True, seed=9).y_test, digits().y_test)


def test_the_seed_changes_only_the_colours():
    np.random.seed(1)  # noqa: NPY002 - the global state is what must not matter
    one = digits(colour=True, seed=3)
    np.random.seed(2)  # noqa: NPY002
    np.testing.assert_array_equal(one.x_train, digits(colour=True, seed=3).x_train)
    assert (one.x_train != digits(colour=True, seed=4).x_train).any()


def test_coloured_digits_contrast_with_their_background():
    grey, coloured = digits(), digits(colour=True)
    for image, ink in zip(coloured.x_test, grey.x_test[..., 0], strict=True):
        background, darkest = image[ink == 0], image[ink == ink.max()]
        assert (background == background[0]).all()  # one colour each
        assert (darkest == darkest[0]).all()
        contrast = abs((darkest[0] @ LUMINANCE) - (background[0] @ LUMINANCE))
        assert contrast >= MIN_CONTRAST * ink.max() / 255 - 1  # a pixel is rounded
    assert len(np.unique(coloured.x_test[:, 0, 0], axis=0)) > 300  # backgrounds differ


LABELS = np.repeat([3, 0, 7, 1], [50, 31, 17, 2])


@pytest.mark.parametrize("count", [1, 7, 33, 50, 99])
def test_holdout_is_exact_sorted_and_complete(count):
    train, held = stratified_holdout(LABELS, count, seed=5)
    assert len(held) == count
    assert (np.diff(train) > 0).all()
    assert (np.diff(held) > 0).all()
    np.testing.assert_array_equal(np.sort(np.concatenate([train, held])), np.arange(100))


@pytest.mark.parametrize("count", [1, 7, 33, 50, 99])
def test_holdout_keeps_each_class_within_one_of_its_share(count):
    _, held = stratified_holdout(LABELS, count, seed=5)
    for label, size in ((3, 50), (0, 31), (7, 17), (1, 2)):
        assert abs((LABELS[held] == label).sum() - count * size / 100) < 1


def test_holdout_rounds_by_largest_remainder():
    labels = np.repeat([0, 1, 2], [6, 3, 1])  # 5 of 10: shares 3, 1.5 and 0.5
    _, held = stratified_holdout(labels, 5, seed=0)
    assert np.bincount(labels[held], minlength=3).tolist() == [3, 2, 0]
    _, held = stratified_holdout(labels, 4, seed=0)  # shares 2.4, 1.2 and 0.4
    assert np.bincount(labels[held], minlength=3).tolist() == [3, 1, 0]


def test_holdout_depends_on_its_seed():
    np.random.seed(1)  # noqa: NPY002 - the global state is what must not matter
    _, held = stratified_holdout(LABELS, 33, seed=5)
    np.random.seed(2)  # noqa: NPY002
    np.testing.assert_array_equal(held, stratified_holdout(LABELS, 33, seed=5)[1])
    assert (held != stratified_holdout(LABELS, 33, seed=6)[1]).any()


@pytest.mark.parametrize("count", [-1, 0, 100, 101])
def test_holdout_refuses_a_count_that_empties_one_part(count):
    with pytest.raises(UserError, match=f"cannot hold {count} of 100 .*from 1 to 99"):
        stratified_holdout(LABELS, count, seed=0)
