"""Optuna's part of a search: its study in the journal, its samplers and pruners. Optuna is imported here alone."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np

from acenode.config.ranges import SearchRange
from acenode.errors import UserError
from acenode.files import discard
from acenode.runs.questions import Search

STUDY = "search"  # the name of the study in every journal; Hyperband's brackets depend on it
STARTUP = 5  # finished trials before one is pruned


def load_optuna() -> Any:
    """Return Optuna, quiet but for warnings; a UserError says how to install it."""
    try:
        optuna = importlib.import_module("optuna")
    except ModuleNotFoundError:
        raise UserError("a search needs Optuna: run `pip install 'acenode[search]'`") from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def open_study(journal: Path, search: Search, *, higher_is_better: bool, epochs: int) -> Any:
    """Open the study in a journal, which is created if it is missing. The caller holds the lock of the search."""
    optuna = load_optuna()
    discard(journal.with_name(f"{journal.name}.lock"))  # left by a process that was killed while writing
    if journal.exists():
        with open(journal, "r+b") as file:  # a last line that a full disk or a crash left incomplete is dropped
            file.truncate(file.read().rfind(b"\n") + 1)
    storage = optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(str(journal)))
    return optuna.create_study(study_name=STUDY, storage=storage, load_if_exists=True,
                               direction="maximize" if higher_is_better else "minimize",
                               sampler=make_sampler(search, 0), pruner=_pruner(search, epochs))


def make_sampler(search: Search, number: int) -> Any:
    """Return the sampler of one trial. Its seed follows from those of the search and the trial, so that a resumed
    search tries what an unbroken one would have tried."""
    samplers = load_optuna().samplers
    seed = int(np.random.SeedSequence([search.seed, number]).generate_state(1)[0])
    return samplers.RandomSampler(seed=seed) if search.sampler == "random" else samplers.TPESampler(seed=seed)


def distribution(one: SearchRange) -> Any:
    """Return a range as Optuna has it."""
    kinds = load_optuna().distributions
    if one.values:
        return kinds.CategoricalDistribution(list(one.values))
    return (kinds.IntDistribution if one.whole else kinds.FloatDistribution)(one.low, one.high, log=one.log)


def suggest(trial: Any, one: SearchRange) -> Any:
    """Let a trial choose a value of a range."""
    if one.values:
        return trial.suggest_categorical(one.key, list(one.values))
    choose = trial.suggest_int if one.whole else trial.suggest_float
    return choose(one.key, one.low, one.high, log=one.log)


def _pruner(search: Search, epochs: int) -> Any:
    pruners = load_optuna().pruners
    return {"median": lambda: pruners.MedianPruner(n_startup_trials=STARTUP),
            "halving": pruners.SuccessiveHalvingPruner, "none": pruners.NopPruner,
            "hyperband": lambda: pruners.HyperbandPruner(min_resource=1, max_resource=max(2, epochs))}[search.pruner]()
