"""Downloads: a complete, verified file or none, also in the background, and an error that says what went wrong."""

import errno
import hashlib
import json
import os
import random
import re
import socket
import threading
import time

import pytest

from acenode import files
from acenode.bench.browser import free_port
from acenode.cli import main
from acenode.data.images import ImageSource
from acenode.data.registry import DATA_SOURCES, Fetcher
from acenode.data.source import CHUNK, RemoteFile, fetch
from acenode.errors import UserError
from acenode.experiments import EXPERIMENTS

BODY = random.Random(0).randbytes(3 * CHUNK + 17)
MD5 = hashlib.md5(BODY).hexdigest()


@pytest.fixture
def target(tmp_path):
    return tmp_path / "deep" / "file.bin"


def remote(*urls, checksum=None) -> RemoteFile:
    return RemoteFile("file.bin", urls, checksum)


def fails(file, target, **options):
    """Return the error of a failed fetch, which must be one line and leave nothing in the folder."""
    with pytest.raises(UserError) as caught:
        fetch(file, target, **options)
    assert not target.parent.exists() or list(target.parent.iterdir()) == []
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith("cannot download file.bin: ")
    return str(caught.value)


@pytest.mark.parametrize("stated", [True, False])
def test_a_file_arrives_complete_and_progress_reaches_the_total(mirror, target, stated):
    seen, before = [], os.umask(0o022)
    file = remote(mirror.serve("file.bin", BODY, stated=stated), checksum=("md5", MD5))
    try:
        assert fetch(file, target, lambda *call: seen.append(call)) == target
    finally:
        os.umask(before)
    assert target.read_bytes() == BODY
    assert (os.listdir(target.parent), target.stat().st_mode & 0o777) == (["file.bin"], 0o644)
    assert [call[0] for call in seen] == sorted(call[0] for call in seen)
    assert (len(seen), seen[-1]) == (4, (len(BODY), len(BODY) if stated else None, "file.bin"))


@pytest.mark.parametrize(("answer", "checksum", "words"), [
    ({"body": b"other"}, ("md5", MD5), f"sent a file whose md5 is .* and not {MD5}, which was discarded: .* later"),
    ({"body": b"other"}, ("sha256", hashlib.sha256(BODY).hexdigest()), "whose sha256 is"),
    ({"body": BODY, "missing": 5}, None, f"broke off after {len(BODY)} of {len(BODY) + 5} bytes: try again$"),
    ({"body": b"", "status": 404}, None, "answered 404 .*try again later$"),
    ({"body": b"", "status": 500}, None, "answered 500 .*try again later$")])
def test_a_mirror_that_fails_is_reported_and_the_next_one_tried(mirror, target, answer, checksum, words):
    bad = mirror.serve("bad", **answer)
    line = fails(remote(bad, f"http://127.0.0.1:{free_port()}/file.bin", checksum=checksum), target)
    assert "refused the connection: check the network" in line
    assert re.search(words, fails(remote(bad, checksum=checksum), target))
    mirror.requests.clear()
    fetch(remote(bad, mirror.serve("good", BODY), checksum=checksum), target)
    assert (target.read_bytes(), mirror.requests, os.listdir(target.parent)) == (
        BODY, ["/bad", "/good"], ["file.bin"])


def test_a_host_that_is_not_found_or_does_not_answer(mirror, target, monkeypatch):
    def unknown(*_args, **_options):
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    gate = threading.Event()
    url = mirror.serve("file.bin", BODY, gate=gate)
    assert "did not answer in time: check the network" in fails(remote(url), target, timeout=0.05)
    gate.set()
    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    assert "nowhere.invalid was not found: check the network" in fails(remote("http://nowhere.invalid/file"), target)


def test_errors_of_the_disk_are_no_fault_of_the_mirror(mirror, target, monkeypatch, full_disk):
    def denied(path):
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    file = remote(mirror.serve("file.bin", BODY), mirror.serve("again", BODY))
    with pytest.raises(UserError, match=r"^no space left on the disk for .*file\.bin: free some"):
        fetch(file, target)
    assert os.listdir(target.parent) == []
    assert mirror.requests == ["/file.bin"]  # another mirror would not help
    monkeypatch.setattr(files, "create", denied)
    with pytest.raises(UserError, match="deep is not writable: change its permissions, or set ACENODE_DATA"):
        fetch(file, target)


@pytest.mark.parametrize(("old", "checksum", "kept"), [
    (BODY, ("md5", MD5), True), (BODY[:100], ("md5", MD5), False), (b"old", None, False)])
def test_only_a_file_with_the_right_checksum_is_kept(mirror, target, old, checksum, kept):
    target.parent.mkdir()
    target.write_bytes(old)
    seen = []
    fetch(remote(mirror.serve("file.bin", BODY), checksum=checksum), target, lambda *call: seen.append(call))
    assert (target.read_bytes(), mirror.requests == []) == (BODY, kept)
    assert seen[-1] == (len(BODY), len(BODY), "file.bin")


def ended(fetcher, name):
    """Wait for the end of a download and return its state."""
    end = time.monotonic() + 30
    while fetcher.state(name).phase == "running" and time.monotonic() < end:
        time.sleep(0.01)
    return fetcher.state(name)


def test_a_download_in_the_background_goes_from_idle_to_done(tmp_path, official, mirror):
    made, gate = official("mnist"), threading.Event()
    last = list(made.files)[-1]
    mirror.answers[f"/{last}"].gate = gate
    fetcher = Fetcher(tmp_path, {"mnist": made.source})
    idle = fetcher.state("mnist")
    assert (idle.name, idle.phase, idle.done, idle.total, idle.error) == ("mnist", "idle", 0, None, None)
    assert idle.data.state == "missing"
    fetcher.start("mnist")
    while f"/{last}" not in mirror.requests:  # the others are complete
        assert fetcher.state("mnist").phase == "running"
    state = fetcher.state("mnist")
    size = len(made.files[state.label])
    assert (state.phase, state.done, state.total) == ("running", size, size)
    fetcher.start("mnist")  # a second press of the button
    gate.set()
    state = ended(fetcher, "mnist")
    assert (state.phase, state.error, state.data.state) == ("done", None, "ready")
    assert len(mirror.requests) == len(made.files)


def test_a_failure_in_the_background_is_reported_and_can_be_retried(tmp_path, official, mirror, monkeypatch):
    made = official("svhn")
    fetcher = Fetcher(tmp_path, {"svhn": made.source})

    def fetched():
        fetcher.start("svhn")
        state = ended(fetcher, "svhn")
        return state.phase, state.data.state, str(state.error)

    mirror.serve("test_32x32.mat", b"", status=503)
    phase, data, error = fetched()
    assert (phase, data, "cannot download test_32x32.mat" in error) == ("failed", "missing", True)
    with monkeypatch.context() as patch:
        patch.setattr(ImageSource, "prepare", lambda *_: 1 / 0)
        assert fetched() == ("failed", "missing", "ZeroDivisionError: division by zero")
    mirror.serve("test_32x32.mat", made.files["test_32x32.mat"])
    assert fetched() == ("done", "ready", "None")
    path = made.source.path(tmp_path)
    path.write_bytes(path.read_bytes()[:-40])  # damaged since
    assert fetcher.state("svhn").data.state == "broken"
    path.unlink()
    assert fetcher.state("svhn").data.state == "missing"


def test_every_set_is_known_by_its_name(tmp_path):
    assert list(DATA_SOURCES) == ["mnist", "svhn", "cifar10", "physionet2012", "activity", "ushcn"]
    assert {one.source for one in EXPERIMENTS.values()} - {None} <= set(DATA_SOURCES)
    for name, source in DATA_SOURCES.items():
        state = source.check(tmp_path)
        assert (source.name, state.state, state.path, state.bytes) == (name, "missing", tmp_path / f"{name}.npz", 0)
        assert state.detail == f"not downloaded yet: run `acenode data get {name}`"
        with pytest.raises(UserError, match=f"run `acenode data get {name}`, or train with --data sample"):
            source.load(tmp_path)
    for ask in (Fetcher(tmp_path).start, Fetcher(tmp_path).state):
        with pytest.raises(UserError, match="no data set 'imagenet': choose one of mnist, svhn, .*, ushcn"):
            ask("imagenet")


def test_the_commands_get_check_and_list(tmp_path, capsys):
    row = "A01,010-000-024-033,{},27.05.2009 14:03:25:127,1,2,3,walking\n"
    file = tmp_path / "data" / "activity" / "ConfLongDemo_JSI.txt"
    file.parent.mkdir(parents=True)
    file.write_text("<html>\n")
    assert main(["data", "get", "activity"]) == 2
    line = capsys.readouterr().err.strip().splitlines()[-1]
    assert line.startswith("acenode: ")
    assert "is not the official ConfLongDemo_JSI.txt" in line
    file.write_text("".join(row.format(10**6 * i) for i in range(90)))
    assert main(["data", "check", "activity"]) == 1
    assert "downloaded, but not prepared yet" in capsys.readouterr().out
    assert main(["data", "get", "activity"]) == 0
    assert capsys.readouterr().out.strip() == str(tmp_path / "data" / "activity.npz")
    assert main(["data", "check", "activity", "--json"]) == 0
    (state,) = json.loads(capsys.readouterr().out)
    assert state["state"] == "ready"
    assert state["detail"].startswith("2 windows of 1 of 25 recordings")
    assert main(["data", "list"]) == 0
    assert "physionet2012 missing  not downloaded yet" in capsys.readouterr().out


@pytest.mark.parametrize(("command", "said"), [
    ("build", "only ushcn can be built"), ("build mnist --from .", "only ushcn can be built"),
    ("build ushcn", "--from is missing: acenode data build ushcn --from DIR"),
    ("build ushcn --from /nowhere", "is not a folder"),
    ("get ushcn --from .", "--from applies only to `acenode data build ushcn`"),
    ("check ushcn --seed 1", "--seed applies only to"), ("import x.csv --seed 3", "--seed applies only to"),
    ("list --window 3", "--window applies only to"), ("get mnist --yes", "--yes applies only to"),
    ("check mnist more", "'more' is one name too many"), ("import", "name the file"), ("import x.csv", "--name N"),
    ("rename a", "name the set and its new name"), ("delete", "name the set")])
def test_a_mistake_in_a_command_is_one_line(capsys, command, said):
    assert main(["data", *command.split()]) == 2
    (error,) = capsys.readouterr().err.strip().splitlines()
    assert said in error
