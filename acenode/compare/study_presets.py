"""Ready-made studies: of every experiment, and of one's own data."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from acenode import experiments
from acenode.compare.cells import CAMPAIGN_EPOCHS
from acenode.compare.groups import method_title
from acenode.compare.paper import HOSTS
from acenode.data.registry import DATA_SOURCES
from acenode.data.splits import FOLDS
from acenode.errors import UserError
from acenode.experiments import Experiment
from acenode.runs.catalogue import Catalogue
from acenode.runs.questions import Study, StudyGroup

SEEDS = (0, 1, 2)


def presets(experiment: str, data: str = "sample") -> list[Study]:
    """Return the ready-made studies of an experiment, named after it: `mnist-attention`, `mnist-host`, ...

    An experiment has those whose settings and methods it has. On the full data a study holds the length of the
    project's recorded runs, so that these count.
    """
    found = experiments.get(experiment)
    if "ace" not in found.methods:
        return []
    kinds: dict[str, Callable[[Experiment, str], Study | None]] = {
        "attention": _attention, "host": _host, "schedule": _schedule, "size": _size}
    return [study for make in kinds.values() if (study := make(found, data)) is not None]


def preset(experiment: str, kind: str, data: str = "sample") -> Study:
    """Return one of them by its kind: attention, host, schedule or size."""
    found = {kind_of(study): study for study in presets(experiment, data)}
    if kind not in found:
        choice = f"choose one of {', '.join(found)}" if found else "it has none"
        raise UserError(f"{experiment} has no preset {kind!r}: {choice}")
    return found[kind]


def kind_of(study: Study) -> str:
    """Return the last word of a preset's name."""
    return study.name.rpartition("-")[2]


def _attention(experiment: Experiment, data: str) -> Study | None:
    """Hold `initial` at the value of evolving attention: otherwise it changes with `attention=fixed` for images."""
    uses = experiment.method("ace").uses
    if "attention" not in uses:
        return None
    groups = [{"attention": kind} for kind in ("evolving", "fixed", "none")]
    held = {"initial": experiment.configure("ace", data).get("initial")} if "initial" in uses else {}
    return _study(experiment, data, "attention", "Does attention help, and does it matter that it evolves?",
                  [StudyGroup("ace", settings) for settings in groups], baseline=2, **held)


def _host(experiment: Experiment, data: str) -> Study | None:
    """Compare ACE with the method that it extends; outside the paper, with all other methods of the experiment."""
    host = HOSTS.get(experiment.name)
    if len(experiment.methods) == 1:
        return None
    if host is None or host not in experiment.methods:
        others = [name for name in experiment.methods if name != "ace"]
        groups = [StudyGroup(name) for name in ("ace", *reversed(others))]
        return _study(experiment, data, "host", "Is ACE better than the other methods?", groups,
                      baseline=len(groups) - 1)
    question = f"Is ACE better than {method_title(experiment.name, host)}, and than more coordinates?"
    return _study(experiment, data, "host", question, [StudyGroup(name) for name in ("ace", "augmented", host)],
                  baseline=2)


def _schedule(experiment: Experiment, data: str) -> Study | None:
    if "schedule" not in experiment.method("ace").uses:
        return None
    groups = [StudyGroup("ace", {"schedule": schedule}) for schedule in ("alternating", "joint")]
    return _study(experiment, data, "schedule", "Is it better to train attention in turns or jointly?", groups,
                  baseline=1)


def _size(experiment: Experiment, data: str) -> Study | None:
    host = HOSTS.get(experiment.name)
    if "size" not in experiment.method("ace").uses or host is None or host not in experiment.methods:
        return None
    groups = [StudyGroup(method, {"size": size}) for method in ("ace", host)
              for size in ("small", "large")]
    return _study(experiment, data, "size", "Does a larger network do what attention does?", groups, baseline=2)


def _study(experiment: Experiment, data: str, kind: str, question: str, groups: list[StudyGroup], *, baseline: int,
           **held: Any) -> Study:
    """Return a study with three seeds, or with the folds of the full data where it has folds."""
    if data == "full" and experiment.name in CAMPAIGN_EPOCHS:
        held["epochs"] = CAMPAIGN_EPOCHS[experiment.name]
    folds = data == "full" and "fold" in experiment.method("ace").uses
    name = "-".join([experiment.name, *(["full"] if data == "full" else []), kind])
    return Study(name=name, experiment=experiment.name, groups=tuple(groups), question=question, data=data, held=held,
                 seeds=() if folds else SEEDS, folds=tuple(range(FOLDS)) if folds else (), baseline=baseline)


ACE, WITHOUT = "ace", "no-attention"
PAGES = ("home", "tour", "playground", "paper", "your-data", "studies", "compare", "runs")  # addresses of the app
WORDS = {"forecast": "forecast", "fill": "fill in", "classify": "classify"}


def set_study(name: str, task: str, epochs: int | None = None, seeds: tuple[int, ...] = SEEDS) -> Study:
    """Return the study of ACE against the same model without attention.

    Args:
        name: the name of the set.
        task: forecast, fill or classify.
        epochs: hold the number of epochs at this; the set's default if None.
        seeds: of each group.
    """
    default = experiments.get(name).configure(ACE).get("epochs")
    held = {} if epochs is None or epochs == default else {"epochs": epochs}
    ending = "".join(f"-{value}-{key}" for key, value in held.items())
    return Study(name=f"{name}-ace{ending}", experiment=name, groups=(StudyGroup(ACE), StudyGroup(WITHOUT)),
                 question=f"Does attention between its variables help to {WORDS[task]} {name}?", held=held, seeds=seeds,
                 baseline=1)


def reserved_names(catalogue: Catalogue) -> frozenset[str]:
    """Return the names that a new set cannot have: of experiments, data sets, pages, and trained sets.

    A run knows its set by name. Another set of that name would be taken for it.
    """
    return frozenset({*experiments.EXPERIMENTS, *experiments.EXAMPLES, *DATA_SOURCES, *PAGES,
                      *(entry.experiment for entry in catalogue.entries())})
