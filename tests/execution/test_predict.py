"""A trained model on new rows: forecasts, gaps and classes in own units, from Python and from the command line."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from importing_tables import labelled, long, table, wide
from trained_sets import import_set, trained

import acenode
from acenode.cli import main
from acenode.data.importing.store import ImportedSets
from acenode.errors import UserError
from acenode.execution.predict import Predictor, predict_file
from acenode.execution.prediction_csv import csv_text, write_csv
from acenode.runs.store import Run, RunStore


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Path]]:
    """Import and train each set once."""
    with pytest.MonkeyPatch.context() as patch:
        root, runs = tmp_path_factory.mktemp("data"), tmp_path_factory.mktemp("runs")
        patch.setenv("ACENODE_DATA", str(root))
        patch.setattr("acenode.experiments.named_report.report", lambda *_: {})  # takes longer than training
        for name in ("wind", "clinic", "ward", "gaps"):
            import_set(root, name)
            trained(root, runs, name)
        yield root, runs


@pytest.fixture
def run_of(folders: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("ACENODE_DATA", str(folders[0]))
    monkeypatch.setenv("ACENODE_RUNS", str(folders[1]))

    def find(name: str) -> Run:
        return next(run for run in RunStore(folders[1]) if run.config().experiment == name)

    return find


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_a_window_forecasts_what_follows_the_last_rows(run_of) -> None:
    """The blank rows at the end of the file say at which times; without them, typical steps are taken."""
    found = predict_file(run_of("wind").path, table(wide(50) + "2024-01-03 02:00,,\n2024-01-03 05:00,,\n"))
    (series,) = found.series
    assert series.t.tolist() == [50, 53]
    assert np.isnan(series.observed).all()
    (alone,) = predict_file(run_of("wind"), table(wide(50))).series
    assert alone.t.tolist() == [50, 51, 52, 53, 54, 55]  # the model was trained for 11 hours, here from 44 on
    assert alone.x[0] == pytest.approx(series.x[0], rel=1e-5)
    first = rows(csv_text(found))[0]
    assert (first["time"], first["variable"], first["unit"]) == ("2024-01-03 02:00", "wind", "m/s")


def test_a_forecast_uses_what_is_given_and_nothing_later(run_of) -> None:
    text = wide(50)
    earlier = predict_file(run_of("wind"), table("\n".join(text.splitlines()[:1] + text.splitlines()[-6:]))).series[0]
    assert earlier.x == pytest.approx(predict_file(run_of("wind"), table(text)).series[0].x, rel=1e-5)


def test_predictions_are_those_of_the_task(run_of, folders: tuple[Path, Path]) -> None:
    """For series of the set itself, they are what the trainer's own evaluation computes."""
    predictor = Predictor(run_of("clinic"), folders[0])
    found = predictor.file(table(long()))
    source, task = predictor.source, predictor.task
    index = int(source.parts["test"][0])
    batch = task.data.batch([index])
    expected = task.model(batch).x.detach().numpy()[0] * source.std + source.mean
    series = next(one for one in found.series if one.id == source.ids[index])
    assert series.t.tolist() == [4, 5, 6, 7]
    assert series.x == pytest.approx(expected, rel=1e-4)
    assert series.observed[0, 0] == source.series[index].x[4, 0]
    course = predictor.course(index, 5)
    assert course.t[-1] == 7
    assert course.x[-1] == pytest.approx(expected[-1], rel=1e-4)


def test_a_short_series_is_forecast_from_the_same_time_on_as_in_training(run_of) -> None:
    """The state begins at 3 hours, the last time that is given: before it there is no forecast."""
    short = "\n".join(line for line in long(2).splitlines() if line[:2] != "p0" or int(line.split(",")[1]) < 2)
    found = predict_file(run_of("clinic"), table(short))
    assert [series.t.tolist() for series in found.series] == [[3, 4, 5, 6, 7], [4, 5, 6, 7]]
    assert (np.abs(np.diff(found.series[0].x, axis=0)) > 0).all()  # no two rows are the same
    assert found.notes == ("times less than 3 hours after the first given value were left out: the model forecasts "
                           "from there on",)
    loaded = acenode.load(run_of("clinic").path)
    t, x = np.arange(8.0), np.full((8, 2), np.nan)
    x[:2] = [[60.0, np.nan], [60 + math.sin(1), 100 + math.cos(1)]]
    rows = [0, 1, *range(3, 8)]
    assert found.series[0].x == pytest.approx(loaded.predict([(t[rows], x[rows])])[0].x, abs=1e-2)  # rounded values


def test_times_before_the_forecast_alone_are_refused(run_of) -> None:
    text = "patient,hour,variable,value\np0,0,pulse,60\np0,0,pressure,100\np0,1,pulse,61\np0,2,pulse,\n"
    with pytest.raises(UserError, match="nothing to predict in mine.csv: times less than 3 hours after the first"):
        predict_file(run_of("clinic"), table(text))
    late = text.replace("p0,2,", "p0,20,")
    with pytest.raises(UserError, match="nothing to predict in mine.csv: times more than 7 hours after the first"):
        predict_file(run_of("clinic"), table(late))


def test_only_gaps_are_filled_in(run_of) -> None:
    found = rows(csv_text(predict_file(run_of("gaps"), table(wide(30)))))
    assert [row["time"] for row in found] == [f"2024-01-0{1 + i // 24} {i % 24:02d}:00".replace(" 00:00", "")
                                              for i in range(0, 30, 7)]
    assert {row["variable"] for row in found} == {"power"}


def test_classes_have_probabilities(run_of, folders: tuple[Path, Path]) -> None:
    found = rows(csv_text(predict_file(run_of("ward"), table(labelled(5)))))
    assert len(found) == 5
    for row in found:
        assert float(row["probability of ill"]) + float(row["probability of well"]) == pytest.approx(1, abs=1e-5)
        assert row["class"] in ("ill", "well")
    predictor = Predictor(run_of("ward"), folders[0])
    assert predictor.classes_of(0)[0] == pytest.approx(float(found[0]["probability of ill"]), abs=1e-5)


def test_the_command_writes_the_same(run_of, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    file = tmp_path / "new.csv"
    file.write_text(wide(50))
    run = run_of("wind")
    assert main(["predict", run.id, str(file), "--out", str(tmp_path / "out.csv")]) == 0
    assert (tmp_path / "out.csv").read_text() == csv_text(predict_file(run, file))
    again = write_csv(predict_file(run, file), tmp_path / "again.csv")
    assert again.read_bytes() == (tmp_path / "out.csv").read_bytes()
    capsys.readouterr()
    assert main(["predict", run.id, str(file), "--out", str(tmp_path / "none" / "out.csv")]) == 2
    assert "no folder" in capsys.readouterr().err


def test_names_that_look_like_formulas_are_written_as_text(run_of, folders: tuple[Path, Path]) -> None:
    found = predict_file(run_of("wind"), table(wide(50)))
    names = ("-cmd|'/c calc'!A1", "+1+1")
    text = csv_text(replace(found, source=replace(found.source, variables=names)))
    found_rows = list(csv.reader(io.StringIO(text)))[1:]
    assert {row[2] for row in found_rows} == {f"'{name}" for name in names}
    series = tuple(replace(one, id="-5") for one in found.series)
    found_rows = list(csv.reader(io.StringIO(csv_text(replace(found, series=series)))))[1:]
    assert {row[0] for row in found_rows} == {"-5"}  # a number


def test_files_that_do_not_fit_get_a_sentence(run_of, folders: tuple[Path, Path]) -> None:
    predictor = Predictor(run_of("wind"), folders[0])
    with pytest.raises(UserError, match="there is no column 'power"):
        predictor.file(table("time,wind (m/s),rain\n2024-01-01,1,2\n2024-01-02,2,3\n"))
    with pytest.raises(UserError, match="has numbers, but the set has dates"):
        predictor.file(table("time,wind (m/s),power (kW)\n1,1,2\n2,2,3\n"))
    with pytest.raises(UserError, match="nothing to predict"):
        predictor.file(table("time,wind (m/s),power (kW)\n2024-01-01,,\n2024-01-02,,\n"))


def test_a_run_whose_set_is_gone_says_so(run_of, folders: tuple[Path, Path], tmp_path: Path) -> None:
    assert not ImportedSets(tmp_path).names()
    with pytest.raises(UserError, match="no data set in"):
        Predictor(run_of("wind"), tmp_path)
