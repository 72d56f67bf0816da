"""A page sends its player first; the rest waits until the browser has read the player's data."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from acenode_app import components
from acenode_app.experiment import page as experiment
from acenode_app.experiment import player_first
from acenode_app.services import Services
from conftest import RunFolder
from streamlit.testing.v1 import AppTest
from test_routes import get

LONG = 60.0  # seconds that nothing here takes


def test_the_rest_waits_until_the_data_of_all_runs_was_sent() -> None:
    order: list[str] = []
    started = threading.Event()

    def page() -> None:
        with player_first.waiting_for(["a", "b"], LONG):
            order.append("player")
            started.set()
        order.append("rest")

    thread = threading.Thread(target=page)
    thread.start()
    assert started.wait(LONG)
    for run in ("b", "c"):
        player_first.data_sent(run)
    order.append("last data")
    player_first.data_sent("a")
    thread.join(LONG)
    assert order == ["player", "last data", "rest"]


def test_data_that_is_read_at_once_counts() -> None:
    with player_first.waiting_for(["a"], LONG):
        player_first.data_sent("a")


def test_the_rest_does_not_wait_for_ever() -> None:
    with player_first.waiting_for(["a"], 0.01):
        pass
    player_first.data_sent("a")  # nobody waits any more
    assert not player_first._waiting


def test_the_routes_tell_what_was_sent(services: Services, run_folder: RunFolder) -> None:
    run = run_folder.finished()[0]
    epoch = get(f"/lab/film/{run.id}").json()["epochs"][-1]
    with player_first.waiting_for([run.id], LONG):
        assert get(f"/lab/film/{run.id}/{epoch}").status == 200
    with player_first.waiting_for([run.id], LONG):  # the player is told that there is nothing to draw
        assert get(f"/lab/film/{run.id}/12345").status == 404
    without = run_folder.failed()
    for path in without.snapshots():
        path.unlink()
    with player_first.waiting_for([without.id], LONG):
        assert get(f"/lab/film/{without.id}").json()["epochs"] == []


def test_an_experiment_sends_its_player_before_the_form_and_waits_once(
        page: Callable[..., AppTest], run_folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []

    @contextmanager
    def waiting_for(runs: Iterable[str]) -> Iterator[None]:
        yield
        order.append("wait")

    def noting(name: str, function: Any) -> Any:
        return lambda *given, **more: (order.append(name), function(*given, **more))[1]

    run_folder.finished()
    monkeypatch.setattr(player_first, "is_served", lambda: True)
    monkeypatch.setattr(player_first, "waiting_for", waiting_for)
    for module, name in ((components, "player"), (experiment, "_show_heading"), (experiment, "_show_form"),
                         (components, "curves")):
        monkeypatch.setattr(module, name, noting(name.removeprefix("_show_"), getattr(module, name)))
    app = page("mnist")
    assert order == ["heading", "player", "wait", "form", "curves"]
    app.run()
    assert order[5:] == ["heading", "player", "form", "curves"]
