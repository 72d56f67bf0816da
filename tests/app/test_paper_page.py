"""The page with the paper's tables, on the recorded runs and without any."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pandas as pd
import pytest
from acenode_app import form, labels, messages, paper
from acenode_app import services as app_services
from acenode_app.services import Services
from conftest import Page, no_exception, page_text
from streamlit.testing.v1 import AppTest

from acenode.compare.cells import measure, measure_all
from acenode.compare.paper import CELLS, TABLES
from acenode.compare.reproduction import time_of
from acenode.config import Config
from acenode.experiments import EXPERIMENTS
from acenode.runs.recorded import recorded_runs

SHOWS_RECORDED = True
RKNET = "mnist/rknet/accuracy"


def a_rknet() -> Path:
    """Return the folder of a recorded run of RKNet on MNIST."""
    return min((recorded_runs() or Path()).glob("mnist-rknet-2*"))


@pytest.fixture
def one_rknet(services: Services, tmp_path: Path) -> Services:
    """Replace the services by ones with that recorded run only."""
    (tmp_path / "part").mkdir()
    (tmp_path / "part" / a_rknet().name).symlink_to(a_rknet())
    made = Services(tmp_path / "runs", tmp_path / "data", tmp_path / "part")
    app_services.replace(made)
    return made


def runs_of(app: AppTest) -> pd.DataFrame:
    """Return the table of the chosen cell's runs."""
    return next(frame.value for frame in app.dataframe if "Source" in frame.value and "Run" in frame.value)


def test_recorded_runs_fill_the_page_and_its_answer_unfolds_its_comparisons(page: Page) -> None:
    assert sorted(name for one in messages.words()["paper"] for name in one["tables"]) == sorted(TABLES)
    app = page("paper")
    shown = page_text(app)
    assert "All 79 of the paper's values are measured" in shown
    assert re.search(r"[0-9]+ of the worse ones among them, come from shorter training than the paper's: MNIST", shown)
    assert "○ not measured" in shown  # the legend
    (answer,) = (m.value for m in app.markdown if "comparisons" in m.value)
    assert "in none of these" in answer or answer.startswith("**Here ACE is")
    boxes = [box for box in app.expander if box.label.startswith("Later and elsewhere")]
    assert len(boxes) == len(messages.words()["paper"]) - 1  # every section but the last
    app.session_state["paper/comparisons"] = app.session_state["paper/elsewhere/physionet"] = True
    table, others = app.run().table
    assert list(table.value.columns)[:3] == ["Compared", "Verdict", "Difference"]
    assert len(table.value) == len({(c.experiment, c.metric, str(c.settings)) for c in CELLS.values()
                                    if c.method == "ace" and not c.ablation})
    assert table.value["Compared"][0].endswith("](paper?cell=mnist%2Face%2Faccuracy&table=mnist)")
    assert table.value["ACE extends"][0] == r"[ODE\-Net](paper?cell=mnist%2Fodenet%2Faccuracy&table=mnist)"
    assert "0\\.858" in others.value.to_csv()


def test_runs_over_folds_are_in_the_order_of_the_folds(page: Page) -> None:
    """Those of FC-ACE on USHCN have another order by their seeds."""
    runs = runs_of(page("paper", cell="ushcn/ace/dense/mse"))
    assert list(runs["Fold"]) == [0, 1, 2, 3, 4]
    assert list(runs["Seed"]) != sorted(runs["Seed"])
    assert 0 in list(runs["Snapshots"])


def test_views_have_the_texts_of_every_cell(services: Services) -> None:
    measured = measure_all(services.catalogue.entries())
    opened = TABLES["mnist"], CELLS["mnist/ace/accuracy"]
    view = paper.view(TABLES.values(), measured, opened)
    assert {t["name"]: t["opened"] for t in view["tables"] if t["opened"]} == {"mnist": "mnist/ace/accuracy"}
    rows = {(t["name"], r["label"]): r["cells"] for t in view["tables"] for r in t["rows"]}
    (ace,) = rows["mnist", "ACE-ODE-Net"]
    assert (ace["key"], ace["printed"], ace["best"]) == ("mnist/ace/accuracy", "99.68 ± 0.03", True)
    assert ace["sign"].split()[-1] in ("within", "better", "worse")
    assert re.search(r"[0-9]+ seeds?, [0-9]+ of 160 epochs", ace["details"])
    assert rows["cifar10", "ResNet"][0]["best"]  # in bold in the paper
    assert rows["attention-error", "Fixed-ACE"][0] is None
    assert len([c for cells in rows.values() for c in cells if c]) == sum(len(t.cells) for t in TABLES.values())


def test_a_cell_shows_its_runs_and_what_is_missing(page: Page, services: Services) -> None:
    app = page("paper", cell="mnist/ace/accuracy")
    assert "MNIST classification: ACE-ODE-Net" in page_text(app)
    table = runs_of(app)
    entries = measure(CELLS["mnist/ace/accuracy"], services.catalogue.entries()).entries
    assert list(table["Run"]) == [entry.id for entry in entries]
    assert set(table["Source"]) == {"◆ recorded"}
    assert list(table["Open"]) == [f"/mnist?runs={entry.id}" for entry in entries]
    assert "Fold" not in table
    app.button(key="paper/close").click().run()
    assert "cell" not in app.query_params
    assert "MNIST classification: ACE" not in page_text(app)
    assert "There is no cell" in page_text(page("paper", cell="mnist/<b>/x"))


def test_runs_with_other_settings_are_named_where_none_counts(page: Page, tmp_path: Path) -> None:
    assert "other settings" not in page_text(page("paper", cell=RKNET))
    path = Path(shutil.copytree(a_rknet(), tmp_path / "part" / a_rknet().name)) / "config.json"
    description = json.loads(path.read_text())
    description["config"]["epochs"] = 2
    path.write_text(json.dumps(description))
    app_services.replace(Services(tmp_path / "runs", tmp_path / "data", tmp_path / "part"))
    assert (f"There is [1 run with other settings or fewer epochs](/mnist?runs={path.parent.name})."
            in page_text(page("paper", cell=RKNET)))


def test_missing_data_is_offered_once_for_the_experiments_that_share_it(page: Page, one_rknet: Services) -> None:
    app = page("paper", cell=RKNET)
    assert "would give this cell the planned seeds" in page_text(app)
    assert "on NVIDIA H200" in page_text(app)  # how long it took there
    assert app.button(key="paper/download/mnist")
    assert not [b for b in app.button if b.key == "paper/queue"]
    no_exception(app.segmented_control(key="paper/scope").set_value("All tables").run())
    offered = [b.key for b in app.button if b.label == "Download and prepare"]
    assert sorted(offered) == sorted({f"paper/download/{e.source}" for e in EXPERIMENTS.values()})


def test_what_is_complete_is_named(page: Page, one_rknet: Services, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paper, "needed", lambda cells, entries: [])
    app = page("paper", cell=RKNET)
    assert "Nothing to train: this cell has as many runs as planned" in page_text(app)
    app.segmented_control(key="paper/scope").set_value("This table").run()
    assert "Nothing to train: every cell of this table has as many runs as planned" in page_text(app)


def test_queue_says_the_time_first_and_continues_what_is_unfinished(page: Page, one_rknet: Services,
                                                                    started: list[Config],
                                                                    monkeypatch: pytest.MonkeyPatch) -> None:
    resumed: list[str] = []
    monkeypatch.setattr(form, "has_full_data", lambda experiment: True)
    monkeypatch.setattr(paper, "_estimate", lambda configs: f"About 3 h here for {len(configs)}")
    monkeypatch.setattr(one_rknet.launcher, "resume", lambda run: resumed.append(run.id))
    first, *others = paper.needed([CELLS[RKNET]], one_rknet.catalogue.entries())
    assert others
    before = one_rknet.store.create(first.config, {})
    before.set_state("stopped")
    app = page("paper", cell=RKNET)
    assert app.button(key="paper/queue").disabled
    app.button(key="paper/how_long").click().run()
    assert f"About 3 h here for {1 + len(others)}" in page_text(app)
    no_exception(app.button(key="paper/queue").click().run())
    assert resumed == [before.id]
    assert started == [run.config for run in others]


def test_time_of_recorded_runs(services: Services) -> None:
    entries = services.catalogue.entries()
    config = CELLS["ushcn/ace/mse"].config(0)
    time = time_of(config, [entry for entry in entries if entry.device == "NVIDIA H200"])
    assert time is not None
    assert paper.recorded_time([config], entries).startswith(
        f"{labels.duration(time.seconds(config))} on NVIDIA H200")
    assert paper.recorded_time([config], []) == ""
    only = [entry for entry in entries if entry.experiment == "ushcn"]
    unknown = CELLS["mnist/ace/large/accuracy"].config(0)
    assert paper.recorded_time([unknown], only) == ""
    assert paper.recorded_time([config, unknown], only).startswith("at least ")


@pytest.mark.parametrize("figure", ["Error over time", "t-SNE", "Attention over time"])
def test_figures_are_drawn_or_say_what_is_missing(figure: str, page: Page) -> None:
    app = page("paper", figure=figure)
    assert len(app.get("plotly_chart")) >= 1
    assert not [e for e in app.info if "yet" in e.value]
