"""fetch: a complete, verified file or none, and an error that says what went wrong."""

import errno
import hashlib
import os
import socket
import threading
from pathlib import Path

import pytest

from acenode import files
from acenode.bench.browser import free_port
from acenode.data.source import CHUNK, fetch
from acenode.errors import UserError

BODY = os.urandom(3 * CHUNK + 17)
MD5 = hashlib.md5(BODY).hexdigest()


@pytest.fixture
def target(tmp_path):
    return tmp_path / "deep" / "file.bin"


@pytest.fixture
def refused():
    """Return an address at which no server listens."""
    return f"http://127.0.0.1:{free_port()}/file.bin"


def fails(urls, target, **options):
    """Return the error of a failed fetch, which must be one line and leave nothing in the folder."""
    with pytest.raises(UserError) as caught:
        fetch(urls, target, **options)
    assert not target.parent.exists() or list(target.parent.iterdir()) == []
    line = str(caught.value)
    assert "\n" not in line
    assert line.startswith("cannot download file.bin: ")
    return line


def test_a_file_arrives_complete_and_progress_reaches_the_total(mirror, target):
    seen = []
    url = mirror.serve("file.bin", BODY)
    assert fetch([url], target, md5=MD5, progress=lambda *call: seen.append(call)) == target
    assert target.read_bytes() == BODY
    assert os.listdir(target.parent) == ["file.bin"]
    done = [call[0] for call in seen]
    assert done == sorted(done)
    assert len(seen) == 4
    assert seen[-1] == (len(BODY), len(BODY), "file.bin")


def test_the_server_need_not_state_the_length(mirror, target):
    seen = []
    url = mirror.serve("file.bin", BODY, stated=False)
    fetch([url], target, md5=MD5, progress=lambda *call: seen.append(call))
    assert target.read_bytes() == BODY
    assert seen[-1] == (len(BODY), None, "file.bin")


def test_file_permissions_follow_the_umask(mirror, target):
    before = os.umask(0o022)
    try:
        fetch([mirror.serve("file.bin", BODY)], target)
    finally:
        os.umask(before)
    assert target.stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize("algorithm", ["md5", "sha256"])
def test_a_wrong_checksum_discards_the_file(mirror, target, algorithm):
    wrong = hashlib.new(algorithm, b"something else").hexdigest()
    line = fails([mirror.serve("file.bin", BODY)], target, **{algorithm: wrong})
    assert "discarded" in line
    assert algorithm in line
    assert wrong in line


def test_both_checksums_must_match(mirror, target):
    line = fails([mirror.serve("file.bin", BODY)], target, md5=MD5, sha256="0" * 64)
    assert "sha256" in line


def test_an_incomplete_body_is_noticed_without_a_checksum(mirror, target):
    line = fails([mirror.serve("file.bin", BODY, missing=5)], target)
    assert f"broke off after {len(BODY)} of {len(BODY) + 5} bytes: try again" in line


@pytest.mark.parametrize("status", [404, 500])
def test_an_http_error_is_reported_with_its_number(mirror, target, status):
    line = fails([mirror.serve("file.bin", b"", status=status)], target)
    assert f"answered {status} " in line
    assert line.endswith("try again later")


@pytest.mark.parametrize("fault", [{"status": 404}, {"status": 500}, {"missing": 5}])
def test_the_second_mirror_is_tried_if_the_first_fails(mirror, target, fault):
    urls = [mirror.serve("bad", BODY, **fault), mirror.serve("good", BODY)]
    fetch(urls, target, md5=MD5)
    assert target.read_bytes() == BODY
    assert mirror.requests == ["/bad", "/good"]
    assert os.listdir(target.parent) == ["file.bin"]


def test_a_mirror_with_other_content_is_skipped(mirror, target):
    fetch([mirror.serve("bad", b"other"), mirror.serve("good", BODY)], target, md5=MD5)
    assert target.read_bytes() == BODY


def test_if_all_mirrors_fail_each_is_reported(mirror, target, refused):
    line = fails([mirror.serve("gone", b"", status=404), refused], target)
    assert "answered 404" in line
    assert "refused the connection: check the network" in line


def test_a_refused_connection(target, refused):
    assert "refused the connection: check the network" in fails([refused], target)


def test_a_host_that_is_not_found(target, monkeypatch):
    def unknown(*_args, **_options):
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    line = fails(["http://nowhere.invalid/file.bin"], target)
    assert "nowhere.invalid was not found: check the network" in line


def test_a_server_that_does_not_answer(mirror, target):
    gate = threading.Event()
    url = mirror.serve("file.bin", BODY, gate=gate)
    line = fails([url], target, timeout=0.05)
    gate.set()
    assert "did not answer in time: check the network" in line


def test_a_full_disk(mirror, target, full_disk):
    with pytest.raises(UserError, match=r"no space left on the disk for .*file\.bin: free some") as caught:
        fetch([mirror.serve("file.bin", BODY), mirror.serve("again", BODY)], target)
    assert "\n" not in str(caught.value)
    assert os.listdir(target.parent) == []
    assert mirror.requests == ["/file.bin"]  # another mirror would not help


def test_a_folder_without_write_permission(mirror, target, monkeypatch):
    def denied(path):
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(files, "create", denied)
    with pytest.raises(UserError, match="deep is not writable: change its permissions, or set ACENODE_DATA"):
        fetch([mirror.serve("file.bin", BODY)], target)


def test_a_folder_that_is_a_file(mirror, tmp_path):
    (tmp_path / "taken").write_text("a note")
    with pytest.raises(UserError, match=r"cannot write .*taken"):
        fetch([mirror.serve("file.bin", BODY)], tmp_path / "taken" / "file.bin")
    assert os.listdir(tmp_path) == ["taken"]


def test_an_interrupt_leaves_no_file(mirror, target):
    def interrupt(done: int, total: int | None, label: str) -> None:
        assert len(os.listdir(target.parent)) == 1  # the partial file exists
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fetch([mirror.serve("file.bin", BODY)], target, progress=interrupt)
    assert os.listdir(target.parent) == []


def test_a_file_with_the_right_checksum_is_kept(mirror, target):
    target.parent.mkdir()
    target.write_bytes(BODY)
    seen = []
    fetch([f"{mirror.url}/gone"], target, md5=MD5.upper(), progress=lambda *call: seen.append(call))
    assert mirror.requests == []
    assert seen == [(len(BODY), len(BODY), "file.bin")]


def test_a_file_with_a_wrong_checksum_is_replaced(mirror, target):
    target.parent.mkdir()
    target.write_bytes(BODY[:100])
    fetch([mirror.serve("file.bin", BODY)], target, md5=MD5)
    assert target.read_bytes() == BODY


def test_without_a_checksum_an_old_file_is_downloaded_again(mirror, target):
    target.parent.mkdir()
    target.write_bytes(b"old")
    fetch([mirror.serve("file.bin", BODY)], Path(target))
    assert target.read_bytes() == BODY
