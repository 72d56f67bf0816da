"""All data sets: the registry, the commands, downloads in the background, and the sources of experiments."""

import json

import pytest

from acenode.cli import main
from acenode.data.registry import DATA_SOURCES, Fetcher, source_of
from acenode.errors import UserError
from acenode.experiments import EXPERIMENTS

ROW = "A01,010-000-024-033,{},27.05.2009 14:03:25:127,1,2,3,walking\n"


@pytest.fixture
def root(tmp_path, monkeypatch):
    """Return a data folder with a part of the activity file."""
    folder = tmp_path / "sets"
    (folder / "activity").mkdir(parents=True)
    (folder / "activity" / "ConfLongDemo_JSI.txt").write_text("".join(ROW.format(10**6 * i) for i in range(90)))
    monkeypatch.setenv("ACENODE_DATA", str(folder))
    return folder


@pytest.mark.parametrize("name", DATA_SOURCES)
def test_every_set_has_a_title_a_path_and_a_state(tmp_path, name):
    source = DATA_SOURCES[name]
    assert source.name == name
    assert source.title
    assert source.path(tmp_path) == tmp_path / f"{name}.npz"
    state = source.check(tmp_path)
    assert (state.name, state.state, state.path, state.bytes) == (name, "missing", tmp_path / f"{name}.npz", 0)
    assert f"run `acenode data get {name}`" in state.detail


def test_an_unknown_set_lists_the_known_ones():
    with pytest.raises(UserError, match="no data set 'imagenet': choose one of mnist, svhn, .*, activity"):
        source_of("imagenet")


def test_every_experiment_has_a_registered_set():
    for experiment in EXPERIMENTS.values():
        assert experiment.source is None or experiment.source in DATA_SOURCES
    assert EXPERIMENTS["mnist"].source == "mnist"


def test_the_commands_work_for_series(root, capsys):
    assert main(["data", "check", "activity"]) == 1
    assert "downloaded, but not prepared yet" in capsys.readouterr().out
    assert main(["data", "get", "activity"]) == 0
    assert capsys.readouterr().out.strip() == str(root / "activity.npz")
    assert main(["data", "check", "activity", "--json"]) == 0
    (state,) = json.loads(capsys.readouterr().out)
    assert state["state"] == "ready"
    assert state["detail"].startswith("2 windows of 1 of 25 recordings")
    assert main(["data", "list"]) == 0
    assert "physionet2012 missing  not downloaded yet" in capsys.readouterr().out


def test_an_unusable_file_gives_a_one_line_error(root, capsys):
    (root / "activity" / "ConfLongDemo_JSI.txt").write_text("<html>\n")
    assert main(["data", "get", "activity"]) == 2
    line = capsys.readouterr().err.strip().splitlines()[-1]
    assert line.startswith("acenode: ")
    assert "is not the official ConfLongDemo_JSI.txt" in line


def test_series_are_prepared_in_the_background(root):
    fetcher = Fetcher(root)
    assert fetcher.state("activity").data.state == "missing"
    fetcher.start("activity")
    assert fetcher.wait("activity", 30)
    state = fetcher.state("activity")
    assert (state.phase, state.error, state.data.state) == ("done", None, "ready")
