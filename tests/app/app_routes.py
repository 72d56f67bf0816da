"""Requests to the app's routes without a server."""

from __future__ import annotations

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from acenode_app.server import ROUTES
from starlette.applications import Starlette
from starlette.types import ASGIApp


@dataclass
class Answer:
    """The response of a route."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""

    def json(self) -> Any:
        return json.loads(self.body)


def get(target: str, body: bytes | None = None, kind: str = "application/json", app: ASGIApp | None = None,
        server: tuple[str, int] = ("127.0.0.1", 80), **headers: str) -> Answer:
    """Request one of the app's routes, or another app; with a body, post it."""
    path, _, query = target.partition("?")
    answer = Answer()

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body or b"", "more_body": False}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            answer.status = message["status"]
            answer.headers = {key.decode(): value.decode() for key, value in message["headers"]}
        else:
            answer.body += message.get("body", b"")

    given = {"content-type": kind} | {key.replace("_", "-"): value for key, value in headers.items()}
    scope = {"type": "http", "method": "GET" if body is None else "POST", "path": unquote(path),
             "raw_path": path.encode(), "headers": [(key.encode(), value.encode()) for key, value in given.items()],
             "query_string": query.encode(), "root_path": "", "http_version": "1.1", "scheme": "http", "server": server}
    with ThreadPoolExecutor(1) as other:  # the browser may already run an event loop in this thread
        other.submit(lambda: asyncio.run((app or Starlette(routes=ROUTES))(scope, receive, send))).result()
    return answer
