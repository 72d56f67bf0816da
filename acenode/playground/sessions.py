"""All playgrounds of a process, one for each page that shows one."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable

from acenode.errors import UserError
from acenode.playground.session import PlaygroundSession

MOST = 8  # playgrounds; the one that nobody has watched for longest is dropped for a new one
NAME = re.compile(r"[0-9a-f]{16,32}")  # drawn at random by the page


class TooManyPlaygroundsError(UserError):
    """All playgrounds that there may be are being watched."""


class PlaygroundSessions:
    """Finds a page's playground by its name, and creates it at first."""

    def __init__(self, busy: Callable[[], bool] = lambda: False) -> None:
        self.busy = busy
        self._lock = threading.Lock()
        self._sessions: dict[str, PlaygroundSession] = {}

    def get(self, name: str) -> PlaygroundSession:
        """Return the playground of a page.

        Raises:
            UserError: it is not a name that a page draws.
            TooManyPlaygroundsError: it would be a new one, and all others are watched.
        """
        if not NAME.fullmatch(name):
            raise UserError("open the page Playground of the app")
        dropped = None
        with self._lock:
            if name not in self._sessions:
                if len(self._sessions) >= MOST:
                    unwatched = [n for n, session in self._sessions.items() if not session.watched]
                    if not unwatched:
                        raise TooManyPlaygroundsError(f"{MOST} playgrounds are open, as many as there can be: close "
                                                      "one in another tab, and this one starts")
                    dropped = self._sessions.pop(min(unwatched, key=lambda n: self._sessions[n].asked))
                self._sessions[name] = PlaygroundSession(busy=self.busy)
            found = self._sessions[name]
        if dropped is not None:
            dropped.close()
        return found

    def close(self) -> None:
        """End all playgrounds."""
        with self._lock:
            sessions, self._sessions = list(self._sessions.values()), {}
        for session in sessions:
            session.close()
