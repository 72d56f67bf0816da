"""Studies and searches on disk: what is stored, what is refused, that they are no runs, and the reader of journals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from search_launcher import a_search, conduct
from study_entries import attention_study

from acenode.bench.synthetic import synthetic_search
from acenode.errors import UserError
from acenode.runs.catalogue import Catalogue
from acenode.runs.questions import MAX_GROUPS, Search, SearchStore, Study, StudyGroup, StudyStore
from acenode.runs.store import RunStore
from acenode.search import run as search_run
from acenode.search.journal import SearchJournal
from acenode.search.results import read_report
from acenode.search.sampling import load_optuna


@pytest.fixture
def runs(tmp_path: Path) -> RunStore:
    return RunStore(tmp_path / "runs", recorded=tmp_path / "recorded")


@pytest.fixture
def store(runs: RunStore) -> SearchStore:
    return SearchStore(runs)


@pytest.mark.parametrize(("kind", "made", "file"), [
    (StudyStore, attention_study(question="Does it help?", seeds=(0, 5)), "studies/attention.json"),
    (SearchStore, a_search(), "searches/rates/search.json")])
def test_a_question_is_read_as_it_was_written(kind: Any, made: Study | Search, file: str, runs: RunStore,
                                              tmp_path: Path) -> None:
    store, name = kind(runs), made.name
    assert store.write(made) == runs.root / file
    assert store.read(name) == made == type(made).from_dict(made.to_dict())
    assert store.exists(name)
    (tmp_path / "recorded" / "studies").mkdir(parents=True)
    assert list(runs) == list(runs.recorded_runs()) == Catalogue(runs).entries() == []  # it is not a run
    assert runs.find(file.partition("/")[0]) is None
    with pytest.raises(UserError, match=f"there is a {store.noun} '{name}' already"):
        store.write(made)
    store.write(made, replace=True)
    if kind is SearchStore:
        assert (store.names(), store.free_name(name)) == ([name], f"{name}-2")
    else:
        assert [(found.name, found.study) for found in store.list()] == [(name, made)]
    store.delete(name)
    assert not store.exists(name)
    for action in (store.read, store.delete):
        with pytest.raises(UserError, match=f"there is no {store.noun} '{name}'"):
            action(name)
    with pytest.raises(UserError, match="recorded runs can only be read"):
        kind(RunStore(tmp_path, recorded=tmp_path)).write(made)


@pytest.mark.parametrize(("change", "message"), [
    ({"colour": "red"}, "a study has no 'colour'"),
    ({"format": 2}, "newer version"),
    ({"name": "../evil"}, "cannot be the name of a study"),
    ({"question": "two\nlines"}, "the question must be one line"),
    ({"data": "some"}, "choose one of sample, full"),
    ({"groups": "ace"}, "groups must be a list"),
    ({"groups": [{"method": "ace"}]}, "a study compares 2 to"),
    ({"groups": [{"method": "ace"}] * 2}, "two groups are equal"),
    ({"groups": [{"method": "ace"}, {"method": "odenet", "size": "large"}]}, "a group has no 'size'"),
    ({"groups": [{"method": "ace"}, {"settings": {}}]}, "a group lacks its method"),
    ({"groups": [{"method": "ace"}, {"method": "ace", "settings": {"rtol": -1}}]}, "rtol must be above 0"),
    ({"groups": [{"method": "ace"}, {"method": "ace", "settings": {"attension": "fixed"}}]}, "did you mean attention"),
    ({"groups": [{"method": f"m{i}"} for i in range(MAX_GROUPS + 1)]}, "a study compares 2 to"),
    ({"held": {"attention": "fixed"}}, "attention varies and is held equal"),
    ({"held": {"fold": 1}}, "list its values in folds"),
    ({"seeds": []}, "at least one seed or fold"),
    ({"seeds": [0, 0]}, "a seed is given twice"),
    ({"seeds": [-1]}, "seed must be at least 0"),
    ({"seeds": list(range(51))}, "at most 50 seeds"),
    ({"folds": [5]}, "fold must be at least 0 and at most 4"),
    ({"baseline": 3}, "the baseline is the number of a group"),
    ({"baseline": True}, "the baseline is the number of a group"),
])
def test_a_file_is_checked_like_a_form(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    store = StudyStore(RunStore(tmp_path))
    path = store.write(attention_study(baseline=0))
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(UserError, match=message):
        store.read("attention")
    assert [found.study for found in store.list()] == [None]


@pytest.mark.parametrize("content", ["", "[]", "nonsense", '{"name": "attention"}', "[" * 100_000, "x" * 300_000])
def test_a_damaged_file_is_an_error_and_is_listed(tmp_path: Path, content: str) -> None:
    store = StudyStore(RunStore(tmp_path))
    store.write(attention_study()).write_text(content)
    with pytest.raises(UserError):
        store.read("attention")
    assert [(found.name, found.study, bool(found.error)) for found in store.list()] == [("attention", None, True)]


def test_repeats_are_seeds_folds_or_both() -> None:
    groups = (StudyGroup("ace"), StudyGroup("gru-ode-bayes"))

    def study(**given: Any) -> Study:
        return Study("folds", "ushcn", groups, **given)

    assert study(seeds=(3, 4)).repeats == ((3, None), (4, None))
    assert study(seeds=(), folds=(0, 2)).repeats == ((0, 0), (2, 2))
    assert study(seeds=(7, 8), folds=(0, 2)).repeats == ((7, 0), (8, 0), (7, 2), (8, 2))
    assert (attention_study().varied, study().varied) == ({"attention"}, {"method"})


@pytest.mark.parametrize(("text", "message"), [
    ("{", "cannot be read"), ("[]", "it is not a search"), ('{"over": "x=1..2"}', "the search lacks"),
    ('{"over": "learning_rate=log:0..1", "name": "bad", "experiment": "mnist", "method": "ace", "trials": 2}',
     "must start above 0"), ('{"over": "", "format": 9}', "newer version"),
    ('{"over": "", "extra": 1}', "has no 'extra'")])
def test_a_damaged_search_is_one_line(text: str, message: str, store: SearchStore) -> None:
    store.path("bad").mkdir(parents=True)
    (store.path("bad") / "search.json").write_text(text)
    with pytest.raises(UserError, match=message):
        store.read("bad")


def test_a_search_whose_process_is_gone_is_interrupted(store: SearchStore, monkeypatch: pytest.MonkeyPatch) -> None:
    store.write(a_search())
    assert store.status("rates").state == "stopped"
    store.write_status("rates", "running")
    assert store.status("rates").running
    with pytest.raises(UserError, match="rates is running: stop it first"):
        store.delete("rates")
    monkeypatch.setattr("acenode.runs.questions.alive", lambda *_: False)
    assert store.status("rates").state == "interrupted"


def test_the_journal_is_read_as_optuna_reads_it(store: SearchStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search_run, "POLL_SECONDS", 0.0)
    conduct(store.runs, a_search(pruner="median"))
    optuna = load_optuna()
    backend = optuna.storages.journal.JournalFileBackend(str(store.journal("rates")))
    theirs = optuna.load_study(study_name="search", storage=optuna.storages.JournalStorage(backend)).trials
    ours = SearchJournal(store.journal("rates"), store.read("rates").ranges).refresh()
    states = {"COMPLETE": "finished", "PRUNED": "pruned", "FAIL": "failed", "RUNNING": "running", "WAITING": "queued"}
    assert [(t.number, t.state, t.params, t.value, t.run) for t in ours] == [
        (t.number, states[t.state.name], t.params, t.value, t.user_attrs["run"]) for t in theirs]


def test_of_ten_thousand_trials_only_what_is_new_is_read_again(store: SearchStore) -> None:
    search = synthetic_search(store, "many", 10_000)
    journal = SearchJournal(store.journal("many"), search.ranges)
    report = read_report(store, "many", journal)
    assert len(report.trials) == report.counts["finished"] + report.counts["pruned"] == 10_000
    before = journal.offset
    with open(store.journal("many"), "ab") as file:
        file.write(b'{"op_code":4,"worker_id":"x","study_id":0,"datetime_start":null}\n{"op_code":5,')
    assert len(journal.refresh()) == 10_001
    assert journal.offset == before + 65  # without the incomplete line
    assert journal.refresh() is journal.trials


def test_a_replaced_journal_is_read_anew_and_damaged_lines_are_skipped(store: SearchStore) -> None:
    search = synthetic_search(store, "many", 8)
    journal = SearchJournal(store.journal("many"), search.ranges)
    assert len(journal.refresh()) == 8
    store.delete("many")
    assert journal.refresh() == []
    synthetic_search(store, "many", 3)
    assert len(journal.refresh()) == 3
    assert journal.generation == 1  # so that readers of single changes read everything
    with open(store.journal("many"), "ab") as file:
        file.write(b'nonsense\n{"op_code":6,"trial_id":99,"state":1}\n{"op_code":5}\n[]\n7\n{"op_code":99}\n\n')
    assert len(journal.refresh()) == len(SearchJournal(store.journal("many"), search.ranges).refresh()) == 3
