"""The command `search`: find good settings by validation, list and show searches, resume and stop them."""

from __future__ import annotations

import sys
import time
from argparse import Namespace
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from acenode.cli.common import print_json, run_store
from acenode.cli.search_options import ACTIONS, check_options, search_values
from acenode.cli.training_queue import check_limits, open_launcher
from acenode.errors import UserError

SHOWN = 10  # of the best trials
SEEDS = "0-2"  # of the best settings


def search(options: Namespace) -> int:
    """Start a search, or carry out an action on one."""
    check_options(options)
    check_limits(options)
    if options.what in ACTIONS:
        return {"list": _list, "show": _show, "resume": _resume, "stop": _stop, "winner": _winner,
                "delete": _delete}[options.what](options)
    from acenode.data.folder import data_dir
    from acenode.execution.study_run import check_data
    from acenode.runs.questions import Search, SearchStore
    from acenode.search.plan import check_search, defaults_outside
    from acenode.search.sampling import load_optuna

    values = search_values(options)
    store = SearchStore(run_store(options))
    name = options.name or store.free_name(f"{values['experiment']}-{values['method']}")
    made = check_search(Search(name, **values))
    load_optuna()
    check_data(made, data_dir())

    def create(made: Search) -> None:
        store.write(made)
        outside = defaults_outside(made)
        if outside:
            print(f"the first trial is not the default: {', '.join(outside)} is outside its range", file=sys.stderr)

    return _conduct(options, store, made, create)


def _conduct(options: Namespace, store: Any, made: Any, save: Callable[[Any], object]) -> int:
    """Search in this process until it is done, stopped or out of time; `save` keeps the search once it can start."""
    from acenode.data.folder import data_dir
    from acenode.execution.interrupt import stop_on_interrupt
    from acenode.search.results import read_report
    from acenode.search.run import SearchRun

    launcher, workers = open_launcher(options, made.device, store.runs, data_dir())
    lines = _Lines(made, quiet=options.json)
    try:
        save(made)
        lines.write(f"{made.name}: {made.trials} trials of {made.method} on {made.experiment}, {workers} at a time")
        with stop_on_interrupt() as stop:
            if options.minutes is not None:
                _stop_later(stop, 60 * options.minutes)
            state = SearchRun(store, made, launcher, workers=lambda: workers, on_event=lines.event).run(stop)
    finally:
        launcher.close()
    report = read_report(store, made.name)
    lines.write(f"{state}: {report.counts_text}")
    if report.best_text:
        lines.write(report.best_text)
    if state == "finished" and report.best is not None and not report.best.default:
        lines.write(f"train the best settings over seeds and test them with `acenode search winner {made.name}`")
    if state == "stopped":
        lines.write(f"continue with `acenode search resume {made.name}`")
    if options.json:
        print_json(_as_json(report))
    return 0 if state == "finished" else 130


def _stop_later(stop: Any, seconds: float) -> None:
    import threading

    timer = threading.Timer(seconds, stop.set)
    timer.daemon = True
    timer.start()


class _Lines:
    """Prints what happens to the trials, one line each."""

    def __init__(self, made: Any, *, quiet: bool) -> None:
        from acenode import experiments
        from acenode.compare.metrics import metric_format

        self.file = sys.stderr if quiet else sys.stdout
        self.measure = metric_format(experiments.get(made.experiment).metric.name, made.experiment)
        self.began: dict[int, float] = {}

    def write(self, line: str) -> None:
        print(line, file=self.file, flush=True)

    def event(self, event: Any) -> None:
        """Print how a trial ended; the start of one is not worth a line."""
        from acenode.search.results import params_text

        if event.kind in ("started", "resumed"):
            self.began[event.number] = time.monotonic()
            return
        took = f", {time.monotonic() - self.began[event.number]:.0f} s" if event.number in self.began else ""
        what = {"finished": f"validation {self.measure.title} {self.measure.text(event.value)}",
                "stopped": "stopped; it continues when the search is resumed"}.get(event.kind, event.detail)
        what = what if event.kind != "failed" else f"failed: {what}"
        self.write(f"trial {event.number:<3} {params_text(event.params)}: {what}{took}")


def _list(options: Namespace) -> int:
    """Print all searches with how far they are and the best value."""
    from acenode.runs.questions import SearchStore
    from acenode.search.results import read_report

    store = SearchStore(run_store(options, to_read=True))
    found: list[dict[str, Any]] = []
    for name in store.names():
        try:
            found.append(_summary(read_report(store, name)))
        except UserError as error:
            found.append({"search": name, "state": "unreadable", "error": str(error)})
    if options.json:
        print_json(found)
        return 0
    width = max((len(one["search"]) for one in found), default=0)
    for one in found:
        rest = one["error"]
        if one["state"] != "unreadable":
            rest = f"{one['counts']}; {one['best_text'] or 'no value yet'}"
        print(f"{one['search']:<{width}}  {one['state']:<11}  {rest}")
    if not found:
        print(f"no searches in {store.runs.root} yet: see `acenode search --help`")
    return 0


def _show(options: Namespace) -> int:
    """Print a search: what is searched, its best trials, and the importance of each setting."""
    from acenode.config.ranges import ranges_text
    from acenode.runs.questions import PRUNERS, SAMPLERS, SearchStore
    from acenode.search.plan import made_winner
    from acenode.search.results import importance, params_text, read_report

    store = SearchStore(run_store(options, to_read=True))
    report = read_report(store, options.search)
    winner = made_winner(store.runs, options.search)
    found, measure = report.search, report.measure
    shares = importance(found.ranges, report.trials, measure.higher_is_better)
    if options.json:
        print_json(_as_json(report) | {"importance": shares, "winner": winner})
        return 0
    print(f"{found.name}: {found.method} on {found.experiment} ({found.data}), {report.status.state}"
          + (f": {report.status.error}" if report.status.error else ""))
    print(f"over {ranges_text(found.ranges)}" + (f"; held {params_text(found.held)}" if found.held else ""))
    print(f"sampler {SAMPLERS[found.sampler]}, pruning: {PRUNERS[found.pruner]}, seed {found.seed}")
    print(report.counts_text)
    if report.best_text:
        print(report.best_text)
    if shares:
        print("importance: " + ", ".join(f"{key} {100 * share:.0f}%" for key, share in shares.items()))
    for trial in report.ranked()[:SHOWN]:
        default = "  (the defaults)" if trial.default else ""
        print(f"  trial {trial.number:<5} {measure.text(trial.value):>9}  {params_text(trial.params)}  {trial.run}"
              f"{default}")
    if winner is not None:
        print(f"the best settings over seeds are in the study {winner}: see `acenode study show {winner}`")
    if "unfinished" in report.counts:
        print(f"continue with `acenode search resume {found.name}`")
    print(f"values are of the validation data ({measure.title}); trials are not tested")
    return 0


def _resume(options: Namespace) -> int:
    """Continue a search; --trials gives it a new number of trials, not fewer than it has begun."""
    from acenode.data.folder import data_dir
    from acenode.execution.study_run import check_data
    from acenode.runs.questions import SearchStore
    from acenode.search.plan import check_search
    from acenode.search.results import read_report

    store = SearchStore(run_store(options))
    found = check_search(store.read(options.search))
    if store.status(found.name).running:
        raise UserError(f"{found.name} is running already: stop it first with `acenode search stop {found.name}`")
    check_data(found, data_dir())
    if options.trials is not None and options.trials != found.trials:
        found = replace(found, trials=options.trials)
        tried = read_report(store, found.name).tried
        if options.trials < tried:
            raise UserError(f"{found.name} has {tried} trials already: --trials must be larger")
    return _conduct(options, store, found, lambda changed: store.write(changed, replace=True))


def _stop(options: Namespace) -> int:
    """Ask the process that conducts a search to stop."""
    from acenode.runs.questions import SearchStore

    store = SearchStore(run_store(options))
    state = store.status(store.read(options.search).name).state
    if state != "running":
        raise UserError(f"{options.search} is {state}: only a running search can be stopped")
    store.request_stop(options.search)
    print(f"{options.search} will stop; its running trials write a checkpoint first")
    return 0


def _winner(options: Namespace) -> int:
    """Train the best settings and the defaults over seeds as a study, test them, and print the answer."""
    from acenode.cli import study
    from acenode.config import read_seeds
    from acenode.runs.questions import SearchStore, StudyStore
    from acenode.search.plan import winner_study
    from acenode.search.results import read_report

    store = run_store(options)
    seeds = tuple(read_seeds(SEEDS if options.seeds is None else options.seeds))
    report = read_report(SearchStore(store), options.search)
    made = winner_study(report, seeds)
    StudyStore(store).write(made, replace=True)
    file = sys.stderr if options.json else sys.stdout
    if report.so_far_text:
        print(f"{report.so_far_text} ({report.counts_text})", file=file)
    print(f"study {made.name}: the best settings of {options.search} and the defaults, seeds "
          f"{', '.join(map(str, seeds))}", file=file, flush=True)
    options.name = made.name
    code = study.run(options)
    print(f"see it with `acenode study show {made.name}`", file=file)
    return code


def _delete(options: Namespace) -> int:
    from acenode.runs.questions import SearchStore

    SearchStore(run_store(options)).delete(options.search)
    print(f"{options.search} is deleted; its runs are kept")
    return 0


def _summary(report: Any) -> dict[str, Any]:
    best = report.best
    return {"search": report.search.name, "state": report.status.state, "error": report.status.error or None,
            "experiment": report.search.experiment, "method": report.search.method, "data": report.search.data,
            "trials": report.search.trials, "counts": report.counts_text, "best_text": report.best_text,
            "by_state": dict(report.counts), "metric": report.measure.name,
            "best": None if best is None else {"trial": best.number, "value": best.value, "settings": best.params,
                                               "run": best.run, "default": best.default}}


def _as_json(report: Any) -> dict[str, Any]:
    return _summary(report) | {"all_trials": [
        {"trial": t.number, "state": report.state_of(t), "settings": t.params, "value": t.value, "run": t.run,
         "default": t.default, "reason": t.reason or None} for t in report.trials]}
