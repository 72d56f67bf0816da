"""What all pages share: commands in the user's terminal, escaped text, words, contrast, and the page around them."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from acenode_app import components, labels, messages, server
from starlette.requests import Request
from study_entries import attention_study

from acenode.config import SETTINGS
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
    assert messages.commands(LINES) == LINES


def test_after_make_app_commands_have_the_path_from_the_folder(scripts: Path) -> None:
    install(scripts)
    assert messages.commands(LINES) == LINES.replace("acenode", ".venv/bin/acenode")


def test_from_another_folder_the_path_is_complete(scripts: Path, tmp_path: Path,
                                                  monkeypatch: pytest.MonkeyPatch) -> None:
    install(scripts)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert messages.program() == f"'{scripts}/acenode'"  # quoted, for its space


def test_without_a_script_the_module_is_run(scripts: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/usr/bin/python3")
    assert messages.commands("acenode study run mine\n") == "/usr/bin/python3 -m acenode.cli study run mine\n"


def test_only_the_program_is_replaced_and_exports_keep_its_name(scripts: Path) -> None:
    install(scripts)
    study = attention_study(question="Does acenode help?")
    text = to_commands(study)
    assert all(line.startswith("acenode ") for line in text.splitlines())
    assert "Does acenode help?" in messages.commands(text)


def test_markup_is_escaped() -> None:
    assert messages.escape("<b> *x* [a](b) $1$ :red[x]") == "\\<b\\> \\*x\\* \\[a\\]\\(b\\) \\$1\\$ \\:red\\[x\\]"


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


ROOT = Path(__file__).parents[2]
PYTHON = sorted((ROOT / "app").rglob("*.py"))
SCRIPTS = sorted([*(ROOT / "app" / "assets").glob("*.js"), *(ROOT / "acenode" / "player" / "js").glob("*.js")])
# Each symbol with the plain names of which one comes before it.
PLAIN = {
    "h": ("state",), "z": ("latent", "start"), "a": ("attention",), "f": ("derivative", "rate of change"),
    "g": ("derivative", "rate of change", "how attention changes"), "q": ("start", "computed"),
    "θ_f": ("parameters",), "θ_g": ("parameters",), "λ": ("weight", "penalty"), "σ": ("standard deviation", "sigmoid"),
    "L_h": ("loss",), "L_a": ("loss",), "∇": ("gradient",), "NFE": ("evaluations",), "Δt": ("step size",),
}
SYMBOL = re.compile(r"(?<![\w/‖'])(θ_[fg]|L_[ha]|NFE|Δt|λ|σ|∇|[hfgq](?=[′'(,.;:)\s]|$)|"
                    r"z(?=[0-9(,.;:)\s]|$)|a(?=\((?:t|0)\))|(?<=\()a(?=\)))")
WIDGETS = {"button", "download_button", "segmented_control", "pills", "selectbox", "multiselect", "toggle", "checkbox",
           "text_input", "text_area", "number_input", "slider", "radio", "expander", "metric", "page_link", "tabs",
           "subheader", "header", "title"}


def early_symbols(text: str) -> list[str]:
    """Return the symbols in a text that come before any of their plain names."""
    found = []
    for match in SYMBOL.finditer(text):
        before = text[:match.start()].lower()
        if not any(name in before for name in PLAIN[match.group(1)]):
            found.append(match.group(1))
    return found


@pytest.mark.parametrize("name", SETTINGS)
def test_titles_and_tooltips_of_settings_name_things_before_symbols(name: str) -> None:
    title = labels.setting(name)
    assert title[0].isupper(), title
    assert len(title.split()[0]) > 1, title
    assert not early_symbols(title), title
    assert not early_symbols(f"{title}. {SETTINGS[name].help}"), SETTINGS[name].help


def texts(node: ast.expr) -> str:
    """Return the constant parts of a string or f-string, with ? where a value is inserted."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if isinstance(node, ast.JoinedStr):
        return "".join(texts(part) or "?" for part in node.values)
    if isinstance(node, ast.IfExp):
        return f"{texts(node.body)} {texts(node.orelse)}"
    return texts(node.left) + texts(node.right) if isinstance(node, ast.BinOp) else ""


def python_labels(path: Path) -> Iterator[str]:
    """Yield the label and the tooltip of every widget in a file."""
    for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
            continue
        if call.func.attr in WIDGETS and call.args:
            yield texts(call.args[0])
        yield from (texts(keyword.value) for keyword in call.keywords if keyword.arg in ("help", "label"))


@pytest.mark.parametrize("path", PYTHON, ids=lambda path: path.stem)
def test_labels_and_tooltips_name_things_before_symbols(path: Path) -> None:
    for text in python_labels(path):
        assert not early_symbols(text), text


def test_hints_of_charts_name_things_before_symbols() -> None:
    found = [text for path in SCRIPTS for text in re.findall(
        r"""(?:hint|title|"aria-label"|label)\b[^"`\n]{0,30}?["`]([^"`\n]*)["`]""", path.read_text(encoding="utf-8"))]
    assert len(found) > 30
    for text in found:
        assert not early_symbols(text), text


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
