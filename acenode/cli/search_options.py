"""Arguments of the command `search`, and the search that they describe."""

from __future__ import annotations

import argparse
from argparse import Namespace
from typing import Any

from acenode.cli.argument_types import device, integer
from acenode.cli.cluster_option import add_cluster_arguments
from acenode.config import parse
from acenode.errors import UserError

ACTIONS = ("list", "show", "resume", "stop", "winner", "delete")
PRUNERS, SAMPLERS = ("median", "halving", "hyperband", "none"), ("tpe", "random")
NEW_ONLY = ("method", "over", "data", "epochs", "set", "sampler", "pruner", "seed", "name")  # options of a new search
TRIALS = 30


def add_arguments(p: argparse.ArgumentParser) -> None:
    """Add the arguments of `search`."""
    p.formatter_class = argparse.RawDescriptionHelpFormatter
    p.epilog = ("examples:\n"
                "  acenode search mnist --method ace --over \"learning_rate=log:1e-3..1, penalty_weight=0,1e-4,1e-2\"\n"
                "  acenode search list            all searches\n"
                "  acenode search show NAME       the best trials and the importance of each setting\n"
                "  acenode search resume NAME     continue one that was stopped or killed; with --trials, for longer\n"
                "  acenode search stop NAME       stop one that another process conducts\n"
                "  acenode search winner NAME     train the best settings over --seeds and test them once\n"
                "  acenode search delete NAME     delete one; its runs are kept")
    p.add_argument("what", metavar="EXPERIMENT|ACTION", help="a name from `acenode experiments`, or one of "
                   f"{', '.join(ACTIONS)}")
    p.add_argument("search", nargs="?", metavar="NAME", help="an action: the search")
    p.add_argument("--method", help="a name from `acenode methods EXPERIMENT`")
    p.add_argument("--over", action="append", metavar="RANGES", help="the settings to search: KEY=LOW..HIGH, "
                   "KEY=log:LOW..HIGH or KEY=VALUE,VALUE, separated by commas; may be repeated")
    p.add_argument("--trials", type=integer, metavar="N", help=f"settings to try in all (default: {TRIALS})")
    p.add_argument("--sampler", choices=SAMPLERS, help="how settings are chosen (default: tpe)")
    p.add_argument("--pruner", choices=PRUNERS, help="which trials stop early, by validation after each epoch "
                   "(default: median)")
    p.add_argument("--seed", type=integer, help="of the sampler and of every trial (default: 0)")
    p.add_argument("--name", metavar="NAME", help="of the new search (default: EXPERIMENT-METHOD)")
    p.add_argument("--data", choices=("sample", "full"), help="default: sample")
    p.add_argument("--epochs", type=integer, metavar="N", help="of every trial (default: the experiment's)")
    p.add_argument("--set", action="append", metavar="KEY=VALUE", help="a setting that all trials share; may be "
                   "repeated")
    p.add_argument("--seeds", metavar="LIST", help="winner: such as 0-4 (default: 0-2)")
    p.add_argument("--minutes", type=float, metavar="M", help="stop in time, with checkpoints to continue from")
    p.add_argument("--workers", type=integer, metavar="N", help="trials at a time (default: up to 6 on a GPU, else one "
                   "for two cores)")
    p.add_argument("--device", type=device, metavar="NAME", default="auto",
                   help="auto uses the GPU if there is one (default)")
    add_cluster_arguments(p)


def check_options(options: Namespace) -> None:
    """Raise a UserError for options that do not belong to the action."""
    action = options.what if options.what in ACTIONS else ""
    given = [name for name in NEW_ONLY if getattr(options, name) is not None]
    if action and given:
        raise UserError(f"--{given[0]} belongs to a new search: leave it out of `search {action}`")
    if options.trials is not None and action not in ("", "resume"):
        raise UserError(f"--trials belongs to a new search and to `search resume`, not to `search {action}`")
    if options.seeds is not None and action != "winner":
        raise UserError("--seeds belongs to `search winner`: a search has one --seed")
    if action and action != "list" and not options.search:
        raise UserError(f"name the search: `acenode search {action} NAME`; `acenode search list` lists them")
    if options.search and (not action or action == "list"):
        raise UserError(f"{options.search!r} is not expected here: name an experiment, or an action and a search")


def search_values(options: Namespace) -> dict[str, Any]:
    """Return what a new search is made of: the arguments of `Search` but its name."""
    from acenode import experiments
    from acenode.config.ranges import read_ranges

    experiment = experiments.get(options.what)
    if not options.method:
        raise UserError(f"name a method with --method: {', '.join(experiment.methods)}")
    if not options.over:
        raise UserError("name the settings to search with --over, such as --over learning_rate=log:1e-4..1e-1")
    owner, uses = f"{options.method} in {experiment.name}", experiment.method(options.method).uses
    held: dict[str, Any] = {} if options.epochs is None else {"epochs": options.epochs}
    for text in options.set or []:
        key, equals, value = text.partition("=")
        if not equals:
            raise UserError(f"--set takes KEY=VALUE, not {text!r}")
        if key in held:
            raise UserError(f"{key} is given twice: leave one out")
        held[key] = parse(key, value, uses, owner)
    return {"experiment": experiment.name, "method": options.method, "data": options.data or "sample",
            "ranges": read_ranges(options.over, uses, owner), "held": held, "device": options.device,
            "trials": TRIALS if options.trials is None else options.trials, "sampler": options.sampler or "tpe",
            "pruner": options.pruner or "median", "seed": options.seed or 0}
