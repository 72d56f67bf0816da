"""Every module of a model has the backend that its run was given, not a default."""

from __future__ import annotations

from typing import Any

import pytest

from acenode.backend import Backend
from acenode.experiments import EXPERIMENTS

CASES = [(name, method, {}) for name, e in EXPERIMENTS.items() for method in e.methods]
CASES += [("ushcn", "ace", {"attention": "fixed"}), ("ushcn", "ace", {"initial": "dense"}),
          ("physionet", "ace", {"attention_in": "both"}), ("physionet", "ace", {"initial": "dense"}),
          ("mnist", "ace", {"initial": "dense"}), ("mnist", "ace", {"attention": "none"})]


@pytest.mark.parametrize(("experiment", "method", "given"), CASES)
def test_modules_have_the_backend_of_the_run(experiment: str, method: str, given: dict[str, Any]) -> None:
    entry, backend = EXPERIMENTS[experiment], Backend(accelerated=False, log=print)
    build = entry.make.__self__.build  # type: ignore[attr-defined]
    model = build(entry.configure(method, **given), backend)
    others = [name for name, module in model.named_modules()
              if getattr(module, "backend", backend) is not backend]
    assert not others
