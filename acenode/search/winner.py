"""Train the best settings of a search over seeds and test them, beside the defaults, as a study."""

from __future__ import annotations

from acenode.compare.study_configs import check_study
from acenode.config import SETTINGS
from acenode.errors import UserError
from acenode.runs.studies import Study, StudyGroup
from acenode.search.plan import base_config, trial_config
from acenode.search.results import SearchReport, winner_name


def winner_study(report: SearchReport, seeds: tuple[int, ...] = (0, 1, 2)) -> Study:
    """Return the study that compares the best trial's settings with the defaults on the test set.

    Args:
        report: the search with its trials.
        seeds: of each of the two groups.
    """
    search, best = report.search, report.best
    if best is None:
        what = ("wait for the first one" if report.status.running else
                f"continue it with `acenode search resume {search.name}`")
        raise UserError(f"no trial of {search.name} is finished yet: {what}")
    config, base = trial_config(search, lambda one: best.params[one.key]), base_config(search)
    changed = {key: config.get(key) for key in SETTINGS
               if key in best.params and config.get(key) is not None and config.get(key) != base.get(key)}
    if not changed:
        raise UserError(f"the defaults are the best settings that {search.name} found: test them with `acenode train "
                        f"{search.experiment} --method {search.method}`")
    held = {key: value for key, value in search.held.items() if key != "fold"}
    folds = (int(search.held["fold"]),) if "fold" in search.held else ()
    return check_study(Study(
        winner_name(search.name), search.experiment,
        (StudyGroup(search.method), StudyGroup(search.method, changed)),
        question="Are the settings found by the search better than the defaults?", data=search.data, held=held,
        seeds=seeds, folds=folds))
