"""`acenode.load`: the best parameters, the preprocessing of training, and predictions for new inputs."""

from __future__ import annotations

import csv
import io
import math
import shlex
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from importing_tables import labelled, long, table, wide
from safetensors.torch import save_file
from trained_sets import import_set, trained

import acenode
from acenode import UserError, experiments
from acenode.cli import main
from acenode.data import simulated
from acenode.data.importing.build import ImportRequest, import_table
from acenode.data.importing.store import ImportedSets
from acenode.data.named_set import NamedSet
from acenode.execution.execute import create, execute
from acenode.execution.predict import Predictor, csv_text, predict_file, write_csv
from acenode.experiments.series_batches import assemble
from acenode.files import write_json
from acenode.runs.recorded import recorded_runs
from acenode.runs.store import Run, RunStore


def untrained(folder: Path, experiment: str, method: str, **given: Any) -> tuple[Run, Any]:
    """Make a run whose best parameters are random ones, and return it with its task."""
    config = experiments.get(experiment).configure(method, seed=3, **given)
    run = create(RunStore(folder), config)
    task: Any = experiments.get(experiment).make(config, folder, torch.device("cpu"))
    torch.manual_seed(1)
    for p in task.model.parameters():
        torch.nn.init.normal_(p, 0.0, 0.1)
    (run.path / "checkpoints").mkdir(exist_ok=True)
    save_file({k: v.clone() for k, v in task.model.state_dict().items()},
              run.path / "checkpoints" / "best.safetensors")
    task.model.eval()
    return run, task


def refuses(loaded: acenode.LoadedRun, cases: list[tuple[Any, str]]) -> None:
    """Check that these inputs are refused with these messages."""
    for wrong, message in cases:
        with pytest.raises(UserError, match=message):
            loaded.predict(wrong)


def test_images(tmp_path: Path) -> None:
    run, task = untrained(tmp_path, "mnist", "ace")
    loaded = acenode.load(run.path)
    images = task.splits["test"].x[:5].permute(0, 2, 3, 1).numpy()  # (5, 8, 8, 1), uint8
    found = loaded.predict(images)
    with torch.no_grad():
        h = task.model.evolve(task.model.encode(task.splits["test"].take(slice(0, 5))[0])).h[-1]
        expected = torch.softmax(task.model.read_out(h), -1)
    assert np.allclose(found.probabilities, expected.numpy(), atol=1e-6)
    assert found.labels == [str(i) for i in expected.argmax(1).tolist()]
    assert np.allclose(loaded.predict(images[..., 0] / 255.0).probabilities, found.probabilities, atol=1e-6)
    assert loaded.preprocess(images).shape == (5, 1, 8, 8)
    refuses(loaded, [(images[:, :7], r"images of \(8, 8, 1\), at least one, not"), (images[:0], "at least one"),
                     (images * 2.0, "numbers from 0 to 1"), (images * np.nan, "numbers from 0 to 1")])


def test_a_record_is_classified_as_in_training(tmp_path: Path) -> None:
    run, task = untrained(tmp_path, "physionet", "ace")
    arrays, records = simulated.icu(), task.splits.test
    index = [list(arrays.ids).index(name) for name in records.ids[:3]]
    rows = [slice(arrays.offsets[i], arrays.offsets[i + 1]) for i in index]
    inputs = [(arrays.t[r], np.where(arrays.m[r], arrays.x[r], np.nan)) for r in rows]
    found = acenode.load(run.path).predict(inputs)
    with torch.no_grad():
        out = task.model(assemble(records.take([0, 1, 2]), task.layout, None, 0.0))
    for i, one in enumerate(found):
        n = len(inputs[i][0])
        assert one.probabilities[1] == pytest.approx(float(torch.sigmoid(out.logits[0, i])), abs=1e-6)
        assert one.probabilities.sum() == pytest.approx(1.0)
        assert np.allclose(one.t, inputs[i][0], rtol=1e-6)
        assert np.allclose(one.x, records.scale.invert(out.x[0, i, :n].numpy()), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("method", ["ace", "gru-d"])
def test_rows_without_values_are_forecast(tmp_path: Path, method: str) -> None:
    run, task = untrained(tmp_path, "ushcn", method)
    index = task.data.parts.test[:3]
    inputs = []
    for record in task.data.records(index):
        x = np.where(record.m > 0, record.x, np.nan)
        x[record.t > task.data.cut] = np.nan
        inputs.append((record.t, x))
    loaded = acenode.load(run.path)
    found = loaded.predict(inputs)
    with torch.no_grad():
        batch = task.data.forecast_batch(index)
        expected = task.model(batch)
    for i, one in enumerate(found):
        n = len(one.t)
        assert np.allclose(one.t, batch.target.t[i, :n].numpy())
        assert np.allclose(one.x, expected.mean[i, :n].numpy(), atol=1e-5)
        assert np.allclose(one.deviation, np.exp(expected.logvar[i, :n].numpy() / 2), atol=1e-5)
    t, x = inputs[0]
    refuses(loaded, [([], "no series"), ([t], r"series 0 is not a pair"), ([(t, x[:, :1])], "the model takes"),
                     ([(t[::-1], x)], "must increase"), ([(t + 1e6, x)], "must increase within 0 to"),
                     ([(t, np.where(np.isnan(x), np.inf, x))], "infinite"),
                     ([(t, np.nan_to_num(x))], "nothing to forecast: add the times to forecast as rows of NaN")])


def inputs_of(source: NamedSet, index: list[int]) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return these series as they are given to the model: what is to be forecast is NaN."""
    series = [source.series[i] for i in index]
    return [(r.t, np.where(r.m & (r.t - r.t[0] < source.given)[:, None], r.x, np.nan)) for r in series]


def test_named_variables_are_forecast_in_their_own_units(tmp_path: Path) -> None:
    run, task = untrained(tmp_path, "stocks", "ace", units=8)
    source, index = task.source, task.source.parts["test"][:3].tolist()
    inputs = inputs_of(source, index)
    loaded = acenode.load(run.path)
    found = loaded.predict(inputs)
    batch = task.data.batch(index)
    with torch.no_grad():
        expected = task.model(batch).x.numpy() * source.std + source.mean
    for i, (t, x) in enumerate(inputs):
        asked = np.isnan(x).all(1)
        assert np.allclose(found[i].t, t[asked])
        assert np.allclose(found[i].x, expected[i, :asked.sum()], rtol=1e-4)
        assert found[i].probabilities is None
    ready = loaded.preprocess(inputs)
    assert torch.allclose(ready.seen.x, batch.seen.x)
    assert torch.allclose(ready.target.t, batch.target.t, atol=1e-6)
    t, x = inputs[0]
    later = x.copy()
    later[-1] = 1.0
    early = np.where(np.arange(len(t))[:, None] == 1, np.nan, x)
    refuses(loaded, [([], "no series"), ([(t, x[:, :2])], "the model takes"), ([(t, x * np.nan)], "has no values"),
                     ([(t[:2], x[:2])], "series 0 has no row of NaN, so there is nothing to forecast: replace "
                      "the values from 12 weeks after its beginning on by NaN, or add rows of NaN"),
                     ([(t, later)], "values that are not in its first 12 weeks"),
                     ([(t, early)], "row of NaN less than 11 weeks after its beginning"),
                     ([(np.append(t, 900.0), np.vstack([x, x[-1:]]))], "last at most 15 weeks")])


def test_a_run_on_imported_data_predicts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the folder of the data set from the environment, or given."""
    monkeypatch.setenv("ACENODE_DATA", str(tmp_path))
    import_set(tmp_path, "clinic")
    run, task = untrained(tmp_path, "clinic", "ace", units=8)
    inputs = inputs_of(task.source, [0, 5])
    with torch.no_grad():
        expected = task.model(task.data.batch([0, 5])).x.numpy() * task.source.std + task.source.mean
    found = acenode.load(run.path).predict(inputs)
    assert np.allclose(found[1].x, expected[1], rtol=1e-4)
    monkeypatch.setenv("ACENODE_DATA", str(tmp_path / "elsewhere"))
    again = acenode.load(run.path, data=tmp_path).predict([(t + 100.0, x) for t, x in inputs])
    assert np.allclose(again[1].x, found[1].x)
    assert np.allclose(again[1].t, found[1].t + 100)
    with pytest.raises(UserError, match="there is no experiment 'clinic'"):
        acenode.load(run.path)


def test_runs_are_found_by_id_and_missing_parameters_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, _ = untrained(tmp_path, "mnist", "resnet")
    monkeypatch.setenv("ACENODE_RUNS", str(tmp_path))
    assert acenode.load(run.id).id == acenode.load("last").id == run.id
    assert not acenode.load(str(run.path)).module.training
    best = run.path / "checkpoints" / "best.safetensors"
    other, _ = untrained(tmp_path, "mnist", "odenet")
    for content in ((other.path / "checkpoints" / "best.safetensors").read_bytes(), b"nothing"):
        best.write_bytes(content)
        with pytest.raises(UserError, match="does not have this model's parameters .*: train the run again"):
            acenode.load(run.id)
    best.unlink()
    with pytest.raises(UserError, match="has no stored parameters: train it for an epoch first"):
        acenode.load(run.id)
    with pytest.raises(UserError, match="is not the folder of a run"):
        acenode.load(tmp_path / "nowhere")


def test_a_recorded_run_without_parameters_says_how_to_train_it_again(tmp_path: Path,
                                                                       monkeypatch: pytest.MonkeyPatch) -> None:
    """By id and by path in the same words; the command makes the recorded configuration."""
    monkeypatch.setenv("ACENODE_RUNS", str(tmp_path))
    folder = recorded_runs()
    assert folder is not None
    monkeypatch.setenv("ACENODE_RECORDED", str(folder))
    path = next(path for path in sorted(folder.iterdir()) if path.name.startswith("svhn-ace"))
    said = []
    for name in (path.name, path, str(path)):
        with pytest.raises(UserError, match="is a recorded run without parameters: to save room") as caught:
            acenode.load(name)
        said.append(str(caught.value))
    assert len(set(said)) == 1
    other = next(path for path in sorted(folder.iterdir()) if path.name.startswith("ushcn-gru-ode-bayes"))
    with pytest.raises(UserError, match="the full data of ushcn, which is not in .*: run `acenode data get ushcn`"):
        acenode.load(other, data=tmp_path)
    words = shlex.split(said[0].partition("Train it again: acenode train ")[2])
    options = dict(zip(words[1::2], words[2::2], strict=True))
    assert (words[0], options.pop("--method"), options.pop("--data")) == ("svhn", "ace", "full")
    assert options == {"--seed": str(Run(path).config().seed), "--set": "epochs=20"}


def test_a_run_knows_when_its_imported_set_has_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                       capsys: pytest.CaptureFixture[str]) -> None:
    """Loading and predicting say so; the run cannot be resumed. Runs without a fingerprint open as before."""
    monkeypatch.setenv("ACENODE_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("ACENODE_RUNS", str(tmp_path / "runs"))
    monkeypatch.setattr("acenode.experiments.named_task.NamedTask.report", lambda _: {})  # takes longer than training
    import_set(tmp_path / "data", "clinic")
    run = trained(tmp_path / "data", tmp_path / "runs", "clinic", "no-attention")
    description = run.description()
    assert len(description["data_fingerprint"]) == 16
    assert "data_fingerprint" not in description["config"]
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        acenode.load(run.path)
    (tmp_path / "new.csv").write_text(long(3))
    assert main(["predict", run.id, str(tmp_path / "new.csv")]) == 0
    assert "changed" not in capsys.readouterr().err

    sets = ImportedSets(tmp_path / "data")
    sets.delete("clinic")
    sets.write(import_table(table(long(25)), ImportRequest("clinic")))
    words = "the imported set 'clinic' has changed since this run was trained"
    with pytest.warns(UserWarning, match=words):
        acenode.load(run.path)
    assert main(["predict", run.id, str(tmp_path / "new.csv")]) == 0
    assert words in capsys.readouterr().err
    assert main(["show", run.id]) == 0
    assert words in capsys.readouterr().out
    (run.path / "result.json").unlink()
    run.set_state("stopped")
    with pytest.raises(UserError, match="has changed since it began, so it cannot be resumed: train a new run"):
        execute(run, tmp_path / "data")
    write_json(run.path / "config.json", {k: v for k, v in description.items() if k != "data_fingerprint"})
    acenode.load(run.path)


# A trained model on new rows ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Path]]:
    """Import and train each set once."""
    with pytest.MonkeyPatch.context() as patch:
        root, runs = tmp_path_factory.mktemp("data"), tmp_path_factory.mktemp("runs")
        patch.setenv("ACENODE_DATA", str(root))
        patch.setattr("acenode.experiments.named_task.NamedTask.report", lambda _: {})  # takes longer than training
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


@pytest.mark.parametrize(("name", "text", "words"), [
    ("wind", "time,wind (m/s),rain\n2024-01-01,1,2\n2024-01-02,2,3\n", "there is no column 'power"),
    ("wind", "time,wind (m/s),power (kW)\n1,1,2\n2,2,3\n", "has numbers, but the set has dates"),
    ("wind", "time,wind (m/s),power (kW)\n2024-01-01,,\n2024-01-02,,\n", "nothing to predict"),
    *(("clinic", "patient,hour,variable,value\np0,0,pulse,60\np0,0,pressure,100\np0,1,pulse,61\n"
       f"p0,{hour},pulse,\n", f"nothing to predict in mine.csv: times {range_} after the first")
      for hour, range_ in ((2, "less than 3 hours"), (20, "more than 7 hours")))])
def test_files_that_do_not_fit_get_a_sentence(name: str, text: str, words: str, run_of) -> None:
    with pytest.raises(UserError, match=words):
        predict_file(run_of(name), table(text))


def test_a_folder_without_the_set_is_named(run_of, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no data set in"):
        Predictor(run_of("wind"), tmp_path)

