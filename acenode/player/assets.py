"""The trajectory player's JavaScript and style sheet, which the app serves as modules and a report embeds.

Browsers do not load ES modules from a page that was opened from disk, so a report has them as one script.
"""

from __future__ import annotations

import re
from pathlib import Path

FOLDER = Path(__file__).parent / "js"
PALETTE = "palette.css"
ALL = 'return { ...modules["theme.js"], ...modules["player.js"] }'

_IMPORT = re.compile(r'^import (\{[^}]*\}) from "\./([\w.]+)";$', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?(?:const|function|class) (\w+))", re.MULTILINE)


def style_sheet() -> str:
    """Return the player's style sheet with the colours that it shares with other components."""
    return _source(PALETTE) + _source("player.css")


def script(name: str = "AcePlayer") -> str:
    """Return one classic script that defines `name` with what player.js and theme.js export."""
    order: list[str] = []
    _visit("player.js", order)
    parts = "\n".join(f'modules["{file}"] = {_as_function(file)};' for file in order)
    return f'const {name} = (() => {{\nconst modules = {{}};\n{parts}\n{ALL};\n}})();'


def _source(file: str) -> str:
    return (FOLDER / file).read_text(encoding="utf-8")


def _visit(file: str, order: list[str]) -> None:
    for _, other in _IMPORT.findall(_source(file)):
        if other not in order:
            _visit(other, order)
    order.append(file)


def _as_function(file: str) -> str:
    """Turn a module into a call of a function that returns the module's exports."""
    code = _source(file)
    names = ", ".join(_EXPORT.findall(code))
    code = _EXPORT.sub("", _IMPORT.sub(r'const \1 = modules["\2"];', code))
    return f"(() => {{\n{code}\nreturn {{ {names} }};\n}})()"
