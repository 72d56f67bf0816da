"""Compile C at run time: the cache of libraries, and what happens without a working compiler."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

import pytest

from acenode.accelerate import c_compiler
from acenode.accelerate.gru_ode_bayes import compiled
from acenode.backend import ACCELERATED

compiler = pytest.mark.skipif(not compiled.KERNEL.allowed(ACCELERATED), reason="no working C compiler")


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a small C source; libraries are cached under tmp_path."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    source = tmp_path / "tiny.c"
    source.write_text("int answer(void) { return 42; }")
    return source


def fake_compiler(folder: Path, body: str) -> None:
    """Write a shell script named cc."""
    folder.mkdir()
    (folder / "cc").write_text(f"#!/bin/sh\n{body}\n")
    (folder / "cc").chmod(0o755)


def cached(tmp_path: Path) -> list[Path]:
    return sorted((tmp_path / "cache" / "acenode" / "kernels").iterdir())


def answers(library: ctypes.CDLL | None) -> bool:
    return library is not None and library.answer() == 42


@pytest.mark.parametrize("body", [None, "exit 1", "kill -9 $$",
                                  'while [ "$1" != -o ]; do shift; done; echo rubbish > "$2"'])
def test_without_a_working_compiler_there_is_no_library(tiny: Path, tmp_path: Path, body: str | None,
                                                        monkeypatch: pytest.MonkeyPatch) -> None:
    fake_compiler(tmp_path / "bin", body) if body is not None else (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert c_compiler.library(tiny) is None


@compiler
def test_a_library_is_compiled_once_and_again_if_damaged(tiny: Path, tmp_path: Path,
                                                         monkeypatch: pytest.MonkeyPatch) -> None:
    assert answers(c_compiler.library(tiny))
    (path,) = cached(tmp_path)
    content, stamp = path.read_bytes(), path.stat().st_mtime_ns
    assert answers(c_compiler.library(tiny))
    assert path.stat().st_mtime_ns == stamp
    part = tmp_path / "part"
    part.write_bytes(content[: len(content) // 2])
    os.replace(part, path)
    assert answers(c_compiler.library(tiny))
    assert answers(c_compiler._load(path.parent, path.name.split("-")[0]))


@compiler
def test_without_a_writable_cache_it_is_compiled_for_this_process(tiny: Path, tmp_path: Path,
                                                                  monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cache").write_text("a file where a folder would be")
    assert answers(c_compiler.library(tiny))


@compiler
def test_a_change_of_a_shared_header_compiles_again(tiny: Path, tmp_path: Path,
                                                    monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(c_compiler, "HEADERS", tmp_path / "headers")
    (tmp_path / "headers").mkdir()
    tiny.write_text('#include "number.h"\nint answer(void) { return NUMBER; }')
    for number in (41, 42):
        (tmp_path / "headers" / "number.h").write_text(f"#define NUMBER {number}")
        library = c_compiler.library(tiny)
        assert library is not None
        assert library.answer() == number
