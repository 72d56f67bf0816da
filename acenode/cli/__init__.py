"""`acenode`: the command line. Every error that a user can cause is one line on stderr and exit code 2."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from acenode.errors import UserError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; its exit code."""
    parser = _parser()
    options = parser.parse_args(arguments)
    try:
        return options.run(options)
    except UserError as error:
        print(f"acenode: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # whoever read the output has had enough
        sys.stderr.close()
        return 0
    except OSError as error:
        print(f"acenode: {error.strerror or error}: {error.filename or 'a file'} could not be read or written",
              file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("acenode: interrupted", file=sys.stderr)
        return 130


class _Parser(argparse.ArgumentParser):
    """argparse with its errors in one line."""

    def error(self, message: str) -> None:  # type: ignore[override]
        print(f"acenode: {message}: see `{self.prog} --help`", file=sys.stderr)
        raise SystemExit(2)


def _parser() -> argparse.ArgumentParser:
    from acenode.bench import BENCHMARKS, FAMILY_NAMES, summary
    from acenode.cli import commands

    parser = _Parser(prog="acenode", description="ACE-NODE Lab: attentive co-evolving neural ODEs")
    verbs = parser.add_subparsers(title="commands", required=True, metavar="COMMAND", parser_class=_Parser)

    def verb(name: str, run: object, help: str, *, runs: bool = False, json: bool = False) -> argparse.ArgumentParser:
        p = verbs.add_parser(name, help=help, description=help)
        p.set_defaults(run=run)
        if runs:
            p.add_argument("--runs", metavar="DIR", help="where runs are (ACENODE_RUNS, or runs/)")
        if json:
            p.add_argument("--json", action="store_true", help="print JSON")
        return p

    p = verb("train", commands.train, "train one method and test it once", runs=True, json=True)
    p.add_argument("experiment", help="one of those that `acenode experiments` lists")
    p.add_argument("--method", required=True, help="one of those that `acenode methods EXPERIMENT` lists")
    p.add_argument("--data", choices=("sample", "full"), default="sample", help="sample (default) needs no download")
    p.add_argument("--seed", type=int, default=0, help="0 unless given")
    p.add_argument("--epochs", type=int, help="the paper's on the full data, a few on the sample unless given")
    p.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto", help="auto (default) takes a GPU")
    p.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a setting; see `acenode settings`")
    p = verb("resume", commands.resume, "go on with a run from its last checkpoint", runs=True, json=True)
    p.add_argument("run_id", metavar="RUN")
    p = verb("stop", commands.stop, "ask a running run to stop; it can be resumed", runs=True)
    p.add_argument("run_id", metavar="RUN")
    verb("list", commands.list_runs, "all runs and their state", runs=True, json=True)
    p = verb("show", commands.show, "one run: configuration, state, results", runs=True, json=True)
    p.add_argument("run_id", metavar="RUN")
    p = verb("table", commands.table, "measured mean ± std over seeds beside the paper's", runs=True, json=True)
    p.add_argument("experiment")
    verb("experiments", commands.experiments, "the experiments there are", json=True)
    p = verb("methods", commands.methods, "an experiment's methods with their parameter counts", json=True)
    p.add_argument("experiment")
    p = verb("settings", commands.settings, "every setting with its bounds and meaning", json=True)
    p.add_argument("experiment", nargs="?", help="those that it has, with their defaults there")
    p = verb("export", commands.export, "a run as CSV, as an HTML report or for TensorBoard", runs=True)
    p.add_argument("run_id", metavar="RUN")
    p.add_argument("--to", required=True, metavar="csv|html|tensorboard")
    p.add_argument("--out", type=Path, metavar="PATH", help="where to write (a folder, or a file for html)")
    p = verb("data", commands.data, "the data sets: list, get (download and prepare), check, build", json=True)
    p.add_argument("action", choices=("list", "get", "check", "build"))
    p.add_argument("name", nargs="?")
    p.add_argument("--from", dest="folder", type=Path, metavar="DIR", help="build ushcn: NOAA's daily station files")
    p.add_argument("--start", type=int, metavar="YEAR", help="build ushcn: 1950 unless given")
    p.add_argument("--end", type=int, metavar="YEAR", help="build ushcn: 2000 unless given")
    p.add_argument("--seed", type=int, help="build ushcn: of the 5%% that are kept, 0 unless given")
    p = verb("bench", commands.bench, "speed, side by side in one run", json=True)
    p.formatter_class, p.epilog = argparse.RawDescriptionHelpFormatter, summary()
    p.add_argument("what", nargs="?", choices=tuple(BENCHMARKS), metavar="|".join(BENCHMARKS), help="listed below")
    p.add_argument("--repeats", type=int, help="all but app and epoch: measurements of each, 3 unless given")
    p.add_argument("--batch", type=int, help="image: samples of a batch, 128 unless given")
    p.add_argument("--device", choices=("auto", "cpu", "cuda"), help="image, latent, epoch: auto unless given")
    p.add_argument("--families", metavar="NAMES", help=f"gpu: some of {FAMILY_NAMES}, all three unless given")
    p.add_argument("--full", action="store_true", default=None, help="gpu: five runs at a time of the slow ones too")
    p.add_argument("--seeds", metavar="LIST", help="epoch: such as 0,1,5 or 0-8, 0-2 unless given")
    p.add_argument("--engines", metavar="NAMES", help="epoch: some of graph,float32,native,reference")
    p.add_argument("--jobs", type=int, metavar="N", help="epoch: processes side by side, 1 unless given")
    p = verb("app", commands.app, "the lab in the browser", runs=True)
    p.add_argument("--port", type=int, metavar="N", help="8501, or the next that is free, unless given")
    p.add_argument("--headless", action="store_true", help="open no browser window")
    verb("demo", commands.demo, "train ACE on the bundled digits and print the measured table", runs=True)
    return parser
