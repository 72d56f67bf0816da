"""Start, continue, stop and delete a search, and train its best settings over seeds."""

from __future__ import annotations

from dataclasses import replace

from acenode.errors import UserError
from acenode.execution.study_run import check_data
from acenode.runs.questions import Search, SearchStore, StudyStore
from acenode.search.plan import check_search, winner_study

from ..services import services
from . import search_live, study_actions


def start(search: Search) -> None:
    """Store a new search and start it."""
    store = SearchStore(services().store)
    check_data(check_search(search), services().data_root)
    services().searches.check()
    store.write(search)
    services().searches.start(search)


def resume(name: str, trials: int | None = None) -> None:
    """Continue a search, with another number of trials if one is given."""
    store = SearchStore(services().store)
    search = store.read(name)
    check_data(search, services().data_root)
    if trials is not None and trials != search.trials:
        if trials < search_live.report(name).tried:
            raise UserError("a search cannot have fewer trials than it has tried")
        search = replace(search, trials=trials)
        store.write(search, replace=True)
    services().searches.start(search)


def stop(name: str) -> None:
    """Stop a search: its running trials write a checkpoint, and no further one starts."""
    services().searches.stop(name)


def train_winner(name: str, seeds: tuple[int, ...]) -> str:
    """Queue the best settings and the defaults over seeds as a study, and return its name."""
    study = winner_study(search_live.report(name), seeds)
    StudyStore(services().store).write(study, replace=True)
    study_actions.start(study)
    return study.name


def delete(name: str) -> None:
    """Delete a search; its runs stay."""
    SearchStore(services().store).delete(name)
