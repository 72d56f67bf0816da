"""Settings with which a run on the bundled digits takes seconds."""

from typing import Any

QUICK: dict[str, Any] = {"epochs": 1, "analysis": False, "snapshots": 2, "batch_size": 512}
