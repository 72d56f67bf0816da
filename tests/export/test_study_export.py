"""Exports of a study: tables, figures, page, site, and code that repeats it."""

from __future__ import annotations

import csv
import io
import runpy
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from command_line import command
from export_runs import epoch, metrics, result, snapshot
from page_reader import Page
from study_entries import attention_study, finished

from acenode.compare.study_answer import StudyReport, TrivialReference, report
from acenode.compare.study_figures import curves, differences, results, study_figures, validation_curve
from acenode.compare.study_grid import make_grid
from acenode.errors import UserError
from acenode.execution import estimate
from acenode.export.study import NO_KALEIDO, TEXTS, export_study, render, to_commands, to_python, write_site
from acenode.export.tables import study_csv, study_latex, study_markdown
from acenode.runs.catalogue import Catalogue
from acenode.runs.questions import Study, StudyGroup, StudyStore
from acenode.runs.store import RunStore

VALUES: dict[int, list[float | None]] = {0: [0.91, 0.92, 0.93], 1: [0.85, 0.86, 0.88], 2: [0.90, 0.90, 0.91]}
HOSTILE = "<script>alert(1)</script> 100% & _more_ $x {y}"


def of(values: dict[int, list[float | None]], *references: TrivialReference, **given: object) -> StudyReport:
    study = attention_study(**given)
    return report(make_grid(study, finished(study, values, params=15_346)), references)


@pytest.fixture
def found() -> StudyReport:
    return of(VALUES, TrivialReference("majority class", 0.1), question="Does it help?")


def test_csv_has_a_line_for_every_run_and_reference(found: StudyReport) -> None:
    lines = list(csv.DictReader(io.StringIO(study_csv(found))))
    assert [float(line["value"]) for line in lines] == [v for values in VALUES.values() for v in values] + [0.1]
    assert lines[0] | {"low": "", "high": "", "difference": ""} == {
        "group": "evolving attention", "kind": "run", "params": "15346", "seed": "0", "fold": "", "state": "finished",
        "metric": "accuracy", "value": "0.91", "run": "run-0-0", "difference": "", "low": "", "high": "",
        "effect": "helps"}
    assert lines[-1]["kind"] == "reference"


def test_markdown_has_table_answer_and_reference(found: StudyReport) -> None:
    text = study_markdown(found)
    assert text.startswith("## Does it help?\n")
    assert "| evolving attention | 15,346 | 91.00 | 92.00 | 93.00 | 92.00 ± 1.00 (best) | +1.67 (+0.23 to +3.10) | " \
           "helps |" in text
    assert "| majority class | – |  |  |  | 10.00 |  | reference |" in text
    assert "Fixed attention hurts: accuracy −4.00 points" in text


def test_latex_is_balanced_and_escaped(found: StudyReport) -> None:
    hostile = replace(found, grid=replace(found.grid, study=replace(found.grid.study, question=HOSTILE)))
    text = study_latex(hostile)
    body = text[text.index("\\begin"):text.index("\\end{table}")]
    assert body.count("\\begin{tabular}") == body.count("\\end{tabular}") == 1
    assert r"100\% \& \_more\_ \$x \{y\}" in body
    rows = [line for line in body.splitlines() if line.endswith("\\\\")]
    assert {line.count(" & ") for line in rows} == {4}
    assert "3 runs in each group" in body
    assert "1 run in each group" in study_latex(of({group: [0.9] for group in VALUES}, seeds=(0,)))
    assert not any(c in body for c in "±−–")


def test_the_commands_make_the_same_study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimate, "_time", lambda *given: {})
    groups = (StudyGroup("ace", {"attention": "fixed"}), StudyGroup("gru-ode-bayes"))
    folds = Study("folds", "ushcn", groups, seeds=(), folds=(0, 3), held={"epochs": 3, "impute": True}, baseline=1,
                  metric="negll")
    for study in (attention_study(question="Does it help, or \"not\"?"), folds):
        name, _, new = to_commands(study).splitlines()[0].partition(" ")
        assert name == "acenode"
        command(f"{new} --json")
        assert StudyStore(RunStore(tmp_path / "runs")).read(study.name) == study


def test_the_script_trains_a_study_and_prints_its_answer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    study = Study("nets", "mnist", (StudyGroup("resnet"), StudyGroup("odenet")), seeds=(0,), held={
        "epochs": 1, "batch_size": 512, "snapshots": 2, "analysis": False, "rtol": 0.1})
    script = tmp_path / "repeat.py"
    script.write_text(to_python(study, str(tmp_path / "own")))
    assert sum(bool(line.strip()) for line in script.read_text().splitlines()) <= 10
    runpy.run_path(str(script))
    printed = capsys.readouterr().out
    assert printed.startswith("Trained for 1 epoch, where the default is 12: longer training may change the answer. "
                              "ODE-Net against ResNet: cannot be told with 1 seed: at least 2 more are needed")
    grid = make_grid(study, Catalogue(RunStore(tmp_path / "own")).entries())
    assert grid.finished == 2


@pytest.fixture
def played(make, tmp_path: Path) -> StudyReport:
    """Return a study with two runs in folders, one a group."""
    study = attention_study(question=HOSTILE, seeds=(0,))
    for entry, kind in zip(finished(study, {0: [0.9], 2: [0.9]}), ("elementwise", "none"), strict=True):
        make(entry.id, config=entry.config, records=metrics(), outcome=result(), snapshots={1: snapshot(1, kind=kind)})
    return report(make_grid(study, Catalogue(RunStore(tmp_path)).entries()))


def test_the_page_is_self_contained_with_a_player_of_every_group(played: StudyReport) -> None:
    html = render(played)
    page = Page(html)
    assert [run["label"] for run in page.data["player"]["runs"]] == ["evolving attention", "no attention"]
    assert set(page.data["player"]["embedded"]) == {"run-0-0", "run-2-0"}
    assert "fixed attention: not measured yet" in page.text.lower()
    for text in ("75.00", "not comparable with the paper", "acenode study run attention", "train_study"):
        assert text in page.text.lower() or text in page.text
    assert "<script>alert" not in html
    assert not page.all("link")
    assert not [e.tag for e in page.elements if {"src", "srcset", "data"} & e.attributes.keys()]


def test_a_site_links_studies_and_the_reports_of_their_runs(played: StudyReport, tmp_path: Path) -> None:
    index = write_site([played], [], tmp_path / "site")
    links = [e.attributes["href"] for e in Page(index.read_text()).all("a")]
    assert links == ["attention.html", "runs/run-0-0.html", "runs/run-2-0.html"]
    assert all((index.parent / str(link)).is_file() for link in links)
    inner = [e.attributes["href"] for e in Page((index.parent / "attention.html").read_text()).all("a")]
    assert inner == ["runs/run-0-0.html", "runs/run-2-0.html"]


def test_export_by_command(played: StudyReport, tmp_path: Path) -> None:
    StudyStore(RunStore(tmp_path)).write(played.grid.study)
    out = tmp_path / "out"
    for to in ("md", "tex", "csv"):
        assert command(f"export attention --to {to} --out {out} --runs {tmp_path}").strip() == f"{out}/attention.{to}"
        assert (out / f"attention.{to}").stat().st_size
    command(f"export attention run-0-0 --to site --out {out} --runs {tmp_path}")
    assert (out / "index.html").is_file()
    command(f"export run-0-0 run-2-0 --to csv --runs {tmp_path}", 2)
    command(f"export attention --to pdf --runs {tmp_path}", 2)


def test_only_code_can_be_exported_before_a_run_is_finished(tmp_path: Path) -> None:
    empty = of({})
    for to in TEXTS.keys() - {"py", "sh"}:
        with pytest.raises(UserError, match="no run of attention is finished yet"):
            export_study(empty, to, tmp_path)
    assert export_study(empty, "py", tmp_path).name == "attention.py"


def test_every_run_is_a_dot_and_near_references_are_lines() -> None:
    near, far = TrivialReference("nearest <class>", 0.85), TrivialReference("majority class", 0.1)
    figure = results(of(VALUES, near, far))
    runs, means, reference = figure.data
    assert sorted(runs.x) == pytest.approx(sorted(100 * v for values in VALUES.values() for v in values if v))
    assert list(means.x) == pytest.approx([92, 259 / 3, 271 / 3])
    assert reference.name == "nearest &lt;class&gt;"
    assert figure.layout.shapes[0].x0 == 85
    assert figure.layout.xaxis.title.text == "Test accuracy (%)"
    assert list(figure.layout.yaxis.categoryarray)[-1] == means.y[0] == "evolving attention"


def test_differences_stand_at_their_place_relative_to_zero() -> None:
    figure = differences(of(VALUES))
    (points,) = figure.data
    better, worse = points.x
    assert worse < 0 < better
    assert figure.layout.shapes[0].x0 == 0
    assert min(points.error_x.array) > 0
    assert list(points.error_x.array) == pytest.approx(list(points.error_x.arrayminus))
    assert figure.layout.xaxis.title.text == "Difference of test accuracy in points, with 95% interval"


def test_a_figure_without_values_is_left_out() -> None:
    assert study_figures(of({})) == []
    assert [one.name for one in study_figures(of({0: [0.9], 2: [0.8]}))] == ["results"]  # one pair has no interval


def test_curves_are_the_mean_and_range_over_runs(make, tmp_path: Path) -> None:
    study = attention_study(seeds=(0, 1))
    for i, entry in enumerate(finished(study, {0: [0.9, 0.8], 2: [0.7, 0.7]})):
        records = [epoch(n) | {"validation_accuracy": 0.1 * n + 0.2 * (i == 1)} for n in (1, 2, 3)]
        make(entry.id, config=entry.config, records=records if i != 3 else records[:2],
             outcome={"test": {"accuracy": 0.5}, "metric": "accuracy"})
    found = report(make_grid(study, Catalogue(RunStore(tmp_path)).entries()))
    assert [pytest.approx(point) for point in validation_curve(found.grid.rows[0], "accuracy")] == [
        (1, 0.2, 0.1, 0.3), (2, 0.3, 0.2, 0.4), (3, 0.4, 0.3, 0.5)]
    assert [point[0] for point in validation_curve(found.grid.rows[2], "accuracy")] == [1, 2]  # what all runs have
    figure = curves(found)
    band, line = figure.data[:2]
    assert (list(band.y), list(line.y)) == (pytest.approx([30, 40, 50, 30, 20, 10]), pytest.approx([20, 30, 40]))
    assert "evolving attention" in [trace.name for trace in figure.data]


def test_without_kaleido_the_page_is_written_and_said_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kaleido", None)
    said: list[str] = []
    assert export_study(of(VALUES), "svg", tmp_path / "figure.svg", said.append) == tmp_path / "figure.html"
    assert said == [NO_KALEIDO]
    assert "plotly" in (tmp_path / "figure.html").read_text().lower()
