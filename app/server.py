"""The server: Streamlit with the app's own routes. On shutdown it waits until all runs have written a checkpoint."""

from __future__ import annotations

import os
import socket
import threading
import time
import tomllib
import traceback
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import streamlit as st

from acenode.errors import UserError

from . import index_page, messages, services
from .routes import ROUTES

FIRST_PORT = 8501
FIRST_PAGE = 3.0  # seconds that a browser needs to load the first page


@asynccontextmanager
async def lifespan(_: Any) -> AsyncIterator[None]:
    """Load torch in the background after the start; stop the runs before the end."""
    threading.Thread(target=warm_up, name="acenode-warm", daemon=True).start()
    yield
    print("Stopping. Running runs write a checkpoint first.", flush=True)
    await anyio.to_thread.run_sync(services.close)


def warm_up() -> None:
    """Import torch and create the launcher, after the browser has had time to load the first page."""
    time.sleep(FIRST_PAGE)
    services.services().launcher  # noqa: B018 - the access creates it


def on_script_error(error: Exception) -> bool:
    """Show an error of a page in one line; the traceback goes to the terminal."""
    if isinstance(error, UserError):
        messages.error(error)
    else:
        traceback.print_exception(error)
        st.error(f"This page failed ({type(error).__name__}). Runs are not affected. Reload the page to continue.",
                 icon=":material/error:")
    return True


app = st.App(Path(__file__).parent / "main.py", routes=[*ROUTES, *index_page.ROUTES], lifespan=lifespan,
             on_script_error=on_script_error)


def settings() -> dict[str, Any]:
    """Read config.toml into dotted names, so that it applies whatever folder the app is started from."""
    with open(Path(__file__).parent / "config.toml", "rb") as file:
        return dict(_flat("", tomllib.load(file)))


def _flat(prefix: str, table: dict[str, Any]) -> list[tuple[str, Any]]:
    return [pair for key, value in table.items()
            for pair in (_flat(f"{prefix}{key}.", value) if isinstance(value, dict) else [(prefix + key, value)])]


def free_port(wanted: int | None) -> int:
    """Return the wanted port, or the first free one from 8501 on; raise a UserError if it is in use."""
    for port in [wanted] if wanted is not None else range(FIRST_PORT, FIRST_PORT + 50):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    ports = f"port {wanted} is" if wanted is not None else f"ports {FIRST_PORT} to {FIRST_PORT + 49} are"
    raise UserError(f"{ports} in use: choose another with --port N")


def serve(port: int | None, runs: str | None, headless: bool) -> None:
    """Serve the app until the process is interrupted."""
    if runs is not None:
        os.environ["ACENODE_RUNS"] = str(Path(runs).resolve())
    print("ACE-NODE Lab. Press Ctrl-C to stop; running runs write a checkpoint first.", flush=True)
    more = {"server.port": free_port(port)} | ({"server.headless": True} if headless else {})
    app.run(config=settings() | more)
