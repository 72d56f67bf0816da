"""Searches: the same seed gives the same trials, pruning, stop, a killed search that resumes, and importance."""

from __future__ import annotations

import math
import os
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from search_launcher import a_search, conduct, hill, report_of

from acenode import UserError, experiments
from acenode.bench.synthetic import EpochLauncher
from acenode.compare.groups import same_run
from acenode.config import Config
from acenode.config.ranges import read_ranges
from acenode.execution.execute import create, execute
from acenode.experiments.image_task import ImageTask
from acenode.runs.catalogue import Catalogue
from acenode.runs.questions import Search, SearchStatus, SearchStore
from acenode.runs.store import RunStore
from acenode.search import run as search_run
from acenode.search.journal import TrialRecord
from acenode.search.plan import check_search, default_params, trial_config, winner_study
from acenode.search.results import SearchReport, importance

RATES: dict[str, Any] = {"ranges": read_ranges(["learning_rate=log:1e-3..1"]), "sampler": "random"}


class Killed(BaseException):
    """Ends a search like a kill: nothing more is written by it."""


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_run, "POLL_SECONDS", 0.0)
    monkeypatch.setattr(os, "fsync", lambda file: None)  # no test cuts the power


@pytest.fixture
def runs(tmp_path: Path) -> RunStore:
    return RunStore(tmp_path / "runs")


def tried(report: SearchReport) -> list[tuple[str, dict[str, Any], float | None]]:
    return [(trial.state, trial.params, trial.value) for trial in report.trials]


def test_the_same_seed_gives_the_same_trials_of_which_the_default_is_the_first(tmp_path: Path) -> None:
    reports = []
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        store = RunStore(tmp_path / name)
        assert conduct(store, a_search(seed=seed))[0] == "finished"
        reports.append(report_of(store))
    a, b, c = map(tried, reports)
    assert (a == b, a[1:] == c[1:], len(a)) == (True, False, 12)
    report = reports[-1]
    assert report.default is report.trials[0]
    assert report.trials[0].params == default_params(report.search)
    assert report.best.value == max(trial.value or 0 for trial in report.trials)
    outside = RunStore(tmp_path / "outside")
    conduct(outside, a_search(trials=2, ranges=read_ranges(["learning_rate=log:1e-3..1e-2"])))
    assert report_of(outside).default is None  # it is not tried


def test_a_setting_is_chosen_only_where_it_applies(runs: RunStore) -> None:
    conduct(runs, a_search(sampler="random"))
    report, entries = report_of(runs), Catalogue(runs).entries()
    assert {trial.params["attention"] for trial in report.trials} == {"evolving", "none"}
    assert all(("penalty_weight" in t.params) == (t.params["attention"] == "evolving") for t in report.trials)
    assert {entry.search for entry in entries} == {"rates"}  # trials are runs that name their search
    assert {entry.id for entry in entries} == {trial.run for trial in report.trials}
    assert sorted(entry.run.description()["trial"] for entry in entries) == list(range(12))
    held = Search("x", "mnist", "ace", read_ranges(["attention=evolving,none"]), 2, held={"penalty_weight": 0.5})
    assert trial_config(held, lambda one: "evolving").get("penalty_weight") == 0.5
    assert trial_config(held, lambda one: "none").get("penalty_weight") is None


def test_a_bad_trial_is_pruned_and_its_run_says_why(runs: RunStore) -> None:
    search = a_search(pruner="median", **RATES)
    _, launcher = conduct(runs, search)
    report = report_of(runs)
    pruned = [trial for trial in report.trials if trial.state == "pruned"]
    assert pruned
    assert launcher.epochs < 3 * 12
    for trial, run in ((trial, runs.open(trial.run)) for trial in pruned):
        assert (run.status()["state"], run.status()["error"]) == ("stopped", trial.reason)
        assert trial.reason.startswith("pruned after epoch ")
        assert len(run.metrics()[0]) < 3
    assert report.best not in pruned


@pytest.mark.parametrize("pruner", ["median", "halving", "hyperband"])
def test_a_trial_that_has_done_its_last_epoch_is_finished(pruner: str, runs: RunStore) -> None:
    def late(config: Config, epoch: int) -> float:
        """Equal for all settings until the last epoch."""
        return hill(config, epoch) if epoch == 3 else 0.1 * epoch

    conduct(runs, a_search(pruner=pruner, **RATES), late)
    for trial in report_of(runs).trials:
        epochs = len(runs.open(trial.run).metrics()[0])
        assert (trial.state, epochs == 3) in (("finished", True), ("pruned", False))


def test_a_search_killed_after_the_last_epoch_of_a_trial_counts_it_as_finished(runs: RunStore) -> None:
    search = a_search(pruner="median", trials=8, held={"epochs": 1}, **RATES)

    def falling(config: Config, epoch: int) -> float:
        return 0.9 - 0.1 * len(report_of(runs).trials)  # each trial is worse than the ones before

    def die(self: Any, opened: Any, status: Any) -> None:
        if opened.trial.number == 7:
            raise Killed
        close(self, opened, status)

    close = search_run.SearchRun._close
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search_run.SearchRun, "_close", die)
        with pytest.raises(Killed):
            conduct(runs, search, falling)
    assert report_of(runs).trials[7].state == "running"
    conduct(runs, search, falling)
    assert [trial.state for trial in report_of(runs).trials] == ["finished"] * 8


def test_pruning_does_not_depend_on_how_soon_epochs_are_seen(tmp_path: Path) -> None:
    """A run that has ended before the search looked is pruned where it would have been pruned."""
    search = a_search(pruner="median", **RATES)
    slow, quick = RunStore(tmp_path / "slow"), RunStore(tmp_path / "quick")
    conduct(slow, search)
    store = SearchStore(quick)
    store.write(search)
    launcher = EpochLauncher(quick, hill)

    def whole_runs() -> int:
        while launcher.active:
            launcher.advance()
        return 1

    search_run.SearchRun(store, search, launcher, workers=whole_runs).run()
    assert tried(report_of(quick)) == tried(report_of(slow))
    assert {e.state for e in Catalogue(quick).entries()} == {"finished", "stopped"}


def continue_as_unbroken(broken: RunStore, unbroken: RunStore) -> None:
    """Continue a broken search, which then equals one that was not broken."""
    for store in (broken, unbroken):
        assert conduct(store, a_search(pruner="median"))[0] == "finished"
    assert tried(report_of(broken)) == tried(report_of(unbroken))
    assert len(list(broken)) == len(list(unbroken))  # the open trial was continued, not repeated


def test_stop_means_stop_and_resume_goes_on_as_if_it_had_not_stopped(runs: RunStore, tmp_path: Path) -> None:
    state, launcher = conduct(runs, a_search(pruner="median"), stop_after=10)
    assert (state, SearchStore(runs).status("rates").state) == ("stopped", "stopped")
    assert (launcher.epochs, launcher.active) == (10, {})
    left = [trial for trial in report_of(runs).trials if trial.state == "running"]
    assert [runs.open(trial.run).status()["state"] for trial in left] == ["stopped"] * len(left)
    continue_as_unbroken(runs, RunStore(tmp_path / "unbroken"))


@pytest.mark.parametrize("epochs", [1, 10])
def test_a_killed_search_resumes(epochs: int, runs: RunStore, tmp_path: Path) -> None:
    def until_killed(config: Config, epoch: int) -> float:
        if len([record for run in runs for record in run.metrics()[0]]) == epochs:
            raise Killed
        return hill(config, epoch)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search_run.SearchRun, "_stop_runs", lambda self: None)
        patch.setattr(SearchStore, "write_status", lambda *_: None)
        with pytest.raises(Killed):
            conduct(runs, a_search(pruner="median"), until_killed)
    for run in runs:
        if run.status()["state"] in ("running", "queued"):
            run.set_state("interrupted")
    journal = SearchStore(runs).journal("rates")
    with open(journal, "ab") as file:
        file.write(b'{"op_code":7,"wor')  # a crash in the middle of a line
    journal.with_name("journal.log.lock").symlink_to("journal.log")
    continue_as_unbroken(runs, RunStore(tmp_path / "unbroken"))


def test_an_open_trial_whose_run_is_damaged_fails_alone(runs: RunStore) -> None:
    conduct(runs, a_search(trials=3), stop_after=4)
    (left,) = [trial for trial in report_of(runs).trials if trial.state == "running"]
    (runs.open(left.run).path / "config.json").write_text("{")
    assert conduct(runs, a_search(trials=3))[0] == "finished"
    assert [trial.state for trial in report_of(runs).trials] == ["finished", "failed", "finished"]


def test_a_search_goes_on_for_longer_in_one_process(runs: RunStore) -> None:
    conduct(runs, a_search(trials=3))
    before = tried(report_of(runs))
    conduct(runs, a_search(trials=6))
    assert (tried(report_of(runs))[:3], len(report_of(runs).trials)) == (before, 6)
    lock = SearchStore(runs).lock("rates")
    with pytest.raises(UserError, match="rates is running already"):
        conduct(runs, a_search())
    lock.release()


def test_failing_trials_do_not_end_a_search_unless_all_do(runs: RunStore) -> None:
    def fails_sometimes(launcher: EpochLauncher, config: Config, extra: Any) -> Any:
        run = runs.create(config, dict(extra))
        run.set_state("failed", error="the loss L_h became nan")
        return run

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(EpochLauncher, "start", fails_sometimes)
        with pytest.raises(UserError, match="the first 5 trials failed, the last one with: the loss L_h became nan"):
            conduct(runs, a_search("all"))
    assert SearchStore(runs).status("all").state == "failed"
    assert [trial.state for trial in report_of(runs, "all").trials] == ["failed"] * 5
    assert report_of(runs, "all").trials[0].reason == "the loss L_h became nan"


def test_the_trial_of_a_search_is_never_tested(runs: RunStore, tmp_path: Path, few_digits: None,
                                               monkeypatch: pytest.MonkeyPatch) -> None:
    splits, evaluate = [], ImageTask.evaluate
    monkeypatch.setattr(ImageTask, "evaluate", lambda self, split: splits.append(split) or evaluate(self, split))
    config = experiments.get("mnist").configure("resnet", epochs=1, batch_size=512, snapshots=2)
    run = create(runs, config, {"search": "rates", "trial": 0})
    outcome = execute(run, tmp_path / "data")
    assert (outcome.state, outcome.metrics, run.result()) == ("finished", {}, None)
    assert set(splits) == {"validation"}
    with pytest.raises(UserError, match="is finished"):
        execute(run, tmp_path / "data")
    entry = Catalogue(runs).entries()[0]
    assert entry.best is not None
    assert (entry.value, entry.test) == (None, {})
    assert not same_run(config, entry)  # a study trains and tests its own
    assert same_run(config, replace(entry, search=""))


def test_the_winner_is_compared_with_the_defaults_in_a_study(runs: RunStore) -> None:
    conduct(runs, a_search())
    report = report_of(runs)
    study = winner_study(report, (0, 1))
    assert (study.name, study.seeds, study.held) == ("rates-winner", (0, 1), {"epochs": 3})
    assert study.groups[0].settings == {}
    assert study.groups[1].settings["learning_rate"] == report.best.params["learning_rate"]
    for changed, message in (({"trials": report.trials[:1]}, "the defaults are the best settings that rates found"),
                             ({"trials": []}, "no trial of rates is finished yet: continue it with"),
                             ({"trials": [], "status": SearchStatus("running")}, "wait for the first one")):
        with pytest.raises(UserError, match=message):
            winner_study(replace(report, **changed))


@pytest.mark.parametrize(("given", "message"), [
    ({"ranges": read_ranges(["initial=dense,learned"])}, "initial=learned does not apply to mnist"),
    ({"held": {"penalty": "none"}, "ranges": read_ranges(["penalty_weight=0..1"])},
     "penalty_weight does not apply to penalty=none"),
    ({"held": {"attention": "none"}, "ranges": read_ranges(["penalty_weight=0..1"])},
     "penalty_weight does not apply to penalty=none"),
    ({"ranges": read_ranges(["attention=fixed,none, schedule=joint,alternating"])},
     "schedule does not apply to any of attention=fixed,none"),
    ({"method": "nothing"}, "mnist has no method 'nothing'"),
    ({"sampler": "grid"}, "there is no sampler 'grid'"), ({"pruner": "early"}, "there is no pruner 'early'")])
def test_a_search_that_makes_no_sense_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        check_search(a_search(**given))


def trials_of(over: str, count: int, lacking: str = "") -> tuple[Any, list[TrialRecord]]:
    """Draw trials whose value depends on the learning rate; every third lacks a setting, if one is named."""
    ranges, numbers, found = read_ranges([over]), random.Random(count), []
    for i in range(count):
        params = {one.key: numbers.choice(one.values) if one.values else
                  math.exp(numbers.uniform(math.log(one.low), math.log(one.high))) if one.log else
                  numbers.randint(int(one.low), int(one.high)) if one.whole else numbers.uniform(one.low, one.high)
                  for one in ranges if one.key != lacking or i % 3}
        value = -(math.log10(params["learning_rate"]) + 1) ** 2 + 0.1 * numbers.gauss(0, 1)
        found.append(TrialRecord(i, "finished", params, value))
    return ranges, [*found, TrialRecord(count, "pruned", {}, 9.0)]


@pytest.mark.parametrize(("others", "lacking"), [
    ("momentum=0..0.9, f_layers=1..2, attention=evolving,fixed,none", ""), ("momentum=0..0.9", "momentum")])
def test_importance_finds_the_setting_that_matters(others: str, lacking: str) -> None:
    ranges, trials = trials_of(f"learning_rate=log:1e-3..1, {others}", 120, lacking)
    shares = importance(ranges, trials, True)
    assert next(iter(shares)) == "learning_rate"
    assert list(shares.values()) == sorted(shares.values(), reverse=True)
    assert shares.keys() == {one.key for one in ranges}
    assert sum(shares.values()) == pytest.approx(1)
    assert shares["learning_rate"] > 0.6
    mirrored = [replace(trial, value=-trial.value) for trial in trials]
    assert importance(ranges, mirrored, False) == pytest.approx(shares)


def test_importance_needs_ten_finished_trials_within_their_ranges() -> None:
    ranges, trials = trials_of("learning_rate=log:1e-3..1", 12)
    assert importance(ranges, trials[:9], True) == {}
    assert importance(ranges, trials, True) == {"learning_rate": pytest.approx(1)}
    assert importance(read_ranges(["learning_rate=log:2..9"]), trials, True) == {}  # the file was edited
