"""Arguments and help texts of every command."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

from acenode import bench
from acenode.bench import BENCHMARKS, FAMILY_NAMES, PART_NAMES
from acenode.cli import (
    data,
    data_import,
    predict,
    programs,
    record,
    registry,
    runs,
    search,
    search_options,
    study,
    training,
)
from acenode.cli.argument_types import device, epoch, integer, path
from acenode.cli.cluster_option import add_cluster_arguments
from acenode.cli.reproduce import reproduce
from acenode.config.vocabulary import CHOSEN, PRESETS


class OneLineParser(argparse.ArgumentParser):
    """An ArgumentParser that prints an error in one line."""

    def error(self, message: str) -> None:  # type: ignore[override]
        print(f"acenode: {' '.join(message.split())}: see `{self.prog} --help`", file=sys.stderr)
        raise SystemExit(2)


READING = ("list", "show", "table", "export", "reproduce", "predict")  # commands that also take `--runs recorded`


class _Commands:
    """Adds commands to the parser."""

    def __init__(self, parser: argparse.ArgumentParser) -> None:
        self.subparsers = parser.add_subparsers(title="commands", required=True, metavar="COMMAND",
                                                parser_class=OneLineParser)

    def add(self, name: str, run: Callable[[argparse.Namespace], int], help: str, *, runs: bool = False,
            json: bool = False) -> argparse.ArgumentParser:
        p = self.subparsers.add_parser(name, help=help, description=help)
        p.set_defaults(run=run)
        if runs:
            recorded = "; recorded: the runs that come with the project" if name in READING else ""
            p.add_argument("--runs", metavar="DIR", help=f"folder of runs (default: ACENODE_RUNS, or runs/){recorded}")
        if json:
            p.add_argument("--json", action="store_true", help="print JSON")
        return p


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of `acenode`; a parsed command has its function in `run`."""
    parser = OneLineParser(prog="acenode", description="ACE-NODE Lab: attentive co-evolving neural ODEs")
    commands = _Commands(parser)
    _add_training(commands)
    _add_reproduce(commands)
    _add_study(commands)
    search_options.add_arguments(commands.add(
        "search", search.search, "find good settings of a method by validation", runs=True, json=True))
    _add_runs(commands)
    _add_registry(commands)
    _add_data(commands)
    _add_programs(commands)
    commands.add("demo", training.demo, "train ACE on the bundled digits and print the results table", runs=True)
    return parser


def _add_training(commands: _Commands) -> None:
    p = commands.add("train", training.train, "train one method and test it once", runs=True, json=True)
    p.add_argument("experiment", help="a name from `acenode experiments`")
    p.add_argument("--method", required=True, help="a name from `acenode methods EXPERIMENT`")
    p.add_argument("--data", choices=("sample", "full"), default="sample",
                   help="sample: bundled, no download (default); full: the paper's data set")
    p.add_argument("--seed", type=integer, help="seed of parameters and data order (default: 0)")
    p.add_argument("--seeds", metavar="LIST", help="train several seeds at once, such as 0-2 or 0,1,5; a run for each")
    p.add_argument("--epochs", type=integer, help="default: the paper's on the full data, fewer on the sample")
    p.add_argument("--device", type=device, metavar="NAME", default="auto",
                   help="auto: a GPU if there is one (default); cpu; cuda: the least busy GPU; cuda:3: a certain one")
    p.add_argument("--set", action="append", default=[], metavar="KEY=VALUE",
                   help="change a setting; `acenode settings EXPERIMENT` lists them; preset=printed takes the paper's "
                        "settings also where they do not work; may be repeated")
    add_cluster_arguments(p)
    p = commands.add("resume", training.resume, "continue a run from its last checkpoint", runs=True, json=True)
    _add_run_argument(p)
    p.add_argument("--device", type=device, metavar="NAME",
                   help="auto, cpu, cuda or cuda:3 (default: what the run was begun with)")
    add_cluster_arguments(p)
    p = commands.add("stop", training.stop, "stop a running run; it can be resumed", runs=True)
    _add_run_argument(p)


def _add_reproduce(commands: _Commands) -> None:
    p = commands.add("reproduce", reproduce, "train what the paper's tables still need, the most worthwhile first",
                     runs=True, json=True)
    p.add_argument("tables", nargs="*", metavar="TABLE", help="a table of the paper, or the key of a cell (default: "
                   "all): see `acenode reproduce --list`")
    p.add_argument("--list", action="store_true", help="print every cell with its measured value and missing runs")
    p.add_argument("--seeds", type=integer, metavar="N", help="runs per cell (default: 3; ushcn: its five folds)")
    p.add_argument("--epochs", type=integer, metavar="N", help="default: 40 for images, a quarter of the paper's; the "
                   "experiment's default for others")
    p.add_argument("--preset", choices=PRESETS, default=CHOSEN, help="printed: the paper's settings also where they "
                   "do not work")
    _add_queue_arguments(p)


def _add_study(commands: _Commands) -> None:
    studies = _Commands(commands.subparsers.add_parser(
        "study", help="answer a question with several runs: what varies, which seeds",
        description="make, train and show studies, which compare groups of runs"))
    studies.add("list", study.list_studies, "list the studies", runs=True, json=True)
    p = studies.add("presets", study.show_presets, "list the ready-made studies of an experiment", json=True)
    p.add_argument("experiment", help="a name from `acenode experiments`")
    p.add_argument("--data", choices=("sample", "full"), default="sample", help="default: sample")
    _add_new_study(studies.add("new", study.new, "make a study", runs=True, json=True))
    p = studies.add("run", study.run, "train what a study still needs; continues where it stopped", runs=True,
                    json=True)
    p.add_argument("name", metavar="NAME", help="name of the study")
    _add_queue_arguments(p)
    p = studies.add("show", study.show, "show a study: every run, what is not equal, and the answer", runs=True,
                    json=True)
    p.add_argument("name", metavar="NAME", help="name of the study")
    p = studies.add("delete", study.delete, "delete a study; its runs are kept", runs=True)
    p.add_argument("name", metavar="NAME", help="name of the study")


def _add_new_study(p: argparse.ArgumentParser) -> None:
    p.add_argument("name", metavar="NAME", help="name of the new study")
    p.add_argument("experiment", nargs="?", metavar="EXPERIMENT", help="a name from `acenode experiments`")
    p.add_argument("--preset", metavar="KIND", help="a ready-made one: see `acenode study presets EXPERIMENT`")
    p.add_argument("--from", dest="source", metavar="STUDY", help="like another study")
    p.add_argument("--equal", action="store_true", help="with --from: make equal what does not vary, where possible")
    p.add_argument("--vary", action="append", default=[], metavar="KEY=VALUE,VALUE", help="a setting, or method, with "
                   "the values that are compared; several give all combinations")
    p.add_argument("--method", default="ace", help="the method of --vary (default: ace)")
    p.add_argument("--group", action="append", default=[], metavar="'METHOD KEY=VALUE ...'",
                   help="one group that is compared; may be repeated")
    p.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="hold a setting equal in all groups "
                   "to which it applies; may be repeated")
    p.add_argument("--epochs", type=integer, metavar="N", help="hold the number of epochs equal")
    p.add_argument("--data", choices=("sample", "full"), help="default: sample")
    p.add_argument("--seeds", metavar="LIST", help="such as 0-2 or 0,1,5 (default: 0-2)")
    p.add_argument("--folds", metavar="LIST", help="ushcn: folds of the data, each with its number as the seed unless "
                   "--seeds is given")
    p.add_argument("--baseline", metavar="GROUP", help="number or name of the group that others are compared with "
                   "(default: 1, or the preset's)")
    p.add_argument("--metric", metavar="NAME", help="default: the experiment's own")
    p.add_argument("--question", metavar="TEXT", help="the question in words")
    p.add_argument("--replace", action="store_true", help="replace a study of that name")


def _add_queue_arguments(p: argparse.ArgumentParser) -> None:
    p.add_argument("--minutes", type=float, metavar="M", help="stop in time, with checkpoints to continue from")
    p.add_argument("--workers", type=integer, metavar="N", help="runs at a time (default: up to 6 on a GPU, else one "
                   "for two cores; with --on ray: as many as fit)")
    add_cluster_arguments(p)
    p.add_argument("--device", type=device, metavar="NAME", default="auto",
                   help="auto: a GPU if there is one (default); cpu; cuda: the least busy GPU; cuda:3: a certain one")


def _add_runs(commands: _Commands) -> None:
    p = commands.add("list", runs.list_runs, "list all runs and their state", runs=True, json=True)
    p.add_argument("--no-recorded", action="store_true", help="leave out the recorded runs that come with the project")
    p = commands.add("show", runs.show, "show one run: configuration, state, results", runs=True, json=True)
    _add_run_argument(p)
    p = commands.add("table", runs.table, "print measured mean ± std over seeds beside the paper's values", runs=True,
                     json=True)
    p.add_argument("experiment", help="a name from `acenode experiments`")
    p = commands.add("export", runs.export, "export a run or a study: tables, HTML, TensorBoard, a site of several",
                     runs=True)
    p.add_argument("run_id", metavar="NAME", help="id of a run, a unique prefix of it, `last`, or the name of a study")
    p.add_argument("more", nargs="*", metavar="NAME", help="--to site: further runs and studies")
    p.add_argument("--to", required=True, metavar="FORMAT", help="a run: csv, html, tensorboard, attention (weights "
                   "between pairs); a study: csv, md, tex, svg, html, py, sh; site: reports of all names with an index")
    p.add_argument("--out", type=path, metavar="PATH", help="where to write (a folder, or a file for html and "
                   "attention)")
    p.add_argument("--epoch", type=epoch, metavar="N",
                   help="--to attention: the epoch of a snapshot, or all (default: the last)")
    p = commands.add("predict", predict.predict, "apply a trained model to new rows of your own data", runs=True)
    _add_run_argument(p)
    p.add_argument("file", metavar="FILE", help="a CSV or Parquet file with the columns of the set it was trained on")
    p.add_argument("--out", type=path, metavar="CSV", help="where to write (default: print)")
    p = commands.add("record", record.record, "keep compact copies of finished runs with the project", runs=True)
    p.add_argument("run_ids", nargs="+", metavar="RUN",
                   help="id of a run, a unique prefix of it, or `last`; `all` for every finished run of the folder")
    p.add_argument("--to", type=path, metavar="DIR", help="folder of recorded runs (default: runs/paper of the clone)")
    p.add_argument("--note", metavar="TEXT", help="what is to be known about the data; shown with the runs")
    p.add_argument("--commit", metavar="HASH", help="the commit of the code that trained the runs")
    p.add_argument("--size", type=integer, default=300, metavar="KB",
                   help="size of a copy without parameters: more snapshots are kept in a larger one (default: 300)")


def _add_registry(commands: _Commands) -> None:
    commands.add("experiments", registry.experiments, "list the experiments", json=True)
    p = commands.add("methods", registry.methods, "list an experiment's methods with their parameter counts", json=True)
    p.add_argument("experiment", help="a name from `acenode experiments`")
    p = commands.add("settings", registry.settings, "list the settings with their bounds and descriptions", json=True)
    p.add_argument("experiment", nargs="?", help="list only the settings of this experiment, with their defaults")


def _add_data(commands: _Commands) -> None:
    p = commands.add("data", data.data, "list, get (download and prepare), check, build or import data sets", json=True)
    p.add_argument("action", choices=("list", "get", "check", "build", "import", "rename", "delete"))
    p.add_argument("name", nargs="?", help="name of the data set; import: the file")
    p.add_argument("new", nargs="?", help="rename: the new name of an imported set")
    p.add_argument("--from", dest="folder", type=path, metavar="DIR", help="build ushcn: NOAA's daily station files")
    p.add_argument("--start", type=integer, metavar="YEAR", help="build ushcn: first year (default: 1950)")
    p.add_argument("--end", type=integer, metavar="YEAR", help="build ushcn: last year (default: 2000)")
    p.add_argument("--seed", type=integer, help="build ushcn: seed for sampling the 5%% of values to keep (default: 0)")
    data_import.add_arguments(p)


def _add_programs(commands: _Commands) -> None:
    p = commands.add("bench", bench.run, "run a benchmark", json=True)
    p.formatter_class, p.epilog = argparse.RawDescriptionHelpFormatter, bench.summary()
    p.add_argument("what", nargs="?", choices=tuple(BENCHMARKS), metavar="|".join(BENCHMARKS), help="listed below")
    p.add_argument("--repeats", type=integer,
                   help="number of repetitions (default: 3, validation: 2; not for app, epoch, together)")
    p.add_argument("--batch", type=integer, help="image: samples per batch (default: 128)")
    p.add_argument("--device", choices=("auto", "cpu", "cuda"),
                   help="image, named, epoch, validation, together (default: auto)")
    p.add_argument("--families", metavar="NAMES", help=f"gpu: some of {FAMILY_NAMES} (default: all)")
    p.add_argument("--full", action="store_true", default=None,
                   help="gpu: also time five parallel runs of the slow models")
    p.add_argument("--seeds", metavar="LIST", help="epoch: such as 0,1,5 or 0-8 (default: 0-2)")
    p.add_argument("--engines", metavar="NAMES", help="epoch: some of graph,float32,native,reference")
    p.add_argument("--jobs", type=integer, metavar="N",
                   help="epoch: number of parallel processes (default: 1); together: runs at a time (default: all)")
    p.add_argument("--train", metavar="LIST", help="together: EXPERIMENT/METHOD:EPOCHS, separated by commas")
    p.add_argument("--each", type=integer, metavar="N",
                   help="together: runs of each, with seeds 0, 1, ... (default: 1)")
    p.add_argument("--data", choices=("sample", "full"), help="together (default: sample)")
    p.add_argument("--ways", metavar="NAMES", help="together: some of one,threads,processes,mps; mps starts CUDA's "
                                                   "multi-process service for this measurement")
    p.add_argument("--parts", metavar="NAMES", help=f"scale: some of {PART_NAMES} (default: all)")
    p = commands.add("app", programs.app, "open the lab in the browser", runs=True)
    p.add_argument("--port", type=integer, metavar="N", help="default: 8501, or the next free port")
    p.add_argument("--headless", action="store_true", help="do not open a browser window")
    p.add_argument("--address", metavar="IP", default="127.0.0.1",
                   help="address to listen on (default: 127.0.0.1, this machine only; 0.0.0.0: all of its addresses)")
    p.add_argument("--allow-host", metavar="NAME", action="append", default=[],
                   help="also answer under this host name; can be repeated")
    p.add_argument("--on", metavar="PLACE", help="where to train: ray starts a local Ray with the app, ray:ADDRESS "
                   "joins a cluster (auto: the one that this machine belongs to)")
    p.add_argument("--no-token", action="store_true", help="answer every user of this machine, without a token")


def _add_run_argument(p: argparse.ArgumentParser) -> None:
    p.add_argument("run_id", metavar="RUN", help="id of the run, a unique prefix of it, or `last`")
