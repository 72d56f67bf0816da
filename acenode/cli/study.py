"""The command `study`: make, list, train and show studies."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

from acenode.cli.common import check_limits, columns, key_and_value, output, output_names, run_store
from acenode.compare.fairness import equal_study
from acenode.compare.groups import measure_of
from acenode.compare.reproduction import measured_seconds
from acenode.compare.study_answer import StudyReport, as_json, report, study_references, study_table
from acenode.compare.study_grid import StudyGrid, check_study, group_names, kind_of, make_grid, preset, presets
from acenode.config import parse, read_seeds
from acenode.data.folder import data_dir
from acenode.errors import UserError
from acenode.execution.devices import quick_device, quick_gpu_count
from acenode.runs.catalogue import Catalogue
from acenode.runs.questions import Study, StudyGroup, StudyStore


def list_studies(options: Namespace) -> int:
    """Print the studies with how far they are."""
    store = run_store(options, to_read=True)
    entries, found = Catalogue(store).entries(), list[dict[str, Any]]()
    for one in StudyStore(store).list():
        try:
            if one.study is None:
                raise UserError(one.error)
            grid = make_grid(one.study, entries)
            found.append({"study": one.name, "experiment": one.study.experiment, "data": one.study.data,
                          "question": one.study.question, "finished": grid.finished, "runs": len(grid.cells),
                          "running": len(grid.running), "error": None})
        except UserError as error:
            found.append({"study": one.name, "error": str(error)})
    return output_names(options, found, "study", lambda one: f"unreadable: {one['error']}" if one["error"] else
                        f"{one['finished']} of {one['runs']} runs  {one['experiment']} ({one['data']})  "
                        f"{one['question']}", f"no studies in {store.root} yet: see `acenode study presets mnist`")


def show_presets(options: Namespace) -> int:
    """Print the ready-made studies of an experiment."""
    found, name = presets(options.experiment, options.data), f"`acenode study new NAME {options.experiment}"
    if not found:
        return output(options, [], [f"{options.experiment} has no ready-made studies: make one with {name} --vary "
                                    "KEY=VALUE,VALUE`"])
    lines = [f"{kind_of(study):<10} {study.question}\n{'':<10} {' / '.join(group_names(study))}, "
             f"{len(study.repeats)} {'folds' if study.folds else 'seeds'}" for study in found]
    return output(options, [study.to_dict() | {"preset": kind_of(study)} for study in found],
                  [*lines, f"make one with {name} --preset {kind_of(found[0])}`"])


def new(options: Namespace) -> int:
    """Write a study and print what it will train and for how long."""
    runs = run_store(options)
    store, catalogue = StudyStore(runs), Catalogue(runs)
    study = made_study(options, store)
    store.write(study, replace=options.replace)
    grid = make_grid(study, catalogue.entries())

    def lines() -> Iterator[str]:
        yield f"{study.name}: {' / '.join(row.name for row in grid.rows)}, {len(study.repeats)} runs each"
        yield f"{grid.finished} of {len(grid.cells)} runs are finished already; left: {_estimate(grid, catalogue)}"
        yield from _notes(report(grid, ()))
        yield f"train it with `acenode study run {study.name}`"

    return output(options, study.to_dict(), lines())


def show(options: Namespace) -> int:
    """Print the grid of a study, what is not equal, and the answer."""
    from acenode.execution.study_run import measured_time

    store = run_store(options, to_read=True)
    study, catalogue = StudyStore(store).read(options.name), Catalogue(store)
    found = study_report(study, catalogue)
    left = measured_time(found.grid, catalogue)

    def lines() -> Iterator[str]:
        table = study_table(found)
        yield f"{study.name}: {study.question}" if study.question else study.name
        yield f"{table.caption}.\n"
        yield from columns([table.heads, *table.rows])
        yield ""
        yield from found.answer.sentences
        yield from _notes(found)
        if left.runs:
            yield f"left: {left.text}; train with `acenode study run {study.name}`"

    return output(options, as_json(found) | {"seconds_left": left.seconds}, lines())


def run(options: Namespace) -> int:
    """Train what a study still needs; the same command continues after a stop."""
    from acenode.cli.training import ProgressLines, train_queue
    from acenode.execution.devices import default_workers
    from acenode.execution.study_run import check_data, measured_time, plan

    def left() -> str:
        grid = make_grid(study, catalogue.entries())
        time = measured_time(grid, catalogue, device=options.device, workers=workers)
        return f"left: {time.text}" if time.seconds is not None else ""

    check_limits(options)
    store, root = run_store(options), data_dir()
    study, catalogue = StudyStore(store).read(options.name), Catalogue(store)
    check_data(study, root)
    grid = make_grid(study, catalogue.entries())
    device, title = quick_device(options.device)
    workers = options.workers or default_workers(device, quick_gpu_count(options.device))
    runs = plan(grid, options.device, measured_seconds(catalogue.entries(), device, title))
    lines = ProgressLines(lambda planned, entry: [f"{measure_of(entry).title} {measure_of(entry).text(entry.value)}"],
                          f"`acenode study show {study.name}` shows the answer so far", options.json, left)
    lines.write(f"{grid.finished} of {len(grid.cells)} runs are finished; left: "
                f"{_estimate(grid, catalogue, options.device, workers)}" if runs else
                f"nothing to train: see `acenode study show {study.name}`")
    code = train_queue(runs, options, catalogue, root, lines)
    if runs and not options.json:
        lines.write(study_report(study, catalogue).answer.text)
    return code


def delete(options: Namespace) -> int:
    """Delete a study; its runs stay."""
    StudyStore(run_store(options)).delete(options.name)
    print(f"{options.name} is deleted; its runs are kept")
    return 0


def study_report(study: Study, catalogue: Catalogue) -> StudyReport:
    """Return the grid of a study with its answer and the references for its data."""
    grid = make_grid(study, catalogue.entries())
    return report(grid, study_references(grid, data_dir()))


def _estimate(grid: StudyGrid, catalogue: Catalogue, device: str = "auto", workers: int = 1) -> str:
    from acenode.execution.study_run import estimated_time

    return estimated_time(grid, catalogue, data_dir(), device=device, workers=workers).text


def _notes(found: StudyReport) -> Iterator[str]:
    for note in found.notes:
        yield f"not equal: {note.text}" + f" (equal with {note.change})" * bool(note.change)
    if any(note.equal for note in found.notes):
        name = found.grid.study.name
        yield f"make the equal study with `acenode study new {name}-equal --from {name} --equal`"


# A study from the arguments of `study new` --------------------------------------------------------------------------


def made_study(options: Namespace, store: StudyStore) -> Study:
    """Return the study that the arguments describe: a preset, one like another, or one of its own groups."""
    given = [name for name, value in (("--preset", options.preset), ("--from", options.source),
                                      ("--vary", options.vary), ("--group", options.group)) if value]
    if len(given) > 1 and set(given) != {"--vary", "--group"}:
        raise UserError(f"{given[0]} and {given[1]} exclude each other: leave one out")
    study = _start(options, store)
    changes: dict[str, Any] = {"name": options.name}
    if options.folds is not None:
        changes |= {"folds": tuple(read_seeds(options.folds)), "seeds": ()}
    if options.seeds is not None:
        changes["seeds"] = tuple(read_seeds(options.seeds))
    changes |= {name: value for name in ("question", "metric") if (value := getattr(options, name)) is not None}
    held = _settings(options.set, "--set") | ({} if options.epochs is None else {"epochs": options.epochs})
    study = replace(study, **changes, held={**study.held, **held})
    if (baseline := options.baseline) is not None:
        names = group_names(study)
        number = names.index(baseline) + 1 if baseline in names else int(baseline) if baseline.isdecimal() else 0
        if not 1 <= number <= len(names):
            raise UserError(f"there is no group {baseline!r}: choose a number from 1 to {len(names)}, or one of "
                            f"{'; '.join(names)}")
        study = replace(study, baseline=number - 1)
    return check_study(study)


def _start(options: Namespace, store: StudyStore) -> Study:
    """Return the study before its name, repeats and held settings are changed."""
    if options.source:
        study = store.read(options.source)
        if options.experiment not in (None, study.experiment):
            raise UserError(f"{study.name} is a study of {study.experiment}: leave the experiment out")
        if options.data is not None:
            study = replace(study, data=options.data)
        found = equal_study(make_grid(study, ())) if options.equal else study
        if found is None:
            raise UserError(f"no settings make the groups of {study.name} more equal")
        return found
    if options.equal:
        raise UserError("--equal makes a study like another equal: name it with --from")
    if not options.experiment:
        raise UserError("name an experiment: see `acenode experiments`")
    if options.preset:
        return preset(options.experiment, options.preset, options.data or "sample")
    if not options.group and not options.vary:
        raise UserError("a study compares 2 to 20 groups, and there is none: use --preset KIND, --vary KEY=VALUE,VALUE "
                        "or --group 'METHOD KEY=VALUE'")
    given = (text.split() for text in options.group)
    groups = (*(StudyGroup(method, _settings(settings, "--group")) for method, *settings in given), *_varied(options))
    return Study(options.name, options.experiment, groups, data=options.data or "sample")


def _varied(options: Namespace) -> list[StudyGroup]:
    """Return every combination of the values of --vary; `method` may be one of the keys."""
    axes: dict[str, Sequence[Any]] = {}
    for text in options.vary:
        key, equals, values = text.partition("=")
        parts = [part.strip() for part in values.split(",") if part.strip()]
        if not equals or len(parts) < 2:
            raise UserError(f"--vary takes KEY=VALUE,VALUE,..., not {text!r}")
        if key in axes:
            raise UserError(f"{key} is given twice: leave one out")
        axes[key] = parts if key == "method" else [parse(key, part) for part in parts]
    found = (dict(zip(axes, values, strict=True)) for values in product(*axes.values()))
    return [StudyGroup(settings.pop("method", options.method), settings) for settings in found] if axes else []


def _settings(texts: Sequence[str], option: str) -> dict[str, Any]:
    return {key: parse(key, value) for key, value in (key_and_value(text, option) for text in texts)}
