"""The command `search`: find good settings by validation, list and show searches, resume and stop them."""

from __future__ import annotations

import sys
import threading
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from acenode import experiments
from acenode.cli.common import check_limits, given_settings, output, output_names, print_json, run_store
from acenode.cli.parser import ACTIONS
from acenode.compare.metrics import metric_format
from acenode.config import parse, read_seeds
from acenode.config.ranges import ranges_text, read_ranges
from acenode.data.folder import data_dir
from acenode.errors import UserError
from acenode.runs.questions import PRUNERS, SAMPLERS, Search, SearchStore, StudyStore
from acenode.search.plan import check_search, defaults_outside, made_winner, winner_study
from acenode.search.results import importance, params_text, read_report
from acenode.search.sampling import load_optuna

NEW_ONLY = ("method", "over", "data", "epochs", "set", "sampler", "pruner", "seed", "name")  # options of a new search
TRIALS = 30
SHOWN = 10  # of the best trials
SEEDS = "0-2"  # of the best settings


def search(options: Namespace) -> int:
    """Start a search, or carry out an action on one."""
    check_options(options)
    check_limits(options)
    if options.what in ACTIONS:
        return globals()[f"_{options.what}"](options)
    from acenode.execution.study_run import check_data

    values = search_values(options)
    store = SearchStore(run_store(options))
    name = options.name or store.free_name(f"{values['experiment']}-{values['method']}")
    made = check_search(Search(name, **values))
    load_optuna()
    check_data(made, data_dir())

    def create(made: Search) -> None:
        store.write(made)
        if outside := defaults_outside(made):
            print(f"the first trial is not the default: {', '.join(outside)} is outside its range", file=sys.stderr)

    return _conduct(options, store, made, create)


def check_options(options: Namespace) -> None:
    """Raise a UserError for options that do not belong to the action."""
    action = options.what if options.what in ACTIONS else ""
    given = [name for name in NEW_ONLY if getattr(options, name) is not None]
    if action and given:
        raise UserError(f"--{given[0]} belongs to a new search: leave it out of `search {action}`")
    if options.trials is not None and action not in ("", "resume"):
        raise UserError(f"--trials belongs to a new search and to `search resume`, not to `search {action}`")
    if options.seeds is not None and action != "winner":
        raise UserError("--seeds belongs to `search winner`: a search has one --seed")
    if action and action != "list" and not options.search:
        raise UserError(f"name the search: `acenode search {action} NAME`; `acenode search list` lists them")
    if options.search and (not action or action == "list"):
        raise UserError(f"{options.search!r} is not expected here: name an experiment, or an action and a search")


def search_values(options: Namespace) -> dict[str, Any]:
    """Return what a new search is made of: the arguments of `Search` but its name."""
    experiment = experiments.get(options.what)
    if not options.method:
        raise UserError(f"name a method with --method: {', '.join(experiment.methods)}")
    if not options.over:
        raise UserError("name the settings to search with --over, such as --over learning_rate=log:1e-4..1e-1")
    owner, uses = f"{options.method} in {experiment.name}", experiment.method(options.method).uses
    held = given_settings(options, lambda key, text: parse(key, text, uses, owner))
    return {"experiment": experiment.name, "method": options.method, "data": options.data or "sample",
            "ranges": read_ranges(options.over, uses, owner), "held": held, "device": options.device,
            "trials": TRIALS if options.trials is None else options.trials, "sampler": options.sampler or "tpe",
            "pruner": options.pruner or "median", "seed": options.seed or 0}


def _conduct(options: Namespace, store: SearchStore, made: Search, save: Callable[[Search], object]) -> int:
    """Search in this process until it is done, stopped or out of time; `save` keeps the search once it can start."""
    from acenode.cli.training import open_launcher, stop_on_interrupt
    from acenode.search.run import SearchRun, TrialEvent

    file, began = sys.stderr if options.json else sys.stdout, dict[int, float]()
    measure = metric_format(experiments.get(made.experiment).metric.name, made.experiment)

    def write(line: str) -> None:
        print(line, file=file, flush=True)

    def event(event: TrialEvent) -> None:
        """Print how a trial ended; the start of one is not worth a line."""
        if event.kind in ("started", "resumed"):
            began[event.number] = time.monotonic()
            return
        took = f", {time.monotonic() - began[event.number]:.0f} s" if event.number in began else ""
        what = {"finished": f"validation {measure.title} {measure.text(event.value)}",
                "stopped": "stopped; it continues when the search is resumed",
                "failed": f"failed: {event.detail}"}.get(event.kind, event.detail)
        write(f"trial {event.number:<3} {params_text(event.params)}: {what}{took}")

    launcher, workers = open_launcher(options, made.device, store.runs, data_dir())
    try:
        save(made)
        write(f"{made.name}: {made.trials} trials of {made.method} on {made.experiment}, {workers} at a time")
        with stop_on_interrupt() as stop:
            if options.minutes is not None:
                timer = threading.Timer(60 * options.minutes, stop.set)
                timer.daemon = True
                timer.start()
            state = SearchRun(store, made, launcher, workers=lambda: workers, on_event=event).run(stop)
    finally:
        launcher.close()
    report = read_report(store, made.name)
    write(f"{state}: {report.counts_text}")
    if report.best_text:
        write(report.best_text)
    if state == "finished" and report.best is not None and not report.best.default:
        write(f"train the best settings over seeds and test them with `acenode search winner {made.name}`")
    if state == "stopped":
        write(f"continue with `acenode search resume {made.name}`")
    if options.json:
        print_json(_as_json(report))
    return 0 if state == "finished" else 130


def _list(options: Namespace) -> int:
    """Print all searches with how far they are and the best value."""
    store = SearchStore(run_store(options, to_read=True))
    found: list[dict[str, Any]] = []
    for name in store.names():
        try:
            found.append(_summary(read_report(store, name)))
        except UserError as error:
            found.append({"search": name, "state": "unreadable", "error": str(error)})
    return output_names(options, found, "search", lambda one: f"{one['state']:<11}  " + (
        one["error"] if one["state"] == "unreadable" else f"{one['counts']}; {one['best_text'] or 'no value yet'}"),
        f"no searches in {store.runs.root} yet: see `acenode search --help`")


def _show(options: Namespace) -> int:
    """Print a search: what is searched, its best trials, and the importance of each setting."""
    store = SearchStore(run_store(options, to_read=True))
    report = read_report(store, options.search)
    winner = made_winner(store.runs, options.search)
    found, measure = report.search, report.measure
    shares = importance(found.ranges, report.trials, measure.higher_is_better)

    def lines() -> Iterator[str]:
        error = f": {report.status.error}" if report.status.error else ""
        yield f"{found.name}: {found.method} on {found.experiment} ({found.data}), {report.status.state}{error}"
        yield f"over {ranges_text(found.ranges)}" + (f"; held {params_text(found.held)}" if found.held else "")
        yield f"sampler {SAMPLERS[found.sampler]}, pruning: {PRUNERS[found.pruner]}, seed {found.seed}"
        yield report.counts_text
        if report.best_text:
            yield report.best_text
        if shares:
            yield "importance: " + ", ".join(f"{key} {100 * share:.0f}%" for key, share in shares.items())
        for trial in report.ranked()[:SHOWN]:
            yield (f"  trial {trial.number:<5} {measure.text(trial.value):>9}  {params_text(trial.params)}  {trial.run}"
                   + "  (the defaults)" * bool(trial.default))
        if winner is not None:
            yield f"the best settings over seeds are in the study {winner}: see `acenode study show {winner}`"
        if "unfinished" in report.counts:
            yield f"continue with `acenode search resume {found.name}`"
        yield f"values are of the validation data ({measure.title}); trials are not tested"

    return output(options, _as_json(report) | {"importance": shares, "winner": winner}, lines())


def _resume(options: Namespace) -> int:
    """Continue a search; --trials gives it a new number of trials, not fewer than it has begun."""
    from acenode.execution.study_run import check_data

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
    store = SearchStore(run_store(options))
    state = store.status(store.read(options.search).name).state
    if state != "running":
        raise UserError(f"{options.search} is {state}: only a running search can be stopped")
    store.stop(options.search).touch()
    print(f"{options.search} will stop; its running trials write a checkpoint first")
    return 0


def _winner(options: Namespace) -> int:
    """Train the best settings and the defaults over seeds as a study, test them, and print the answer."""
    from acenode.cli import study

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
