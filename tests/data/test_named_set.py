"""Sets of series with named variables: checks, moments, files and batches; and the examples that come with them."""

from dataclasses import replace

import numpy as np
import pytest

from acenode.data import named_set
from acenode.data.named_batches import HIDDEN_SHARE, ScaledSet, correlation
from acenode.data.named_set import BUILDERS, NamedSet, check_name, example
from acenode.data.series import Record
from acenode.errors import UserError
from acenode.experiments import get
from acenode.training.metrics import binary_auc

NAN = np.nan
WINDOWED = {"la-speeds", "ny-speeds", "stocks", "air-quality"}


def record(shift: float = 0.0) -> Record:
    return Record.from_gaps(np.array([0.0, 1.0, 2.5]), np.array([[1.0, NAN], [3.0, 10.0], [NAN, 30.0]]) + shift)


def small(**changes) -> NamedSet:
    return NamedSet(**{
        "name": "two-wells", "title": "Two wells", "note": "", "variables": ("level", "flow"), "units": ("m", ""),
        "time_unit": "hours", "time_origin": "", "ids": tuple("abcd"), "series": tuple(record(s) for s in range(4)),
        "task": "forecast", "given": 2.0,
        "parts": {"train": np.array([0, 1]), "validation": np.array([2]), "test": np.array([3])},
        "links": np.array([[0.0, 1.0], [0.0, 0.0]]), **changes})


def test_gaps_have_a_mask_and_moments_are_of_observed_training_values():
    r = record()
    assert r.x.tolist() == [[1.0, 0.0], [3.0, 10.0], [0.0, 30.0]]
    assert r.m.tolist() == [[True, False], [True, True], [False, True]]
    assert Record(r.t + 100, r.x, r.m).seen(2.0).tolist() == [True, True, False]  # counted from the first point
    s = small()
    assert s.mean.tolist() == [np.mean([1, 3, 2, 4]), np.mean([10, 30, 11, 31])]
    assert s.std == pytest.approx([np.std([1, 3, 2, 4]), np.std([10, 30, 11, 31])])
    assert (s.duration, len(s)) == (2.5, 4)
    constant = tuple(Record(r.t, np.where(r.m, 5.0, 0.0), r.m) for r in s.series)
    assert small(series=constant).std.tolist() == [1.0, 1.0]


@pytest.mark.parametrize("changes", [{}, {"task": "classify", "given": 0.0, "labels": np.array([0, 1, 0, 1]),
                                          "classes": ("no", "yes"), "links": None}])
def test_a_saved_set_loads_the_same(tmp_path, changes):
    s = small(**changes)
    s.save(tmp_path / "kept")
    assert sorted(p.name for p in (tmp_path / "kept").iterdir()) == ["about.json", "set.npz"]
    again = NamedSet.load(tmp_path / "kept")
    assert (again.name, again.title, again.fingerprint) == (s.name, s.title, s.fingerprint)
    assert all(np.array_equal(one.m, two.m) for one, two in zip(s.series, again.series, strict=True))


def test_a_missing_or_damaged_set_says_what_to_do(tmp_path, monkeypatch):
    with pytest.raises(UserError, match="there is no data set"):
        NamedSet.load(tmp_path / "none")
    small().save(tmp_path)
    with monkeypatch.context() as patch:  # a byte of the mask claims as many values as the set has variables
        patch.setattr(named_set, "MAX_VALUES", 20)
        patch.setattr(np, "unpackbits", lambda *a, **k: pytest.fail("it was allocated"))
        with pytest.raises(UserError, match="it claims 12 rows of 2 variables, more than 20 values"):
            NamedSet.load(tmp_path)
    for name, content in (("set.npz", b"PK"), ("about.json", b"[]")):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(UserError, match="import it again"):
            NamedSet.load(tmp_path)


def test_a_fingerprint_is_of_the_content_not_of_the_name():
    s = small()
    assert replace(s, name="renamed", title="Other", note="moved").fingerprint == s.fingerprint
    changed = [*({"series": (first, *s.series[1:])} for first in (record(1e-9), replace(record(), t=record().t * 1.2))),
               {"variables": ("level", "rain")}, {"units": ("cm", "")}, {"time_unit": "days"}, {"given": 1.5},
               {"parts": {**s.parts, "train": np.array([0])}}, {"ids": tuple("abce")}, {"links": np.eye(2)},
               {"labels": np.array([0, 1, 1, 0]), "classes": ("no", "yes")}]
    assert len({s.fingerprint, *(replace(s, **change).fingerprint for change in changed)}) == len(changed) + 1


def parts(train, validation, test):
    return {"parts": {"train": np.array(train, int), "validation": np.array(validation, int),
                      "test": np.array(test, int)}}


FAULTS = {
    "two variables": {"variables": ("level",), "units": ("m",)},
    "name of its own": {"variables": ("level", "level")},
    "1 units": {"units": ("m",)},
    "id of its own": {"ids": ("a", "a", "b", "c")},
    "series b has times that do not increase": {"series": (record(), replace(record(), t=np.zeros(3)),
                                                           record(), record())},
    "not a finite number": {"series": (replace(record(), x=np.full((3, 2), np.inf)), record(), record(), record())},
    "the test part has no series": parts([0], [1], []),
    "in two parts": parts([0, 1], [1], [2]),
    "index that is no series": parts([0, 9], [1], [2]),
    "no value of flow": {"series": tuple(Record(r.t, r.x * [1, 0], r.m & [True, False]) for r in [record()] * 4)},
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


def test_a_name_must_be_fit_for_a_folder():
    for name in ("", "Two", "../x", "a b", "-x", "x" * 65):
        with pytest.raises(UserError, match="cannot name"):
            check_name(name)


@pytest.mark.parametrize("name", BUILDERS)
def test_an_example_fits_its_experiment_and_its_windows_do_not_leak(name):
    source, entry = example(name), get(name)
    assert (source.name, source.title, source.classes) == (entry.name, entry.title, entry.classes)
    assert (entry.metric.name == "auc") == (source.task == "classify")
    assert len(source.parts["train"]) >= 20
    assert (source.links is not None) == (name in ("oscillators", "predator-prey", "la-speeds"))
    if name in WINDOWED:
        times = {part: {t for i in index for t in source.series[i].t} for part, index in source.parts.items()}
        assert max(times["train"]) < min(times["validation"])
        assert max(times["validation"]) < min(times["test"])


def test_simulated_examples_are_the_same_every_time():
    assert BUILDERS["predator-prey"]().fingerprint == example("predator-prey").fingerprint
    assert (example("oscillators").links > 0).sum(1).tolist() == [2] * 8


def test_who_dies_is_not_told_by_how_often_or_how_long_the_patient_is_seen():
    """Patients seen alive after a year, judged by that year: visits alone must be no better than chance.

    The standard error of such an AUC is 0.037 for 107 of 254 patients; the band is twice that.
    """
    source = example("liver")
    assert (len(source.series), source.labels.sum()) == (254, 107)
    assert max(r.t[-1] for r in source.series) <= 365
    for visits in ([len(r.t) for r in source.series], [r.t[-1] for r in source.series]):
        assert binary_auc(np.array(visits, float), source.labels > 0) == pytest.approx(0.5, abs=0.075)


def test_held_out_points_are_not_seen():
    data = ScaledSet.of(example("air-quality"))
    batch = data.batch(data.source.parts["test"][:5])
    assert not (batch.seen.m * batch.target.m).any()
    share = batch.target.m.sum() / (batch.seen.m.sum() + batch.target.m.sum())
    assert abs(float(share) - HIDDEN_SHARE) < 0.08
    again = data.batch(data.source.parts["test"][2:5])
    assert (again.target.m[:, :, 0] == batch.target.m[2:, :again.target.m.shape[1], 0]).all()  # the same in any batch
    train = [data.batch(data.source.parts["train"][:5], seed).target.m.sum() for seed in (1, 2)]
    assert train[0] != train[1]


def test_values_of_a_batch_are_standardised_and_its_times_are_from_0_to_1():
    source = example("la-speeds")
    batch = ScaledSet.of(source).batch(source.parts["train"])
    both = np.concatenate([batch.seen.x.numpy(), batch.target.x.numpy()], 1)
    assert np.abs(both.mean((0, 1))).max() < 0.02
    assert np.abs(both.std((0, 1)) - 1).max() < 0.02
    assert (batch.span, batch.times[-1]) == ((pytest.approx(11 / 23), 1.0), 1.0)
    first = source.series[source.parts["train"][0]]
    assert batch.target.x[0, 0].numpy() * source.std + source.mean == pytest.approx(first.x[12], rel=1e-4)
    assert batch.reference[0, 3].numpy() * source.std + source.mean == pytest.approx(first.x[11], rel=1e-4)


def test_correlation_is_of_times_at_which_both_are_observed():
    source = example("ny-speeds")
    found = correlation(source)
    x, m = (np.concatenate([getattr(source.series[i], part) for i in source.parts["train"]]) for part in "xm")
    both = m[:, 0] & m[:, 1]
    assert found[0, 1] == pytest.approx(np.corrcoef(x[both, 0], x[both, 1])[0, 1], abs=1e-6)
    assert np.allclose(found, found.T)
    assert np.allclose(np.diag(found), 1)
