"""Commands on what can be trained: experiments, methods, settings, and data sets (also tables of your own)."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from acenode.cli.common import DownloadBar, output, run_store
from acenode.config import SETTINGS
from acenode.data.folder import data_dir
from acenode.errors import UserError
from acenode.experiments import EXAMPLES, EXPERIMENTS, YOUR_DATA, get, imported_names, is_imported

if TYPE_CHECKING:
    from acenode.data.importing.build import ImportedTable
    from acenode.data.importing.store import ImportedSets
    from acenode.data.source import DataState

OPTIONS = {**dict.fromkeys(("set_name", "title", "time", "id", "label", "variables", "long", "dates", "time_unit",
                            "task", "given", "window", "stride", "keep_file", "preview"), "import FILE"),
           "yes": "delete NAME", **dict.fromkeys(("folder", "start", "end", "seed"), "build ushcn")}  # of one action
FLAGS = {"set_name": "name", "folder": "from"}


def experiments(options: Namespace) -> int:
    """Print the experiments and their methods."""
    found = [*EXPERIMENTS.values(), *EXAMPLES.values(), *map(get, imported_names())]
    return output(options, [{"name": e.name, "title": e.title, "summary": e.summary, "metric": e.metric.name,
                             "methods": list(e.methods), "sample": e.about_sample} for e in found],
                  (f"{e.name:<17} {e.summary}\n{'':<17} methods: {', '.join(e.methods)}\n{'':<17} "
                   f"{YOUR_DATA if is_imported(e.name) else 'sample'}: {e.about_sample}" for e in found))


def methods(options: Namespace) -> int:
    """Print parameter counts on the full data: every method, both sizes, and the variants of ACE."""
    experiment = get(options.experiment)
    found: list[dict[str, Any]] = []
    for name, method in experiment.methods.items():
        variants: list[dict[str, Any]] = [{}, {"size": "large"}] if "size" in method.uses else [{}]
        if "f_layers" in method.uses:
            variants += [{**size, "f_layers": f, "q_layers": q}
                         for size in ({}, {"size": "large"}) for f in (1, 2) for q in (1, 2)]
        elif "attention" in method.uses:
            starts = [c for c in experiment.choices("initial") if c in ("dense", "learned")]
            variants += [*({"initial": c} for c in starts), {"attention": "fixed"}, {"attention": "none"}]
        if "attention_in" in method.uses:
            variants.append({"attention_in": "both"})
        for given in variants:
            config = experiment.configure(name, "full" if experiment.source else "sample", **given)
            found.append({"method": name, "title": method.title, "size": config.get("size"), "settings": given,
                          "params": experiment.count(config)})
    lines = ["parameters for the full data; networks for the sample may be smaller"] if experiment.source else []
    return output(options, found, lines + [
        f"{one['method']:<14} {one['title']:<21} {one['params']:>10,} parameters  "
        + " ".join(f"{k}={v}" for k, v in one["settings"].items()) for one in found])


# Settings -----------------------------------------------------------------------------------------------------------

Defaults = dict[str, dict[Any, list[str]]]  # by data and value: the methods that have it


def settings(options: Namespace) -> int:
    """Print every setting, or those of one experiment with their defaults."""
    from acenode.experiments.base import reason_for

    by_method = defaults_by_method(options.experiment) if options.experiment else {}
    found: list[dict[str, Any]] = []
    for name in by_method or SETTINGS:
        setting = SETTINGS[name]
        bounds = {"low": setting.low, "above": setting.above, "high": setting.high, "choices": setting.choices or None}
        found.append({"key": name, "type": setting.type.__name__, "group": setting.group, "help": setting.help,
                      **({"default": {data: list(of) for data, of in by_method[name].items()}} if by_method else {}),
                      **{k: v for k, v in bounds.items() if v is not None}})
        if by_method and (reason := reason_for(options.experiment, name)):
            found[-1]["not_as_printed"] = reason
        if by_method and "choices" in found[-1]:
            found[-1]["choices"] = get(options.experiment).choices(name)

    def lines() -> Iterator[str]:
        words = ("low", "from"), ("above", "above"), ("high", "to")
        for one in found:
            bounds = ("|".join(one["choices"]) if "choices" in one else "true|false" if one["type"] == "bool" else
                      " ".join(f"{word} {one[k]:g}" for k, word in words if k in one))
            yield f"{one['key']:<20} {one['type']:<6} {bounds}\n{'':<20} {one['help']}"
            if by_method:
                yield f"{'':<20} default: {describe_default(options.experiment, one['key'], by_method[one['key']])}"
            if "not_as_printed" in one:
                yield f"{'':<20} not as printed (full data; preset=printed): {one['not_as_printed']}"

    return output(options, found, lines())


def defaults_by_method(experiment: str) -> dict[str, Defaults]:
    """Return the defaults of every setting that a method of the experiment has."""
    entry, found = get(experiment), dict[str, Defaults]()
    for data in ("sample", "full") if entry.source else ("sample",):
        for method in entry.methods:
            config = entry.configure(method, data)
            for name in SETTINGS:
                value = config.get(name)
                if value is not None:
                    found.setdefault(name, {"sample": {}, "full": {}})[data].setdefault(value, []).append(method)
    return {name: found[name] for name in SETTINGS if name in found}


def describe_default(experiment: str, name: str, default: Defaults) -> str:
    """Describe a default in one line: on the sample and on the full data, or once if they are the same; and what it
    becomes in a network of another size."""
    entry = get(experiment)
    each = {data: _most_common_first(values) for data, values in default.items() if values}
    if len(set(each.values())) == 1 and (len(each) == 2 or not entry.source):
        text = next(iter(each.values()))
    else:
        text = "; ".join(f"{value} ({data})" for data, value in each.items())
    others = dict[str, None]()
    for size in entry.choices("size"):
        for method in entry.methods:
            small = entry.configure(method)
            if name == "size" or small.get("size") in (None, size):
                continue
            value = entry.configure(method, size=size).get(name)
            if value != small.get(name):
                others[f"{value} with size={size}"] = None
    return "; ".join([text, *others])


def _most_common_first(values: dict[Any, list[str]]) -> str:
    most, *others = sorted(values, key=lambda value: -len(values[value]))
    return ", ".join([str(most).lower(), *(f"{str(v).lower()} for {' and '.join(values[v])}" for v in others)])


# Data sets ----------------------------------------------------------------------------------------------------------


def data(options: Namespace) -> int:
    """List, download, check, build, import, rename or delete data sets."""
    from acenode.data.registry import DATA_SOURCES, source_of

    root, action = data_dir(), options.action
    for name, use in OPTIONS.items():
        if getattr(options, name) is not None and getattr(options, name) is not False and action != use.split()[0]:
            raise UserError(f"--{FLAGS.get(name, name).replace('_', '-')} applies only to `acenode data {use}`")
    if options.new is not None and action != "rename":
        raise UserError(f"{options.new!r} is one name too many: see `acenode data --help`")
    if action == "build":
        return _build(options, root)
    own = {"import": _import, "rename": _rename, "delete": _delete}
    if action in own:
        return own[action](options, root)
    if action != "list" and options.name is None:
        raise UserError(f"name the data set: acenode data {action} {'|'.join(DATA_SOURCES)}")
    imported, sources = [] if action == "get" else _states(root), list(DATA_SOURCES.values())
    if options.name is not None:
        imported = [state for state in imported if state.name == options.name]
        sources = [] if imported else [source_of(options.name)]
    if action == "get":
        with DownloadBar() as bar:
            path = sources[0].prepare(root, bar.show)
        print(path)
        return 0
    states = [*(source.check(root) for source in sources), *imported]
    output(options, [{"name": s.name, "state": s.state, "path": str(s.path), "bytes": s.bytes, "detail": s.detail}
                     for s in states], (f"{s.name:<13} {s.state:<8} {s.detail}" for s in states))
    return 0 if action == "list" or all(s.state == "ready" for s in states) else 1


def _build(options: Namespace, root: Path) -> int:
    """Build the USHCN set from NOAA's daily station files."""
    from acenode.data import ushcn
    from acenode.data.ushcn import USHCN

    if options.name != USHCN.name:
        raise UserError(f"only {USHCN.name} can be built: acenode data build {USHCN.name} --from DIR")
    if options.folder is None:
        raise UserError(f"--from is missing: acenode data build {USHCN.name} --from DIR, a folder of station files")
    given = {name: value for name in ("start", "end", "seed") if (value := getattr(options, name)) is not None}
    with DownloadBar() as bar:
        built = ushcn.build(options.folder, root, **given, progress=bar.show)
        USHCN.prepare(root, bar.show)
    skipped = f"; skipped: {counts}" if (counts := ushcn.counts(built.skipped)) else ""
    return output(options, {"path": str(built.path), "stations": built.stations, "series": built.series,
                            "rows": built.rows, "skipped": built.skipped},
                  [f"{built.path}: {built.series:,} series of {built.stations:,} station{'s' * (built.stations != 1)}, "
                   f"{built.rows:,} rows{skipped}"])


def _import(options: Namespace, root: Path) -> int:
    """Import a file and print what was found in it."""
    from acenode.data.importing.build import ImportRequest, import_table
    from acenode.data.importing.columns import corrected_columns
    from acenode.data.importing.store import summarise
    from acenode.data.importing.table import TableFile

    if options.name is None:
        raise UserError("name the file: acenode data import FILE --name N")
    if options.set_name is None and not options.preview:
        raise UserError(f"give the set a name: acenode data import {options.name} --name N")
    sets = _imported_sets(root)
    if options.set_name is not None:
        sets.check_free(options.set_name)
    table = TableFile(Path(options.name))
    columns = corrected_columns(table.head(), time=options.time, id=options.id, label=options.label,
                                variables=options.variables or (), long=options.long, form=options.dates)
    made = import_table(table, ImportRequest(options.set_name or "preview", columns, options.task, options.given,
                                             options.window, options.stride, options.time_unit or "",
                                             options.title or ""))
    path = None if options.preview else sets.write(made, table if options.keep_file else None)
    found = made.set
    return output(options, {
        "name": found.name, "path": str(path) if path else None, "task": found.task, "given": found.given,
        "time_unit": found.time_unit, "time_origin": found.time_origin, "window": made.window,
        "columns": asdict(made.columns), "notes": list(made.notes), "ignored": list(made.ignored),
        "summary": asdict(summarise(found))}, [*_import_lines(made), f"train with `acenode train {options.set_name} "
                                               "--method ace`" if path else "nothing was written (--preview)"])


def _import_lines(made: ImportedTable) -> Iterator[str]:
    from acenode.data.importing.store import summarise, summary_text

    found, columns = made.set, made.columns
    summary = summarise(found)
    yield f"{found.name}: {summary_text(summary, found.time_unit, windows=made.window is not None)}"
    roles = {"time": columns.time, "id": columns.id, "label": columns.label, "variable": columns.variable,
             "value": columns.value}
    yield ", ".join(f"{role}: {column}" for role, column in roles.items() if column)
    if made.ignored:
        hint = "" if columns.label else " (--label NAME makes one the label)"
        yield f"ignored: {', '.join(made.ignored)}{hint}"
    parts = ", ".join(f"{count:,} {part}" for part, count in summary.parts.items())
    yield f"{'windows' if made.window else 'series'}: {parts}"
    if found.task == "forecast":
        yield f"forecast: the first {found.given:g} {found.time_unit} of each are given".replace("  ", " ")
    elif found.classes:
        yield "classes: " + ", ".join(f"{name} {count:,}" for name, count in summary.classes.items())
    width = max(len(v.name) for v in summary.variables)
    for v in summary.variables:
        yield (f"  {v.name:<{width}}  {v.observed:>9,} values  {100 * v.gaps:5.1f}% gaps  "
               f"{v.low:.4g} to {v.high:.4g} {v.unit}".rstrip())
    yield from made.notes


def _rename(options: Namespace, root: Path) -> int:
    if options.name is None or options.new is None:
        raise UserError("name the set and its new name: acenode data rename NAME NEW")
    print(_imported_sets(root).rename(options.name, options.new))
    return 0


def _delete(options: Namespace, root: Path) -> int:
    if options.name is None:
        raise UserError("name the set: acenode data delete NAME")
    sets = _imported_sets(root)
    sets.require(options.name)
    if not options.yes:
        raise UserError(f"this deletes {sets.path(options.name)}: repeat the command with --yes")
    sets.delete(options.name)
    print(f"{options.name} is deleted; runs that were trained on it are kept")
    return 0


def _states(root: Path) -> list[DataState]:
    """Return the states of all imported sets."""
    from acenode.data.importing.store import summarise, summary_text
    from acenode.data.source import DataState

    found = []
    for stored in _imported_sets(root).list():
        size = sum(file.stat().st_size for file in stored.path.glob("*") if file.is_file())
        if stored.set is None:
            found.append(DataState(stored.name, "broken", stored.path, size, stored.error))
        else:
            detail = f"imported, {stored.set.task}: {summary_text(summarise(stored.set), stored.set.time_unit)}"
            found.append(DataState(stored.name, "ready", stored.path, size, detail))
    return found


def _imported_sets(root: Path) -> ImportedSets:
    from acenode.compare.study_grid import reserved_names
    from acenode.data.importing.store import ImportedSets
    from acenode.runs.catalogue import Catalogue

    return ImportedSets(root, lambda: reserved_names(Catalogue(run_store(Namespace(runs=None)))))
