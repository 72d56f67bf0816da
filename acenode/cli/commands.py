"""What each command of the command line does."""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import sys
import time
from argparse import Namespace
from pathlib import Path
from typing import Any

from acenode import config as configuration
from acenode.errors import UserError


def _store(options: Namespace) -> Any:
    from acenode.runs.store import RunStore

    root = os.environ.get("ACENODE_RUNS") or "runs" if options.runs is None else options.runs
    if not root:
        raise UserError("--runs needs the name of a folder")
    if Path(root).exists() and not Path(root).is_dir():
        raise UserError(f"{root} is not a folder: choose another with --runs DIR")
    return RunStore(root)


def _print_json(value: Any) -> None:
    print(json.dumps(value, ensure_ascii=False, allow_nan=False))


# Training -----------------------------------------------------------------------------------------------------------


def train(options: Namespace) -> int:
    from acenode import experiments
    from acenode.execution.execute import create

    given: dict[str, Any] = {} if options.epochs is None else {"epochs": options.epochs}
    for text in options.set:
        key, sep, value = text.partition("=")
        if not sep:
            raise UserError(f"--set takes KEY=VALUE, not {text!r}")
        if key in given:
            raise UserError(f"{key} is given twice: leave one out")
        given[key] = configuration.parse(key, value)
    chosen = experiments.get(options.experiment).configure(
        options.method, options.data, seed=options.seed, device=options.device, **given)
    run = create(_store(options), chosen)
    try:
        return _execute(run, options)
    except UserError:  # it never began: nothing to keep
        run.delete()
        raise


def resume(options: Namespace) -> int:
    run = _store(options).open(options.run_id)
    run.cancel_stop()
    return _execute(run, options)


def _execute(run: Any, options: Namespace) -> int:
    from acenode.cli.progress import Bar, brief
    from acenode.data.folder import data_dir
    from acenode.execution.execute import execute
    from acenode.execution.interrupt import stop_on_interrupt
    from acenode.runs.writer import json_value

    config = run.config()
    quiet = getattr(options, "json", False)
    begun = time.monotonic()
    title = f"{run.id}: {config.method} on {config.experiment} ({config.data} data), seed {config.seed}"
    fallback: str | None = None

    def show(status: dict[str, Any]) -> None:
        nonlocal fallback
        bar.show(status)
        if config.get("engine") == "graph" and status["fallback"] != fallback:
            fallback = status["fallback"]
            bar.say(str(fallback))

    with Bar(title, quiet) as bar, stop_on_interrupt() as stop:
        outcome = execute(run, data_dir(), stop=stop, progress=show)
    if quiet:
        _print_json({"run": run.id, "state": outcome.state, "metrics": json_value(outcome.metrics),
                     "seconds": round(outcome.seconds, 3), "params": outcome.params,
                     **({"error": outcome.error} if outcome.error else {})})
    elif outcome.state == "finished":
        shown = ", ".join(f"{k} {brief(v)}" if k != "nfe" else f"NFE {v:.0f}" for k, v in outcome.metrics.items())
        took = f"{outcome.seconds:.1f} s of training, {time.monotonic() - begun:.0f} s in all"
        print(f"finished in {took}: test {shown}; {outcome.params:,} parameters")
        print(run.path)
    if outcome.state == "stopped":
        where = f" --runs {options.runs}" if options.runs is not None else ""
        print(f"stopped; go on with `acenode resume {run.id}{where}`", file=sys.stderr)
    if outcome.state == "failed":
        print(f"acenode: {run.id} failed: {outcome.error}", file=sys.stderr)
        return 1
    return 0 if outcome.state == "finished" else 130


def stop(options: Namespace) -> int:
    from acenode.runs.store import BUSY

    run = _store(options).open(options.run_id)
    state = run.status()["state"]
    if state not in BUSY:
        raise UserError(f"{run.id} is {state}: only a running run can be stopped")
    run.request_stop()
    print(f"{run.id} will stop after its current iteration")
    return 0


def demo(options: Namespace) -> int:
    from acenode import experiments
    from acenode.execution.execute import create

    mnist = experiments.get("mnist")
    print("ACE-ODE-Net on scikit-learn's digits: h(t) and its attention a(t) evolve together, trained alternately.")
    code = _execute(create(_store(options), mnist.configure("ace")), Namespace(json=False, runs=options.runs))
    if code == 0:
        print()
        table(Namespace(experiment="mnist", runs=options.runs, json=False))
        print("\nLook closer with `.venv/bin/acenode export last --to html`.")
    return code


def app(options: Namespace) -> int:
    """The lab in the browser, in this process's place: the library itself knows nothing of it."""
    if importlib.util.find_spec("acenode_app") is None or importlib.util.find_spec("streamlit") is None:
        raise UserError("the app is not installed: run `make app` in the repository, or install acenode[app]")
    if options.port is not None and not 1 <= options.port <= 65535:
        raise UserError(f"--port takes a number from 1 to 65535, not {options.port}")
    root = _store(options).root.resolve()
    words = [sys.executable, "-P", "-m", "acenode_app", "--runs", str(root)]
    words += ["--port", str(options.port)] if options.port is not None else []
    os.execv(sys.executable, words + (["--headless"] if options.headless else []))


# Looking ------------------------------------------------------------------------------------------------------------


def _summary(entry: Any) -> dict[str, Any]:
    """One line of `list`; a folder that is no run is said to be unreadable."""
    from acenode.results.run_groups import changed_in

    if entry.state == "unreadable":
        return {"run": entry.id, "state": entry.state, "error": entry.error}
    return {"run": entry.id, "state": entry.state, "experiment": entry.experiment, "method": entry.method,
            "data": entry.data, "sample": entry.config.get("sample"), "seed": entry.seed, "progress": entry.progress,
            "metric": entry.value, "metric_name": entry.metric, "changed": changed_in(entry.config),
            "created": entry.created, "error": entry.error}


def list_runs(options: Namespace) -> int:
    from acenode.cli.progress import brief
    from acenode.runs.catalogue import Catalogue

    store = _store(options)
    lines = [_summary(entry) for entry in reversed(Catalogue(store).entries())]
    if options.json:
        _print_json(lines)
        return 0
    if not lines:
        print(f"no runs in {store.root} yet: start one with `acenode train mnist --method ace`")
    width = max((len(x["run"]) for x in lines), default=0)
    if lines:
        print(f"{'run':<{width}}  {'state':<11}  {'data':<18}  {'seed':<6}  {'test':<16}  settings")
    for x in lines:
        if x["state"] == "unreadable":
            print(f"{x['run']:<{width}}  unreadable   {x['error']}")
            continue
        value = (f"{x['metric_name']} {brief(x['metric'])}" if x["metric"] is not None
                 else f"{100 * (x['progress'] or 0):.0f}% done")
        data = f"{x['data']} {x['sample'] or ''}"
        said = " ".join(f"{k}={v}" for k, v in x["changed"].items() if k != "sample")
        print(f"{x['run']:<{width}}  {x['state']:<11}  {data:<18}  {x['seed']:<6}  {value:<16}  {said}"
              .rstrip() + (f"  {x['error']}" if x["error"] else ""))
    return 0


def show(options: Namespace) -> int:
    run = _store(options).open(options.run_id)
    description, status, result = run.description(), run.status(), run.result()
    if options.json:
        _print_json({**description, "status": status, "result": result})
        return 0
    print(f"{run.id}: {status['state']}" + (f" ({status['error']})" if status.get("error") else ""))
    print(f"  {run.path}")
    print(f"  created {time.strftime('%Y-%m-%d %H:%M', time.localtime(description.get('created', 0)))}, "
          f"{description.get('params', 0):,} parameters, {_where(description.get('environment', {}))}")
    for key, value in description["config"].items():
        if key != "format":
            print(f"  {key:<20} {value}")
        if key == "engine" and "trained_by" in description:
            print(f"  trained by           {description['trained_by']}")
            if "series_by" in description:
                print(f"  series by            {description['series_by']}")
    if status.get("seconds"):
        print(f"  training             {float(status['seconds']):.1f} s")
    if result:
        for key, value in result["test"].items():
            print(f"  test {key:<15} {value:.6g}")
        print(f"  best epoch           {result['best_epoch']}")
    elif status["state"] in ("stopped", "interrupted", "failed"):
        print(f"  {100 * float(status.get('progress') or 0):.0f}% done; to go on: acenode resume {run.id}")
    return 0


def _where(environment: dict[str, Any]) -> str:
    """What a run was trained on; on a CPU the number of threads decides the last digits."""
    device, threads = environment.get("device", "?"), environment.get("threads")
    return f"{device}, {threads} thread{'s' * (threads != 1)}" if threads and device.startswith("cpu") else device


def table(options: Namespace) -> int:
    from acenode import experiments
    from acenode.results.table import measured, render, to_records
    from acenode.runs.catalogue import Catalogue

    experiment = experiments.get(options.experiment)
    entries = Catalogue(_store(options)).entries()
    found = [measured(experiment, entries, metric) for metric in (experiment.metric.name, *experiment.also)]
    if options.json:
        _print_json([row for table in found for row in to_records(table)])
    else:
        print("\n\n".join(render(experiment, table) for table in found))
    return 0


def experiments(options: Namespace) -> int:
    from acenode.experiments import EXPERIMENTS

    if options.json:
        _print_json([{"name": e.name, "title": e.title, "summary": e.summary, "metric": e.metric.name,
                      "methods": list(e.methods), "sample": e.about_sample} for e in EXPERIMENTS.values()])
        return 0
    for e in EXPERIMENTS.values():
        print(f"{e.name:<17} {e.summary}\n{'':<17} methods: {', '.join(e.methods)}\n{'':<17} sample: {e.about_sample}")
    return 0


def methods(options: Namespace) -> int:
    """Every method at its full-size defaults, both sizes, and ACE's other designs."""
    from acenode import experiments

    experiment = experiments.get(options.experiment)
    found: list[dict[str, Any]] = []
    for name, method in experiment.methods.items():
        variants: list[dict[str, Any]] = [{}, {"size": "large"}] if "size" in method.uses else [{}]
        if "f_layers" in method.uses:
            variants += [{**size, "f_layers": f, "q_layers": q}
                         for size in ({}, {"size": "large"}) for f in (1, 2) for q in (1, 2)]
        elif "attention" in method.uses:
            variants += [{"initial": "dense"}, {"attention": "fixed"}, {"attention": "none"}]
        if "attention_in" in method.uses:
            variants.append({"attention_in": "both"})
        for given in variants:
            config = experiment.configure(name, "full", **given)
            found.append({"method": name, "title": method.title, "size": config.get("size"), "settings": given,
                          "params": experiment.count(config)})
    if options.json:
        _print_json(found)
        return 0
    for entry in found:
        settings = " ".join(f"{k}={v}" for k, v in entry["settings"].items())
        print(f"{entry['method']:<14} {entry['title']:<21} {entry['params']:>10,} parameters  {settings}")
    return 0


def settings(options: Namespace) -> int:
    """Every field of a configuration, or those that an experiment has, with their defaults there."""
    from acenode import experiments
    from acenode.cli import defaults

    usual = defaults.usual(options.experiment) if options.experiment else {}
    found: list[dict[str, Any]] = []
    for name in usual or configuration.SETTINGS:
        setting = configuration.SETTINGS[name]
        bounds = {"low": setting.low, "above": setting.above, "high": setting.high, "choices": setting.choices or None}
        found.append({"key": name, "type": setting.type.__name__, "group": setting.group, "help": setting.help,
                      **({"default": {data: list(of) for data, of in usual[name].items()}} if usual else {}),
                      **{k: v for k, v in bounds.items() if v is not None}})
        if usual and "choices" in found[-1]:
            found[-1]["choices"] = experiments.get(options.experiment).choices(name)
    if options.json:
        _print_json(found)
        return 0
    for entry in found:
        print(f"{entry['key']:<20} {entry['type']:<6} {_bounds(entry)}\n{'':<20} {entry['help']}")
        if usual:
            print(f"{'':<20} default: {defaults.words(options.experiment, entry['key'], usual[entry['key']])}")
    return 0


def _bounds(entry: dict[str, Any]) -> str:
    """What a setting can be."""
    if "choices" in entry:
        return "|".join(entry["choices"])
    if entry["type"] == "bool":
        return "true|false"
    words = ("low", "from"), ("above", "above"), ("high", "to")
    return " ".join(f"{word} {entry[k]:g}" for k, word in words if k in entry)


def export(options: Namespace) -> int:
    from acenode.export import export as write

    print(write(_store(options).open(options.run_id), options.to, options.out))
    return 0


def data(options: Namespace) -> int:
    from acenode.data.folder import data_dir
    from acenode.data.registry import DATA_SOURCES, source_of

    root: Path = data_dir()
    if options.action == "build":
        return _build(options, root)
    if options.action != "list" and options.name is None:
        raise UserError(f"name the data set: acenode data {options.action} {'|'.join(DATA_SOURCES)}")
    sources = list(DATA_SOURCES.values()) if options.name is None else [source_of(options.name)]
    for name in ("folder", "start", "end", "seed"):
        if getattr(options, name) is not None:
            raise UserError(f"--{name.replace('folder', 'from')} goes with `acenode data build ushcn`")
    if options.action == "get":
        from acenode.cli.progress import DownloadBar

        with DownloadBar() as bar:
            path = sources[0].prepare(root, bar.show)
        print(path)
        return 0
    states = [source.check(root) for source in sources]
    if options.json:
        _print_json([{"name": s.name, "state": s.state, "path": str(s.path), "bytes": s.bytes, "detail": s.detail}
                     for s in states])
    else:
        for s in states:
            print(f"{s.name:<13} {s.state:<8} {s.detail}")
    return 0 if options.action == "list" or all(s.state == "ready" for s in states) else 1


def _build(options: Namespace, root: Path) -> int:
    from acenode.cli.progress import DownloadBar
    from acenode.data import ushcn_build
    from acenode.data.ushcn import USHCN

    if options.name != USHCN.name:
        raise UserError(f"what can be built is {USHCN.name}: acenode data build {USHCN.name} --from DIR")
    if options.folder is None:
        raise UserError(f"--from is missing: acenode data build {USHCN.name} --from DIR, a folder of station files")
    given = {name: value for name in ("start", "end", "seed") if (value := getattr(options, name)) is not None}
    with DownloadBar() as bar:
        built = ushcn_build.build(options.folder, root, **given, progress=bar.show)
        USHCN.prepare(root, bar.show)
    if options.json:
        _print_json({"path": str(built.path), "stations": built.stations, "series": built.series, "rows": built.rows,
                     "skipped": built.skipped})
        return 0
    passed = f"; passed over: {said}" if (said := ushcn_build.counts(built.skipped)) else ""
    read = f"{built.stations:,} station{'s' * (built.stations != 1)}"
    print(f"{built.path}: {built.series:,} series of {read}, {built.rows:,} rows{passed}")
    return 0


def bench(options: Namespace) -> int:
    from acenode.bench import settle

    settle(options)
    module = importlib.import_module(f"acenode.bench.{options.what}")
    return module.run(options)
