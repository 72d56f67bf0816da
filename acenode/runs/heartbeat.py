"""Heartbeats: a run on another machine is alive while a reader sees its heartbeat change.

The clocks of two machines may differ and may be set back, so a reader measures with its own monotonic clock how long
ago it last saw a change. The age by the clock counts only for a heartbeat that it sees for the first time.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

RENEW_SECONDS = 10.0  # longest time between two heartbeats of a writer
SILENT_SECONDS = 60.0  # without a change, after which a run counts as dead
UNSEEN_SECONDS = 120.0  # age by the clock above which a heartbeat counts as dead until it is seen to change
REMEMBERED = 10_000  # runs


@dataclass(frozen=True)
class _Seen:
    beat: float
    at: float  # when this reader saw it first (monotonic)
    alive: bool


class HeartbeatWatch:
    """Remembers the heartbeats that this process has seen, by the run's folder. Threads may share one."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._seen: dict[str, _Seen] = {}

    def alive(self, folder: Path | str, beat: float, *, trust_clock: bool = True) -> bool:
        """Return True if the heartbeat has changed within the last minute.

        Args:
            folder: of the run.
            beat: the heartbeat there, in seconds of the writer's clock.
            trust_clock: believe a heartbeat that is seen for the first time and recent by the clock.
        """
        with self._lock:
            known, now = self._seen.get(key := os.fspath(folder)), self._clock()
            if known is not None and known.beat == beat:
                return known.alive and now - known.at < SILENT_SECONDS
            alive = known is not None or (trust_clock and time.time() - beat < UNSEEN_SECONDS)
            self._seen[key] = _Seen(beat, now, alive)
            while len(self._seen) > REMEMBERED:
                del self._seen[next(iter(self._seen))]
            return alive


class HeartbeatThread:
    """Calls `renew` every few seconds until it is stopped, so that loading data or testing is no silence."""

    def __init__(self, renew: Callable[[], None], name: str) -> None:
        self._renew, self._ended = renew, threading.Event()
        self._thread = threading.Thread(target=self._beat, name=f"acenode-heartbeat-{name}", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop, after a renewal that has begun."""
        self._ended.set()
        self._thread.join()

    def _beat(self) -> None:
        while not self._ended.wait(RENEW_SECONDS):
            self._renew()


def touch(folder: Path) -> None:
    """Renew the heartbeat of a queued run, which nothing writes to: the time of its folder."""
    with suppress(OSError):  # deleted, or on a file system that cannot be written now
        os.utime(folder)


def queued_beat(folder: Path | str, heartbeat: float) -> float:
    """Return the heartbeat of a queued run: the later of its status and of the time of its folder."""
    try:
        return max(heartbeat, os.stat(folder).st_mtime)
    except OSError:
        return heartbeat
