"""Commands that read runs: list, show, table, export."""

from __future__ import annotations

import re
import sys
import time
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from acenode.cli.common import print_json, run_store
from acenode.cli.progress import brief
from acenode.errors import UserError

COMMIT = re.compile(r"\b([0-9a-f]{7})[0-9a-f]{1,33}\b")  # in `list`, seven digits are shown

if TYPE_CHECKING:
    from acenode.compare.study_answer import StudyReport
    from acenode.export.tables import Epoch
    from acenode.runs.catalogue import Entry
    from acenode.runs.store import Run, RunStore


def _summary(entry: Entry) -> dict[str, Any]:
    """Return one line of `list`; a folder that is not a run is listed as unreadable."""
    from acenode.compare.groups import changed_in

    if entry.state == "unreadable":
        return {"run": entry.id, "state": entry.state, "error": entry.error}
    return {"run": entry.id, "state": entry.state, "experiment": entry.experiment, "method": entry.method,
            "data": entry.data, "sample": entry.config.get("sample"), "seed": entry.seed, "progress": entry.progress,
            "metric": entry.value, "metric_name": entry.metric, "changed": changed_in(entry.config),
            "created": entry.created, "error": entry.error, **({"partial": True} if entry.partial else {}),
            **({"recorded": True, "device": entry.device, "code": entry.code} if entry.recorded else {})}


def list_runs(options: Namespace) -> int:
    """Print all runs: the recorded ones, then those of the folder, each with the latest last."""
    from acenode import experiments
    from acenode.runs.catalogue import Catalogue

    store = run_store(options, to_read=True)
    store.check_readable()
    entries = Catalogue(store).entries()
    lines = [_summary(e) for e in reversed(entries) if not (e.recorded and options.no_recorded)]
    if options.json:
        print_json(lines)
        return 0
    width = max((len(x["run"]) for x in lines), default=0)
    written = [f"{'run':<{width}}  {'state':<11}  {'data':<18}  {'seed':<6}  {'test':<16}  settings"] if lines else []
    for x in lines:
        if x["state"] == "unreadable":
            written.append(f"{x['run']:<{width}}  unreadable   {x['error']}")
            continue
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
        written.append(f"{x['run']:<{width}}  {state:<11}  {data:<18}  {x['seed']:<6}  {value:<16}  {changed}"
                       .rstrip() + (f"  {x['error']}" if x["error"] else ""))
    if all("recorded" in x for x in lines) and not store.only_recorded:
        written.append(f"no runs in {store.root} yet: start one with `acenode train mnist --method ace`")
    if written:
        print("\n".join(written))
    return 0


def show(options: Namespace) -> int:
    """Print one run: configuration, state and results."""
    from acenode.player.attention import strongest
    from acenode.runs.entry import code_version

    run = run_store(options, to_read=True).open(options.run_id)
    description, status, result = run.description(), run.status(), run.result()
    changed = run.changed_metrics()
    if options.json:
        print_json({**description, "status": status, "result": result, **({"warning": changed} if changed else {})})
        return 0
    state = "recorded" if run.recorded else status["state"]
    print(f"{run.id}: {state}" + (f" ({status['error']})" if status.get("error") else ""))
    print(f"  {run.path}")
    print(f"  created {time.strftime('%Y-%m-%d %H:%M', time.localtime(description.get('created', 0)))}, "
          f"{description.get('params', 0):,} parameters, {_where(description.get('environment', {}), status)}")
    if code_version(description.get("environment")):
        print(f"  code                 {code_version(description.get('environment'))}")
    for key, value in description["config"].items():
        if key != "format":
            part = " (a part of it)" if key == "data" and description.get("partial") else ""
            print(f"  {key:<20} {value}{part}")
        if key == "engine" and "trained_by" in description:
            print(f"  trained by           {description['trained_by']}")
            if "series_by" in description:
                print(f"  series backend       {description['series_by']}")
    for note in filter(None, (description.get("data_note"), _changed_set(description))):
        print(f"  note on the data     {note}")
    if status.get("seconds"):
        print(f"  training             {float(status['seconds']):.1f} s")
    if result:
        for key, value in result["test"].items():
            print(f"  test {key:<15} " + ("not a number" if value is None else f"{value:.6g}"))
        print(f"  best epoch           {result.get('best_epoch', '?')}")
        if pairs := strongest(result.get("attention")):
            print("  strongest attention  " + ", ".join(f"{i} attends to {j} {weight:.3f}" for i, j, weight in pairs))
    elif status["state"] in ("stopped", "interrupted", "failed"):
        print(f"  {100 * float(status.get('progress') or 0):.0f}% done; continue with: acenode resume {run.id}")
    if changed:
        print(f"  warning              {changed}")
    return 0


def _changed_set(description: dict[str, Any]) -> str:
    """Say that the imported set of a run has changed; an empty text if not, or if the set cannot be read."""
    if "data_fingerprint" not in description:
        return ""
    from acenode.data.folder import data_dir
    from acenode.data.importing.store import ImportedSets
    from acenode.experiments.imported import changed_set

    try:
        return changed_set(description, ImportedSets(data_dir()).load(description["config"]["experiment"]))
    except UserError:
        return ""


def _where(environment: dict[str, Any], status: dict[str, Any]) -> str:
    """Return what a run was trained on; on a CPU the number of threads affects the last digits."""
    device, threads = environment.get("device", "?"), environment.get("threads")
    if str(status.get("device")).startswith("cuda"):
        return f"{device} ({status['device']})"
    return f"{device}, {threads} thread{'s' * (threads != 1)}" if threads and device.startswith("cpu") else device


def table(options: Namespace) -> int:
    """Print measured means and standard deviations beside the paper's values."""
    from acenode import experiments
    from acenode.compare.table import measured, render, to_records
    from acenode.runs.catalogue import Catalogue

    experiment = experiments.get(options.experiment)
    entries = Catalogue(run_store(options, to_read=True)).entries()
    found = [measured(experiment, entries, metric) for metric in (experiment.metric.name, *experiment.other_metrics)]
    if options.json:
        print_json([row for table in found for row in to_records(table)])
    else:
        print("\n\n".join(render(experiment, table) for table in found))
    return 0


def export(options: Namespace) -> int:
    """Write a run or a study, or a site of several, and print where."""
    from acenode.runs.questions import StudyStore

    store = run_store(options, to_read=True)
    studies = StudyStore(store)
    names = [options.run_id, *options.more]
    if options.epoch is not None and (options.to == "site" or studies.exists(options.run_id)):
        raise UserError("--epoch applies only to a run and --to attention")
    if options.to == "site":
        print(_export_site([n for n in names if studies.exists(n)], [n for n in names if not studies.exists(n)],
                           store, options.out))
    elif options.more:
        raise UserError(f"--to {options.to} exports one run at a time; --to site exports several")
    elif studies.exists(options.run_id):
        from acenode.export.study import export_study

        print(export_study(_study_report(store, options.run_id), options.to, options.out,
                           say=lambda text: print(text, file=sys.stderr)))
    else:
        print(_export_run(_open(store, options.run_id), options.to, options.out, options.epoch))
    return 0


def _open(store: RunStore, name: str) -> Run:
    """Open a run where a study could have been named too."""
    try:
        return store.open(name)
    except UserError as error:
        none = f"there is no run {name!r} in {store.root}"
        if not str(error).startswith(none):
            raise
        raise UserError(f"there is no run or study {name!r} in {store.root}: see `acenode list` and `acenode study "
                        "list`") from None


def _export_run(run: Run, to: str, out: Path | None, epoch: Epoch) -> Path:
    from acenode.export import FORMATS
    from acenode.export import export as write

    if out is None and run.recorded and to in FORMATS:  # a recorded run's own folder is not written to
        out = Path(f"{run.id}-{FORMATS[to].place}")
    return write(run, to, out, epoch=epoch)


def _export_site(studies: list[str], runs: list[str], store: RunStore, out: Path | None) -> Path:
    from acenode.export.study import write_site

    place = out or Path("site")
    found = [_open(store, name) for name in runs]
    try:
        return write_site([_study_report(store, name) for name in studies], found, place)
    except OSError as error:
        raise UserError(f"{place} cannot be written ({error.strerror or error}): choose another place with --out") \
            from None


def _study_report(store: RunStore, name: str) -> StudyReport:
    from acenode.compare.study_answer import report, study_references
    from acenode.compare.study_grid import make_grid
    from acenode.data.folder import data_dir
    from acenode.runs.catalogue import Catalogue
    from acenode.runs.questions import StudyStore

    grid = make_grid(StudyStore(store).read(name), Catalogue(store).entries())
    return report(grid, study_references(grid, data_dir()))
