"""Fairness of a study: settings and parameters that differ without being asked, the equal study, kept counts."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from command_line import command
from study_entries import attention_study, one

from acenode import experiments
from acenode.compare import fairness as module
from acenode.compare.fairness import count, equal_study, fairness, parameter_counts
from acenode.compare.study_grid import make_grid, preset
from acenode.files import user_cache
from acenode.runs.questions import Study, StudyGroup

MNIST = experiments.get("mnist")


def test_a_start_of_attention_that_changes_with_fixed_is_named_and_held_equal() -> None:
    grid = make_grid(attention_study(held={}, baseline=0), [])
    note = fairness(grid)[0]
    assert (note.key, note.text) == ("initial", "initial differs too: initial=conv in evolving attention; "
                                                "initial=correlation in fixed attention")
    equal = make_grid(note.equal, [])
    assert (note.change, note.equal.name) == ("hold initial=conv in all groups", "attention-equal")
    assert [row.config.get("initial") for row in equal.rows] == ["conv", "conv", None]
    assert "initial" not in {note.key for note in fairness(equal)}
    whole = equal_study(grid)
    assert not any(note.equal for note in fairness(make_grid(whole, [])))


def test_a_number_of_parameters_that_differs_is_named_and_made_equal_where_possible() -> None:
    """Without attention, ACE's f has one convolution and ODE-Net's has two."""
    study = Study("layers", "mnist", (StudyGroup("ace", {"attention": "none"}), StudyGroup("odenet")), baseline=1)
    grid = make_grid(study, [])
    assert parameter_counts(grid) == [15_346, 20_818]
    note, = fairness(grid)
    assert note.text == "the number of parameters differs: 15,346 in ACE-ODE-Net, 20,818 in ODE-Net"
    assert note.change == "f_layers=2 in ACE-ODE-Net: 20,818 parameters"
    assert parameter_counts(make_grid(note.equal, [])) == [20_818, 20_818]
    assert fairness(make_grid(note.equal, [])) == []


def test_a_width_is_searched_for_the_nearest_number() -> None:
    notes = fairness(make_grid(preset("ushcn", "host"), []))
    sizes = [parameter_counts(make_grid(note.equal, [])) for note in notes if note.equal]
    for counts, (large, small) in zip(sizes, ((0, 2), (1, 2)), strict=True):
        assert abs(counts[large] - counts[small]) <= 0.05 * counts[large]


@pytest.mark.parametrize(("experiment", "kind", "keys"), [
    ("mnist", "host", ["params", "params"]), ("mnist", "schedule", []), ("ushcn", "attention", ["params"])])
def test_what_is_no_difference_and_what_cannot_be_made_equal(experiment: str, kind: str, keys: list[str]) -> None:
    notes = fairness(make_grid(preset(experiment, kind), []))
    assert [note.key for note in notes] == keys
    assert experiment != "mnist" or not any(note.equal for note in notes)
    assert "params" not in {note.key for note in fairness(make_grid(preset("mnist", "size"), []))}


def test_runs_say_their_parameters_and_their_part_of_the_data() -> None:
    grid = make_grid(attention_study(), [one(attention_study(), 0, 0, 0.9, params=123)])
    assert parameter_counts(grid)[:2] == [123, count(grid.rows[1].config)]
    study = replace(preset("ushcn", "schedule", "full"), name="folds")
    runs = [one(study, 0, 0, 0.4, partial=True, params=9), one(study, 1, 0, 0.5, params=9)]
    note, = fairness(make_grid(study, runs))
    assert note.text == "some runs are trained on a part of the data: alternating schedule"


@pytest.fixture
def forget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], None]]:
    """Keep counts in an empty folder; the function forgets what is in memory."""
    def clear() -> None:
        module._known_counts.cache_clear()
        count.cache_clear()

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    clear()
    yield clear
    clear()


def test_counts_are_those_of_the_model_and_kept_until_its_code_changes(forget: Callable[[], None]) -> None:
    for method, given in (("resnet", {}), ("ace", {"size": "large"}), ("ace", {})):
        for seed in (0, 1):
            config = MNIST.configure(method, "full", seed=seed, **given)
            assert count(config) == MNIST.count(config)
    file = user_cache() / "acenode" / "parameter-counts.json"
    stored = json.loads(file.read_text())
    assert len(stored["counts"]) == 3
    kept = stored | {"counts": dict.fromkeys(stored["counts"], 7)}
    other, damaged = json.dumps(kept | {"code": 1}), ("", "{", "[]", json.dumps(kept | {"counts": 3}))
    for text, found in ((json.dumps(kept), 7), *((text, MNIST.count(config)) for text in (other, *damaged))):
        file.write_text(text)
        forget()
        assert count(config) == found


def test_a_second_table_needs_no_torch(forget: Callable[[], None]) -> None:
    table = command("table mnist")
    code = "import sys; from acenode.cli import main; main(['table', 'mnist']); assert 'torch' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr, done.stdout) == (0, "", table)
