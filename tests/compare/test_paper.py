"""The paper's values, and how metrics are written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from acenode import experiments
from acenode.compare import paper
from acenode.compare.metrics import metric_format, metric_name
from acenode.compare.table import measured, render, to_records
from acenode.config import Config
from acenode.config.groups import LatentAttention, Settings, Training
from acenode.experiments import Experiment, Method
from acenode.files import write_json
from acenode.runs.catalogue import Catalogue
from acenode.runs.store import RunStore
from acenode.training.task import Metric


def config(experiment: str, method: str, *, data: str = "full", task: str | None = None, attention: str | None = None,
           initial: str | None = None) -> Config:
    """Return an object with the settings that `paper` reads."""
    settings = {"task": task, "attention": attention, "initial": initial}
    return Config(experiment=experiment, method=method, data=data,
                  settings={k: v for k, v in settings.items() if v is not None})


@pytest.mark.parametrize(("given", "shown"), [
    (config("physionet", "ace", attention="evolving", initial="correlation"), "0.853 ± 0.003"),
    (config("physionet", "rnn-dt"), "0.787 ± 0.014"),
    (config("physionet", "ace", attention="evolving", initial="dense"), "0.793"),
    (config("physionet", "ace", attention="fixed", initial="correlation"), "0.838"),
    (config("physionet-vitals", "ace", task="extrapolation"), "2.025 ± 0.028 ×10⁻³"),
    (config("physionet-vitals", "latent-ode", task="interpolation"), "2.118 ± 0.271 ×10⁻³"),
    (config("physionet-vitals", "ace", task="extrapolation", attention="fixed"), "2.113 ×10⁻³"),
    (config("activity", "ace"), "85.9 ± 1.1"),
    (config("activity", "rnn-vae"), "34.3 ± 4.0"),
    (config("activity", "ace", attention="evolving", initial="dense"), "56.9"),
    (config("mnist", "ace", attention="evolving", initial="conv"), "99.68 ± 0.03"),
])
def test_what_the_paper_prints(given: Config, shown: str) -> None:
    assert str(paper.value(given)) == shown


@pytest.mark.parametrize("given", [
    config("physionet-vitals", "ace"),  # which task?
    config("physionet-vitals", "ode-rnn", task="extrapolation"),
    config("physionet-vitals", "ace", task="interpolation", attention="fixed"),
    config("activity", "latent-poisson"),
    config("physionet", "ace", attention="none"),
    config("physionet", "ace", attention="fixed", initial="dense"),
    config("mnist", "ace", attention="fixed"),
    config("galaxies", "ace"),
])
def test_what_the_paper_does_not_print(given: Config) -> None:
    assert paper.value(given) is None


def test_only_the_whole_full_data_is_compared_with_it() -> None:
    given = config("physionet", "ace")
    assert paper.beside(given, {})
    assert paper.beside(given, {"epochs": 3}) is None  # a tenth of the usual ones
    assert paper.beside(given, {"epochs": 4})
    assert paper.beside(given, {"epochs": 30, "rtol": 0.1}) is None
    assert paper.beside(given, {}, partial=True) is None
    assert paper.beside(config("physionet", "ace", data="sample"), {}) is None


def test_units_and_digits() -> None:
    assert metric_format("accuracy", "mnist").text(0.98765, 0.0012) == "98.77 ± 0.12%"
    assert metric_format("auc", "physionet").text(0.8534) == "0.853"
    assert metric_format("mse", "physionet-vitals").text(0.0020251) == "2.025 ×10⁻³"
    assert metric_format("mse", "elsewhere").text(0.38) == "0.38"
    assert metric_format("score").text(float("nan")) == "–"
    assert metric_format("auc").title == "AUC"


def test_the_experiment_decides_the_direction_of_its_metric(monkeypatch: pytest.MonkeyPatch) -> None:
    assert metric_format("accuracy", "mnist").higher_is_better
    assert not metric_format("mse", "nobody-knows").higher_is_better  # by its name
    monkeypatch.setitem(experiments.EXPERIMENTS, "series", fake("series", Metric("auc", False)))
    assert not metric_format("auc", "series").higher_is_better
    assert metric_name("series") == "auc"
    assert metric_name("nobody-knows") == ""


# The table ----------------------------------------------------------------------------------------------------------


def fake(name: str, metric: Metric) -> Experiment:
    """Return an experiment of two methods that cannot be trained."""
    def method(method: str, title: str, *groups: type[Settings]) -> Method:
        return Method(method, title, lambda shape, made: None, (Training, *groups))

    methods = {"latent-ode": method("latent-ode", "Latent-ODE"),
               "ace": method("ace", "ACE-Latent-ODE", LatentAttention)}
    usual = {"epochs": 30, "batch_size": 50, "learning_rate": 0.01, "attention": "evolving", "initial": "correlation",
             "attention_in": "generative"}

    def make(*given: Any) -> Any:
        raise NotImplementedError

    return Experiment(name, name.title(), "a fake", "made up", metric, methods, lambda m, data, given: usual, make,
                      lambda made: 1, source="made-up")


def finished(store: RunStore, experiment: Experiment, method: str, value: float, *, partial: bool = False,
             **given: Any) -> None:
    made = experiment.configure(method, "full", **given)
    run = store.create(made, {"params": 1, **({"partial": True} if partial else {})})
    write_json(run.path / "result.json", {"test": {experiment.metric.name: value}, "metric": experiment.metric.name})


def find(table: pd.DataFrame, method: str, partial: bool = False, **changed: Any) -> dict[str, Any]:
    return next(r for r in to_records(table)
                if (r["method"], r["partial"], r["changed"]) == (method, partial, changed))


def test_the_table_of_an_auc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    series, store = fake("physionet", Metric("auc")), RunStore(tmp_path)
    monkeypatch.setitem(experiments.EXPERIMENTS, series.name, series)
    finished(store, series, "ace", 0.8512)
    finished(store, series, "ace", 0.8534, seed=1)
    finished(store, series, "ace", 0.7, partial=True)
    table = measured(series, Catalogue(store).entries())
    assert find(table, "ace")["mean"] == pytest.approx(0.8523)
    assert find(table, "ace")["paper"] == "0.853 ± 0.003"
    assert find(table, "ace", initial="dense")["paper"] == "0.793"  # a row even before there is a run
    assert find(table, "ace", attention="fixed")["paper"] == "0.838"
    assert find(table, "ace", partial=True)["paper"] is None
    full, part = render(series, table).split("On a part of the full data")
    assert "0.852 ± 0.002" in full
    assert "0.700" in part
    assert "0.700" not in full
    assert "0.853" not in part


def test_the_table_of_an_error_is_in_thousandths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    series, store = fake("physionet-vitals", Metric("mse", False)), RunStore(tmp_path)
    monkeypatch.setitem(experiments.EXPERIMENTS, series.name, series)
    finished(store, series, "ace", 0.0020251)
    table = measured(series, Catalogue(store).entries())
    assert find(table, "ace")["mean"] == pytest.approx(2.0251)
    text = render(series, table)
    assert "test MSE ×10⁻³, lower is better" in text
    assert "2.025 " in text
