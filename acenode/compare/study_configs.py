"""The configurations that a study asks for, and the names of its groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from acenode import experiments
from acenode.compare import metric_format
from acenode.compare.cells import trained_settings
from acenode.compare.metric_format import MetricFormat
from acenode.compare.run_groups import method_title
from acenode.config import KEYS, Config
from acenode.config.vocabulary import ADDED, excluded
from acenode.errors import UserError
from acenode.runs.entry import Entry
from acenode.runs.studies import Repeat, Study, StudyGroup


def check_study(study: Study) -> Study:
    """Return the study if its experiment has all of it and every group differs from the others, else raise an error."""
    experiment = experiments.get(study.experiment)
    metrics = (experiment.metric.name, *experiment.other_metrics)
    if study.metric and study.metric not in metrics:
        raise UserError(f"{study.experiment} has no metric {study.metric!r}: choose {' or '.join(metrics)}")
    configs = [group_config(study, group) for group in study.groups]
    settings = [trained_settings(config.to_dict()) for config in configs]
    for i, one in enumerate(settings):
        if one in settings[:i]:
            raise UserError(f"groups {settings.index(one) + 1} and {i + 1} train the same: leave one out")
    for key in study.held:
        if all(config.get(key) is None for config in configs):
            raise UserError(f"{key} applies to none of the groups: leave it out")
    return study


def group_config(study: Study, group: StudyGroup, repeat: Repeat | None = None) -> Config:
    """Return the configuration of one run of a group; settings that are held equal are used where they apply."""
    experiment, (seed, fold) = experiments.get(study.experiment), repeat or study.repeats[0]
    given: dict[str, Any] = dict(group.settings)
    if fold is not None:
        given["fold"] = fold
    uses = experiment.method(group.method).uses
    config = experiment.configure(group.method, study.data, seed=seed, **given)
    for key, value in study.held.items():  # in the order of the vocabulary: a setting follows those it depends on
        if key in uses and not excluded(key, config.to_dict()):
            given[key] = value
            config = experiment.configure(group.method, study.data, seed=seed, **given)
    return config


def group_configs(study: Study, group: StudyGroup) -> list[Config]:
    """Return the configurations of all runs of a group, in the order of the study's repeats."""
    return [group_config(study, group, repeat) for repeat in study.repeats]


def same_run(config: Config, entry: Entry) -> bool:
    """Return True if a run, finished or not, trains this configuration, whatever its device and what it records. The
    trial of a search does not count, since it is never tested."""
    if entry.search or (entry.experiment, entry.method, entry.data, entry.seed) != (
            config.experiment, config.method, config.data, config.seed):
        return False
    own = {k: v for k, v in trained_settings(entry.config).items() if v is not None}
    added = {k: v for k, v in ADDED.items() if k in config.settings}
    return added | own == trained_settings(config.to_dict())


def measure(study: Study) -> MetricFormat:
    """Return the metric that answers a study."""
    return metric_format.of(study.metric or metric_format.name_of(study.experiment), study.experiment)


def with_device(config: Config, device: str) -> Config:
    """Return the configuration for another device."""
    return replace(config, device=device)


# Names --------------------------------------------------------------------------------------------------------------


def group_names(study: Study) -> list[str]:
    """Name the groups by what differs, the distinguishing part first.

    Settings come before the method where several groups share it: `fixed attention, ACE-ODE-Net`. A method of its own
    is name enough, and a method that all groups share is left out.
    """
    configs = [group_config(study, group) for group in study.groups]
    titles = [method_title(study.experiment, group.method) for group in study.groups]
    names = []
    for group, config, title in zip(study.groups, configs, titles, strict=True):
        rivals = [other for other in configs if other.method == group.method]
        words = setting_words(config, rivals, [key for key in KEYS if key in study.varied])
        names.append(", ".join([*words, *([title] if len(set(titles)) > 1 or not words else [])]))
    return names


def setting_words(config: Config, rivals: Sequence[Config], keys: Sequence[str]) -> list[str]:
    """Say in words the values of those settings in which a configuration differs from its rivals."""
    return [value_words(key, config.get(key)) for key in keys if len({repr(r.get(key)) for r in rivals}) > 1]


def value_words(key: str, value: Any) -> str:
    """Say a setting's value with the value first: `fixed attention`, `no penalty`, `0.001 rtol`."""
    word = key.replace("_", " ")
    if value is None or value is False or value == "none":
        return f"no {word}"
    if value is True:
        return word
    return f"{value:.6g} {word}" if isinstance(value, float) else f"{value} {word}"
