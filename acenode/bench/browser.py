"""Start the app's server and a headless browser, for benchmarks and browser tests."""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from acenode.errors import UserError

CURVES = "[...document.querySelectorAll('div')].find(e => e.__curves)"
PLAYGROUND = "[...document.querySelectorAll('div')].find(e => e.__playground)"
PLAYER = "[...document.querySelectorAll('div')].find(e => e.__player)"
CHROMIUMS = ("chromium", "chromium-browser", "google-chrome")


@dataclass(frozen=True)
class Served:
    """A running server."""

    url: str
    port: int
    process: subprocess.Popen


@contextmanager
def server(root: Path, port: int | None = None, options: Sequence[str] = (), **environment: str) -> Iterator[Served]:
    """Run the app on a folder of runs, on a free port unless one is given; terminate it at the end."""
    port = port or free_port()
    command = [sys.executable, "-m", "acenode.cli", "app", "--headless", "--no-token", "--port", str(port),
               *options, "--runs", str(root)]
    log = open(Path(root).parent / f"server-{port}.log", "ab")  # noqa: SIM115 - the process writes to it
    process = subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, **environment})
    served = Served(f"http://127.0.0.1:{port}", port, process)
    try:
        for _ in range(1200):
            if process.poll() is not None:
                raise UserError("the app's server did not start: try `acenode app`")
            with suppress(OSError):
                urllib.request.urlopen(f"{served.url}/_stcore/health", timeout=2).read()
                break
            time.sleep(0.05)
        else:
            raise UserError("the app's server does not answer")
        yield served
    finally:
        process.terminate()
        try:
            process.wait(90)
        except subprocess.TimeoutExpired:
            process.kill()
        log.close()


def wait_for_player(page: Any) -> None:
    """Scroll to the trajectory player, which reads its data only while it is visible, and wait until it is drawn."""
    page.wait_for_function(f"() => {PLAYER} !== undefined", timeout=60_000)
    page.evaluate(f"() => {PLAYER}.scrollIntoView({{block: 'nearest'}})")
    page.wait_for_function(f"() => {PLAYER}?.__player.drawn()", timeout=60_000)


def free_port() -> int:
    """Return a port at which nobody listens, below those that outgoing connections get, so that it stays free."""
    while True:
        port = 20_000 + secrets.randbelow(12_000)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


@contextmanager
def browser() -> Iterator[Any]:
    """Start a headless Chromium; a thread can have one of these at a time (`launch` starts others beside it).

    Raises:
        UserError: playwright or Chromium is not installed.
    """
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        raise UserError("playwright is not installed: run `make setup`") from None
    with sync_playwright() as p:
        chrome = launch(p.chromium)
        yield chrome
        chrome.close()


def launch(kind: Any, *arguments: str) -> Any:
    """Start a headless Chromium with further command-line arguments; `kind` is Playwright's type of browser.

    Raises:
        UserError: Chromium is not installed.
    """
    path = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, CHROMIUMS)), None)
    if path is None:
        raise UserError("Chromium is not installed: install chromium, or set CHROMIUM to its path")
    return kind.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu", *arguments])
