"""The server: Streamlit with the app's own routes. On shutdown it waits until all runs have written a checkpoint.

The HTML page in which Streamlit runs has our scripts before Streamlit's own. The player and the list of runs are
fetched early, and on the page of a search its charts and trials: otherwise their many small files would wait until
Streamlit's charts are drawn. A script tells Streamlit where the server is, so that it does not ask below the page's own
address first, and keeps the chosen runs and the player's position out of the browser's history: Back leaves the page.
"""

from __future__ import annotations

import errno
import functools
import os
import socket
import threading
import tomllib
import traceback
import webbrowser
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from importlib import import_module
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import anyio
import streamlit as st
import uvicorn.config
from starlette.convertors import StringConvertor, register_url_convertor
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from acenode.errors import UserError
from acenode.player import assets as player_assets
from acenode.runs.store import NAME

from . import components, messages, routes, services
from .access import Access, Guard

FIRST_PORT = 8501
LAST_SECONDS = 15.0  # for requests to end, once all runs have
FIRST_PAGE = 3.0  # seconds that a browser needs to load the first page
EARLY = ("active_runs.js", "poll.js")  # besides the player's files
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


@asynccontextmanager
async def lifespan(access: Access) -> AsyncIterator[None]:
    """Open the browser and load torch in the background after the start; stop the runs before the end."""
    announce(access)
    _later(FIRST_PAGE, warm_up)
    yield
    print("Stopping. Running runs write a checkpoint first.", flush=True)
    await anyio.to_thread.run_sync(services.close)
    _later(LAST_SECONDS, lambda: os._exit(0))  # even if a thread is blocked, such as by a mount that has stalled


def _later(seconds: float, action: Callable[[], object]) -> None:
    timer = threading.Timer(seconds, action)
    timer.daemon = True
    timer.start()


def warm_up() -> None:
    """Import torch and the page of an experiment, and create the launcher."""
    import_module(".experiment.page", __package__)
    services.services().launcher  # noqa: B018 - the access creates it


def announce(access: Access) -> None:
    """Print the address of the lab and, unless the server is headless, open it in the browser."""
    everywhere = ip_address(access.address).is_unspecified

    def address(token: str | None) -> str:
        protocol = "https" if st.get_option("server.sslCertFile") else "http"
        host = "127.0.0.1" if everywhere else f"[{access.address}]" if ":" in access.address else access.address
        return f"{protocol}://{host}:{st.get_option('server.port')}/" + (f"?token={token}" if token else "")

    print(f"ACE-NODE Lab: {address(access.token)}", flush=True)
    if everywhere:
        print("From another machine, replace 127.0.0.1 by this machine's IP address; a name needs --allow-host NAME.\n"
              "The connection is not encrypted: prefer an ssh tunnel.", flush=True)
    print("Press Ctrl-C to stop; running runs write a checkpoint first.", flush=True)
    if not st.get_option("server.headless"):
        url = address(access.new_opening_token() if access.token else None)
        threading.Thread(target=webbrowser.open, args=(url,), name="acenode-browser", daemon=True).start()


def on_script_error(error: Exception) -> bool:
    """Show an error of a page in one line; the traceback goes to the terminal."""
    if isinstance(error, UserError):
        messages.error(error)
    else:
        traceback.print_exception(error)
        st.error(f"This page failed ({type(error).__name__}). Runs are not affected. Reload the page. If it fails "
                 "again, the reason is in the terminal of the app.", icon=":material/error:")
    return True


def _modules(names: Iterable[str]) -> list[str]:
    return [f'<link rel="modulepreload" href="./lab/assets/{components.assets_version()}/{name}">' for name in names]


@functools.cache
def _html() -> tuple[str, str]:
    """Return Streamlit's page up to its head, and from there on with our scripts before its own."""
    early = (*EARLY, *sorted(path.name for path in player_assets.FOLDER.glob("*.js")))
    html = (Path(st.__file__).parent / "static" / "index.html").read_text(encoding="utf-8")
    before, head, after = html.partition("<head>")
    return before + head, "\n".join([*_modules(early), SCRIPT]) + after


def index(request: Request) -> Response:
    before, after = _html()
    links, search = [], request.query_params.get("search", "")
    if request.path_params.get("name") == "searches" and NAME.fullmatch(search):
        trials = f"./lab/search/{search}?since="  # the charts ask for the same address
        links = [f'<link rel="preload" as="fetch" crossorigin="anonymous" href="{trials}">',
                 *_modules(EARLY_OF_SEARCH)]
    return HTMLResponse("\n".join([before, *links, after]), headers={"Cache-Control": "no-cache"})


class PageName(StringConvertor):
    """The address of a page: one word without a dot, unlike Streamlit's own files."""

    regex = "[a-z0-9-]+"


register_url_convertor("page", PageName())
ROUTES = [*routes.ROUTES, Route("/", index), Route("/{name:page}", index)]


def settings() -> dict[str, Any]:
    """Read config.toml into dotted names, so that it applies whatever folder the app is started from."""
    def flat(prefix: str, table: dict[str, Any]) -> Iterator[tuple[str, Any]]:
        for key, value in table.items():
            yield from flat(f"{prefix}{key}.", value) if isinstance(value, dict) else [(prefix + key, value)]

    return dict(flat("", tomllib.loads((Path(__file__).parent / "config.toml").read_text(encoding="utf-8"))))


def free_port(wanted: int | None, address: str = "127.0.0.1") -> int:
    """Return the wanted port, if it is free, or the first free one from 8501 on."""
    for port in [wanted] if wanted is not None else range(FIRST_PORT, FIRST_PORT + 50):
        with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((address, port))
            except OSError as error:
                if error.errno == errno.EADDRNOTAVAIL:
                    raise UserError(f"this machine does not have the address {address}: choose another with "
                                    "--address") from None
                continue
            return port
    ports = f"port {wanted} is" if wanted is not None else f"ports {FIRST_PORT} to {FIRST_PORT + 49} are"
    raise UserError(f"{ports} in use: choose another with --port N")


def serve(port: int | None, runs: str | None, headless: bool, access: Access, on: str | None = None) -> None:
    if runs is not None:
        os.environ["ACENODE_RUNS"] = str(Path(runs).resolve())
    if on is not None:
        os.environ[services.ON_VARIABLE] = on
    uvicorn.config.LOGGING_CONFIG["loggers"]["uvicorn.error"]["level"] = "WARNING"  # INFO has a line without the token
    more = {"server.address": access.address, "server.port": free_port(port, access.address)}
    app = st.App(Path(__file__).parent / "main.py", routes=ROUTES, middleware=[Middleware(Guard, access=access)],
                 lifespan=lambda _: lifespan(access), on_script_error=on_script_error)
    app.run(config=settings() | more | ({"server.headless": True} if headless else {}))
