"""Curves thinned for drawing."""

from __future__ import annotations

from acenode.compare import training_curves


def test_thinned_curves_keep_means_and_extremes() -> None:
    steps = [{"step": n, "L_h": float(n), "dt_min": float(n), "dt_max": float(n)} for n in range(3100)]
    steps[1]["L_h"] = None  # type: ignore[assignment]
    found = training_curves.over_steps(steps)
    assert found["every"] == 3
    assert found["step"][:2] == [0, 3]
    assert len(found["step"]) == len(found["series"]["L_h"]) == 1034
    assert found["series"]["L_h"][:2] == [1.0, 4.0]
    assert found["series"]["dt_min"][:2] == [0.0, 3.0]
    assert found["series"]["dt_max"][:2] == [2.0, 5.0]
