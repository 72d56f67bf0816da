"""The command `study`: make, list, train and show studies."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING, Any

from acenode.cli.common import print_json, run_store
from acenode.cli.training_queue import ProgressLines, check_limits, train_queue
from acenode.errors import UserError

if TYPE_CHECKING:
    from acenode.compare.study_answer import StudyReport
    from acenode.compare.study_grid import StudyGrid
    from acenode.execution.reproduce import Event
    from acenode.runs.catalogue import Catalogue
    from acenode.runs.questions import Study


def list_studies(options: Namespace) -> int:
    """Print the studies with how far they are."""
    from acenode.compare.study_grid import make_grid
    from acenode.runs.catalogue import Catalogue
    from acenode.runs.questions import StudyStore

    store = run_store(options, to_read=True)
    stored, entries = StudyStore(store).list(), Catalogue(store).entries()
    lines: list[dict[str, Any]] = []
    for one in stored:
        try:
            if one.study is None:
                raise UserError(one.error)
            grid = make_grid(one.study, entries)
            lines.append({"study": one.name, "experiment": one.study.experiment, "data": one.study.data,
                          "question": one.study.question, "finished": grid.finished, "runs": len(grid.cells),
                          "running": len(grid.running), "error": None})
        except UserError as error:
            lines.append({"study": one.name, "error": str(error)})
    if options.json:
        print_json(lines)
        return 0
    width = max((len(line["study"]) for line in lines), default=0)
    for line in lines:
        if line["error"]:
            print(f"{line['study']:<{width}}  unreadable: {line['error']}")
        else:
            print(f"{line['study']:<{width}}  {line['finished']} of {line['runs']} runs  {line['experiment']} "
                  f"({line['data']})  {line['question']}".rstrip())
    if not lines:
        print(f"no studies in {store.root} yet: see `acenode study presets mnist`")
    return 0


def show_presets(options: Namespace) -> int:
    """Print the ready-made studies of an experiment."""
    from acenode.compare.study_grid import group_names, kind_of, presets

    found = presets(options.experiment, options.data)
    if options.json:
        print_json([study.to_dict() | {"preset": kind_of(study)} for study in found])
        return 0
    if not found:
        print(f"{options.experiment} has no ready-made studies: make one with `acenode study new NAME "
              f"{options.experiment} --vary KEY=VALUE,VALUE`")
        return 0
    for study in found:
        print(f"{kind_of(study):<10} {study.question}\n{'':<10} {' / '.join(group_names(study))}, "
              f"{len(study.repeats)} {'folds' if study.folds else 'seeds'}")
    print(f"make one with `acenode study new NAME {options.experiment} --preset {kind_of(found[0])}`")
    return 0


def new(options: Namespace) -> int:
    """Write a study and print what it will train and for how long."""
    from acenode.cli.study_options import made_study
    from acenode.runs.catalogue import Catalogue
    from acenode.runs.questions import StudyStore

    runs = run_store(options)
    store = StudyStore(runs)
    study = made_study(options, store)
    store.write(study, replace=options.replace)
    catalogue = Catalogue(runs)
    grid = _grid(study, catalogue)
    if options.json:
        print_json(study.to_dict())
        return 0
    print(f"{study.name}: {' / '.join(row.name for row in grid.rows)}, {len(study.repeats)} runs each")
    print(f"{grid.finished} of {len(grid.cells)} runs are finished already; left: {_estimate(grid, catalogue)}")
    _print_notes(_report(grid, with_references=False))
    print(f"train it with `acenode study run {study.name}`")
    return 0


def show(options: Namespace) -> int:
    """Print the grid of a study, what is not equal, and the answer."""
    from acenode.compare.study_answer import as_json, study_table
    from acenode.execution.study_run import measured_time
    from acenode.runs.catalogue import Catalogue
    from acenode.runs.questions import StudyStore

    store = run_store(options, to_read=True)
    study, catalogue = StudyStore(store).read(options.name), Catalogue(store)
    found = _report(_grid(study, catalogue))
    left = measured_time(found.grid, catalogue)
    if options.json:
        print_json(as_json(found) | {"seconds_left": left.seconds})
        return 0
    table = study_table(found)
    print(f"{study.name}: {study.question}" if study.question else study.name)
    print(f"{table.caption}.\n")
    lines = [table.heads, *table.rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(table.heads))]
    for line in lines:
        print("  ".join(part.ljust(width) for part, width in zip(line, widths, strict=True)).rstrip())
    print()
    for sentence in found.answer.sentences:
        print(sentence)
    _print_notes(found)
    if left.runs:
        print(f"left: {left.text}; train with `acenode study run {study.name}`")
    return 0


def run(options: Namespace) -> int:
    """Train what a study still needs; the same command continues after a stop."""
    from acenode.compare.reproduction import measured_seconds
    from acenode.data.folder import data_dir
    from acenode.execution.quick_device import quick_device, quick_gpu_count
    from acenode.execution.reproduce import default_workers
    from acenode.execution.study_run import check_data, measured_time, plan
    from acenode.runs.catalogue import Catalogue
    from acenode.runs.questions import StudyStore

    check_limits(options)
    store, root = run_store(options), data_dir()
    study, catalogue = StudyStore(store).read(options.name), Catalogue(store)
    check_data(study, root)
    grid = _grid(study, catalogue)
    device, title = quick_device(options.device)
    workers = options.workers or default_workers(device, quick_gpu_count(options.device))
    runs = plan(grid, options.device, measured_seconds(catalogue.entries(), device, title))

    def left() -> str:
        time = measured_time(_grid(study, catalogue), catalogue, device=options.device, workers=workers)
        return f"left: {time.text}" if time.seconds is not None else ""

    lines = ProgressLines(_result, f"`acenode study show {study.name}` shows the answer so far", quiet=options.json,
                          time_left=left)
    if not runs:
        lines.write(f"nothing to train: see `acenode study show {study.name}`")
        if options.json:
            print_json({"finished": [], "stopped": [], "failed": {}, "elsewhere": [], "left": 0})
        return 0
    lines.write(f"{grid.finished} of {len(grid.cells)} runs are finished; left: "
                f"{_estimate(grid, catalogue, options.device, workers)}")
    code = train_queue(runs, options, catalogue, root, lines)
    if not options.json:
        found = _report(_grid(study, catalogue))
        lines.write(found.answer.text)
    return code


def delete(options: Namespace) -> int:
    """Delete a study; its runs stay."""
    from acenode.runs.questions import StudyStore

    StudyStore(run_store(options)).delete(options.name)
    print(f"{options.name} is deleted; its runs are kept")
    return 0


def _grid(study: Study, catalogue: Catalogue) -> StudyGrid:
    from acenode.compare.study_grid import make_grid

    return make_grid(study, catalogue.entries())


def _report(grid: StudyGrid, *, with_references: bool = True) -> StudyReport:
    from acenode.compare.study_answer import report, study_references
    from acenode.data.folder import data_dir

    return report(grid, study_references(grid, data_dir()) if with_references else ())


def _estimate(grid: StudyGrid, catalogue: Catalogue, device: str = "auto", workers: int = 1) -> str:
    from acenode.data.folder import data_dir
    from acenode.execution.study_run import estimated_time

    return estimated_time(grid, catalogue, data_dir(), device=device, workers=workers).text


def _print_notes(found: StudyReport) -> None:
    """Print what is not equal and how to make an equal study."""
    for note in found.notes:
        print(f"not equal: {note.text}" + (f" (equal with {note.offer.change})" if note.offer else ""))
    if any(note.offer for note in found.notes):
        name = found.grid.study.name
        print(f"make the equal study with `acenode study new {name}-equal --from {name} --equal`")


def _result(event: Event) -> str:
    """Write what a finished run measured."""
    from acenode.compare.groups import measure_of
    from acenode.runs.entry import read_entry, stamps_of

    assert event.run is not None
    entry = read_entry(event.run, stamps_of(event.run.path)).entry
    measure = measure_of(entry)
    return f"{measure.title} {measure.text(entry.value)}, {entry.seconds or 0:.0f} s of training"
