"""The page that asks for the token, shown when the lab is opened without it."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from starlette.responses import HTMLResponse, Response

ASK = "Paste the token: the part after <code>token=</code> in the address that <code>acenode app</code> printed."
WRONG = "This token is not valid. The lab has a new one after every start."
HTML = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>ACE-NODE Lab: token</title>
<style>
:root { color-scheme: light dark; font: 1rem/1.5 sans-serif; }
main { max-width: 30rem; margin: 15vh auto; padding: 0 1rem; }
form { display: flex; flex-wrap: wrap; gap: .5rem; align-items: center; }
input { flex: 1; min-width: 10rem; }
input, button { font: inherit; padding: .4rem .6rem; }
</style>
</head>
<body>
<main>
<h1>ACE-NODE Lab</h1>
__TEXT__
<form method="get">
<label for="token">Token</label>
<input id="token" name="token" type="password" autocomplete="off" required autofocus>
__KEPT__<button>Open the lab</button>
</form>
</main>
</body>
</html>
"""


def response(kept: Iterable[tuple[str, str]], wrong: bool) -> Response:
    """Return the page. It sends the `kept` parameters of the address along with the token."""
    text = (f'<p role="alert">{WRONG}</p>\n' if wrong else "") + f"<p>{ASK}</p>"
    fields = "".join(f'<input type="hidden" name="{escape(key)}" value="{escape(value)}">\n' for key, value in kept)
    html = HTML.replace("__TEXT__", text).replace("__KEPT__", fields)
    return HTMLResponse(html, 403, headers={"Cache-Control": "no-store"})
