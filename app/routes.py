"""HTTP routes that the browser's charts read. They bypass Streamlit: no page is rerun, so watching costs little.

    lab/assets/VERSION/NAME     JavaScript and style sheets of the charts
    lab/plotly.js               plotly.js from the plotly package
    lab/live?runs=ID@OFFSET,…   each run's status, and its metrics from a byte offset on
    lab/active                  running and queued runs, and the devices
    lab/film/ID?known=VERSION   description of the snapshots for the player, if it has changed; …/ID/EPOCH: one of them
    lab/playground/NAME         frames of a page's playground; its commands are posted there
    lab/study/NAME              the grid of a study: state, progress and value of each run, and the time left
    lab/search/NAME?since=…     the trials of a search that have changed since an earlier answer
"""

from __future__ import annotations

import functools
import json
import mimetypes
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from acenode.errors import UserError
from acenode.player import data as player_data
from acenode.runs.metric_lines import without_checksums
from acenode.runs.stalled import within_limit
from acenode.runs.store import NAME, Run

from . import active as active_runs
from . import asset_files
from .experiment import player_first
from .playground import routes as playground_routes
from .playground.routes import whole_number
from .services import services

CHUNK = 4_000_000  # bytes of metrics in one response
MAX_RUNS = 60  # in one request
STATUS_KEYS = ("state", "progress", "phase", "epoch", "epochs", "step", "seconds", "seconds_left", "best", "error",
               "began")
CACHE_ONE_DAY = {"Cache-Control": "private, max-age=86400"}
CACHE_FOR_EVER = {"Cache-Control": "private, max-age=31536000, immutable"}
NO_CACHE = {"Cache-Control": "no-store"}


def asset(request: Request) -> Response:
    """Return a file of app/assets or of the player."""
    name = request.path_params["name"]
    path = asset_files.find(name) if NAME.fullmatch(name) else None
    if path is None:
        return JSONResponse({"error": "no such file"}, 404)
    kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
    current = request.path_params["version"] == asset_files.version()
    return Response(path.read_bytes(), media_type=kind, headers=CACHE_FOR_EVER if current else NO_CACHE)


@functools.cache
def _plotly() -> bytes:
    from plotly.offline import get_plotlyjs

    return get_plotlyjs().encode()


def plotly(request: Request) -> Response:
    """Return plotly.js."""
    return Response(_plotly(), media_type="text/javascript", headers=CACHE_ONE_DAY)


def live(request: Request) -> Response:
    """Return the status and the new metrics of the requested runs; an unknown run is `gone`."""
    answer: dict[str, Any] = {}
    for item in request.query_params.get("runs", "").split(",")[:MAX_RUNS]:
        name, _, offset = item.partition("@")
        if name:
            answer[name] = _live(name, whole_number(offset) or 0)
    return JSONResponse({"runs": answer}, headers=NO_CACHE)


def _live(name: str, offset: int) -> dict[str, Any]:
    run = services().store.find(name)
    if run is None:
        return {"gone": True}
    try:
        return within_limit(run.path, lambda: _live_of(run, offset))
    except (UserError, TimeoutError) as error:
        reason = str(error) if isinstance(error, UserError) else error.strerror
        return {"status": {"state": "unreadable", "error": reason}, "lines": "", "offset": 0, "more": False}


def _live_of(run: Run, offset: int) -> dict[str, Any]:
    status = run.status()
    lines, end, more = b"", 0, False
    try:
        with run.open_metrics() as file:
            size = file.seek(0, 2)
            start = offset if offset <= size else 0  # the file became shorter: the run was started again
            file.seek(start)
            lines = file.read(CHUNK)
            lines = lines[:lines.rfind(b"\n") + 1]
            end = start + len(lines)
            more = bool(lines) and size - end > 0 and len(lines) > CHUNK // 2
    except OSError:
        pass  # the run has not started yet, or the file is damaged
    text = without_checksums(lines).decode("utf-8", "replace")
    return {"status": {k: _plain(status.get(k)) for k in STATUS_KEYS}, "lines": text, "offset": end, "more": more}


def _plain(value: Any) -> Any:
    """Return None for a number that JSON does not have: one such value would fail the answer for all runs."""
    return None if isinstance(value, int | float) and not abs(value) <= 1e300 else value


def active(request: Request) -> Response:
    """Return running and queued runs, and the devices."""
    return JSONResponse(active_runs.describe(), headers=NO_CACHE)


def player_description(request: Request) -> Response:
    """Return the description of a run's snapshots, or status 204 if it is of the `known` version."""
    run = services().store.find(request.path_params["run"])
    if run is None:
        return JSONResponse({"why": "This run was deleted"}, 404)
    found = player_data.describe(run)
    if not found["epochs"]:  # the player will not ask for more
        player_first.data_sent(run.id)
    if found["version"] and found["version"] == request.query_params.get("known"):
        return Response(status_code=204, headers=NO_CACHE)
    return Response(json.dumps(found, allow_nan=False), media_type="application/json", headers=NO_CACHE)


def player_epoch(request: Request) -> Response:
    """Return the arrays of one snapshot."""
    run = services().store.find(request.path_params["run"])
    try:
        if run is None:
            raise UserError("this run was deleted")
        epoch = whole_number(request.path_params["epoch"])
        if epoch is None:
            raise UserError("an epoch is a whole number")
        content = player_data.epoch_block(run, epoch)
    except UserError as error:
        return JSONResponse({"error": str(error)}, 404)
    finally:
        player_first.data_sent(request.path_params["run"])
    return Response(content, media_type="application/octet-stream", headers=NO_CACHE)


def study_grid(request: Request) -> Response:
    """Return the present grid of a study."""
    from .questions import study_live

    try:
        return JSONResponse(study_live.view(request.path_params["name"]), headers=NO_CACHE)
    except UserError as error:
        return JSONResponse({"error": str(error)}, 404)


def search_trials(request: Request) -> Response:
    """Return the trials of a search that have changed."""
    from .questions import search_live

    try:
        found = search_live.view(request.path_params["name"], request.query_params.get("since", ""))
    except UserError as error:
        return JSONResponse({"error": str(error)}, 404)
    return JSONResponse(found, headers=NO_CACHE)


ROUTES = [
    Route("/lab/assets/{version}/{name}", asset),
    Route("/lab/plotly.js", plotly),
    Route("/lab/live", live),
    Route("/lab/active", active),
    Route("/lab/film/{run}", player_description),
    Route("/lab/film/{run}/{epoch}", player_epoch),
    *playground_routes.ROUTES,
    Route("/lab/study/{name}", study_grid),
    Route("/lab/search/{name}", search_trials),
]
