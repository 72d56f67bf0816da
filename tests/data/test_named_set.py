"""Sets of series with named variables: their checks, moments and files."""

from dataclasses import replace

import numpy as np
import pytest

from acenode.data import named_set
from acenode.data.named_set import NamedSet, Record, check_name
from acenode.errors import UserError

NAN = np.nan


def record(shift: float = 0.0) -> Record:
    return Record.from_gaps(np.array([0.0, 1.0, 2.5]), np.array([[1.0, NAN], [3.0, 10.0], [NAN, 30.0]]) + shift)


def small(**changes) -> NamedSet:
    return NamedSet(**{
        "name": "two-wells", "title": "Two wells", "note": "", "variables": ("level", "flow"), "units": ("m", ""),
        "time_unit": "hours", "time_origin": "", "ids": tuple("abcd"), "series": tuple(record(s) for s in range(4)),
        "task": "forecast", "given": 2.0,
        "parts": {"train": np.array([0, 1]), "validation": np.array([2]), "test": np.array([3])},
        "links": np.array([[0.0, 1.0], [0.0, 0.0]]), **changes})


def test_gaps_become_zeros_with_a_mask():
    r = record()
    assert r.x.tolist() == [[1.0, 0.0], [3.0, 10.0], [0.0, 30.0]]
    assert r.m.tolist() == [[True, False], [True, True], [False, True]]
    assert r.seen(2.0).tolist() == [True, True, False]
    assert Record(r.t + 100, r.x, r.m).seen(2.0).tolist() == [True, True, False]  # counted from the first point


def test_moments_are_of_observed_training_values_only():
    s = small()
    assert s.mean.tolist() == [np.mean([1, 3, 2, 4]), np.mean([10, 30, 11, 31])]
    assert s.std == pytest.approx([np.std([1, 3, 2, 4]), np.std([10, 30, 11, 31])])
    assert (s.duration, len(s)) == (2.5, 4)
    constant = tuple(Record(r.t, np.where(r.m, 5.0, 0.0), r.m) for r in s.series)
    assert small(series=constant).std.tolist() == [1.0, 1.0]


@pytest.mark.parametrize("labelled", [False, True])
def test_a_saved_set_loads_the_same(tmp_path, labelled):
    changes = {"task": "classify", "given": 0.0, "labels": np.array([0, 1, 0, 1]), "classes": ("no", "yes"),
               "links": None} if labelled else {}
    s = small(**changes)
    s.save(tmp_path / "kept")
    assert sorted(p.name for p in (tmp_path / "kept").iterdir()) == ["about.json", "set.npz"]
    again = NamedSet.load(tmp_path / "kept")
    for key in ("name", "title", "variables", "units", "time_unit", "ids", "task", "given", "classes"):
        assert getattr(again, key) == getattr(s, key), key
    for one, two in zip(s.series, again.series, strict=True):
        for key in ("t", "x", "m"):
            assert np.array_equal(getattr(one, key), getattr(two, key)), key
    for key in ("labels", "links"):
        assert np.array_equal(getattr(again, key), getattr(s, key)), key
    assert {k: v.tolist() for k, v in again.parts.items()} == {k: v.tolist() for k, v in s.parts.items()}


def test_a_missing_or_damaged_set_says_what_to_do(tmp_path):
    with pytest.raises(UserError, match="there is no data set"):
        NamedSet.load(tmp_path / "none")
    small().save(tmp_path)
    (tmp_path / "set.npz").write_bytes(b"PK")
    with pytest.raises(UserError, match="import it again"):
        NamedSet.load(tmp_path)
    (tmp_path / "about.json").write_text("[]")
    with pytest.raises(UserError, match="import it again"):
        NamedSet.load(tmp_path)


def test_more_values_than_a_set_may_have_are_not_allocated(tmp_path, monkeypatch):
    """A byte of the mask claims as many values as the set has variables."""
    small().save(tmp_path)
    monkeypatch.setattr(named_set, "MAX_VALUES", 20)
    monkeypatch.setattr(np, "unpackbits", lambda *a, **k: pytest.fail("it was allocated"))
    with pytest.raises(UserError, match="it claims 12 rows of 2 variables, more than 20 values"):
        NamedSet.load(tmp_path)


def test_a_fingerprint_is_of_the_content_not_of_the_name(tmp_path):
    s = small()
    s.save(tmp_path)
    assert NamedSet.load(tmp_path).fingerprint == s.fingerprint
    assert replace(s, name="renamed", title="Other", note="moved").fingerprint == s.fingerprint
    changed = [{"series": (record(1e-9), *s.series[1:])}, {"variables": ("level", "rain")}, {"units": ("cm", "")},
               {"given": 1.5}, {"parts": {**s.parts, "train": np.array([0])}}, {"ids": tuple("abce")}]
    assert len({s.fingerprint, *(replace(s, **change).fingerprint for change in changed)}) == 7


FAULTS = {
    "two variables": {"variables": ("level",), "units": ("m",)},
    "name of its own": {"variables": ("level", "level")},
    "1 units": {"units": ("m",)},
    "id of its own": {"ids": ("a", "a", "b", "c")},
    "series b has times that do not increase": {"series": (record(), replace(record(), t=np.zeros(3)),
                                                           record(), record())},
    "not a finite number": {"series": (replace(record(), x=np.full((3, 2), np.inf)), record(), record(), record())},
    "the test part has no series": {"parts": {"train": np.array([0]), "validation": np.array([1]),
                                              "test": np.array([], int)}},
    "in two parts": {"parts": {"train": np.array([0, 1]), "validation": np.array([1]), "test": np.array([2])}},
    "index that is no series": {"parts": {"train": np.array([0, 9]), "validation": np.array([1]),
                                          "test": np.array([2])}},
    "no value of flow": {"series": tuple(Record(r.t, r.x * [1, 0], r.m & [True, False])
                                         for r in (record(), record(), record(), record()))},
    "above 0": {"given": 0.0},
    "after the given 9 hours": {"given": 9.0},
    "classification needs": {"task": "classify"},
    "have the same label": {"task": "classify", "labels": np.zeros(4, np.int64), "classes": ("no", "yes")},
    "label of the 2 classes": {"labels": np.array([0, 1, 2, 0]), "classes": ("no", "yes")},
    "its task must be": {"task": "guess"},
    "links must be 2 by 2": {"links": np.zeros((3, 3))},
}


@pytest.mark.parametrize("words", FAULTS)
def test_parts_that_do_not_fit_are_refused(words):
    with pytest.raises(UserError, match=words):
        small(**FAULTS[words])


@pytest.mark.parametrize("name", ["", "Two", "../x", "a b", "-x", "x" * 65])
def test_a_name_must_be_fit_for_a_folder(name):
    with pytest.raises(UserError, match="cannot name"):
        check_name(name)
