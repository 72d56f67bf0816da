"""The services that all browser sessions share: run store, catalogue, launcher, downloads and playgrounds."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import streamlit as st
from streamlit import config, runtime

from acenode.data.folder import data_dir
from acenode.data.registry import Fetcher
from acenode.runs.catalogue import Catalogue
from acenode.runs.recorded import chosen_recorded_runs
from acenode.runs.store import RunStore

from .access import Guard

if TYPE_CHECKING:  # imported when first used: they need torch, which takes seconds to load
    from acenode.execution.launcher import Launcher
    from acenode.playground.session import PlaygroundSessions
    from acenode.search.run import SearchThreads


ON_VARIABLE = "ACENODE_ON"  # an environment variable: where runs are trained


class Services:
    """What the pages use to read, train and delete runs and to download data.

    Args:
        recorded: the folder of recorded runs, which are only read.
        on: where runs are trained, such as `ray`; None: on this machine.
    """

    def __init__(self, runs: Path | str, data_root: Path, recorded: Path | None = None, on: str | None = None) -> None:
        self.store, self.data_root, self.on = RunStore(runs, recorded), data_root, on
        self.catalogue, self.fetcher = Catalogue(self.store), Fetcher(data_root)
        self._creation = threading.Lock()
        self._launcher: Launcher | None = None
        self._playgrounds: PlaygroundSessions | None = None
        self._searches: SearchThreads | None = None

    @property
    def launcher(self) -> Launcher:
        """The launcher. The first access creates it and marks runs of dead processes as interrupted."""
        with self._creation:
            if self._launcher is None:
                import torch

                from acenode.execution.cluster.ray_cluster import QUEUE_THREADS, RayCluster, address_of
                from acenode.execution.launcher import Launcher

                cluster = None if self.on is None else RayCluster(  # the first run starts or joins it
                    address_of(self.on), threads=min(QUEUE_THREADS, torch.get_num_threads()))
                self._launcher = Launcher(self.store, self.data_root, cluster=cluster)
                self._launcher.recover([e.run for e in self.catalogue.entries()
                                        if e.state == "interrupted" and not e.recorded])
            return self._launcher

    @property
    def launcher_ready(self) -> bool:
        """True if the launcher exists already, so that using it does not wait for torch."""
        return self._launcher is not None

    @property
    def searches(self) -> SearchThreads:
        launcher = self.launcher
        with self._creation:
            if self._searches is None:
                from acenode.runs.questions import SearchStore
                from acenode.search.run import SearchThreads

                self._searches = SearchThreads(SearchStore(self.store), launcher)
            return self._searches

    @property
    def playgrounds(self) -> PlaygroundSessions:
        """The playgrounds of all pages, which give way to runs. The first access loads torch."""
        with self._creation:
            if self._playgrounds is None:
                from acenode.playground.session import PlaygroundSessions

                self._playgrounds = PlaygroundSessions(
                    lambda: self._launcher is not None and bool(self._launcher.running))
            return self._playgrounds

    def close(self) -> None:
        with self._creation:
            for service in (self._playgrounds, self._searches, self._launcher):  # searches before their runs
                if service is not None:
                    service.close()


UNGUARDED = ("This server answers every web page, because it was not started with `acenode app`. End it and run "
             "`acenode app` instead.")
_lock = threading.Lock()
_current: Services | None = None


def is_served() -> bool:
    """Return True if pages are run for a server, not for a test."""
    return runtime.exists() and not config.get_option("global.appTest")  # st.get_option does not see the tests' value


def refuse_unguarded() -> None:
    """End the page with an error in a server without the checks of `access`, such as one of `streamlit run`."""
    if is_served() and not Guard.installed:
        st.error(UNGUARDED, icon=":material/error:")
        st.stop()


def services() -> Services:
    global _current
    refuse_unguarded()
    with _lock:
        if _current is None:
            _current = Services(os.environ.get("ACENODE_RUNS") or "runs", data_dir(), chosen_recorded_runs(),
                                os.environ.get(ON_VARIABLE) or None)
        return _current


def replace(new: Services | None) -> Services | None:
    """Replace the process's services (None: create new ones at the next call) and return the previous ones."""
    global _current
    with _lock:
        previous, _current = _current, new
        return previous


def close() -> None:
    if (previous := replace(None)) is not None:
        previous.close()
