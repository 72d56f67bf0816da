"""Arguments and help texts of every command. A command's module is imported when it runs, so that help is quick."""

from __future__ import annotations

import argparse
import importlib
import re
import sys
from argparse import ArgumentParser, ArgumentTypeError
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from acenode.config.vocabulary import CHOSEN, PRESETS, check
from acenode.errors import UserError

if TYPE_CHECKING:
    Commands = argparse._SubParsersAction[ArgumentParser]

READING = ("list", "show", "table", "export", "reproduce", "predict")  # commands that also take `--runs recorded`
ACTIONS = ("list", "show", "resume", "stop", "winner", "delete")  # of `search`
EXPERIMENT, DATA = "a name from `acenode experiments`", ("sample", "full")
SEARCH_EXAMPLES = """\
examples:
  acenode search mnist --method ace --over "learning_rate=log:1e-3..1, penalty_weight=0,1e-4,1e-2"
  acenode search list            all searches
  acenode search show NAME       the best trials and the importance of each setting
  acenode search resume NAME     continue one that was stopped or killed; with --trials, for longer
  acenode search stop NAME       stop one that another process conducts
  acenode search winner NAME     train the best settings over --seeds and test them once
  acenode search delete NAME     delete one; its runs are kept"""


def integer(text: str) -> int:
    """Read an integer in plain digits; int() would also take 1_0 and digits of other scripts."""
    if not re.fullmatch(r"[+-]?[0-9]{1,19}", text.strip()):
        raise ArgumentTypeError(f"{text!r} is not a whole number")
    return int(text)


def epoch(text: str) -> int | Literal["all"]:
    """Read the number of an epoch, or `all`."""
    return "all" if text == "all" else integer(text)


def device(text: str) -> str:
    """Read the name of a device."""
    try:
        return check("device", text)
    except UserError as error:
        raise ArgumentTypeError(str(error)) from None


def path(text: str) -> Path:
    """Read a path; an empty one would be the current folder."""
    if not text.strip():
        raise ArgumentTypeError("it needs the name of a file or folder")
    return Path(text)


class OneLineParser(ArgumentParser):
    """An ArgumentParser that prints an error in one line."""

    def error(self, message: str) -> None:  # type: ignore[override]
        print(f"acenode: {' '.join(message.split())}: see `{self.prog} --help`", file=sys.stderr)
        raise SystemExit(2)


def _commands(parser: ArgumentParser) -> Commands:
    return parser.add_subparsers(title="commands", required=True, metavar="COMMAND", parser_class=OneLineParser)


def _add(commands: Commands, name: str, target: str, help: str, options: str = "") -> ArgumentParser:
    """Add a command that runs MODULE.FUNCTION of acenode; `options` are those of `runs` and `json` that it has."""
    module, _, function = target.rpartition(".")
    p = commands.add_parser(name, help=help, description=help)
    p.set_defaults(run=lambda options: getattr(importlib.import_module(f"acenode.{module}"), function)(options))
    if "runs" in options:
        recorded = "; recorded: the runs that come with the project" if name in READING else ""
        p.add_argument("--runs", metavar="DIR", help=f"folder of runs (default: ACENODE_RUNS, or runs/){recorded}")
    if "json" in options:
        p.add_argument("--json", action="store_true", help="print JSON")
    return p


def make_parser() -> ArgumentParser:
    """Return the parser of `acenode`; a parsed command has its function in `run`."""
    parser = OneLineParser(prog="acenode", description="ACE-NODE Lab: attentive co-evolving neural ODEs")
    commands = _commands(parser)
    for add in (_add_training, _add_studies, _add_search, _add_runs, _add_data, _add_programs):
        add(commands)
    return parser


def _add_training(commands: Commands) -> None:
    p = _add(commands, "train", "cli.training.train", "train one method and test it once", "runs json")
    p.add_argument("experiment", help=EXPERIMENT)
    p.add_argument("--method", required=True, help="a name from `acenode methods EXPERIMENT`")
    p.add_argument("--data", choices=DATA, default="sample",
                   help="sample: bundled, no download (default); full: the paper's data set")
    p.add_argument("--seed", type=integer, help="seed of parameters and data order (default: 0)")
    p.add_argument("--seeds", metavar="LIST", help="train several seeds at once, such as 0-2 or 0,1,5; a run for each")
    p.add_argument("--epochs", type=integer, help="default: the paper's on the full data, fewer on the sample")
    _add_device(p)
    p.add_argument("--set", action="append", default=[], metavar="KEY=VALUE",
                   help="change a setting; `acenode settings EXPERIMENT` lists them; preset=printed takes the paper's "
                        "settings also where they do not work; may be repeated")
    _add_cluster(p)
    p = _add(commands, "resume", "cli.training.resume", "continue a run from its last checkpoint", "runs json")
    _add_run(p)
    p.add_argument("--device", type=device, metavar="NAME",
                   help="auto, cpu, cuda or cuda:3 (default: what the run was begun with)")
    _add_cluster(p)
    _add_run(_add(commands, "stop", "cli.runs.stop", "stop a running run; it can be resumed", "runs"))
    p = _add(commands, "reproduce", "cli.reproduce.reproduce", "train what the paper's tables still need, the most "
                     "worthwhile first", "runs json")
    p.add_argument("tables", nargs="*", metavar="TABLE", help="a table of the paper, or the key of a cell (default: "
                   "all): see `acenode reproduce --list`")
    p.add_argument("--list", action="store_true", help="print every cell with its measured value and missing runs")
    p.add_argument("--seeds", type=integer, metavar="N", help="runs per cell (default: 3; ushcn: its five folds)")
    p.add_argument("--epochs", type=integer, metavar="N", help="default: 40 for images, a quarter of the paper's; the "
                   "experiment's default for others")
    p.add_argument("--preset", choices=PRESETS, default=CHOSEN, help="printed: the paper's settings also where they "
                   "do not work")
    _add_queue(p)


def _add_studies(commands: Commands) -> None:
    studies = _commands(commands.add_parser(
        "study", help="answer a question with several runs: what varies, which seeds",
        description="make, train and show studies, which compare groups of runs"))
    _add(studies, "list", "cli.study.list_studies", "list the studies", "runs json")
    p = _add(studies, "presets", "cli.study.show_presets", "list the ready-made studies of an experiment", "json")
    p.add_argument("experiment", help=EXPERIMENT)
    p.add_argument("--data", choices=DATA, default="sample", help="default: sample")
    p = _add(studies, "new", "cli.study.new", "make a study", "runs json")
    p.add_argument("name", metavar="NAME", help="name of the new study")
    p.add_argument("experiment", nargs="?", metavar="EXPERIMENT", help=EXPERIMENT)
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
    p.add_argument("--data", choices=DATA, help="default: sample")
    p.add_argument("--seeds", metavar="LIST", help="such as 0-2 or 0,1,5 (default: 0-2)")
    p.add_argument("--folds", metavar="LIST", help="ushcn: folds of the data, each with its number as the seed unless "
                   "--seeds is given")
    p.add_argument("--baseline", metavar="GROUP", help="number or name of the group that others are compared with "
                   "(default: 1, or the preset's)")
    p.add_argument("--metric", metavar="NAME", help="default: the experiment's own")
    p.add_argument("--question", metavar="TEXT", help="the question in words")
    p.add_argument("--replace", action="store_true", help="replace a study of that name")
    p = _add(studies, "run", "cli.study.run", "train what a study still needs; continues where it stopped", "runs json")
    p.add_argument("name", metavar="NAME", help="name of the study")
    _add_queue(p)
    for name, help, options in (("show", "show a study: every run, what is not equal, and the answer", "runs json"),
                                ("delete", "delete a study; its runs are kept", "runs")):
        _add(studies, name, f"cli.study.{name}", help, options).add_argument("name", metavar="NAME",
                                                                           help="name of the study")


def _add_search(commands: Commands) -> None:
    p = _add(commands, "search", "cli.search.search", "find good settings of a method by validation", "runs json")
    p.formatter_class, p.epilog = argparse.RawDescriptionHelpFormatter, SEARCH_EXAMPLES
    p.add_argument("what", metavar="EXPERIMENT|ACTION", help=f"{EXPERIMENT}, or one of {', '.join(ACTIONS)}")
    p.add_argument("search", nargs="?", metavar="NAME", help="an action: the search")
    p.add_argument("--method", help="a name from `acenode methods EXPERIMENT`")
    p.add_argument("--over", action="append", metavar="RANGES", help="the settings to search: KEY=LOW..HIGH, "
                   "KEY=log:LOW..HIGH or KEY=VALUE,VALUE, separated by commas; may be repeated")
    p.add_argument("--trials", type=integer, metavar="N", help="settings to try in all (default: 30)")
    p.add_argument("--sampler", choices=("tpe", "random"), help="how settings are chosen (default: tpe)")
    p.add_argument("--pruner", choices=("median", "halving", "hyperband", "none"), help="which trials stop early, by "
                   "validation after each epoch (default: median)")
    p.add_argument("--seed", type=integer, help="of the sampler and of every trial (default: 0)")
    p.add_argument("--name", metavar="NAME", help="of the new search (default: EXPERIMENT-METHOD)")
    p.add_argument("--data", choices=DATA, help="default: sample")
    p.add_argument("--epochs", type=integer, metavar="N", help="of every trial (default: the experiment's)")
    p.add_argument("--set", action="append", metavar="KEY=VALUE", help="a setting that all trials share; may be "
                   "repeated")
    p.add_argument("--seeds", metavar="LIST", help="winner: such as 0-4 (default: 0-2)")
    p.add_argument("--minutes", type=float, metavar="M", help="stop in time, with checkpoints to continue from")
    p.add_argument("--workers", type=integer, metavar="N", help="trials at a time (default: up to 6 on a GPU, else one "
                   "for two cores)")
    _add_device(p, "auto uses the GPU if there is one (default)")
    _add_cluster(p)


def _add_runs(commands: Commands) -> None:
    p = _add(commands, "list", "cli.runs.list_runs", "list all runs and their state", "runs json")
    p.add_argument("--no-recorded", action="store_true", help="leave out the recorded runs that come with the project")
    _add_run(_add(commands, "show", "cli.runs.show", "show one run: configuration, state, results", "runs json"))
    _add(commands, "table", "cli.runs.table", "print measured mean ± std over seeds beside the paper's values",
                 "runs json").add_argument("experiment", help=EXPERIMENT)
    p = _add(commands, "export", "cli.runs.export", "export a run or a study: tables, HTML, TensorBoard, a site of "
                     "several", "runs")
    p.add_argument("run_id", metavar="NAME", help="id of a run, a unique prefix of it, `last`, or the name of a study")
    p.add_argument("more", nargs="*", metavar="NAME", help="--to site: further runs and studies")
    p.add_argument("--to", required=True, metavar="FORMAT", help="a run: csv, html, tensorboard, attention (weights "
                   "between pairs); a study: csv, md, tex, svg, html, py, sh; site: reports of all names with an index")
    p.add_argument("--out", type=path, metavar="PATH", help="where to write (a folder, or a file for html and "
                   "attention)")
    p.add_argument("--epoch", type=epoch, metavar="N",
                   help="--to attention: the epoch of a snapshot, or all (default: the last)")
    p = _add(commands, "predict", "cli.runs.predict", "apply a trained model to new rows of your own data", "runs")
    _add_run(p)
    p.add_argument("file", metavar="FILE", help="a CSV or Parquet file with the columns of the set it was trained on")
    p.add_argument("--out", type=path, metavar="CSV", help="where to write (default: print)")
    p = _add(commands, "record", "cli.runs.record", "keep compact copies of finished runs with the project", "runs")
    p.add_argument("run_ids", nargs="+", metavar="RUN",
                   help="id of a run, a unique prefix of it, or `last`; `all` for every finished run of the folder")
    p.add_argument("--to", type=path, metavar="DIR", help="folder of recorded runs (default: runs/paper of the clone)")
    p.add_argument("--note", metavar="TEXT", help="what is to be known about the data; shown with the runs")
    p.add_argument("--commit", metavar="HASH", help="the commit of the code that trained the runs")
    p.add_argument("--size", type=integer, default=300, metavar="KB",
                   help="size of a copy without parameters: more snapshots are kept in a larger one (default: 300)")


def _add_data(commands: Commands) -> None:
    _add(commands, "experiments", "cli.data.experiments", "list the experiments", "json")
    _add(commands, "methods", "cli.data.methods", "list an experiment's methods with their parameter counts",
                 "json").add_argument("experiment", help=EXPERIMENT)
    _add(commands, "settings", "cli.data.settings", "list the settings with their bounds and descriptions",
                 "json").add_argument("experiment", nargs="?", help="list only the settings of this experiment, with "
                                      "their defaults")
    p = _add(commands, "data", "cli.data.data", "list, get (download and prepare), check, build or import data sets",
                     "json")
    p.add_argument("action", choices=("list", "get", "check", "build", "import", "rename", "delete"))
    p.add_argument("name", nargs="?", help="name of the data set; import: the file")
    p.add_argument("new", nargs="?", help="rename: the new name of an imported set")
    p.add_argument("--from", dest="folder", type=path, metavar="DIR", help="build ushcn: NOAA's daily station files")
    p.add_argument("--start", type=integer, metavar="YEAR", help="build ushcn: first year (default: 1950)")
    p.add_argument("--end", type=integer, metavar="YEAR", help="build ushcn: last year (default: 2000)")
    p.add_argument("--seed", type=integer, help="build ushcn: seed for sampling the 5%% of values to keep (default: 0)")
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


BENCHMARKS = {  # functions of acenode.bench: what they measure, and their options
    "models.image": ("an ACE training iteration on images, against a direct implementation; 4 minutes", "device"),
    "workloads.gpu": ("a training iteration of each model family with each engine, on a GPU; 3 minutes", "families"),
    "training.epoch": ("accuracy of ACE after one epoch with each engine, over seeds; 1 minute, on MNIST with "
                       "a GPU 5 minutes per seed", "seeds", "device"),
    "training.validation": ("share of an epoch that is validation; 1 minute on a GPU, 5 on two CPU cores with "
                            "real data", "device"),
    "pages.app": ("response times of the app; needs Chromium; 1 minute",),
    "pages.playground": ("training steps and frames a second of the playground; needs Chromium; 1 minute",),
    "models.latent": ("a PhysioNet-sized training batch, against a union time grid; 1 minute",),
    "models.ushcn": ("a USHCN-sized training batch, against one time grid for the batch; 2 minutes",),
    "models.named": ("an ACE training iteration on named variables, with and without C; 2 minutes", "device"),
    "pages.search": ("seconds to list and show a search with 10,000 trials; 1 minute",),
    "scale.scale": ("runs an hour in threads and on a local Ray, the cost of the head, a search of 200 trials, and "
                    "10,000 trials without training; 15 minutes", "parts"),
    "training.together": ("several runs one after another, in threads and in processes; 4 minutes", "train", "each",
                          "data", "ways", "device")}
BENCH_OPTIONS: dict[str, dict[str, Any]] = {
    "device": {"choices": ("auto", "cpu", "cuda"), "default": "auto", "help": "default: auto"},
    "families": {"metavar": "NAMES", "default": "images,baselines,series,windows,sporadic",
                 "help": "default: %(default)s"},
    "seeds": {"metavar": "LIST", "default": "0-2", "help": "such as 0,1,5 or 0-8 (default: 0-2)"},
    "train": {"metavar": "LIST", "default": "physionet/ace:1,physionet/latent-ode:2",
              "help": "EXPERIMENT/METHOD:EPOCHS, separated by commas"},
    "each": {"type": integer, "metavar": "N", "default": 1, "help": "runs of each, with seeds 0, 1, ... (default: 1)"},
    "data": {"choices": DATA, "default": "sample", "help": "default: sample"},
    "ways": {"metavar": "NAMES", "help": "some of one,threads,processes,mps; mps starts CUDA's multi-process service "
                                         "for this measurement"},
    "parts": {"metavar": "NAMES", "default": "rates,head,search,trials", "help": "default: %(default)s"}}


def _add_programs(commands: Commands) -> None:
    benchmarks = _commands(commands.add_parser(
        "bench", help="run a benchmark", description="run a benchmark; minutes are those on two CPU cores or one GPU"))
    for target, (about, *names) in BENCHMARKS.items():
        p = _add(benchmarks, target.partition(".")[2], "bench.run", about, "json")
        p.set_defaults(benchmark=target)
        for name in names:
            p.add_argument(f"--{name}", **BENCH_OPTIONS[name])
    p = _add(commands, "app", "cli.app", "open the lab in the browser", "runs")
    p.add_argument("--port", type=integer, metavar="N", help="default: 8501, or the next free port")
    p.add_argument("--headless", action="store_true", help="do not open a browser window")
    p.add_argument("--address", metavar="IP", default="127.0.0.1",
                   help="address to listen on (default: 127.0.0.1, this machine only; 0.0.0.0: all of its addresses)")
    p.add_argument("--allow-host", metavar="NAME", action="append", default=[],
                   help="also answer under this host name; can be repeated")
    p.add_argument("--on", metavar="PLACE", help="where to train: ray starts a local Ray with the app, ray:ADDRESS "
                   "joins a cluster (auto: the one that this machine belongs to)")
    p.add_argument("--no-token", action="store_true", help="answer every user of this machine, without a token")
    _add(commands, "demo", "cli.runs.demo", "train ACE on the bundled digits and print the results table", "runs")


# Arguments of several commands --------------------------------------------------------------------------------------


def _add_run(p: ArgumentParser) -> None:
    p.add_argument("run_id", metavar="RUN", help="id of the run, a unique prefix of it, or `last`")


def _add_device(p: ArgumentParser, help: str = "auto: a GPU if there is one (default); cpu; cuda: the least busy GPU; "
                "cuda:3: a certain one") -> None:
    p.add_argument("--device", type=device, metavar="NAME", default="auto", help=help)


def _add_cluster(p: ArgumentParser) -> None:
    p.add_argument("--on", metavar="PLACE", help="where to train: ray starts a local Ray for this command, "
                   "ray:ADDRESS joins a cluster (auto: the one that this machine belongs to)")
    p.add_argument("--threads", type=integer, metavar="N", help="with --on ray: CPU threads of each run")
    p.add_argument("--gpu", type=float, metavar="SHARE", help="with --on ray: share of a GPU of each run, if the "
                   "cluster has GPUs (default: 0.25)")


def _add_queue(p: ArgumentParser) -> None:
    p.add_argument("--minutes", type=float, metavar="M", help="stop in time, with checkpoints to continue from")
    p.add_argument("--workers", type=integer, metavar="N", help="runs at a time (default: up to 6 on a GPU, else one "
                   "for two cores; with --on ray: as many as fit)")
    _add_cluster(p)
    _add_device(p)
