"""How long runs take on this machine: from similar runs, or from a few iterations timed in the background."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import streamlit as st

from acenode.config import Config
from acenode.execution import launcher as queue
from acenode.execution.engine_choice import MAX_SEEDS
from acenode.execution.estimate import estimate, measured, time_aside, trains_now
from acenode.runs.store import Run

from . import labels
from .services import services

DELAY = 3.0  # seconds after the last request before a timing starts: a page is drawn, or the next one is opened
SHARE = 0.15  # of one seed's time that a further seed in the same computation takes
REFRESH = "3s"  # while a timing runs


@dataclass(frozen=True)
class TimeHere:
    """Seconds of some runs, seeds that become one computation together and the rest one after the other on each device;
    None while they are being timed (`pending`) or if they are unknown."""

    seconds: float | None
    basis: str
    pending: bool = False
    after_epoch: bool = False  # a similar run trains, and will tell after its first epoch
    runs: int = 0
    devices: int = 1  # that train them
    together: bool = False  # seeds of a configuration become one computation

    @property
    def text(self) -> str:
        if self.seconds is None:
            if self.after_epoch:
                return "time known after the first epoch of the run that trains"
            return "estimating the time…" if self.pending else "time unknown"
        return f"about {labels.duration(self.seconds)} here"

    @property
    def order(self) -> str:
        """How several runs are trained, to follow the time."""
        if self.seconds is None or self.runs < 2:
            return ""
        if self.together:
            return ", seeds of the same settings together"
        return f", on {self.devices} GPUs" if self.devices > 1 else ", one after the other"


_lock = threading.Lock()
_timed: dict[Config, tuple[float | None, str]] = {}  # seconds, and what they are based on or why there are none
_queued: set[Config] = set()
_requests: list[list[Config]] = []  # not yet timed, the newest last
_requested = 0.0  # when the newest request came


def time_here(configs: Sequence[Config]) -> TimeHere:
    """Return the time of runs without waiting: what no similar run tells is timed in the background."""
    entries = services().catalogue.entries()
    launcher = services().launcher if services().launcher_ready else None
    alike: dict[Config, list[int]] = {}
    for config in configs:
        alike.setdefault(replace(config, seed=0), []).append(config.seed)
    devices = min(len(configs), launcher.devices(configs[0].device)) if launcher and len(configs) > 1 else 1
    total, longest, together, bases, missing = 0.0, 0.0, False, dict[str, None](), list[Config]()
    for config, seeds in alike.items():
        found = measured(config, entries)
        known = (found.seconds(config), "similar runs") if found else _timed.get(config)
        if known is None:
            missing.append(config)
            continue
        each, basis = known
        if each is None:
            return TimeHere(None, basis)
        bases[basis] = None
        several = len(set(seeds)) == len(seeds) > 1  # trials of a search share a seed
        times: float = len(seeds)
        if several and launcher and devices == 1 and launcher.trains_together(config):  # as one computation
            together = True
            whole, rest = divmod(len(seeds), MAX_SEEDS)
            times = whole * (1 + SHARE * (MAX_SEEDS - 1)) + (1 + SHARE * (rest - 1) if rest else 0.0)
        total += each * times
        longest = max(longest, each)
    if missing:
        to_time = [config for config in missing if not trains_now(config, entries)]
        _time_in_background(to_time)
        return TimeHere(None, "some iterations are being timed", pending=True, after_epoch=not to_time)
    return TimeHere(max(total / devices, longest), " and ".join(bases), runs=len(configs), devices=devices,
                    together=together)


def known_seconds() -> Callable[[Config], float | None]:
    """Return a function that gives the seconds of a run as far as they are known; it times nothing."""
    entries = services().catalogue.entries()

    @functools.cache
    def seconds(config: Config) -> float | None:
        found = measured(config, entries)
        return found.seconds(config) if found else _timed.get(config, (None, ""))[0]

    return lambda config: seconds(replace(config, seed=0))


def seconds_until_start(run: Run) -> float | None:
    """Return in how many seconds a queued run starts, or None if a run before it has no known time."""
    launcher, known = services().launcher, known_seconds()
    left = {entry.id: entry.seconds_left for entry in services().catalogue.busy_entries()}
    return queue.seconds_until_start(
        run.id, launcher.jobs(), launcher.limits,
        lambda job: left.get(job.run) if job.running else known(job.config))


def _time_in_background(configs: list[Config]) -> None:
    global _requested
    with _lock:
        new = [config for config in configs if config not in _queued]
        if not new:
            return
        starts = not _queued
        _queued.update(new)
        _requests.append(new)
        _requested = time.monotonic()
    if starts:
        threading.Thread(target=_time_all, name="acenode-estimate", daemon=True).start()


def _time_all() -> None:
    """Time what was asked for, one request at a time, and the newest first: it is of the page that is open."""
    while True:
        while (pause := _requested + DELAY - time.monotonic()) > 0:
            time.sleep(pause)
        with _lock:
            configs = _requests.pop()
        results: dict[Config, tuple[float | None, str]]
        try:
            running = services().catalogue.busy_entries()  # a run may have been started since the request
            wanted = [config for config in configs if not trains_now(config, running)]
            found = estimate(wanted, services().catalogue, services().data_root, time_aside)
            results = {c: (found.seconds_each.get(c), found.basis) for c in wanted}
        except Exception as error:  # the page then says that the time is unknown
            results = dict.fromkeys(configs, (None, f"it could not be timed: {error}"))
        with _lock:
            _timed.update(results)
            _queued.difference_update(configs)
            if not _queued:
                return


def show(sentence: str, configs: Sequence[Config], known: str = "{time}") -> None:
    """Show a sentence about runs with their `{time}`, as soon as it is known, or why there is none, and the `{order}`
    in which they are trained; `known` is what stands for `{time}` if the time is known, such as `up to {time}`."""
    drawn = [time_here(configs)]
    pending = drawn[0].pending

    def write() -> None:
        # a look while the page is drawn could find the time known, and a rerun would lose clicks still to be handled
        found = drawn.pop() if drawn else time_here(configs)
        words = found.text if found.seconds is None else known.replace("{time}", found.text)
        st.markdown(sentence.replace("{time}", words).replace("{order}", found.order),
                    help=None if found.pending else f"Time: {found.basis}")
        if pending and not found.pending:
            st.rerun(scope="app")  # ends the refreshing

    (st.fragment(write, run_every=REFRESH) if pending else write)()
