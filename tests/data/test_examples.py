"""Examples of named variables: what they contain, and windows that do not leak."""

import numpy as np
import pytest

from acenode.data.named_batches import HIDDEN_SHARE, ScaledSet, correlation
from acenode.data.named_examples import BUILDERS, cut_windows, example, split_by_time
from acenode.data.named_set import Record
from acenode.errors import UserError
from acenode.training.metrics import binary_auc

WINDOWED = ("la-speeds", "ny-speeds", "stocks", "air-quality")


def test_windows_of_one_series_do_not_leak():
    whole = Record.from_gaps(np.arange(100.0), np.stack([np.arange(100.0), np.ones(100)], 1))
    windows = cut_windows(whole, 10.0, 1.0, 6.0)
    assert len(windows) == 91
    assert {len(w.t) for w in windows} == {10}
    parts = split_by_time(windows)
    times = {name: {t for i in index for t in windows[i].t} for name, index in parts.items()}
    assert not times["train"] & times["validation"]
    assert max(times["train"]) < min(times["validation"])
    assert max(times["validation"]) < min(times["test"])
    with pytest.raises(UserError, match="shorter windows"):
        split_by_time(cut_windows(whole, 60.0, 10.0))


def test_windows_without_a_target_are_left_out():
    x = np.ones((20, 2))
    x[8:] = np.nan
    windows = cut_windows(Record.from_gaps(np.arange(20.0), x), 6.0, 1.0, 3.0)
    assert [w.t[0] for w in windows] == [0.0, 1.0, 2.0, 3.0, 4.0]


@pytest.mark.parametrize("name", BUILDERS)
def test_an_example_fits_its_experiment(name):
    from acenode.experiments import get

    source, entry = example(name), get(name)
    assert (source.name, source.title) == (entry.name, entry.title)
    assert (entry.metric.name == "auc") == (source.task == "classify")
    assert entry.classes == source.classes
    assert len(source.parts["train"]) >= 20
    if name in WINDOWED:
        times = {part: {t for i in index for t in source.series[i].t} for part, index in source.parts.items()}
        assert max(times["train"]) < min(times["validation"])
        assert max(times["validation"]) < min(times["test"])
    assert (source.links is not None) == (name in ("oscillators", "predator-prey", "la-speeds"))


def test_simulated_sets_are_the_same_every_time():
    again = BUILDERS["predator-prey"]()
    assert all(np.array_equal(a.x, b.x) for a, b in zip(again.series, example("predator-prey").series, strict=True))
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
    data = ScaledSet.of(source)
    batch = data.batch(source.parts["train"])
    both = np.concatenate([batch.seen.x.numpy(), batch.target.x.numpy()], 1)
    assert np.abs(both.mean((0, 1))).max() < 0.02
    assert np.abs(both.std((0, 1)) - 1).max() < 0.02
    assert batch.span == (pytest.approx(11 / 23), 1.0)
    assert batch.times is not None
    assert batch.times[-1] == 1.0
    first = source.series[source.parts["train"][0]]
    assert batch.target.x[0, 0].numpy() * source.std + source.mean == pytest.approx(first.x[12], rel=1e-4)
    assert batch.reference[0, 3].numpy() * source.std + source.mean == pytest.approx(first.x[11], rel=1e-4)


def test_correlation_is_of_times_at_which_both_are_observed():
    source = example("ny-speeds")
    found = correlation(source)
    x = np.concatenate([source.series[i].x for i in source.parts["train"]])
    m = np.concatenate([source.series[i].m for i in source.parts["train"]])
    both = m[:, 0] & m[:, 1]
    assert found[0, 1] == pytest.approx(np.corrcoef(x[both, 0], x[both, 1])[0, 1], abs=1e-6)
    assert np.allclose(found, found.T)
    assert np.allclose(np.diag(found), 1)
