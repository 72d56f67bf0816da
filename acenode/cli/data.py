"""The command `data`: list, download, check, build and import data sets."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from acenode.cli import data_import
from acenode.cli.common import print_json
from acenode.cli.progress import DownloadBar
from acenode.errors import UserError


def data(options: Namespace) -> int:
    """List, download, check, build, import, rename or delete data sets."""
    from acenode.data.folder import data_dir
    from acenode.data.registry import DATA_SOURCES, source_of

    root: Path = data_dir()
    own = {"import": data_import.import_file, "rename": data_import.rename, "delete": data_import.delete}
    if options.action != "import":
        data_import.refuse_import_options(options)
    if options.new is not None and options.action != "rename":
        raise UserError(f"{options.new!r} is one name too many: see `acenode data --help`")
    if options.yes and options.action != "delete":
        raise UserError("--yes applies only to `acenode data delete NAME`")
    if options.action in own:
        _refuse_build_options(options)
        return own[options.action](options, root)
    if options.action == "build":
        return _build(options, root)
    if options.action != "list" and options.name is None:
        raise UserError(f"name the data set: acenode data {options.action} {'|'.join(DATA_SOURCES)}")
    imported = [] if options.action == "get" else data_import.states(root)
    if options.name is None:
        sources = list(DATA_SOURCES.values())
    else:
        imported = [state for state in imported if state.name == options.name]
        sources = [] if imported else [source_of(options.name)]
    _refuse_build_options(options)
    if options.action == "get":
        with DownloadBar() as bar:
            path = sources[0].prepare(root, bar.show)
        print(path)
        return 0
    states = [*(source.check(root) for source in sources), *imported]
    if options.json:
        print_json([{"name": s.name, "state": s.state, "path": str(s.path), "bytes": s.bytes, "detail": s.detail}
                     for s in states])
    else:
        for s in states:
            print(f"{s.name:<13} {s.state:<8} {s.detail}")
    return 0 if options.action == "list" or all(s.state == "ready" for s in states) else 1


def _refuse_build_options(options: Namespace) -> None:
    for name in ("folder", "start", "end", "seed"):
        if getattr(options, name) is not None:
            raise UserError(f"--{name.replace('folder', 'from')} applies only to `acenode data build ushcn`")


def _build(options: Namespace, root: Path) -> int:
    """Build the USHCN set from NOAA's daily station files."""
    from acenode.data import ushcn_build
    from acenode.data.ushcn import USHCN

    if options.name != USHCN.name:
        raise UserError(f"only {USHCN.name} can be built: acenode data build {USHCN.name} --from DIR")
    if options.folder is None:
        raise UserError(f"--from is missing: acenode data build {USHCN.name} --from DIR, a folder of station files")
    given = {name: value for name in ("start", "end", "seed") if (value := getattr(options, name)) is not None}
    with DownloadBar() as bar:
        built = ushcn_build.build(options.folder, root, **given, progress=bar.show)
        USHCN.prepare(root, bar.show)
    if options.json:
        print_json({"path": str(built.path), "stations": built.stations, "series": built.series, "rows": built.rows,
                     "skipped": built.skipped})
        return 0
    skipped = f"; skipped: {counts}" if (counts := ushcn_build.counts(built.skipped)) else ""
    read = f"{built.stations:,} station{'s' * (built.stations != 1)}"
    print(f"{built.path}: {built.series:,} series of {read}, {built.rows:,} rows{skipped}")
    return 0
