"""Conduct a search: ask Optuna for settings, train them as runs, report validation after each epoch, prune, tell.

The objective is the validation metric at a trial's best epoch. Trials are not tested. What is not told to Optuna stays
open in the journal, so a search that was stopped or killed continues with the same trials and their checkpoints.
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from acenode import experiments
from acenode.compare.metrics import metric_format
from acenode.config.groups import Training
from acenode.errors import UserError
from acenode.execution.launcher import Launcher
from acenode.runs.questions import PRUNERS, Search, SearchStore
from acenode.runs.store import BUSY, Run
from acenode.search.journal import DEFAULT, REASON, RUN
from acenode.search.plan import base_config, check_search, default_params, defaults_outside, trial_config
from acenode.search.sampling import load_optuna, make_sampler, open_study, suggest

POLL_SECONDS = 0.2
HEARTBEAT_SECONDS = 5.0
STOP_SECONDS = 120.0  # for running trials to write a checkpoint
FAILURES = 5  # of the first trials, all for a reason of their own, after which a search gives up


@dataclass(frozen=True)
class TrialEvent:
    """Something that happened to a trial."""

    kind: str  # started, resumed, finished, pruned, failed or stopped
    number: int
    params: dict[str, Any]
    run: Run | None = None
    value: float | None = None
    detail: str = ""


@dataclass
class _OpenTrial:
    """A trial whose run is queued or running."""

    trial: Any  # optuna.trial.Trial
    run: Run
    epochs: int  # of the run; after the last one nothing is left to prune
    offset: int = 0  # in the run's metrics
    reported: set[int] = field(default_factory=set)  # epochs that Optuna knows
    best: float | None = None
    pruned: str = ""  # why


class SearchRun:
    """Conducts one search until its trials are done or it is asked to stop.

    Args:
        store: the searches of a folder.
        search: what is searched.
        launcher: starts, resumes and stops the runs.
        workers: returns how many trials to train at a time.
        on_event: is called with what happens to the trials.
    """

    def __init__(self, store: SearchStore, search: Search, launcher: Any, *,
                 workers: Callable[[], int] = lambda: 1,
                 on_event: Callable[[TrialEvent], None] = lambda event: None) -> None:
        self.store, self.search, self.launcher = store, check_search(search), launcher
        self.workers, self.on_event = workers, on_event
        self.metric = experiments.get(search.experiment).metric
        self.measure = metric_format(self.metric.name, search.experiment)
        self.open: dict[int, _OpenTrial] = {}
        self.failed_first: list[str] = []
        self.succeeded = False

    def run(self, stop: threading.Event | None = None) -> str:
        """Search until all trials are done or a stop is requested; return `finished` or `stopped`.

        Raises:
            UserError: another process conducts this search, Optuna is missing, or no run can be started. It is in the
                search's status as well, unless another process conducts it.
        """
        stop = stop or threading.Event()
        load_optuna()
        name, lock = self.search.name, self.store.lock(self.search.name)
        state, error = "failed", "it ended unexpectedly"
        try:
            self.store.stop(name).unlink(missing_ok=True)
            self.store.write_status(name, "running")
            state, error = self._search(stop), ""
        except (UserError, OSError) as problem:
            error = str(problem) if isinstance(problem, UserError) else \
                f"{problem.strerror or problem}: {problem.filename or 'a file of the search'}"
            raise
        finally:
            try:
                self._stop_runs()
            finally:
                with contextlib.suppress(OSError):
                    self.store.write_status(name, state, error)
                lock.release()
        return state

    def _search(self, stop: threading.Event) -> str:
        self.optuna = load_optuna()
        self.study = open_study(self.store.journal(self.search.name), self.search,
                                higher_is_better=self.metric.higher_is_better,
                                epochs=base_config(self.search).part(Training).epochs)
        if not self.study.get_trials(deepcopy=False) and not defaults_outside(self.search):
            self.study.enqueue_trial(default_params(self.search), user_attrs={DEFAULT: True})
        self._take_up()
        beat = time.monotonic()
        while True:
            self._collect()
            if stop.is_set() or self.store.stop(self.search.name).exists():
                return "stopped"
            self._ask()
            if not self.open:
                return "finished"
            if time.monotonic() - beat > HEARTBEAT_SECONDS:
                beat = time.monotonic()
                self.store.write_status(self.search.name, "running")
            stop.wait(POLL_SECONDS)

    # Start ------------------------------------------------------------------------------------------------------

    def _ask(self) -> None:
        while len(self.open) < self.workers():
            waiting = (self.optuna.trial.TrialState.WAITING,)
            number = len(self.study.get_trials(deepcopy=False)) - len(self.study.get_trials(False, waiting))
            if number >= self.search.trials:
                return
            self.study.sampler = make_sampler(self.search, number)
            self._begin(self.study.ask())

    def _begin(self, trial: Any) -> None:
        """Start the run of a trial. Settings from which no model can be built fail the trial, not the search."""
        try:
            config = trial_config(self.search, lambda one: suggest(trial, one))
            experiments.get(config.experiment).count(config)
        except UserError as error:
            self._fail(trial, None, str(error))
            return
        run = self.launcher.start(config, {"search": self.search.name, "trial": trial.number})
        trial.set_user_attr(RUN, run.id)
        self.open[trial.number] = _OpenTrial(trial, run, config.part(Training).epochs)
        self._tell_event("started", trial, run)

    def _take_up(self) -> None:
        """Continue the trials that an earlier process left open."""
        for frozen in self.study.get_trials(states=(self.optuna.trial.TrialState.RUNNING,)):
            self.study.sampler = make_sampler(self.search, frozen.number)
            trial = self.optuna.trial.Trial(self.study, frozen._trial_id)
            name = frozen.user_attrs.get(RUN)
            if name is None:  # killed before its run was created
                self._begin(trial)
                continue
            run = self.store.runs.find(str(name))
            if run is None:
                self._fail(trial, None, "its run was deleted")
                continue
            try:
                epochs = run.config().part(Training).epochs
            except UserError as error:  # damaged
                self._fail(trial, run, str(error))
                continue
            opened = self.open[frozen.number] = _OpenTrial(trial, run, epochs, reported=set(frozen.intermediate_values))
            last = max(frozen.intermediate_values, default=0)
            if 0 < last < opened.epochs and trial.should_prune():  # killed between the decision and its execution
                opened.pruned = self._pruning_reason(last, frozen.intermediate_values[last])
            elif run.status()["state"] not in BUSY | {"finished"}:
                self.launcher.resume(run)
                self._tell_event("resumed", trial, run)

    # Report and tell --------------------------------------------------------------------------------------------

    def _collect(self) -> None:
        """Report new epochs to Optuna, stop the trials that it prunes, and close those whose run has ended."""
        for number, opened in list(self.open.items()):
            try:
                status = opened.run.status()
            except UserError as error:  # deleted, or damaged
                del self.open[number]
                self._fail(opened.trial, opened.run, str(error))
                continue
            self._report(opened)
            if status["state"] not in BUSY:
                del self.open[number]
                self._close(opened, status)

    def _report(self, opened: _OpenTrial) -> None:
        """Report the epochs of a run that Optuna does not know, in order, up to the one at which it is pruned."""
        metrics = opened.run.path / "metrics.jsonl"
        with contextlib.suppress(OSError):
            if metrics.stat().st_size < opened.offset:  # a resumed run drops what follows its checkpoint
                opened.offset = 0
        records, opened.offset = opened.run.metrics(opened.offset)
        for record in records:
            value, epoch = record.get(f"validation_{self.metric.name}"), record.get("epoch")
            if record.get("kind") != "epoch" or not isinstance(epoch, int) or opened.pruned:
                continue
            if record.get("best") is True and isinstance(value, int | float):
                opened.best = float(value)
            if epoch in opened.reported or not isinstance(value, int | float) or not math.isfinite(value):
                continue
            opened.reported.add(epoch)
            opened.trial.report(float(value), epoch)
            if epoch < opened.epochs and opened.trial.should_prune():
                opened.pruned = self._pruning_reason(epoch, float(value))
                self.launcher.stop(opened.run)

    def _pruning_reason(self, epoch: int, value: float) -> str:
        return (f"pruned after epoch {epoch}: validation {self.measure.title} {self.measure.text(value)} is not good "
                f"enough to go on ({PRUNERS[self.search.pruner]})")

    def _close(self, opened: _OpenTrial, status: dict[str, Any]) -> None:
        trial, run, state = opened.trial, opened.run, status["state"]
        if opened.pruned:
            with contextlib.suppress(UserError, OSError):  # it may have been deleted meanwhile
                run.set_state("stopped", error=opened.pruned)
            trial.set_user_attr(REASON, opened.pruned)
            self.study.tell(trial, state=self.optuna.trial.TrialState.PRUNED)
            self.succeeded = True
            self._tell_event("pruned", trial, run, detail=opened.pruned)
        elif state == "finished" and opened.best is not None:
            self.study.tell(trial, opened.best)
            self.succeeded = True
            self._tell_event("finished", trial, run, opened.best)
        elif state == "finished":
            self._fail(trial, run, "it has no validation value")
        else:
            self._fail(trial, run, str(status.get("error") or f"its run was {state}"))

    def _fail(self, trial: Any, run: Run | None, reason: str) -> None:
        trial.set_user_attr(REASON, reason)
        self.study.tell(trial, state=self.optuna.trial.TrialState.FAIL)
        self._tell_event("failed", trial, run, detail=reason)
        self.failed_first.append(reason)
        if not self.succeeded and len(self.failed_first) >= FAILURES:
            raise UserError(f"the first {FAILURES} trials failed, the last one with: {reason}")

    def _stop_runs(self) -> None:
        """Stop the runs of open trials, the last one first, and wait for their checkpoints. The trials stay open."""
        for opened in reversed(self.open.values()):
            with contextlib.suppress(UserError, OSError):
                self.launcher.stop(opened.run)
        end = time.monotonic() + STOP_SECONDS
        for opened in self.open.values():
            with contextlib.suppress(UserError, OSError):
                while opened.run.status()["state"] in BUSY and time.monotonic() < end:
                    time.sleep(POLL_SECONDS)
                self._tell_event("stopped", opened.trial, opened.run)

    def _tell_event(self, kind: str, trial: Any, run: Run | None, value: float | None = None, detail: str = "") -> None:
        self.on_event(TrialEvent(kind, trial.number, dict(trial.params), run, value, detail))


CLOSE_SECONDS = 60.0


class SearchThreads:
    """Starts and stops searches of a folder in threads of this process."""

    def __init__(self, store: SearchStore, launcher: Launcher) -> None:
        self.store, self.launcher = store, launcher
        self.lock = threading.Lock()
        self.conducted: dict[str, tuple[threading.Thread, threading.Event]] = {}  # with what asks it to stop
        self.closed = False

    def start(self, search: Search) -> None:
        """Start a search, or continue it; an error if it runs already or Optuna is missing."""
        load_optuna()
        check_search(search)
        with self.lock:
            if self.closed:
                raise UserError("the app is closing: start it again")
            if self._stop_event(search.name) or self.store.status(search.name).running:
                raise UserError(f"{search.name} is running already")
            stop = threading.Event()
            thread = threading.Thread(target=self._conduct, args=(search, stop), daemon=True,
                                      name=f"acenode-search-{search.name}")
            self.conducted[search.name] = thread, stop
            self.store.write_status(search.name, "running")  # so that pages show it at once
            thread.start()

    def stop(self, name: str) -> None:
        """Ask a search to stop, in this process or in another; may be called twice."""
        with self.lock:
            found = self._stop_event(name)
        if found:
            found.set()
        elif self.store.status(name).running:
            self.store.stop(name).touch()

    def close(self) -> None:
        """Stop all searches and wait for them. The launcher must still be open: trials stay open in the journal."""
        with self.lock:
            self.closed = True
            conducted = list(self.conducted.values())
        for _, stop in conducted:
            stop.set()
        for thread, _ in conducted:
            thread.join(CLOSE_SECONDS)

    def _stop_event(self, name: str) -> threading.Event | None:
        thread, stop = self.conducted.get(name, (None, None))
        return stop if thread and thread.is_alive() else None

    def _conduct(self, search: Search, stop: threading.Event) -> None:
        with contextlib.suppress(UserError, OSError):  # it is in the status of the search
            SearchRun(self.store, search, self.launcher, workers=lambda: self.launcher.workers(search.device)).run(stop)
