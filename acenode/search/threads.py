"""Searches in the background: a thread each, which shares one launcher with all other runs."""

from __future__ import annotations

import contextlib
import threading
from dataclasses import dataclass, field

from acenode.errors import UserError
from acenode.execution.launcher import Launcher
from acenode.runs.searches import Search, SearchStore
from acenode.search.plan import check_search
from acenode.search.run import SearchRun
from acenode.search.sampling import load_optuna

CLOSE_SECONDS = 60.0


@dataclass
class _Conducted:
    thread: threading.Thread
    stop: threading.Event = field(default_factory=threading.Event)


class SearchThreads:
    """Starts and stops searches of a folder in threads of this process."""

    def __init__(self, store: SearchStore, launcher: Launcher) -> None:
        self.store, self.launcher = store, launcher
        self.lock = threading.Lock()
        self.conducted: dict[str, _Conducted] = {}
        self.closed = False

    def check(self) -> None:
        """Raise a UserError if Optuna is missing."""
        load_optuna()

    def start(self, search: Search) -> None:
        """Start a search, or continue it; an error if it runs already or Optuna is missing."""
        self.check()
        check_search(search)
        with self.lock:
            if self.closed:
                raise UserError("the app is closing: start it again")
            found = self.conducted.get(search.name)
            if (found and found.thread.is_alive()) or self.store.status(search.name).running:
                raise UserError(f"{search.name} is running already")
            stop = threading.Event()
            thread = threading.Thread(target=self._conduct, args=(search, stop), daemon=True,
                                      name=f"acenode-search-{search.name}")
            self.conducted[search.name] = _Conducted(thread, stop)
            self.store.write_status(search.name, "running")  # so that pages show it at once
            thread.start()

    def stop(self, name: str) -> None:
        """Ask a search to stop, in this process or in another; may be called twice."""
        with self.lock:
            found = self.conducted.get(name)
        if found and found.thread.is_alive():
            found.stop.set()
        elif self.store.status(name).running:
            self.store.request_stop(name)

    def wait(self, name: str, timeout: float | None = None) -> bool:
        """Wait until a search of this process has ended; return False on timeout."""
        with self.lock:
            found = self.conducted.get(name)
        if found is not None:
            found.thread.join(timeout)
        return found is None or not found.thread.is_alive()

    def close(self) -> None:
        """Stop all searches and wait for them. The launcher must still be open: trials stay open in the journal."""
        with self.lock:
            self.closed = True
            all_of_them = list(self.conducted.values())
        for one in all_of_them:
            one.stop.set()
        for one in all_of_them:
            one.thread.join(CLOSE_SECONDS)

    def _conduct(self, search: Search, stop: threading.Event) -> None:
        with contextlib.suppress(UserError, OSError):  # it is in the status of the search
            SearchRun(self.store, search, self.launcher, workers=lambda: self.launcher.workers(search.device)).run(stop)
