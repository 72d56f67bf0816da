"""The commands `data import`, `data rename` and `data delete`: tables of your own."""

from __future__ import annotations

import argparse
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from acenode.cli.common import print_json, run_store
from acenode.errors import UserError

if TYPE_CHECKING:
    from acenode.data.importing.build import ImportedTable
    from acenode.data.importing.columns import Columns
    from acenode.data.importing.store import ImportedSets
    from acenode.data.importing.table import TableFile
    from acenode.data.source import DataState

IMPORT_OPTIONS = ("set_name", "title", "time", "id", "label", "variables", "long", "dates", "time_unit", "task",
                  "given", "window", "stride", "keep_file", "preview")  # of `data import` alone


def add_arguments(p: argparse.ArgumentParser) -> None:
    """Add the arguments of import, rename and delete to those of `data`."""
    group = p.add_argument_group("data import FILE", "a CSV or Parquet file: a column for the time and one for each "
                                 "variable, or a row for each value (--long)")
    group.add_argument("--name", dest="set_name", metavar="N", help="name of the new set")
    group.add_argument("--title", metavar="TEXT", help="its title (default: its name)")
    group.add_argument("--time", metavar="C", help="column of the times (default: guessed, as are the others)")
    group.add_argument("--id", metavar="C", help="column that names the series; none: all rows are one series")
    group.add_argument("--label", metavar="C", help="column with the class of each series; none: there is none")
    group.add_argument("--variables", nargs="+", metavar="C", help="columns with values, or names of variables")
    group.add_argument("--long", nargs=2, metavar=("VARIABLE", "VALUE"),
                       help="a row for each value: the columns of the variables' names and of the values")
    group.add_argument("--dates", choices=("number", "date", "day-first", "month-first"),
                       help="how times are written: date is 2024-01-31 15:30")
    group.add_argument("--time-unit", metavar="U", help="seconds, minutes, hours, days, weeks or years")
    group.add_argument("--task", choices=("forecast", "fill", "classify"),
                       help="default: classify if there is a label, else forecast")
    group.add_argument("--given", type=float, metavar="T", help="forecast: how much time of each series is seen, in "
                       "units of time (default: half)")
    group.add_argument("--window", type=float, metavar="T", help="cut series into windows of this length, in units of "
                       "time (default for one long series: 24 rows)")
    group.add_argument("--stride", type=float, metavar="T", help="time between the starts of two windows (default: a "
                       "quarter of the window, or what makes 200 to 5,000 windows)")
    group.add_argument("--keep-file", action="store_true", help="keep a copy of the file with the set")
    group.add_argument("--preview", action="store_true", help="show what would be imported and write nothing")
    p.add_argument("--yes", action="store_true", help="data delete: delete without asking")


def refuse_import_options(options: Namespace) -> None:
    """Raise an error if an option of `data import` was given to another action."""
    for name in IMPORT_OPTIONS:
        if getattr(options, name):
            flag = "name" if name == "set_name" else name.replace("_", "-")
            raise UserError(f"--{flag} applies only to `acenode data import FILE`")


def import_file(options: Namespace, root: Path) -> int:
    """Import a file and print what was found in it."""
    from acenode.data.importing.build import ImportRequest, import_table
    from acenode.data.importing.table import TableFile

    if options.name is None:
        raise UserError("name the file: acenode data import FILE --name N")
    if options.set_name is None and not options.preview:
        raise UserError(f"give the set a name: acenode data import {options.name} --name N")
    sets = imported_sets(root)
    if options.set_name is not None:
        sets.check_free(options.set_name)
    table = TableFile(Path(options.name))
    made = import_table(table, ImportRequest(
        options.set_name or "preview", _columns(table, options), options.task, options.given, options.window,
        options.stride, options.time_unit or "", options.title or ""))
    path = None if options.preview else sets.write(made, table if options.keep_file else None)
    if options.json:
        print_json(_as_json(made, path))
        return 0
    _print(made)
    print(f"train with `acenode train {options.set_name} --method ace`" if path else "nothing was written (--preview)")
    return 0


def rename(options: Namespace, root: Path) -> int:
    """Rename an imported set."""
    if options.name is None or options.new is None:
        raise UserError("name the set and its new name: acenode data rename NAME NEW")
    print(imported_sets(root).rename(options.name, options.new))
    return 0


def delete(options: Namespace, root: Path) -> int:
    """Delete an imported set, after asking twice or with --yes."""
    if options.name is None:
        raise UserError("name the set: acenode data delete NAME")
    sets = imported_sets(root)
    sets.require(options.name)
    if not options.yes:
        raise UserError(f"this deletes {sets.path(options.name)}: repeat the command with --yes")
    sets.delete(options.name)
    print(f"{options.name} is deleted; runs that were trained on it are kept")
    return 0


def states(root: Path) -> list[DataState]:
    """Return the states of all imported sets."""
    from acenode.data.importing.preview import summarise, summary_text
    from acenode.data.source import DataState

    found = []
    for stored in imported_sets(root).list():
        size = sum(file.stat().st_size for file in stored.path.glob("*") if file.is_file())
        if stored.set is None:
            found.append(DataState(stored.name, "broken", stored.path, size, stored.error))
        else:
            detail = f"imported, {stored.set.task}: {summary_text(summarise(stored.set), stored.set.time_unit)}"
            found.append(DataState(stored.name, "ready", stored.path, size, detail))
    return found


def imported_sets(root: Path) -> ImportedSets:
    """Return the imported sets of a data folder; they cannot have the names of experiments and of trained sets."""
    from acenode.compare.study_grid import reserved_names
    from acenode.data.importing.store import ImportedSets
    from acenode.runs.catalogue import Catalogue

    return ImportedSets(root, lambda: reserved_names(Catalogue(run_store(Namespace(runs=None)))))


def _columns(table: TableFile, options: Namespace) -> Columns:
    from acenode.data.importing.columns import corrected_columns

    return corrected_columns(table.head(), time=options.time, id=options.id, label=options.label,
                             variables=options.variables or (), long=options.long, form=options.dates)


def _as_json(made: ImportedTable, path: Path | None) -> dict[str, object]:
    from dataclasses import asdict

    from acenode.data.importing.preview import summarise

    found = made.set
    return {"name": found.name, "path": str(path) if path else None, "task": found.task, "given": found.given,
            "time_unit": found.time_unit, "time_origin": found.time_origin, "window": made.window,
            "columns": asdict(made.columns), "notes": list(made.notes), "ignored": list(made.ignored),
            "summary": asdict(summarise(found))}


def _print(made: ImportedTable) -> None:
    from acenode.data.importing.preview import summarise, summary_text

    found, columns = made.set, made.columns
    summary = summarise(found)
    print(f"{found.name}: {summary_text(summary, found.time_unit, windows=made.window is not None)}")
    roles = {"time": columns.time, "id": columns.id, "label": columns.label, "variable": columns.variable,
             "value": columns.value}
    print(", ".join(f"{role}: {column}" for role, column in roles.items() if column))
    if made.ignored:
        hint = "" if columns.label else " (--label NAME makes one the label)"
        print(f"ignored: {', '.join(made.ignored)}{hint}")
    parts = ", ".join(f"{count:,} {part}" for part, count in summary.parts.items())
    print(f"{'windows' if made.window else 'series'}: {parts}")
    if found.task == "forecast":
        print(f"forecast: the first {found.given:g} {found.time_unit} of each are given".replace("  ", " "))
    elif found.classes:
        print("classes: " + ", ".join(f"{name} {count:,}" for name, count in summary.classes.items()))
    width = max(len(v.name) for v in summary.variables)
    for v in summary.variables:
        print(f"  {v.name:<{width}}  {v.observed:>9,} values  {100 * v.gaps:5.1f}% gaps  "
              f"{v.low:.4g} to {v.high:.4g} {v.unit}".rstrip())
    for note in made.notes:
        print(note)
