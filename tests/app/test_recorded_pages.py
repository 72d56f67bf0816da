"""Recorded runs that come with the project: which is played first, cards on Home, and pages that never change them."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from acenode_app import home
from acenode_app.experiment import live_runs
from acenode_app.services import Services
from catalogue_entries import entry
from conftest import Page, page_text

from acenode import experiments
from acenode.compare.paper import CELLS
from acenode.runs.entry import Entry

SHOWS_RECORDED = True


def recorded(root: Path, experiment: str, method: str = "ace", snapshots: int = 1, data: str = "full",
             **given: object) -> Entry:
    """Return a recorded run whose folder has this number of snapshots."""
    found = entry(method, experiment=experiment, data=data, **given)  # type: ignore[arg-type]
    path = root / f"{found.id}-{given.get('attention', '')}"
    (path / "snapshots").mkdir(parents=True)
    for number in range(snapshots):
        (path / "snapshots" / f"epoch-{number:05d}.npz").touch()
    return dataclasses.replace(found, path=path, recorded=True)


def kinds(entries: list[Entry]) -> dict[str, list[str]]:
    return {name: list(runs) for name, runs in home.examples(entries).items()}


def example(entries: list[Entry]) -> dict[str, Entry]:
    """Return the recorded run of each kind of attention of the only experiment."""
    (found,) = home.examples(entries).values()
    return found


def test_only_kinds_of_attention_that_can_be_played_are_offered(tmp_path: Path) -> None:
    assert home.examples([]) == {}
    ace = recorded(tmp_path, "mnist")
    assert kinds([ace]) == {"mnist": ["evolving"]}
    assert kinds([dataclasses.replace(ace, recorded=False)]) == {}
    assert kinds([recorded(tmp_path / "bare", "mnist", snapshots=0)]) == {}
    host = recorded(tmp_path, "mnist", "odenet")
    assert kinds([ace, host]) == {"mnist": ["evolving", "none"]}  # ACE without attention is its host method
    named = [recorded(tmp_path, "liver", method, data="sample") for method in ("ace", "no-attention")]
    assert kinds(named) == {"liver": ["evolving", "none"]}
    fixed = recorded(tmp_path, "physionet", attention="fixed")
    none = recorded(tmp_path, "physionet", attention="none")
    evolving = recorded(tmp_path, "physionet")
    assert kinds([fixed, none, evolving, ace, host]) == {"physionet": ["evolving", "fixed", "none"],
                                                        "mnist": ["evolving", "none"]}  # most kinds first
    host = recorded(tmp_path, "physionet", "latent-ode")
    assert example([evolving, none, host])["none"] == none  # rather than the host method


def test_kinds_of_attention_are_played_with_one_seed_if_one_has_all(tmp_path: Path) -> None:
    entries = [recorded(tmp_path, "physionet", seed=0, snapshots=2),
               recorded(tmp_path, "physionet", seed=1, snapshots=9),
               recorded(tmp_path, "physionet", attention="fixed", seed=0, snapshots=3),
               recorded(tmp_path, "physionet", attention="fixed", seed=1)]
    assert [e.seed for e in example(entries).values()] == [0, 0]  # of seed 1, one run has a single snapshot
    assert example(entries[:2])["evolving"] == entries[1]  # the one with most snapshots
    alone = recorded(tmp_path, "physionet", attention="none", seed=2)
    assert [e.seed for e in example([*entries[:2], alone]).values()] == [1, 2]


def test_a_page_opens_with_the_longest_run_of_the_table(tmp_path: Path) -> None:
    short = dataclasses.replace(recorded(tmp_path, "cifar10", snapshots=3), epochs=20)
    long = dataclasses.replace(recorded(tmp_path, "cifar10", seed=1), epochs=40)
    assert live_runs.first_choice([short, long]) == [long.id]
    assert example([short, long])["evolving"] == short  # Home follows the training


@pytest.mark.parametrize("partial", [False, True])
def test_a_card_sets_measured_values_beside_the_printed_ones(partial: bool, tmp_path: Path) -> None:
    values = {("ace", 0): 0.9950, ("ace", 1): 0.9954, ("odenet", 0): 0.9940}
    entries = [dataclasses.replace(recorded(tmp_path, "mnist", method, seed=seed, epochs=40), partial=partial,
                                   value=value, test={"accuracy": value}) for (method, seed), value in values.items()]
    card = home.result_card(CELLS["mnist/ace/accuracy"], entries)
    assert "99.52 ± 0.03" in card
    assert "99.40" in card
    assert "ODE-Net: 1 seed, 40 of 160 epochs; ACE-ODE-Net: 2 seeds, 40 of 160 epochs" in card
    assert 'href="paper?cell=mnist%2Face%2Faccuracy"' in card
    assert ("99.68 ± 0.03" in card) == (not partial)  # never beside a value on a part of the data
    assert ("part of the data" in card) == partial
    assert home.result_card(CELLS["mnist/ace/accuracy"], entries[2:]) == ""  # without ACE there is no card


def id_of(services: Services, experiment: str, method: str = "ace") -> str:
    return next(e.id for e in services.catalogue.entries() if e.experiment == experiment and e.method == method)


@pytest.mark.parametrize("name", ["mnist", "physionet", "ushcn"])
def test_an_experiment_shows_a_recorded_run_of_ace_first(name: str, page: Page, services: Services) -> None:
    app = page(name)
    (shown,) = app.multiselect(key=f"shown/{name}").value
    entry = services.catalogue.entry(shown)
    assert entry is not None
    assert entry.recorded
    assert (entry.method, entry.config["attention"], bool(entry.run.snapshots())) == ("ace", "evolving", True)
    assert "NVIDIA H200, code 0.1.0" in page_text(app)
    assert app.button(key=f"Run again/{shown}")
    assert not [b for b in app.button if b.label in ("Stop", "Resume")]


@pytest.mark.parametrize(("name", "question", "links"), [
    ("ushcn", "Is ACE-GRU-ODE-Bayes better than GRU-ODE-Bayes on the full data?", "paper?cell=ushcn%2Face%2Fnegll"),
    ("oscillators", "Is ACE better than no attention?", "compare?runs=oscillators-ace-")])
def test_an_experiment_leads_with_what_the_runs_show(name: str, question: str, links: str, page: Page) -> None:
    app = page(name)
    (answer,) = [part.proto.body for part in app.get("html") if 'class="ace-verdict"' in part.proto.body]
    assert question in answer
    assert f'<a href="{links}' in answer
    assert "95% interval" in answer


def test_the_list_of_runs_offers_nothing_that_changes_a_recorded_run(page: Page, services: Services) -> None:
    run = id_of(services, "ushcn")
    app = page("runs", runs=run)
    assert "No runs of your own yet" in app.info[0].value
    assert {"Compare", "Run again", "Repeat with changes"} <= {b.label for b in app.button}
    assert not [b for b in app.button if b.label in ("Stop", "Resume", "Delete")]
    assert not app.text_area
    assert "Recorded run" in page_text(app)
    assert "Data: rebuilt from the station files" in page_text(app)


def test_a_recorded_run_can_be_run_again(page: Page, services: Services, monkeypatch: pytest.MonkeyPatch) -> None:
    started = []
    monkeypatch.setattr(services.launcher, "retry", lambda run: started.append(run) or run)
    run = id_of(services, "ushcn")
    page("runs", runs=run).button(key="runs/again").click().run()
    page("ushcn", runs=run).button(key=f"Run again/{run}").click().run()
    assert [(r.id, r.recorded) for r in started] == 2 * [(run, True)]


def test_home_offers_all_recorded_experiments_and_your_data(page: Page, services: Services) -> None:
    app = page("")
    offered = set(app.selectbox(key="on").options)
    titles = {experiments.get(e.experiment).title for e in services.catalogue.entries()
              if e.method == "ace" and e.run.snapshots()}
    assert "Stock prices" in titles
    assert offered == titles
    assert "Your data: train on a table of your own" in [link.proto.label for link in app.get("page_link")]


