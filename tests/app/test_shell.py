"""What all pages share: commands in the user's terminal, contrast, and the page around them."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from acenode_app import components, messages, server
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


APP = Path(__file__).parents[2] / "app"
THEME = tomllib.loads((APP / "config.toml").read_text(encoding="utf-8"))["theme"]
BUTTON = re.search(r"stBaseButton-primary.*color: light-dark\((#\w{6}), (#\w{6})\)",
                   (APP / "assets" / "page.css").read_text(encoding="utf-8"))


def luminance(colour: str) -> float:
    parts = [int(colour[i:i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return sum(w * c for w, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_links_and_primary_buttons_can_be_read(scheme: str) -> None:
    own = THEME[scheme]
    for background in (own["backgroundColor"], own["secondaryBackgroundColor"]):
        assert contrast(own["textColor"], background) >= 7
        assert contrast(own["primaryColor"], background) >= 4.5  # links and the open tab
    assert BUTTON
    assert contrast(BUTTON[1 if scheme == "light" else 2], own["primaryColor"]) >= 4.5


def test_the_page_of_a_search_does_not_load_torch() -> None:
    code = "import sys, acenode_app.questions.searches; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def html_of(name: str, query: str = "") -> str:
    """Return the HTML of the page with this address."""
    scope = {"type": "http", "path_params": {"name": name}, "headers": [], "query_string": query.encode()}
    return bytes(server.index(Request(scope)).body).decode()


def imported(name: str) -> set[str]:
    """Return a module of the browser's with all that it imports."""
    path = components.find_asset(name)
    assert path is not None
    found = re.findall(r'^import .* from "\./(.+)";', path.read_text(encoding="utf-8"), re.MULTILINE)
    return {name}.union(*map(imported, found))


def test_the_charts_and_trials_of_a_search_are_fetched_before_streamlit_starts() -> None:
    html = html_of("searches", "search=many")
    head = html[:html.index("<script")]
    assert imported("search_charts.js") <= set(re.findall(r'"modulepreload" href="\./lab/assets/\w+/(.+?)"', html))
    assert 'href="./lab/search/many?since="' in head
    for name, query in (("searches", ""), ("searches", "search=%22%3E%3Cb%3E"), ("studies", "search=many")):
        other = html_of(name, query)
        assert "lab/search/" not in other
        assert "search_charts.js" not in other
        assert "<b>" not in other
