"""The HTML page in which Streamlit runs in the browser, with our scripts fetched and run before Streamlit's own.

The player and the list of runs are fetched early: otherwise their many small files would wait, level by level, until
Streamlit's charts are drawn. A script does two things:

- It tells Streamlit where the server is. Otherwise Streamlit asks for it below the page's own address first, and every
  page but Home starts with two requests that fail.
- It keeps changes of the chosen runs and of the player's position out of the browser's history, so that Back leaves the
  page at once.
"""

from __future__ import annotations

import functools
from pathlib import Path

import streamlit as st
from starlette.convertors import Convertor, register_url_convertor
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from acenode.results import player_assets

from . import asset_files

EARLY = ("active_runs.js", "poll.js", "sidebar_list.js")  # besides the player's files
SCRIPT = """<script>
window.__streamlit = { BACKEND_BASE_URL: new URL("./", location.href).href };
{
  const place = (url) => {
    const found = new URL(url, location.href);
    for (const own of ["runs", "t", "epoch", "probe"]) found.searchParams.delete(own);
    return found.pathname + found.searchParams;
  };
  const push = history.pushState;
  history.pushState = function (state, title, url) {
    const replaces = url && place(url) === place(location.href);
    return (replaces ? history.replaceState : push).call(history, state, title, url);
  };
}
</script>
"""


@functools.cache
def _html() -> str:
    """Return Streamlit's page with our scripts before its own."""
    early = (*EARLY, *sorted(path.name for path in player_assets.FOLDER.glob("*.js")))
    links = [f'<link rel="modulepreload" href="./lab/assets/{asset_files.version()}/{name}">' for name in early]
    html = (Path(st.__file__).parent / "static" / "index.html").read_text(encoding="utf-8")
    return html.replace("<head>", "\n".join(["<head>", *links, SCRIPT]), 1)


def index(request: Request) -> Response:
    """Return the page."""
    return HTMLResponse(_html(), headers={"Cache-Control": "no-cache"})


class PageName(Convertor[str]):
    """The address of a page: one word without a dot, unlike Streamlit's own files."""

    regex = "[a-z0-9-]+"

    def convert(self, value: str) -> str:
        """Return the name."""
        return value

    def to_string(self, value: str) -> str:
        """Return the name."""
        return value


register_url_convertor("page", PageName())
ROUTES = [Route("/", index), Route("/{name:page}", index)]
