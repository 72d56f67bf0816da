"""Settings with which a run on the bundled digits takes seconds."""

from typing import Any

QUICK: dict[str, Any] = {"epochs": 1, "analysis": False, "snapshots": 2, "batch_size": 512}
LOOSE: dict[str, Any] = {"rtol": 0.5, "atol": 0.5}  # two steps of dopri5 and not three or four


def quick_settings(method: str, given: dict[str, Any]) -> dict[str, Any]:
    """Return the given settings with those that make a run quick."""
    loose = {} if method in ("resnet", "rknet") or "solver" in given else LOOSE
    return {**QUICK, **loose, **given}
