"""The tour: what its pictures show follows from the mathematics, its words are short, and its steps open."""

from __future__ import annotations

import base64
import importlib
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from acenode_app import services as app_services
from acenode_app import tour
from acenode_app.components import PLAYER_START
from acenode_app.services import Services
from conftest import Page, no_exception

from acenode import Pairwise
from acenode.compare.groups import group_settings
from acenode.compare.verdict import Contest, judge
from acenode.player import data as player_data

ROOT = Path(__file__).parents[2]
SHOWS_RECORDED = True


@pytest.fixture
def make_tour(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Import the script that made the data of steps 1 and 2."""
    monkeypatch.syspath_prepend(ROOT / "docs")
    return importlib.import_module("make_tour")


def test_the_trained_line_keeps_its_order_and_the_augmented_one_swaps() -> None:
    flows = tour.flows()
    line, plane = np.array(flows["line"]["h"]), np.array(flows["augmented"]["h"])
    assert (line.shape, plane.shape) == ((41, 2, 1), (41, 2, 2))
    for h in (line, plane):
        assert h[0, :, 0].tolist() == [-1.0, 1.0]
    assert (line[:, 0] < line[:, 1]).all()
    assert flows["line"]["error"] == pytest.approx(1.0, abs=0.01)  # both in the middle is the best there is
    assert plane[-1, :, 0] == pytest.approx([1.0, -1.0], abs=0.05)
    assert flows["augmented"]["error"] < 0.01
    distance = np.linalg.norm(plane[:, 0] - plane[:, 1], axis=-1)
    assert distance.min() > 0.1  # they pass each other without meeting


@pytest.mark.parametrize("name", ["moons", "line", "augmented"])
def test_the_drawn_paths_are_solutions_of_the_shipped_networks(name: str, make_tour: ModuleType) -> None:
    own = tour.flows()[name]
    layer = make_tour.moons_layer() if name == "moons" else make_tour.swap_layer(name == "augmented")
    layer.load_state_dict({k: torch.tensor(v) for k, v in own["parameters"].items()})
    h = torch.tensor(own["h"])
    start = h[0] if name == "moons" else make_tour.SWAP
    assert torch.allclose(make_tour.solve(layer, start), h, atol=0.01)  # starts are rounded


def test_the_attended_state_is_that_of_the_library(services: Services) -> None:
    entry = tour.pairwise_run(services.catalogue.entries())
    assert entry is not None
    assert entry.experiment == "physionet"
    assert group_settings(entry.config) == {}  # the words speak of the default: attention starts from the correlation
    assert len(entry.run.snapshots()) > 1  # step 4 asks to drag the epoch
    found = tour.attended(entry, PLAYER_START)
    assert found is not None
    own, row = found["attend"], found["row"]
    shape = own["frames"], own["samples"], own["size"]
    arrays = entry.run.snapshot(entry.run.snapshots()[-1])
    expected = Pairwise()(*(torch.tensor(arrays[k], dtype=torch.float32) for k in ("h", "a")))
    assert np.allclose(_decoded(own["attended"], "<f4", shape), expected.numpy(), atol=1e-3)
    weights = _decoded(own["weights"], "u1", (*shape, shape[-1])) * (own["top"] / 255)
    assert np.allclose(weights.sum(-1), 1, atol=0.05)
    start = round(PLAYER_START * (own["frames"] - 1))
    assert weights[start, 0, row].max() < 0.8  # attention mixes there, and changes the coordinate
    assert abs(expected.numpy()[start, 0, row] - arrays["h"][start, 0, row]) > 0.2 * own["reach"]
    assert len(own["names"]) == own["samples"]
    assert own["subject"] == "Patient"  # as the player of the next step says
    about = player_data.describe(entry.run)
    assert own["time"] == {"ends": [t * about["time"]["scale"] for t in (about["t"][0], about["t"][-1])],
                           "unit": "hours"}
    assert tour.pairwise_run([]) is None


def _decoded(text: str, kind: str, shape: tuple[int, ...]) -> Any:
    return np.frombuffer(base64.b64decode(text), kind).reshape(shape)


@pytest.mark.parametrize(("ace", "expected"), [
    ({0: 0.9, 1: 0.91, 2: 0.92}, "Evolving attention is better than none: evolving less none is +0.1"),
    ({0: 0.7, 1: 0.71, 2: 0.72}, "Evolving attention is worse than none: evolving less none is −0.1"),
    ({0: 0.7, 1: 0.81, 2: 0.92}, "cannot be told: evolving less none is +0, 95% interval −0.25 to +0.25, 3 pairs of "),
    ({0: 0.9}, "cannot be told: at least 3 runs of each are needed."),
    ({}, "cannot be told: ACE is not measured."),
])
def test_the_finding_says_what_can_be_told(ace: dict[int, float], expected: str) -> None:
    other = {(0, 0): 0.8, (1, 0): 0.81, (2, 0): 0.82}
    contest = Contest("accuracy", "ODE-Net", {(seed, 0): value for seed, value in ace.items()}, other)
    assert expected in tour.words(judge(contest))


def test_scores_have_the_number_of_runs_of_each_kind(services: Services) -> None:
    (mnist,) = tour.scores("mnist", services.catalogue.entries())
    metric, scored, _ = mnist
    rows = {kind: runs for kind, _, runs in scored}
    assert list(rows) == ["Evolving", "Fixed", "None"]
    assert "3 seeds" in rows["Evolving"]
    assert "3 seeds" in rows["None"]
    assert metric == "Test accuracy (%), higher is better"
    assert [s[0].split(",")[0] for s in tour.scores("ushcn", services.catalogue.entries())] == [
        "Test MSE", "Test NegLL"]
    assert tour.scores("mnist", []) == []


def test_buttons_move_through_the_steps_and_write_the_url(page: Page) -> None:
    app, concepts = page("tour"), (ROOT / "docs" / "concepts.md").read_text(encoding="utf-8")
    for number, step in enumerate(tour.STEPS, 1):
        no_exception(app)
        assert app.header[0].value == f"{number}. {step['heading']}"
        assert not app.info
        assert f"## {step['section']}\n" in concepts
        keys = {button.key for button in app.button}
        assert {"tour/1", "tour/5"} <= keys
        assert ("tour/back" in keys, "tour/next" in keys) == (number > 1, number < 5)
        assert app.query_params.get("step", "1") == str(number)
        if number < 5:
            app.button(key="tour/next").click().run()
    app.button(key="tour/back").click().run()
    assert app.header[0].value.startswith("4. ")
    app.button(key="tour/2").click().run()
    assert app.query_params["step"] == "2"


@pytest.mark.parametrize("text", ["0", "6", "x", "²", "99999999999999999999", ""])
def test_an_address_without_a_step_opens_the_first(text: str, page: Page) -> None:
    assert page("tour", step=text).header[0].value.startswith("1. ")


@pytest.mark.parametrize("number", [3, 4, 5])
def test_without_recorded_runs_a_step_says_what_to_do(number: int, page: Page, tmp_path: Path) -> None:
    previous = app_services.replace(Services(tmp_path / "none", tmp_path / "data"))
    app = page("tour", step=str(number))
    app_services.replace(previous)
    assert app.header[0].value.startswith(f"{number}. ")
    assert "ACENODE_RECORDED" in app.info[0].value
