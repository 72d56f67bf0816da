"""The thread behind a page: frames, commands and their checks, and stopping when nobody watches."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest
import torch

from acenode.errors import UserError
from acenode.playground import session as sessions_module
from acenode.playground.session import (
    AGAIN,
    MOST,
    SLOW,
    STOPPED,
    Frame,
    PlaygroundSession,
    PlaygroundSessions,
    TooManyPlaygroundsError,
)
from acenode.playground.settings import Command, read_command

PATIENCE = 60.0  # seconds; generous, for a busy machine


@pytest.fixture
def session() -> Iterator[PlaygroundSession]:
    """Return a session that has been paused before its first step."""
    made = PlaygroundSession()
    made.send(Command("pause"))
    yield made
    made.close()


def until(session: PlaygroundSession, condition: Callable[[Frame], bool]) -> Frame:
    """Ask for frames until one meets the condition."""
    after, end = 0, time.monotonic() + PATIENCE
    while time.monotonic() < end:
        found = session.frame(after, 1.0)
        if found is not None:
            if condition(found):
                return found
            after = found.serial
    raise AssertionError("no such frame")


def test_single_steps_rewinding_and_seeds_repeat_the_numbers(session: PlaygroundSession) -> None:
    def five_steps() -> list[list[float]]:
        for _ in range(5):
            session.send(Command("step"))
        return [network.losses for network in until(session, lambda f: f.step == 5).networks]

    session.send(Command("set", {"problem": "circles", "attention": "pairwise"}))
    first = five_steps()
    assert [len(losses) for losses in first] == [5, 5, 5]
    session.send(Command("rewind"))
    again = until(session, lambda f: f.step == 0)
    assert not again.running
    assert [network.losses for network in again.networks] == [[], [], []]
    torch.manual_seed(5)  # the global generator has no part in it
    assert five_steps() == first
    session.send(Command("set", {"seed": 4}))
    until(session, lambda f: f.settings.seed == 4)
    assert five_steps() != first


def test_running_pausing_and_changing(session: PlaygroundSession) -> None:
    session.send(Command("run"))
    ran = until(session, lambda f: f.running and f.step >= 3 and f.steps_a_second > 0)
    session.send(Command("set", {"learning_rate": 0.05}))
    assert until(session, lambda f: f.settings.learning_rate == 0.05).step >= ran.step  # goes on
    session.send(Command("pause"))
    paused = until(session, lambda f: not f.running)
    assert session.frame(paused.serial, 0.1) is None  # nothing changes any more
    session.send(Command("set", {"problem": "circles", "attention": "pairwise"}))
    changed = until(session, lambda f: f.problem.name == "circles")
    assert (changed.step, changed.running) == (0, False)
    picture = changed.networks[2].picture
    assert picture is not None
    assert picture.weights is not None
    assert picture.weights.shape == (25, 150, 2, 2)
    assert picture.rates.shape == (2, 13, 121, 2)


def test_training_stops_when_nobody_watches_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions_module, "UNWATCHED", 0.2)
    with closing(PlaygroundSession()) as session:
        seen = until(session, lambda f: f.step >= 1)
        if (thread := session._thread) is not None:
            thread.join(PATIENCE)
        assert session._thread is None
        found = until(session, lambda f: f.serial > seen.serial)
        assert (found.note, found.running) == (STOPPED, False)
        session.send(Command("run"))
        assert until(session, lambda f: f.step > found.step).note == ""


def test_it_gives_way_to_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions_module, "FASTEST_BESIDE_RUNS", 4.0)
    with closing(PlaygroundSession(busy=lambda: True)) as session:
        found = until(session, lambda f: f.step >= 4)
    assert found.note == SLOW
    assert found.steps_a_second < 8


def test_a_defect_is_shown_and_rewinding_starts_again(monkeypatch: pytest.MonkeyPatch,
                                                      session: PlaygroundSession) -> None:
    until(session, lambda f: f.step == 0)
    with monkeypatch.context() as patch:
        patch.setattr("acenode.playground.learner.SideBySide.step", lambda self: 1 / 0)
        session.send(Command("step"))
        assert "Rewind" in until(session, lambda f: f.note != "").note
    session.send(Command("rewind"))
    assert until(session, lambda f: f.note == "").step == 0


def test_every_page_has_its_own_playground_and_a_watched_one_is_never_dropped() -> None:
    playgrounds = PlaygroundSessions()
    names = [f"{n:032x}" for n in range(MOST + 1)]
    opened = [playgrounds.get(name) for name in names[:MOST]]
    assert playgrounds.get(names[0]) is opened[0]
    with pytest.raises(TooManyPlaygroundsError, match=f"{MOST} playgrounds are open, .*: close one in another tab"):
        playgrounds.get(names[MOST])
    for session, seconds in ((opened[2], 30.0), (opened[3], 60.0)):
        session.asked -= seconds  # nobody asks for its frames any more
    playgrounds.get(names[MOST])
    assert [playgrounds.get(name) for name in names[:3]] == opened[:3]
    opened[2].asked = time.monotonic()
    with pytest.raises(TooManyPlaygroundsError):
        playgrounds.get(names[3])
    playgrounds.close()


def test_a_page_whose_playground_was_dropped_gets_frames_again_and_is_told() -> None:
    with closing(PlaygroundSession()) as session:
        found = session.frame(after=500, patience=PATIENCE)
    assert found is not None
    assert (found.serial, found.note) == (1, AGAIN)


PATH = [[0.0, 0.0], [1.0, 0.5]]


@pytest.mark.parametrize("message", [
    {"action": "run"}, {"action": "rewind"}, {"action": "set", "values": {}},
    {"action": "set", "values": {"learning_rate": 0.1, "tolerance": 1e-5, "penalty_weight": 0, "hidden": 64}},
    {"action": "set", "values": {"seed": 0, "problem": "drawn", "attention": "pairwise", "strokes": [PATH] * 8}}])
def test_good_commands(message: dict[str, Any]) -> None:
    assert read_command(message) == Command(message["action"], message.get("values", {}))


@pytest.mark.parametrize(("message", "words"), [
    (None, "send an action"), ([], "send an action"), ({"action": ["run"]}, "send an action"),
    ({"action": "run", "values": {"hidden": 3}}, "only the action set"),
    ({"action": "set", "values": [1]}, "only the action set"), ({"action": "run", "path": "/"}, "nothing else"),
    *(({"action": "set", "values": values}, words) for values, words in (
        ({"__class__": 1}, "no setting"), ({"problem": "x"}, "one of"), ({"problem": ["swap"]}, "one of"),
        ({"hidden": 65}, "from 2 to 64"), ({"hidden": 8.0}, "whole"), ({"hidden": True}, "whole"),
        ({"hidden": "8"}, "whole"), ({"learning_rate": 0}, "from 0.0001"),
        ({"tolerance": json.loads("NaN")}, "from 1e-05"), ({"penalty_weight": json.loads("1e999")}, "from 0 to"),
        ({"learning_rate": 10**400}, "from 0.0001"), ({"strokes": []}, "between 1 and 8"),
        ({"strokes": [PATH] * 9}, "between 1 and 8"), ({"strokes": [[[0, 0]]]}, "between 2 and 200"),
        ({"strokes": [[[0, 0], [0, 9]]]}, "two coordinates"), ({"strokes": [[[0, 0], [0, "1"]]]}, "two coordinates"),
        ({"strokes": [[[0, 0], [0, 0]]]}, "drag further")))])
def test_bad_commands(message: Any, words: str) -> None:
    with pytest.raises(UserError, match=words):
        read_command(message)


@pytest.mark.parametrize("bad", ["", "../x", "A" * 32, "1" * 200])
def test_names_that_no_page_draws_are_refused(bad: str) -> None:
    with pytest.raises(UserError):
        PlaygroundSessions().get(bad)
