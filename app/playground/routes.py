"""The routes of the playground: the browser asks for frames and posts commands, and no page is rerun."""

from __future__ import annotations

import dataclasses
import json
from base64 import b64encode
from typing import TYPE_CHECKING, Any

import anyio
import numpy as np
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from acenode.errors import UserError

from ..services import services

if TYPE_CHECKING:  # imported when first used: they need torch
    from acenode.playground.picture import Picture
    from acenode.playground.session import Frame, NetworkFrame

PATIENCE = 2.0  # seconds that a request waits for a new frame
MOST_BYTES = 64_000  # of a command
MOST_DIGITS = 18  # of a number in a request
NO_CACHE = {"Cache-Control": "no-store"}


def whole_number(text: str) -> int | None:
    """Read a number of a request; None if it is not one, or has too many digits."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= MOST_DIGITS else None


def frame(request: Request) -> Response:
    """Return a frame that is newer than `after`, as soon as there is one; {} if nothing changes for a while."""
    after = request.query_params.get("after", "")
    from acenode.playground.session import TooManyPlaygroundsError

    try:
        session = services().playgrounds.get(request.path_params["name"])
    except UserError as error:
        return JSONResponse({"error": str(error)}, 503 if isinstance(error, TooManyPlaygroundsError) else 404)
    found = session.frame(whole_number(after) or 0, PATIENCE)
    content = json.dumps(describe(found) if found is not None else {}, allow_nan=False)
    return Response(content, media_type="application/json", headers=NO_CACHE)


async def command(request: Request) -> Response:
    """Apply a command after the current training step; the answer to a bad one says what is wrong."""
    try:
        message = await _read(request)
        await anyio.to_thread.run_sync(_send, request.path_params["name"], message)
    except UserError as error:
        return JSONResponse({"error": str(error)}, 400)
    return JSONResponse({}, headers=NO_CACHE)


async def _read(request: Request) -> Any:
    if request.headers.get("content-type", "").partition(";")[0] != "application/json":
        raise UserError("send a command as application/json")  # which other sites cannot do unasked
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > MOST_BYTES:
            raise UserError(f"a command has at most {MOST_BYTES:,} bytes: draw shorter paths")
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        raise UserError("a command is an object in JSON") from None


def _send(name: str, message: Any) -> None:
    from acenode.playground.settings import read_command

    services().playgrounds.get(name).send(read_command(message))


def describe(found: Frame) -> dict[str, Any]:
    """Return a frame for the browser; arrays are float32 in base64, with their shape."""
    problem = found.problem
    targets = getattr(problem.goal, "targets", None)
    return {"serial": found.serial, "step": found.step, "running": found.running, "note": found.note,
            "stepsASecond": round(found.steps_a_second, 1), "settings": dataclasses.asdict(found.settings),
            "problem": {"name": problem.name, "d": problem.d, "colour": problem.colour, "probes": problem.probes,
                        "centre": problem.centre,
                        "targets": _array(targets.numpy()) if targets is not None else None},
            "networks": [_network(network, found) for network in found.networks]}


def _network(network: NetworkFrame, found: Frame) -> dict[str, Any]:
    from acenode.playground.picture import describe as words

    return {"name": network.name, "parameters": network.parameters, "evaluations": network.evaluations,
            "failed": bool(network.error) or network.picture is None, "words": words(network, found.problem),
            "steps": network.loss_steps, "losses": [float(f"{x:.4g}") for x in network.losses],
            "picture": _picture(network.picture) if network.picture is not None else None}


def _picture(picture: Picture) -> dict[str, Any]:
    arrays = {f.name: getattr(picture, f.name) for f in dataclasses.fields(picture)}
    return {name: _array(value) if isinstance(value, np.ndarray) else value for name, value in arrays.items()}


def _array(value: np.ndarray) -> dict[str, Any]:
    return {"shape": value.shape, "data": b64encode(np.ascontiguousarray(value, "<f4").tobytes()).decode()}


ROUTES = [
    Route("/lab/playground/{name}", frame),
    Route("/lab/playground/{name}", command, methods=["POST"]),
]
