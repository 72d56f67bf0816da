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
    modules: dict[str, str] = {}  # the ones that a module imports come before it
    _collect("player.js", modules)
    parts = "\n".join(f'modules["{file}"] = {code};' for file, code in modules.items())
    return f'const {name} = (() => {{\nconst modules = {{}};\n{parts}\n{ALL};\n}})();'


def _source(file: str) -> str:
    return (FOLDER / file).read_text(encoding="utf-8")


def _collect(file: str, modules: dict[str, str]) -> None:
    """Turn a module, and before it those that it imports, into calls of functions that return their exports."""
    code = _source(file)
    for _, other in _IMPORT.findall(code):
        if other not in modules:
            _collect(other, modules)
    names = ", ".join(_EXPORT.findall(code))
    code = _EXPORT.sub("", _IMPORT.sub(r'const \1 = modules["\2"];', code))
    modules[file] = f"(() => {{\n{code}\nreturn {{ {names} }};\n}})()"
