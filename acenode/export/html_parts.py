"""Parts of an HTML page. All text passes through `escape` or `embedded`, so that none is taken for markup."""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections.abc import Iterable
from html import escape
from importlib.resources import files
from typing import Any


def asset(name: str) -> str:
    """Return the text of a file of export/assets."""
    return (files("acenode.export") / "assets" / name).read_text(encoding="utf-8")


def embedded(value: Any) -> str:
    """Write JSON for a <script type="application/json">: ASCII, without characters that are special in HTML."""
    text = json.dumps(_finite(value), ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _finite(value: Any) -> Any:
    """Replace numbers that are not finite by None."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {k: _finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(v) for v in value]
    return value


def script(code: str) -> str:
    """Escape code so that it cannot end its <script>; in strings and patterns the backslash has no effect."""
    return code.replace("</script", "<\\/script").replace("<!--", "<\\!--")


def digest(code: str) -> str:
    """Return the hash by which a content security policy allows a script."""
    return "'sha256-" + base64.b64encode(hashlib.sha256(code.encode()).digest()).decode() + "'"


def figure(name: str, title: str, empty: str | None, *, note: str = "", kind: str = "") -> str:
    """Return a titled place for the chart `name`, or the reason why it is empty."""
    body = f'<p class="empty">{escape(empty)}</p>' if empty else f'<div class="plot" id="{escape(name)}"></div>'
    note = f'<p class="note">{escape(note)}</p>' if note else ""
    return f'<figure class="{escape(kind)}" data-figure="{escape(name)}"><h3>{escape(title)}</h3>{body}{note}</figure>'


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    top = "".join(f'<th scope="col">{escape(text)}</th>' for text in head)
    body = "".join("<tr>" + "".join(f"<td>{escape(text)}</td>" for text in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"
