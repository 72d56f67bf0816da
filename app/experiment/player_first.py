"""Let a page's player be drawn before the rest of the page.

The rest (a form of thirty widgets, charts, and the scripts of both) keeps the browser busy for seconds. So the page
sends its player first and waits, two seconds at most, until the browser has read the player's data.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import streamlit as st

from ..services import is_served

LIMIT = 2.0  # seconds that the rest waits at most, such as for a page in a hidden tab, which reads nothing
DRAWING = 0.1  # seconds in which the browser draws what it has read
KEY = "player first"  # in the session: the page whose player was waited for last

_changed = threading.Condition()
_waiting: dict[int, set[str]] = {}  # for each page that waits: the runs whose data its player has not read yet


@contextmanager
def before_the_rest(page: str, runs: Iterable[str]) -> Iterator[None]:
    """Wait at the end of the block, in which the player is sent, until the browser has read the data of these runs.

    Only the first run of a page in a session waits: later the player is on the page already, perhaps out of view.
    """
    if not is_served() or st.session_state.get(KEY) == page:
        yield
        return
    st.session_state[KEY] = page
    with waiting_for(runs):
        yield


@contextmanager
def waiting_for(runs: Iterable[str], limit: float = LIMIT) -> Iterator[None]:
    """Wait at the end of the block until the data of these runs was sent, since its beginning, to any browser."""
    missing = set(runs)
    with _changed:
        _waiting[id(missing)] = missing
    try:
        yield
        with _changed:
            sent = _changed.wait_for(lambda: not missing, limit)
        if sent:
            time.sleep(DRAWING)
    finally:
        with _changed:
            del _waiting[id(missing)]


def data_sent(run: str) -> None:
    """Let pages that wait for the player's data of this run continue."""
    with _changed:
        for missing in _waiting.values():
            missing.discard(run)
        _changed.notify_all()
