"""Commands on pages work in the terminal of whoever started the app."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from acenode_app import commands
from study_entries import attention_study

from acenode.export.study import to_commands

LINES = "acenode study run mine\nacenode study show mine\n"


@pytest.fixture
def scripts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A terminal in the repository's folder that does not find the program."""
    folder = tmp_path / "my lab" / ".venv" / "bin"
    folder.mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "my lab")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("sysconfig.get_path", lambda name: str(folder))
    return folder


def install(folder: Path) -> None:
    (folder / "acenode").write_text("#!/bin/sh\n")
    (folder / "acenode").chmod(0o755)


def test_a_program_that_the_terminal_finds_has_its_name(scripts: Path, tmp_path: Path) -> None:
    install(scripts)
    install(tmp_path)
    assert commands.here(LINES) == LINES


def test_after_make_app_commands_have_the_path_from_the_folder(scripts: Path) -> None:
    install(scripts)
    assert commands.here(LINES) == LINES.replace("acenode", ".venv/bin/acenode")


def test_from_another_folder_the_path_is_complete(scripts: Path, tmp_path: Path,
                                                  monkeypatch: pytest.MonkeyPatch) -> None:
    install(scripts)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert commands.program() == f"'{scripts}/acenode'"  # quoted, for its space


def test_without_a_script_the_module_is_run(scripts: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/usr/bin/python3")
    assert commands.here("acenode study run mine\n") == "/usr/bin/python3 -m acenode.cli study run mine\n"


def test_only_the_program_is_replaced_and_exports_keep_its_name(scripts: Path) -> None:
    install(scripts)
    study = attention_study(question="Does acenode help?")
    text = to_commands(study)
    assert all(line.startswith("acenode ") for line in text.splitlines())
    assert "Does acenode help?" in commands.here(text)
