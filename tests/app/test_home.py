"""The home page's choice of recorded runs and its cards of recorded results."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from acenode_app.experiment import shown_runs
from acenode_app.home import recorded_player, recorded_results
from catalogue_entries import entry

from acenode.compare.paper import CELLS
from acenode.runs.entry import Entry


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
    return {example.experiment: list(example.runs) for example in recorded_player.examples(entries)}


def test_only_kinds_of_attention_that_can_be_played_are_offered(tmp_path: Path) -> None:
    assert recorded_player.examples([]) == []
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
    (example,) = recorded_player.examples([evolving, none, recorded(tmp_path, "physionet", "latent-ode")])
    assert example.runs["none"] == none  # rather than the host method


def test_the_run_with_most_snapshots_is_played(tmp_path: Path) -> None:
    first, second = recorded(tmp_path, "ushcn"), recorded(tmp_path, "ushcn", seed=1, snapshots=3)
    (example,) = recorded_player.examples([first, second])
    assert example.runs["evolving"] == second


def test_kinds_of_attention_are_played_with_one_seed_if_one_has_all(tmp_path: Path) -> None:
    entries = [recorded(tmp_path, "physionet", seed=0, snapshots=2),
               recorded(tmp_path, "physionet", seed=1, snapshots=9),
               recorded(tmp_path, "physionet", attention="fixed", seed=0, snapshots=3),
               recorded(tmp_path, "physionet", attention="fixed", seed=1)]
    (example,) = recorded_player.examples(entries)
    assert [e.seed for e in example.runs.values()] == [0, 0]  # of seed 1, one run has a single snapshot
    (alone,) = recorded_player.examples([*entries[:2], recorded(tmp_path, "physionet", attention="none", seed=2)])
    assert [e.seed for e in alone.runs.values()] == [1, 2]


def test_a_page_opens_with_the_longest_run_of_the_table(tmp_path: Path) -> None:
    short = dataclasses.replace(recorded(tmp_path, "cifar10", snapshots=3), epochs=20)
    long = dataclasses.replace(recorded(tmp_path, "cifar10", seed=1), epochs=40)
    assert shown_runs.first_choice([short, long]) == [long.id]
    (example,) = recorded_player.examples([short, long])
    assert example.runs["evolving"] == short  # Home follows the training


def test_default_settings_are_played_rather_than_changed_ones(tmp_path: Path) -> None:
    changed = recorded(tmp_path / "changed", "physionet", initial="dense", snapshots=9)
    short, long = (recorded(tmp_path, "physionet", seed=seed, snapshots=n) for seed, n in ((0, 1), (1, 6)))
    entries = [changed, short, long]
    assert recorded_player.examples(entries)[0].runs["evolving"] == long
    assert shown_runs.first_choice(entries) == [long.id]
    assert shown_runs.first_choice([changed, short]) == [short.id]


@pytest.mark.parametrize("partial", [False, True])
def test_a_card_sets_measured_values_beside_the_printed_ones(partial: bool, tmp_path: Path) -> None:
    values = {("ace", 0): 0.9950, ("ace", 1): 0.9954, ("odenet", 0): 0.9940}
    entries = [dataclasses.replace(recorded(tmp_path, "mnist", method, seed=seed, epochs=40), partial=partial,
                                   value=value, test={"accuracy": value}) for (method, seed), value in values.items()]
    card = recorded_results._card(CELLS["mnist/ace/accuracy"], entries)
    assert "99.52 ± 0.03" in card
    assert "99.40" in card
    assert "ODE-Net: 1 seed, 40 of 160 epochs; ACE-ODE-Net: 2 seeds, 40 of 160 epochs" in card
    assert 'href="paper?cell=mnist%2Face%2Faccuracy"' in card
    assert ("99.68 ± 0.03" in card) == (not partial)  # never beside a value on a part of the data
    assert ("part of the data" in card) == partial
    assert recorded_results._card(CELLS["mnist/ace/accuracy"], entries[2:]) == ""  # without ACE there is no card
