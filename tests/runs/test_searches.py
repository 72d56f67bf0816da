"""Searches in the folder of runs: their files, and the reader of their journals."""

from __future__ import annotations

from pathlib import Path

import pytest
from search_launcher import a_search, conduct

from acenode import UserError
from acenode.bench.synthetic import synthetic_search
from acenode.runs.questions import Search, SearchStore
from acenode.runs.store import RunStore
from acenode.search import run as search_run
from acenode.search.journal import SearchJournal
from acenode.search.sampling import load_optuna


@pytest.fixture
def store(tmp_path: Path) -> SearchStore:
    return SearchStore(RunStore(tmp_path / "runs"))


def test_a_search_is_written_and_read(store: SearchStore) -> None:
    search = a_search()
    store.write(search)
    assert store.read("rates") == search
    assert store.names() == ["rates"]
    assert store.free_name("rates") == "rates-2"
    assert list(store.runs) == []  # the folder of searches is not a run
    with pytest.raises(UserError, match="there is a search 'rates' already"):
        store.write(search)
    store.delete("rates")
    with pytest.raises(UserError, match="there is no search 'rates'"):
        store.read("rates")


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


def test_the_synthetic_journal_is_one_of_optunas(store: SearchStore) -> None:
    search = synthetic_search(store, "made", 40)
    optuna = load_optuna()
    backend = optuna.storages.journal.JournalFileBackend(str(store.journal("made")))
    theirs = optuna.load_study(study_name="search", storage=optuna.storages.JournalStorage(backend)).trials
    ours = SearchJournal(store.journal("made"), search.ranges).refresh()
    assert [(t.params, t.value) for t in ours] == [(t.params, t.value) for t in theirs]
    assert {t.state for t in ours} == {"finished", "pruned"}


def test_a_replaced_journal_is_read_anew(store: SearchStore) -> None:
    search = synthetic_search(store, "many", 8)
    journal = SearchJournal(store.journal("many"), search.ranges)
    assert len(journal.refresh()) == 8
    store.delete("many")
    assert journal.refresh() == []
    synthetic_search(store, "many", 3)
    assert len(journal.refresh()) == 3
    assert journal.generation == 1  # so that readers of single changes read everything


def test_damaged_lines_are_skipped(store: SearchStore) -> None:
    search = synthetic_search(store, "many", 3)
    with open(store.journal("many"), "ab") as file:
        file.write(b'nonsense\n{"op_code":6,"trial_id":99,"state":1}\n{"op_code":5}\n[]\n7\n{"op_code":99}\n\n')
    assert len(SearchJournal(store.journal("many"), search.ranges).refresh()) == 3


def test_the_format_of_a_search_is_kept(store: SearchStore) -> None:
    assert Search.from_dict(a_search().to_dict()) == a_search()
