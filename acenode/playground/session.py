"""A thread that trains the playground's networks for one page, while somebody watches.

The page asks for frames and sends commands; both may come from any thread. The thread applies commands between steps,
takes a picture only when a request waits for one, and ends when none has come for some seconds.
"""

from __future__ import annotations

import re
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from acenode.errors import UserError
from acenode.playground.learner import SideBySide
from acenode.playground.picture import NetworkFrame, take_picture
from acenode.playground.problems import Problem
from acenode.playground.settings import Command, PlaygroundSettings

UNWATCHED = 5.0  # seconds without a request after which training stops
FASTEST, FASTEST_BESIDE_RUNS = 60.0, 10.0  # steps a second: alone, and while runs train on this machine
RATE_STEPS = 30  # over which steps a second are measured
STOPPED = "Training stopped because nobody was watching. Press Run to continue."
SLOW = "Slower than usual, because runs are training."
AGAIN = "This playground starts from the beginning, because others were opened while nobody watched it."
MOST = 8  # playgrounds; the one that nobody has watched for longest is dropped for a new one
NAME = re.compile(r"[0-9a-f]{16,32}")  # drawn at random by the page
FAILED = "The playground failed. Press Rewind to start again."


@dataclass(frozen=True)
class Frame:
    """What the page shows at one step. `serial` grows with every frame."""

    serial: int
    step: int
    running: bool
    note: str
    steps_a_second: float
    settings: PlaygroundSettings
    networks: list[NetworkFrame]
    problem: Problem


class PlaygroundSession:
    """The playground of one page. It trains in a thread that starts with the first request.

    While `busy()` is true, runs are training, which then come first.
    """

    def __init__(self, busy: Callable[[], bool] = lambda: False) -> None:
        self.settings, self.busy = PlaygroundSettings(), busy
        self.asked = time.monotonic()
        self._changed = threading.Condition()
        self._commands: deque[Command] = deque()
        self._thread: threading.Thread | None = None
        self._side_by_side: SideBySide | None = None
        self._running, self._closed, self._wanted, self._dirty = True, False, False, True
        self._note, self._waiting, self._serial = "", 0, 0  # waiting: how many requests wait for a frame
        self._frame: Frame | None = None
        self._ends: deque[float] = deque(maxlen=RATE_STEPS + 1)  # when the last steps ended

    @property
    def watched(self) -> bool:
        """True if a request waits for a frame, or came a short time ago."""
        return self._waiting > 0 or time.monotonic() - self.asked <= UNWATCHED

    def frame(self, after: int = 0, patience: float = 1.0) -> Frame | None:
        """Return a frame that is newer than number `after`, waiting for it at most so many seconds; else None."""
        with self._changed:
            if after > self._serial:  # the page's earlier session was dropped
                after, self._note, self._dirty = 0, AGAIN, True
            self._wanted, self._waiting = True, self._waiting + 1
            self._wake()
            self._changed.wait_for(lambda: self._closed or (self._frame is not None and self._frame.serial > after),
                                   patience)
            self.asked, self._waiting = time.monotonic(), self._waiting - 1
            return self._frame if self._frame is not None and self._frame.serial > after else None

    def send(self, command: Command) -> None:
        """Give a command, which is applied after the current step."""
        with self._changed:
            self._commands.append(command)
            self._wake()

    def close(self) -> None:
        """End the thread after its current step."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            thread = self._thread
        if thread is not None:
            thread.join()

    def _wake(self) -> None:
        """Start the thread if there is none, or wake it. The caller holds the lock."""
        self.asked = time.monotonic()
        if self._thread is None and not self._closed:
            self._thread = threading.Thread(target=self._work, name="acenode-playground")  # ends unwatched by itself
            self._thread.start()
        self._changed.notify_all()

    def _work(self) -> None:
        while True:
            with self._changed:
                if not self._commands and not self._running and not (self._wanted and self._dirty):
                    self._changed.wait(UNWATCHED)
                if self._closed or not self.watched:
                    if self._running and not self._closed:
                        self._running, self._dirty, self._note = False, True, STOPPED
                    self._thread = None
                    return
                commands = list(self._commands)
                self._commands.clear()
            begun = time.monotonic()
            try:
                self._turn(commands)
            except Exception:  # a defect of ours: the page says so, and the app goes on
                traceback.print_exc()
                self._running, self._dirty, self._note = False, True, FAILED
            self._publish()
            rest = 1 / (FASTEST_BESIDE_RUNS if self.busy() else FASTEST) - (time.monotonic() - begun)
            if self._running and rest > 0:  # until the next step is due, a command comes, or the session ends
                with self._changed:
                    self._changed.wait_for(lambda: bool(self._commands) or self._closed, rest)

    def _turn(self, commands: list[Command]) -> None:
        """Apply commands, and train one step, or as many single steps as were asked for."""
        own = self._side_by_side = self._side_by_side or SideBySide(self.settings)
        steps = 0
        for command in commands:
            self._dirty, self._note = True, ""
            if command.action == "set":
                self.settings = self.settings.changed(command.values)
                own.change(self.settings)
            elif command.action == "rewind":
                own.rewind()
            else:
                self._running = command.action == "run"
                steps += command.action == "step"
        for _ in range(steps or self._running):
            own.step()
            self._dirty = True
            self._ends.append(time.monotonic())
        if not self._running:
            self._ends.clear()

    def _publish(self) -> None:
        """Take a picture if a request waits for one and something has changed."""
        own = self._side_by_side
        if not (self._wanted and self._dirty) or own is None:
            return
        networks = []
        for learner in own.learners:
            steps, losses = learner.losses.points()
            networks.append(NetworkFrame(learner.network.name, learner.network.parameters, learner.evaluations,
                                         learner.error, steps, losses, take_picture(learner, own.problem)))
        ends = self._ends
        rate = (len(ends) - 1) / (ends[-1] - ends[0]) if len(ends) > 1 and ends[-1] > ends[0] else 0.0
        with self._changed:
            self._serial += 1
            note = self._note or (SLOW if self._running and self.busy() else "")
            self._frame = Frame(self._serial, own.steps, self._running, note, rate, own.settings, networks,
                                own.problem)
            self._wanted = self._dirty = False
            self._changed.notify_all()


class TooManyPlaygroundsError(UserError):
    """All playgrounds that there may be are being watched."""

    status = 503  # of HTTP: try again later


class PlaygroundSessions:
    """Finds a page's playground by its name, and creates it at first."""

    def __init__(self, busy: Callable[[], bool] = lambda: False) -> None:
        self.busy = busy
        self._lock = threading.Lock()
        self._sessions: dict[str, PlaygroundSession] = {}

    def get(self, name: str) -> PlaygroundSession:
        """Return the playground of a page, a new one at first unless there are too many that are watched."""
        if not NAME.fullmatch(name):
            raise UserError("open the page Playground of the app")
        with self._lock:
            if name in self._sessions:
                return self._sessions[name]
            full, unwatched = len(self._sessions) >= MOST, [n for n, s in self._sessions.items() if not s.watched]
            if full and not unwatched:
                raise TooManyPlaygroundsError(f"{MOST} playgrounds are open, as many as there can be: close one in "
                                              "another tab, and this one starts")
            dropped = self._sessions.pop(min(unwatched, key=lambda n: self._sessions[n].asked)) if full else None
            found = self._sessions[name] = PlaygroundSession(busy=self.busy)
        if dropped is not None:
            dropped.close()
        return found

    def close(self) -> None:
        """End all playgrounds."""
        with self._lock:
            sessions, self._sessions = list(self._sessions.values()), {}
        for session in sessions:
            session.close()
