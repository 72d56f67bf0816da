"""The words of the app: plain names before symbols, and none of the phrases that the style guide replaces."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from acenode_app import labels

from acenode.config import SETTINGS

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
REPLACED = [  # by the style guide
    "Nothing trains", "waits, number", "do not compare with the paper", "None that changes a number",
    "the share of the negatives", "taken at their word", "above nothing", "less an even one", "nobody said",
    "which makes a(0)", "One line a group", "Once more", "is given back", "who is told", "what is said",
    "goes back with the next", "Whoever",
]


def early_symbols(text: str) -> list[str]:
    """Return the symbols in a text that come before any of their plain names."""
    found = []
    for match in SYMBOL.finditer(text):
        before = text[:match.start()].lower()
        if not any(name in before for name in PLAIN[match.group(1)]):
            found.append(match.group(1))
    return found


@pytest.mark.parametrize(("text", "expected"), [
    ("q, which makes a(0) from h(0)", ["q", "a", "h"]), ("How attention starts (q)", []), ("NFE", ["NFE"]),
    ("Function evaluations (NFE)", []), ("λ", ["λ"]), ("z", ["z"]), ("Size of the latent state (z)", []),
    ("State h(t) and attention a(t)", []), ("a step of the solver", []), ("g(h', t)", ["g", "h"])])
def test_early_symbols_are_found(text: str, expected: list[str]) -> None:
    assert early_symbols(text) == expected


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


@pytest.mark.parametrize("phrase", REPLACED)
def test_replaced_phrases_are_gone(phrase: str) -> None:
    for path in [*PYTHON, *SCRIPTS, *(ROOT / "pages").glob("*.py"), *(ROOT / "acenode" / "config").glob("*.py"),
                 *(ROOT / "acenode" / "compare").glob("*.py")]:
        assert phrase.lower() not in path.read_text(encoding="utf-8").lower(), path.name


@pytest.mark.parametrize(("words", "place"), [
    ('"Idle"', "app/assets/active_runs.js"), ("in queue", "app/assets/active_runs.js"),
    ("in queue", "app/experiment/live_runs.py"),
    ("Not comparable with the paper", "app/experiment/page.py"), ("Average over seeds", "app/compare/page.py"),
    ("Run again", "app/runs/page.py"), ("Only the", "app/compare/page.py"),
    ("False positive rate", "app/results/line_charts.py"),
    ("well calibrated", "app/results/line_charts.py")])
def test_the_style_guides_words_are_used(words: str, place: str) -> None:
    assert words in (ROOT / place).read_text(encoding="utf-8")


def test_tables_show_nothing_where_a_value_is_missing() -> None:
    """Streamlit writes None into empty cells unless it is given a placeholder."""
    for path in PYTHON:
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "dataframe":
                assert "placeholder" in {keyword.arg for keyword in call.keywords}, f"{path.name}:{call.lineno}"
