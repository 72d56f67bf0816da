"""Compare: the runs it opens with, the baseline, the answer in words and the table to take away."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from acenode_app import compare, labels
from acenode_app.services import Services
from catalogue_entries import entry
from conftest import Page, RunFolder, config, no_exception, page_text

from acenode import experiments
from acenode.execution.execute import create
from acenode.files import write_json
from acenode.runs.catalogue import Catalogue
from acenode.runs.entry import Entry
from acenode.runs.recorded import recorded_runs
from acenode.runs.store import RunStore


def methods(entries: list[Entry]) -> dict[str, list[int]]:
    """Return the seeds of each method."""
    found: dict[str, list[int]] = {}
    for e in entries:
        found.setdefault(e.method, []).append(e.seed)
    return found


def recorded(method: str, seed: int, created: float, **given: Any) -> Entry:
    return replace(entry(method, seed=seed, created=created, data="full", **given), recorded=True)


def test_recorded_runs_of_ace_stand_beside_their_host() -> None:
    ace = [recorded("ace", n, 1.0) for n in range(3)]
    host = [recorded("odenet", n, 2.0) for n in range(4)]
    others = [recorded("resnet", 0, 9.0), recorded("odenet", 0, 9.0, experiment="svhn")]
    assert methods(compare.first_choice([*others, *host, *ace])) == {"ace": [0, 1, 2], "odenet": [0, 1, 2, 3]}


def test_own_runs_come_before_recorded_ones() -> None:
    own = [entry("resnet", seed=0, created=5.0)]
    kept = [recorded("ace", n, 9.0) for n in range(3)]
    assert compare.first_choice([*kept, *own]) == kept  # one group is no comparison
    assert compare.first_choice(own) == own
    assert compare.first_choice([]) == []
    own.append(entry("odenet", seed=0, created=4.0))
    assert set(methods(compare.first_choice([*kept, *own]))) == {"resnet", "odenet"}


def test_each_group_keeps_as_many_seeds() -> None:
    many = [entry(method, seed=n, created=float(n)) for method in ("odenet", "ace", "augmented") for n in range(9)]
    assert {len(seeds) for seeds in methods(compare.first_choice(many)).values()} == {5}


def test_the_projects_recorded_runs_open_on_ace(tmp_path: Path) -> None:
    chosen = compare.first_choice(Catalogue(RunStore(tmp_path / "runs", recorded_runs())).entries())
    assert "ace" in methods(chosen)
    assert len(methods(chosen)) >= 2
    assert len({(e.experiment, e.data) for e in chosen}) == 1
    assert min(len(seeds) for seeds in methods(chosen).values()) >= 3


def test_trials_of_searches_are_left_out() -> None:
    full = [entry(method, seed=n, created=float(n)) for method in ("odenet", "ace") for n in range(2)]
    trials = [replace(entry("ace", seed=n, created=50.0 + n, learning_rate=0.01 * (n + 1)), search="rates")
              for n in range(4)]
    assert not any(e.search for e in compare.first_choice([*trials, *full]))
    kept = [recorded(method, 0, 1.0) for method in ("ace", "odenet")]
    assert {e.id for e in compare.first_choice([*trials, *kept])} == {e.id for e in kept}
    assert {e.id for e in compare.first_choice(trials)} == {e.id for e in trials}  # if a filter leaves nothing else


def test_first_tries_stand_behind_full_runs() -> None:
    full = [entry(method, created=1.0, epochs=10) for method in ("odenet", "ace")]
    short = [entry(method, created=9.0, epochs=3) for method in ("odenet", "ace", "augmented")]
    tries = [entry(method, created=20.0, epochs=1, experiment=name) for method in ("odenet", "ace")
             for name in ("mnist", "svhn")]
    lonely = [entry("ace", created=30.0, epochs=40)]
    assert {e.config["epochs"] for e in compare.first_choice([*lonely, *tries, *short, *full])} == {10}
    assert {(e.experiment, e.config["epochs"]) for e in compare.first_choice(tries)} == {("mnist", 1)}


def test_the_reason_names_what_the_runs_share() -> None:
    own = [entry(method, epochs=10) for method in ("odenet", "ace")]
    assert compare.reason(own) == (
        "Selected at first: runs of yours that can be compared (MNIST, data: sample, 10 epochs each). "
        "Only finished runs, no trials of searches")
    kept = [recorded(method, 0, 1.0, epochs=1) for method in ("odenet", "ace")]
    assert "recorded runs that can be compared (MNIST, data: full, 1 epoch each)" in compare.reason(kept)
    assert compare.reason([*own, *kept]) == ""
    assert compare.reason([]) == ""


def test_players_show_one_run_of_each_group_with_the_same_seed() -> None:
    host = [entry("odenet", seed=n) for n in (0, 1, 2)]
    ace = [entry("ace", seed=n) for n in (1, 3)]
    found = compare.one_of_each([*host, *ace], {e.id: e.method for e in (*host, *ace)})
    assert [(e.method, e.seed) for e in found] == [("ace", 1), ("odenet", 1)]


def test_the_answer_stands_above_the_table_and_the_baseline_box_agrees(page: Page, run_folder: RunFolder) -> None:
    run_folder.finished()
    app = page("compare")
    for words in ("Is ACE", "better than ODE", "cannot be told with 1 seed", "3 of 3 runs selected",
                  "runs of yours that can be compared"):
        assert words in page_text(app)
    assert [b.label for b in app.get("download_button")] == ["CSV", "Markdown", "LaTeX"]
    assert app.selectbox(key="by").options[:2] == ["All settings but the seed", "Method"]
    groups = [group.removesuffix(" (baseline)") for group in app.dataframe[1].value["Group"]]
    assert list(app.dataframe[2].value.columns) == ["Setting", *groups]
    assert app.selectbox(key="base").value.startswith("ODE-Net")
    app.multiselect(key="methods").set_value(["ACE-ODE-Net"]).run()  # the baseline has no run any more
    box = no_exception(app).selectbox(key="base").value
    assert box.startswith("ACE-ODE-Net")
    assert f"{box} (baseline)" in list(app.dataframe[1].value["Group"])
    app.multiselect(key="methods").set_value([]).run()
    assert no_exception(app).selectbox(key="base").value.startswith("ODE-Net")  # it returns with its runs
    groups = app.dataframe[1].value["Group"]
    assert any(group.startswith("ODE-Net") and group.endswith("(baseline)") for group in groups)
    app.selectbox(key="base").select(box).run()
    create(run_folder.services.store, config(attention="fixed")).set_state("stopped")
    assert no_exception(app.run()).selectbox(key="base").value == box  # it stays when there are more runs


def test_named_variables_are_compared_with_the_method_without_attention(page: Page, services: Services) -> None:
    for method in ("ace", "no-attention"):
        for seed in range(2):
            run = services.store.create(experiments.get("oscillators").configure(method, seed=seed), {"params": 1})
            write_json(run.path / "result.json", {"test": {"mse": 0.5 + 0.1 * seed}, "metric": "mse"})
            run.set_state("finished")
    app = page("compare", by="method")
    assert app.selectbox(key="base").options == ["ACE", "No attention"]
    assert app.selectbox(key="base").value == "No attention"
    assert "Is ACE better than No attention?" in page_text(app)
    assert page("compare").selectbox(key="base").value == "No attention"


def test_linked_runs_stand_at_the_top_of_the_table(page: Page, run_folder: RunFolder) -> None:
    oldest = sorted(run_folder.finished(), key=lambda run: run.id)[0].id
    app = page("compare", runs=oldest)
    assert app.dataframe[0].value["Id"].iloc[0] == oldest
    assert "1 of 3 runs selected" in page_text(app)
    assert "Selected at first" not in page_text(app)
    assert "Choose runs of at least two groups" in page_text(app)


def test_tables_name_every_fold_and_shorten_commits() -> None:
    shown = labels.provenance(replace(entry(), device="CPU", code=f"0.1.0 {'0ae329b8' + 32 * 'e'}"))
    assert shown == "CPU, code 0.1.0 0ae329b8"
    assert labels.changes(entry("ace", experiment="ushcn", data="full")) == "fold: 0"
    assert labels.changes(entry("ace", experiment="ushcn", data="full", fold=2, epochs=3)) == "fold: 2, epochs: 3"
    assert labels.changes(entry("ace", experiment="ushcn")) == ""  # the sample has no folds
