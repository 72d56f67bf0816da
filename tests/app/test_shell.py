"""What all pages share: commands in the user's terminal, and the page around them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from acenode_app import messages, server
from starlette.requests import Request

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


def test_commands_call_the_program_as_the_terminal_finds_it(scripts: Path, tmp_path: Path,
                                                            monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/usr/bin/python3")
    assert messages.commands(LINES) == LINES.replace("acenode", "/usr/bin/python3 -m acenode.cli")
    for folder, program in ((scripts, ".venv/bin/acenode"), (tmp_path, "acenode")):  # after make app; on the path
        (folder / "acenode").write_text("#!/bin/sh\n")
        (folder / "acenode").chmod(0o755)
        assert messages.commands(LINES) == LINES.replace("acenode", program)


def test_the_page_of_a_search_does_not_load_torch() -> None:
    code = "import sys, acenode_app.questions.searches; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def html_of(name: str, query: str = "") -> str:
    """Return the HTML of the page with this address."""
    scope = {"type": "http", "path_params": {"name": name}, "headers": [], "query_string": query.encode()}
    return bytes(server.index(Request(scope)).body).decode()


def test_the_charts_and_trials_of_a_search_are_fetched_before_streamlit_starts() -> None:
    html = html_of("searches", "search=many")
    head = html[:html.index("<script")]
    assert "/search_charts.js" in head
    assert 'href="./lab/search/many?since="' in head
    for name, query in (("searches", ""), ("searches", "search=%22%3E%3Cb%3E"), ("studies", "search=many")):
        other = html_of(name, query)
        assert "lab/search/" not in other
        assert "search_charts.js" not in other
        assert "<b>" not in other
