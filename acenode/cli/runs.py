"""Commands on runs there are: list, show, stop, table, export, predict, record."""

from __future__ import annotations

import re
import sys
import time
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from acenode import experiments
from acenode.cli.common import brief, output, run_store
from acenode.compare.groups import changed_in
from acenode.data.folder import data_dir
from acenode.data.importing.store import ImportedSets
from acenode.errors import UserError
from acenode.experiments.imported import changed_set
from acenode.player.attention import strongest
from acenode.runs.catalogue import Catalogue
from acenode.runs.entry import Entry, code_version
from acenode.runs.questions import StudyStore
from acenode.runs.recorded import repository_folder
from acenode.runs.store import BUSY, Run, RunStore

COMMIT = re.compile(r"\b([0-9a-f]{7})[0-9a-f]{1,33}\b")  # in `list`, seven digits are shown


def _summary(entry: Entry) -> dict[str, Any]:
    if entry.state == "unreadable":
        return {"run": entry.id, "state": entry.state, "error": entry.error}
    return {"run": entry.id, "state": entry.state, "experiment": entry.experiment, "method": entry.method,
            "data": entry.data, "sample": entry.config.get("sample"), "seed": entry.seed, "progress": entry.progress,
            "metric": entry.value, "metric_name": entry.metric, "changed": changed_in(entry.config),
            "created": entry.created, "error": entry.error, **({"partial": True} if entry.partial else {}),
            **({"recorded": True, "device": entry.device, "code": entry.code} if entry.recorded else {})}


def list_runs(options: Namespace) -> int:
    """Print all runs: the recorded ones, then those of the folder, each with the latest last."""
    store = run_store(options, to_read=True)
    store.check_readable()
    found = [_summary(e) for e in reversed(Catalogue(store).entries()) if not (e.recorded and options.no_recorded)]
    width = max((len(x["run"]) for x in found), default=0)

    def lines() -> Iterator[str]:
        if found:
            yield f"{'run':<{width}}  {'state':<11}  {'data':<18}  {'seed':<6}  {'test':<16}  settings"
        yield from (_line(x, width) for x in found)
        if all("recorded" in x for x in found) and not store.only_recorded:
            yield f"no runs in {store.root} yet: start one with `acenode train mnist --method ace`"

    return output(options, found, lines())


def _line(x: dict[str, Any], width: int) -> str:
    if x["state"] == "unreadable":
        return f"{x['run']:<{width}}  unreadable   {x['error']}"
    value = (f"{x['metric_name']} {brief(x['metric'])}" if x["metric"] is not None
             else f"{100 * (x['progress'] or 0):.0f}% done")
    kind = experiments.YOUR_DATA if experiments.is_imported(x["experiment"]) else x["data"]
    data = f"{kind}{', partial' * ('partial' in x)} {x['sample'] or ''}"
    changed = " ".join(f"{k}={v}" for k, v in x["changed"].items() if k != "sample")
    if "recorded" in x:
        when = time.strftime("%Y-%m-%d", time.localtime(x["created"]))
        code = COMMIT.sub(r"\1", x["code"])
        changed += f"  ({', '.join(filter(None, (x['device'], when, code)))})"
    state = "recorded" if "recorded" in x else x["state"]
    return (f"{x['run']:<{width}}  {state:<11}  {data:<18}  {x['seed']:<6}  {value:<16}  {changed}".rstrip()
            + (f"  {x['error']}" if x["error"] else ""))


def show(options: Namespace) -> int:
    """Print one run: configuration, state and results."""
    run = run_store(options, to_read=True).open(options.run_id)
    description, status, result, warning = run.description(), run.status(), run.result(), run.changed_metrics()
    return output(options, {**description, "status": status, "result": result,
                            **({"warning": warning} if warning else {})},
                  _shown(run, description, status, result, warning))


def _shown(run: Run, description: dict[str, Any], status: dict[str, Any], result: dict[str, Any] | None,
           warning: str) -> Iterator[str]:
    environment = description.get("environment", {})
    state = "recorded" if run.recorded else status["state"]
    yield f"{run.id}: {state}" + (f" ({status['error']})" if status.get("error") else "")
    yield f"  {run.path}"
    yield (f"  created {time.strftime('%Y-%m-%d %H:%M', time.localtime(description.get('created', 0)))}, "
           f"{description.get('params', 0):,} parameters, {_where(environment, status)}")
    if code := code_version(environment):
        yield f"  code                 {code}"
    for key, value in description["config"].items():
        if key != "format":
            part = " (a part of it)" if key == "data" and description.get("partial") else ""
            yield f"  {key:<20} {value}{part}"
        if key == "engine" and "trained_by" in description:
            yield f"  trained by           {description['trained_by']}"
            if "series_by" in description:
                yield f"  series backend       {description['series_by']}"
    for note in filter(None, (description.get("data_note"), _changed_set(description))):
        yield f"  note on the data     {note}"
    if status.get("seconds"):
        yield f"  training             {float(status['seconds']):.1f} s"
    if result:
        for key, value in result["test"].items():
            yield f"  test {key:<15} " + ("not a number" if value is None else f"{value:.6g}")
        yield f"  best epoch           {result.get('best_epoch', '?')}"
        if pairs := strongest(result.get("attention")):
            yield "  strongest attention  " + ", ".join(f"{i} attends to {j} {weight:.3f}" for i, j, weight in pairs)
    elif status["state"] in ("stopped", "interrupted", "failed"):
        yield f"  {100 * float(status.get('progress') or 0):.0f}% done; continue with: acenode resume {run.id}"
    if warning:
        yield f"  warning              {warning}"


def _changed_set(description: dict[str, Any]) -> str:
    if "data_fingerprint" not in description:
        return ""
    try:
        return changed_set(description, ImportedSets(data_dir()).load(description["config"]["experiment"]))
    except UserError:
        return ""


def _where(environment: dict[str, Any], status: dict[str, Any]) -> str:
    device, threads = environment.get("device", "?"), environment.get("threads")
    if str(status.get("device")).startswith("cuda"):
        return f"{device} ({status['device']})"
    return f"{device}, {threads} thread{'s' * (threads != 1)}" if threads and device.startswith("cpu") else device


def stop(options: Namespace) -> int:
    """Request a running run to stop."""
    run = run_store(options).open(options.run_id)
    run.refuse_recorded("stopped")
    state = run.status()["state"]
    if state not in BUSY:
        raise UserError(f"{run.id} is {state}: only a running run can be stopped")
    run.request_stop()
    print(f"{run.id} will stop after its current iteration")
    return 0


def table(options: Namespace) -> int:
    """Print measured means and standard deviations beside the paper's values."""
    from acenode.compare.table import measured, render, to_records  # loads pandas, which `list` does without

    experiment = experiments.get(options.experiment)
    entries = Catalogue(run_store(options, to_read=True)).entries()
    found = [measured(experiment, entries, metric) for metric in (experiment.metric.name, *experiment.other_metrics)]
    return output(options, [row for table in found for row in to_records(table)],
                  ["\n\n".join(render(experiment, table) for table in found)])


def export(options: Namespace) -> int:
    """Write a run or a study, or a site of several, and print where."""
    from acenode.cli.study import study_report
    from acenode.export import FORMATS
    from acenode.export import export as write
    from acenode.export.study import export_study, write_site

    store, out = run_store(options, to_read=True), options.out
    studies, catalogue = StudyStore(store), Catalogue(store)
    names = [options.run_id, *options.more]
    is_study = {name: studies.exists(name) for name in names}
    if options.epoch is not None and (options.to == "site" or is_study[options.run_id]):
        raise UserError("--epoch applies only to a run and --to attention")
    if options.to == "site":
        runs = [_open(store, name) for name in names if not is_study[name]]
        reports = [study_report(studies.read(name), catalogue) for name in names if is_study[name]]
        print(write_site(reports, runs, out or Path("site")))
    elif options.more:
        raise UserError(f"--to {options.to} exports one run at a time; --to site exports several")
    elif is_study[options.run_id]:
        print(export_study(study_report(studies.read(options.run_id), catalogue), options.to, out,
                           say=lambda text: print(text, file=sys.stderr)))
    else:
        run = _open(store, options.run_id)
        if out is None and run.recorded and options.to in FORMATS:  # a recorded run's own folder is not written to
            out = Path(f"{run.id}-{FORMATS[options.to].place}")
        print(write(run, options.to, out, epoch=options.epoch))
    return 0


def _open(store: RunStore, name: str) -> Run:
    try:
        return store.open(name)
    except UserError as error:
        none = f"there is no run {name!r} in {store.root}"
        if not str(error).startswith(none):
            raise
        raise UserError(f"there is no run or study {name!r} in {store.root}: see `acenode list` and `acenode study "
                        "list`") from None


def predict(options: Namespace) -> int:
    """Predict the rows of a file and write them as CSV."""
    from acenode.data.importing.table import TableFile
    from acenode.execution.predict import Predictor, csv_text, write_csv

    out: Path | None = options.out
    if out is not None and not out.parent.is_dir():
        raise UserError(f"there is no folder {out.parent}: choose another file with --out")
    table = TableFile(Path(options.file))
    found = Predictor(run_store(options, to_read=True).open(options.run_id), data_dir()).file(table)
    if out is None:
        print(csv_text(found), end="")
    else:
        write_csv(found, out)
        ahead = {"forecast": "forecast", "fill": "filled in", "classify": "classified"}[found.source.task]
        print(f"{out}: {len(found.series):,} series {ahead}")
    for note in found.notes:
        print(note, file=sys.stderr if out is None else sys.stdout)
    return 0


def record(options: Namespace) -> int:
    """Keep compact copies of finished runs with the project, and print their sizes."""
    from acenode.export import record as recording

    folder: Path | None = options.to or repository_folder()
    if folder is None:
        raise UserError("this is not a clone of the repository: choose a folder for the copies with --to DIR")
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is not a folder: choose another with --to DIR")
    if options.size < 1:
        raise UserError("--size takes a number of kilobytes, such as 300")
    store = run_store(options)
    if options.run_ids == ["all"]:
        options.run_ids = sorted(entry.id for entry in Catalogue(store).entries() if entry.state == "finished"
                                 and not entry.recorded and not entry.search)
        if not options.run_ids:
            raise UserError(f"there is no finished run in {store.root}")
    runs = [store.open(name) for name in options.run_ids]
    recording.check(runs)
    for run in runs:
        copy = recording.record(run, folder, note=options.note, commit=options.commit, size=1000 * options.size)
        plural = "s" * (copy.snapshots != 1)
        print(f"{run.id}  {copy.size / 1000:.0f} KB, {copy.snapshots} snapshot{plural}", flush=True)
    total, count = recording.folder_size(folder), sum(p.is_dir() for p in folder.iterdir())
    print(f"{count} recorded run{'s' * (count != 1)} in {folder}: {total / 1e6:.1f} of {recording.TOTAL / 1e6:.0f} MB")
    return 0


def demo(options: Namespace) -> int:
    """Train ACE on the bundled digits and print the table."""
    from acenode.cli.training import execute_run
    from acenode.execution.execute import create

    print("ACE-ODE-Net on scikit-learn's digits: h(t) and its attention a(t) evolve together and train in turns.")
    run = create(run_store(options), experiments.get("mnist").configure("ace"))
    code = execute_run(run, Namespace(json=False, runs=options.runs))
    if code == 0:
        print()
        table(Namespace(experiment="mnist", runs=options.runs, json=False))
        folder = f" --runs {options.runs}" if options.runs is not None else ""
        print(f"\nCreate a report of this run with `acenode export {run.id} --to html{folder}`.")
    return code
