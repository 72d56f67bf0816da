"""Call a command, a route or a page and raise a FaultError if it does not answer as it promises."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from acenode_app import estimates
from acenode_app import routes as app_routes
from acenode_app import services as app_services
from acenode_app.server import ROUTES
from acenode_app.services import Services
from starlette.applications import Starlette
from streamlit.testing.v1 import AppTest
from streamlit.util import calc_hash

from acenode.cli import main
from acenode.config import Config
from acenode.execution.estimate import Estimate

MAIN = Path(__file__).parents[2] / "app" / "main.py"
EXIT_CODES = (0, 1, 2)
_APP = Starlette(routes=ROUTES)


class FaultError(Exception):
    """Something that must not happen."""


def call(*arguments: str) -> str:
    """Run a command and return what it printed; a failure must be explained in one line."""
    out, errors = io.StringIO(), io.StringIO()
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
            code = main(arguments)
    except SystemExit as end:
        code = end.code  # type: ignore[assignment]
    if code not in EXIT_CODES:
        raise FaultError(f"exit code {code}")
    said = errors.getvalue().strip()
    if "Traceback" in said:
        raise FaultError(said)
    if code == 2 and (not said.startswith("acenode: ") or len(said.splitlines()) > 1):
        raise FaultError(f"not explained in one line: {said!r}")
    if code == 0 and "--json" in arguments and not {"-h", "--help"} & set(arguments):
        json.loads(out.getvalue(), parse_constant=_no_number)
    return out.getvalue()


def _no_number(name: str) -> None:
    raise FaultError(f"{name} is not JSON")


@dataclass
class Answer:
    """The response of a route."""

    status: int = 0
    body: bytes = b""

    def json(self) -> Any:
        return json.loads(self.body, parse_constant=_no_number)


def get(target: str, method: str = "GET", body: bytes = b"", headers: tuple[tuple[bytes, bytes], ...] = ()) -> Answer:
    """Request one of the app's routes without a server."""
    path, _, query = target.partition("?")
    answer = Answer()

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            answer.status = message["status"]
        else:
            answer.body += message.get("body", b"")

    raw = quote(path, safe="/%").encode()
    scope = {"type": "http", "method": method, "path": unquote(path), "raw_path": raw, "headers": list(headers),
             "query_string": quote(query, safe="=&%@,+").encode(), "root_path": "", "http_version": "1.1",
             "scheme": "http", "server": ("127.0.0.1", 80)}
    with ThreadPoolExecutor(1) as other:  # this thread may have an event loop already
        other.submit(lambda: asyncio.run(_APP(scope, receive, send))).result()
    if answer.status >= 500 or answer.status == 0:
        raise FaultError(f"{target} answered {answer.status}")
    if not answer.body and answer.status == 200:
        raise FaultError(f"{target} shows nothing")
    return answer


class AppOver:
    """The app's services over a folder, in which nothing is timed to estimate how long a run takes."""

    def __init__(self, folder: Path) -> None:
        self.services = Services(folder / "runs", folder / "data")
        self.estimate, self.delay, self.patience = estimates.estimate, estimates.DELAY, app_routes.PATIENCE
        app_services.replace(self.services)
        estimates.estimate = _one_minute
        estimates.DELAY, app_routes.PATIENCE = 0.0, 0.01

    def close(self) -> None:
        estimates.forget()
        estimates.estimate, estimates.DELAY, app_routes.PATIENCE = self.estimate, self.delay, self.patience
        self.services.close()
        app_services.replace(None)


def _one_minute(configs: Sequence[Config], *given: object) -> Estimate:
    return Estimate(len(configs), 60.0 * len(configs), "timing 1 configuration", dict.fromkeys(configs, 60.0))


def page(name: str, query: dict[str, str]) -> None:
    """Open a page of the app; it must raise nothing and show something."""
    app = AppTest.from_file(str(MAIN), default_timeout=60)
    for key, value in query.items():
        app.query_params[key] = value
    app._page_hash = calc_hash(name)
    app.run()
    if app.exception:
        raise FaultError(f"page {name!r} {query}: {[e.value for e in app.exception]}")
    if not app.title and not app.markdown:
        raise FaultError(f"page {name!r} {query} shows nothing")
