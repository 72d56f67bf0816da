"""How the pages say how long runs take."""

from __future__ import annotations

import pytest
from acenode_app import estimates
from acenode_app.services import Services

from acenode import experiments
from acenode.results.run_times import RunTime


def test_several_gpus_share_the_runs(services: Services, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimates, "measured", lambda config, entries: RunTime(60.0))
    configs = [experiments.get("mnist").configure("ace", epochs=2, seed=seed) for seed in range(5)]
    found = estimates.time_here(configs)
    assert found.text + found.order == "about 10 min here, one after the other"
    assert services.launcher
    monkeypatch.setattr(services.launcher, "devices", lambda device: 8)
    found = estimates.time_here(configs)
    assert found.text + found.order == "about 2 min here, on 5 GPUs"  # not less than one run takes
    assert estimates.time_here(configs[:1]).order == ""
