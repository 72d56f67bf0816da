"""Notes and tags of a run: read as written, checked, and empty if the file is damaged."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from acenode import UserError
from acenode.runs.notes import Notes, read_notes, write_notes
from acenode.runs.store import Run


def test_written_notes_are_read_back(tmp_path: Path) -> None:
    run = Run(tmp_path)
    assert read_notes(run) == Notes("", ())
    kept = write_notes(run, "Line one\nλ = 0.1\tgood 🙂", [" baseline ", "λ", "baseline", ""])
    assert kept == read_notes(run) == Notes("Line one\nλ = 0.1\tgood 🙂", ("baseline", "λ"))
    assert json.loads((tmp_path / "notes.json").read_text()) == {"notes": kept.notes, "tags": ["baseline", "λ"]}
    assert [p.name for p in tmp_path.iterdir()] == ["notes.json"]
    assert write_notes(run, "a\r\nb", []).notes == "a\nb"  # as some browsers send it


def test_the_limits_themselves_are_allowed(tmp_path: Path) -> None:
    tags = [f"{i:02d}" + "x" * 38 for i in range(20)]
    assert write_notes(Run(tmp_path), "x" * 10_000, tags).tags == tuple(tags)


@pytest.mark.parametrize(("notes", "tags", "words"), [
    ("x" * 10_001, [], "notes have 10,001 characters: at most 10,000 are allowed"),
    ("", [str(i) for i in range(21)], "21 tags: at most 20 are allowed"),
    ("", ["x" * 41], "has 41 characters: at most 40 are allowed"),
    ("a\x00b", [], "control character"),
    ("\x1b[31mred", [], "control character"),
    ("", ["two\nlines"], "control character"),
    ("\ud800", [], "control character"),
    (5, [], "must be text"),
    ("", [5], "must be text"),
    ("", "word", "list of words"),
])
def test_invalid_notes_leave_the_file_unchanged(notes: str, tags: list[str], words: str, tmp_path: Path) -> None:
    run = Run(tmp_path)
    write_notes(run, "before", ["kept"])
    with pytest.raises(UserError, match=words) as caught:
        write_notes(run, notes, tags)
    assert "\n" not in str(caught.value)
    assert str(caught.value).isprintable()
    assert read_notes(run) == Notes("before", ("kept",))


@pytest.mark.parametrize("content", [
    b"", b"{", b"\xff", b"[]", b'{"notes": 1}', b'{"notes": "x", "tags": "abc"}', b'{"notes": "x", "tags": [1]}',
    b'{"notes": "\\u0000"}', b"[" * 100_000,
])
def test_a_damaged_file_reads_as_empty(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "notes.json").write_bytes(content)
    assert read_notes(Run(tmp_path)) == Notes("", ())


def test_notes_do_not_recreate_a_deleted_run(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no longer exists"):
        write_notes(Run(tmp_path / "gone"), "x", [])
    assert not (tmp_path / "gone").exists()


def test_a_failed_write_is_a_user_error(tmp_path: Path) -> None:
    (tmp_path / "notes.json").mkdir()  # cannot be replaced by a file
    with pytest.raises(UserError, match="notes of .* cannot be written"):
        write_notes(Run(tmp_path), "x", [])
