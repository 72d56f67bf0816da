"""The server: Streamlit with the lab's own routes, and a stop that lets what trains write its checkpoint."""

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

from . import lab, say
from .routes import ROUTES

FIRST_PORT = 8501
FIRST_PAGE = 3.0  # seconds


@asynccontextmanager
async def lifespan(_: Any) -> AsyncIterator[None]:
    threading.Thread(target=warm, name="acenode-warm", daemon=True).start()
    yield
    print("stopping: what trains writes its checkpoint first", flush=True)
    await anyio.to_thread.run_sync(lab.close)


def warm() -> None:
    """Import torch and start the launcher, once the browser has had time to fetch the first page."""
    time.sleep(FIRST_PAGE)
    lab.lab().launcher  # noqa: B018 - made by asking for it


def on_script_error(trouble: Exception) -> bool:
    """One line in the page; the rest is for the terminal."""
    if isinstance(trouble, UserError):
        say.trouble(trouble)
    else:
        traceback.print_exception(trouble)
        st.error(f"This page stumbled ({type(trouble).__name__}). Runs are not affected; reload the page to go on.",
                 icon=":material/error:")
    return True


app = st.App(Path(__file__).parent / "main.py", routes=ROUTES, lifespan=lifespan, on_script_error=on_script_error)


def settings() -> dict[str, Any]:
    """Read config.toml into dotted names, so that it applies whatever folder the app is started from."""
    with open(Path(__file__).parent / "config.toml", "rb") as file:
        return dict(_flat("", tomllib.load(file)))


def _flat(prefix: str, table: dict[str, Any]) -> list[tuple[str, Any]]:
    return [pair for key, value in table.items()
            for pair in (_flat(f"{prefix}{key}.", value) if isinstance(value, dict) else [(prefix + key, value)])]


def free_port(wanted: int | None) -> int:
    """The port asked for, which must be free, or the first free one from 8501 on."""
    for port in [wanted] if wanted is not None else range(FIRST_PORT, FIRST_PORT + 50):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    taken = f"port {wanted} is" if wanted is not None else f"ports {FIRST_PORT} to {FIRST_PORT + 49} are"
    raise UserError(f"{taken} taken: choose another with --port N")


def serve(port: int | None, runs: str | None, headless: bool) -> None:
    """Serve until told to stop."""
    if runs is not None:
        os.environ["ACENODE_RUNS"] = str(Path(runs).resolve())
    print("ACE-NODE Lab. Ctrl-C stops it, once every run has written its checkpoint.", flush=True)
    more = {"server.port": free_port(port)} | ({"server.headless": True} if headless else {})
    app.run(config=settings() | more)
