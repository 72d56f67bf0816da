"""Compact arrays of recorded snapshots: read back within the step, small where they are smooth, refused if damaged."""

from __future__ import annotations

import io

import numpy as np
import pytest

from acenode.runs.compact_arrays import decode, encode, pack

RANDOM = np.random.default_rng(0)


def trajectories(shape: tuple[int, ...], frames: int = 21) -> np.ndarray:
    """Return damped oscillations, as float16."""
    t = np.linspace(0, 1, frames).reshape(-1, *[1] * len(shape))
    rate, phase, size = (RANDOM.normal(size=(1, *shape)) for _ in range(3))
    return (size * np.exp(-t * np.abs(rate)) * np.cos(2 * t + phase)).astype(np.float16)


@pytest.mark.parametrize(("polynomials", "axes"), [(True, ()), (False, ()), (False, (2, 3)), (True, (3,))])
def test_arrays_are_read_back_within_the_step(polynomials: bool, axes: tuple[int, ...]) -> None:
    x, step = trajectories((3, 8, 8)), 0.01
    found = decode(encode("a", x, step, polynomials, axes) | {"label": np.arange(3)})
    assert set(found) == {"a", "label"}
    assert found["a"].dtype == x.dtype
    error = np.abs(found["a"].astype(float) - x.astype(float))
    assert error.max() < 3 * step
    assert np.sqrt(np.square(error).mean()) < 0.31 * step  # uniform rounding: step / √12


def test_smooth_trajectories_take_few_bytes() -> None:
    x, step = trajectories((10, 16, 6, 6)), 0.02
    plain, smooth = (len(pack(encode("h", x, step, polynomials, ()))) for polynomials in (False, True))
    assert smooth < plain / 3
    assert smooth < x.nbytes / 8


def test_matrices_of_low_rank_take_few_bytes() -> None:
    """Jumps in time are not smooth, but rows and columns of an attention are correlated."""
    left, right = RANDOM.normal(size=(21, 4, 30, 2)), RANDOM.normal(size=(1, 1, 2, 30))
    x, step = (left @ right).astype(np.float16), 0.02
    rows, plain = (len(pack(encode("a", x, step, False, axes))) for axes in ((2, 3), ()))
    assert rows < plain / 3


def test_a_coefficient_beyond_16_bits_makes_the_step_larger() -> None:
    x = np.full((5, 1, 4), 60_000.0, np.float32)
    assert decode(encode("h", x, 1e-3, True, ()))["h"] == pytest.approx(x, rel=1e-3)


def test_files_are_npz_and_depend_on_nothing_but_the_arrays() -> None:
    members = encode("h", trajectories((2, 4)), 0.01, True, ())
    content = pack(members)
    assert content == pack(members)
    with np.load(io.BytesIO(content), allow_pickle=False) as file:
        np.testing.assert_array_equal(decode({k: file[k] for k in file.files})["h"], decode(members)["h"])


@pytest.mark.parametrize("change", [
    {"h.dtype": np.array("object")}, {"h.axis0": np.zeros((3, 3), np.float32)}, {"h.low": np.zeros((2, 2), np.uint8)}])
def test_damaged_members_raise(change: dict[str, np.ndarray]) -> None:
    members = encode("h", trajectories((2, 4)), 0.01, True, ())
    with pytest.raises((ValueError, KeyError)):
        decode(members | change)
    with pytest.raises(KeyError):
        decode({k: x for k, x in members.items() if k != "h.step"})
