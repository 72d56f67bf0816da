"""The HTML page in which Streamlit runs in the browser, with our scripts fetched and run before Streamlit's own.

The player and the list of runs are fetched early: otherwise their many small files would wait, level by level, until
Streamlit's charts are drawn. On the page of a search, so are its charts and its trials, which the server prepares while
Streamlit starts. A script does two things:

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

from acenode.player import assets as player_assets
from acenode.runs.store import NAME

from . import asset_files
from .questions import search_links

EARLY = ("active_runs.js", "poll.js", "sidebar_list.js")  # besides the player's files
PAGE = "searches"  # address of the page on which a search is shown
EARLY_OF_SEARCH = ("search_charts.js", "figures.js")
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


def _module(name: str) -> str:
    return f'<link rel="modulepreload" href="./lab/assets/{asset_files.version()}/{name}">'


def _links_of_search(name: str) -> list[str]:
    """Return links that fetch the charts and the trials of a search; the charts ask for the same address."""
    trials = f'<link rel="preload" as="fetch" crossorigin="anonymous" href="./lab/search/{name}?since=">'
    return [trials, *map(_module, EARLY_OF_SEARCH)]


@functools.cache
def _html() -> tuple[str, str]:
    """Return Streamlit's page up to its head, and from there on with our scripts before its own."""
    early = (*EARLY, *sorted(path.name for path in player_assets.FOLDER.glob("*.js")))
    html = (Path(st.__file__).parent / "static" / "index.html").read_text(encoding="utf-8")
    before, head, after = html.partition("<head>")
    return before + head, "\n".join([*map(_module, early), SCRIPT]) + after


def index(request: Request) -> Response:
    """Return the page."""
    before, after = _html()
    search = request.query_params.get(search_links.SEARCH, "")
    links = _links_of_search(search) if request.path_params.get("name") == PAGE and NAME.fullmatch(search) else []
    return HTMLResponse("\n".join([before, *links, after]), headers={"Cache-Control": "no-cache"})


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
