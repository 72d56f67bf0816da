"""How the pages say how long runs take."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace

import pytest
from acenode_app import estimates
from acenode_app.services import Services
from conftest import RunFolder
from streamlit.testing.v1 import AppTest

from acenode import experiments
from acenode.compare.reproduction import RunTime
from acenode.config import Config
from acenode.execution.estimate import Estimate


def test_several_gpus_share_the_runs(services: Services, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimates, "measured", lambda config, entries: RunTime(60.0))
    configs = [experiments.get("mnist").configure("ace", epochs=2, seed=seed) for seed in range(5)]
    assert services.launcher
    monkeypatch.setattr(services.launcher, "trains_together", lambda config: False)
    found = estimates.time_here(configs)
    assert found.text + found.order == "about 10 min here, one after the other"
    monkeypatch.setattr(services.launcher, "devices", lambda device: 8)
    found = estimates.time_here(configs)
    assert found.text + found.order == "about 2 min here, on 5 GPUs"  # not less than one run takes
    assert estimates.time_here(configs[:1]).order == ""


def test_requests_are_timed_one_at_a_time_and_the_newest_first(services: Services,
                                                               monkeypatch: pytest.MonkeyPatch) -> None:
    configs = [experiments.get("mnist").configure("ace", epochs=2, batch_size=size) for size in (10, 20, 30)]
    timed: list[Config] = []
    begun, release = threading.Event(), threading.Event()

    def estimate(given: list[Config], *_: object) -> Estimate:
        timed.extend(given)
        begun.set()
        assert release.wait(60)
        return Estimate(1, 60.0, "timing", dict.fromkeys(given, 60.0))

    monkeypatch.setattr(estimates, "estimate", estimate)
    assert estimates.time_here(configs[:1]).pending
    assert begun.wait(60)
    for config in (*configs[1:], configs[1]):  # a page that is drawn again asks again
        assert estimates.time_here([config]).pending
    assert timed == configs[:1]
    release.set()
    assert estimates.wait(300)
    assert timed == [configs[0], configs[2], configs[1]]
    assert all(not estimates.time_here([config]).pending for config in configs)


def test_no_click_is_lost_when_the_time_becomes_known_while_the_page_is_drawn(
        page: Callable[..., AppTest], services: Services, monkeypatch: pytest.MonkeyPatch) -> None:
    app = page("mnist", method="ODE-Net")
    pending, known = estimates.TimeHere(None, "", pending=True), estimates.TimeHere(60.0, "timing")
    answers = iter([pending])
    monkeypatch.setattr(estimates, "time_here", lambda configs: next(answers, known))
    app.button(key="train").click().run()
    assert len(services.catalogue.entries()) == 1
    services.launcher.stop(services.store.open("last"))
    assert services.launcher.wait(60)


def test_nothing_is_timed_while_a_similar_run_trains(services: Services, run_folder: RunFolder,
                                                     monkeypatch: pytest.MonkeyPatch) -> None:
    timed: list[Config] = []

    def estimate(given: list[Config], *_: object) -> Estimate:
        timed.extend(given)
        return Estimate(len(given), 0.0, "timing")

    monkeypatch.setattr(estimates, "estimate", estimate)
    run = run_folder.running(progress=0.001)
    asked = replace(run.config(), seed=5)
    assert "after the first epoch" in estimates.time_here([asked]).text
    estimates._time_in_background([asked])  # asked for before the run was started
    assert estimates.wait(300)
    assert timed == []
    assert estimates.time_here([asked]).pending
    run_folder.running(progress=0.01, epoch=1, epochs=100)  # after an epoch of it
    assert not estimates.time_here([asked]).pending


def test_seeds_that_become_one_computation_take_little_more_than_one(services: Services,
                                                                     monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimates, "measured", lambda config, entries: RunTime(60.0))
    assert services.launcher
    monkeypatch.setattr(services.launcher, "trains_together", lambda config: True)
    config = experiments.get("mnist").configure("ace", epochs=10)
    three = estimates.time_here([replace(config, seed=seed) for seed in range(3)])
    assert three.seconds == pytest.approx(1.3 * 600)
    assert three.order == ", seeds of the same settings together"
    nine = estimates.time_here([replace(config, seed=seed) for seed in range(9)])  # eight, and one by itself
    assert nine.seconds == pytest.approx((1 + 0.15 * 7 + 1) * 600)
    trials = estimates.time_here([config] * 3)  # of a search
    assert (trials.seconds, trials.order) == (pytest.approx(1800), ", one after the other")
