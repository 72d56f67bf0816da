"""What the browser's charts read, beside Streamlit: no script is rerun, so watching costs training next to nothing.

    lab/assets/NAME             the charts' own code
    lab/plotly.js               the copy inside the plotly package
    lab/live?runs=ID@OFFSET,…   each run's status, and its metrics from a byte on
    lab/film/ID, …/EPOCH        the snapshots, for the player
"""

from __future__ import annotations

import functools
import json
import mimetypes
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from acenode.errors import UserError
from acenode.runs.catalogue import Entry
from acenode.runs.store import NAME

from . import film
from .lab import lab

ASSETS = Path(__file__).parent / "assets"
CHUNK = 4_000_000  # bytes of metrics in one answer
MOST = 60  # runs in one question
SHOWN = ("state", "progress", "phase", "epoch", "epochs", "step", "seconds", "seconds_left", "best", "error", "began")
A_DAY = {"Cache-Control": "private, max-age=86400"}
NEVER = {"Cache-Control": "no-store"}


def asset(request: Request) -> Response:
    name = request.path_params["name"]
    path = ASSETS / name
    if not NAME.fullmatch(name) or not path.is_file():
        return JSONResponse({"error": "there is no such file"}, 404)
    kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
    return Response(path.read_bytes(), media_type=kind, headers={"Cache-Control": "no-cache"})


@functools.cache
def _plotly() -> bytes:
    from plotly.offline import get_plotlyjs

    return get_plotlyjs().encode()


def plotly(request: Request) -> Response:
    return Response(_plotly(), media_type="text/javascript", headers=A_DAY)


def live(request: Request) -> Response:
    """Status and new metrics of the runs asked for; a run that is not there is `gone`."""
    answer: dict[str, Any] = {}
    for wish in request.query_params.get("runs", "").split(",")[:MOST]:
        name, _, offset = wish.partition("@")
        if name:
            answer[name] = _live(name, int(offset) if offset.isdecimal() else 0)
    return JSONResponse({"runs": answer}, headers=NEVER)


def _live(name: str, offset: int) -> dict[str, Any]:
    run = lab().store.find(name)
    if run is None:
        return {"gone": True}
    try:
        status = run.status()
    except UserError as error:
        return {"status": {"state": "unreadable", "error": str(error)}, "lines": "", "offset": 0, "more": False}
    lines, end, more = b"", 0, False
    try:
        with open(run.path / "metrics.jsonl", "rb") as file:
            size = file.seek(0, 2)
            start = offset if offset <= size else 0  # shorter than it was: the run began again
            file.seek(start)
            lines = file.read(CHUNK)
            lines = lines[:lines.rfind(b"\n") + 1]
            end = start + len(lines)
            more = bool(lines) and size - end > 0 and len(lines) > CHUNK // 2
    except OSError:
        pass  # not begun yet
    return {"status": {k: status.get(k) for k in SHOWN}, "lines": lines.decode("utf-8", "replace"), "offset": end,
            "more": more}


def active(request: Request) -> Response:
    """What trains or waits now, in order, and how the devices are."""
    launcher, now = lab().launcher if lab().ready else None, []  # a look does not wait for torch
    waiting = launcher.queue() if launcher else []
    for entry in lab().catalogue.entries():
        if entry.busy:
            place = waiting.index(entry.id) + 1 if entry.id in waiting else 0
            now.append({"id": entry.id, "state": entry.state, "experiment": entry.experiment, "method": entry.method,
                        "seed": entry.seed, "progress": entry.progress, "epoch": entry.epoch, "epochs": entry.epochs,
                        "seconds_left": entry.seconds_left, "place": place, "settings": _settings(entry)})
    now.sort(key=lambda e: (e["state"] != "running", e["place"]))
    states = launcher.read_outs() if launcher else []
    devices = [{"title": d.title, "running": d.running, "workers": d.workers, "memory_used": d.memory_used,
                "memory_total": d.memory_total, "utilisation": d.utilisation} for d in states]
    return JSONResponse({"runs": now, "devices": devices}, headers=NEVER)


def _settings(entry: Entry) -> str:
    """What tells a run from others of its method, once torch is there to ask."""
    if not lab().ready:
        return ""
    from . import labels

    return " ".join(f"{k}={v}" for k, v in labels.settings(entry).items() if k != "epochs")


def film_meta(request: Request) -> Response:
    run = lab().store.find(request.path_params["run"])
    if run is None:
        return JSONResponse({"why": "This run is not there any more."}, 404)
    return Response(json.dumps(film.meta(run), allow_nan=False), media_type="application/json", headers=NEVER)


def film_frames(request: Request) -> Response:
    run = lab().store.find(request.path_params["run"])
    try:
        if run is None:
            raise UserError("this run is not there any more")
        content = film.frames(run, request.path_params["epoch"])
    except UserError as error:
        return JSONResponse({"error": str(error)}, 404)
    return Response(content, media_type="application/octet-stream", headers=NEVER)


ROUTES = [
    Route("/lab/assets/{name}", asset),
    Route("/lab/plotly.js", plotly),
    Route("/lab/live", live),
    Route("/lab/active", active),
    Route("/lab/film/{run}", film_meta),
    Route("/lab/film/{run}/{epoch:int}", film_frames),
]
