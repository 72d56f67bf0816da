"""Requests to the app's routes without a server."""

from __future__ import annotations

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

from acenode_app.server import ROUTES
from starlette.applications import Starlette


@dataclass
class Answer:
    """The response of a route."""

    status: int = 0
    kind: str = ""
    cache: str = ""
    body: bytes = b""

    def json(self) -> Any:
        return json.loads(self.body)


def get(target: str, body: bytes | None = None, kind: str = "application/json") -> Answer:
    """Request one of the app's routes; with a body, post it."""
    path, _, query = target.partition("?")
    answer = Answer()

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body or b"", "more_body": False}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            answer.status = message["status"]
            headers = dict(message["headers"])
            answer.kind = headers.get(b"content-type", b"").decode()
            answer.cache = headers.get(b"cache-control", b"").decode()
        else:
            answer.body += message.get("body", b"")

    scope = {"type": "http", "method": "GET" if body is None else "POST", "path": unquote(path),
             "raw_path": path.encode(), "headers": [(b"content-type", kind.encode())],
             "query_string": query.encode(), "root_path": "", "http_version": "1.1", "scheme": "http",
             "server": ("127.0.0.1", 80)}
    with ThreadPoolExecutor(1) as other:  # the browser may already run an event loop in this thread
        other.submit(lambda: asyncio.run(Starlette(routes=ROUTES)(scope, receive, send))).result()
    return answer
