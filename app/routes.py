"""HTTP routes that the browser's charts read. They bypass Streamlit: no page is rerun, so watching costs little."""

from __future__ import annotations

import dataclasses
import json
import mimetypes
from base64 import b64encode
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import anyio
import numpy as np
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from acenode.compare.groups import changed_in, same_run
from acenode.errors import UserError
from acenode.execution.devices import DeviceState
from acenode.files import Stamp, stamp
from acenode.player import data as player_data
from acenode.runs.entry import Entry
from acenode.runs.questions import Study, StudyStore
from acenode.runs.store import NAME, RunStore

from . import components, labels
from .services import services

if TYPE_CHECKING:  # imported when first used: they need torch
    from acenode.playground.session import Frame, NetworkFrame

CACHE_ONE_DAY = {"Cache-Control": "private, max-age=86400"}
CACHE_FOR_EVER = {"Cache-Control": "private, max-age=31536000, immutable"}
PATIENCE = 2.0  # seconds that a request waits for a new frame of the playground
MOST_BYTES = 64_000  # of a command
MOST_DIGITS = 18  # of a number in a request
NO_CACHE = {"Cache-Control": "no-store"}


def asset(request: Request) -> Response:
    name = request.path_params["name"]
    path = components.find_asset(name) if NAME.fullmatch(name) else None
    if path is None:
        return JSONResponse({"error": "no such file"}, 404)
    kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
    current = request.path_params["version"] == components.assets_version()
    return Response(path.read_bytes(), media_type=kind, headers=CACHE_FOR_EVER if current else NO_CACHE)


def plotly(request: Request) -> Response:
    from plotly.offline import get_plotlyjs

    return Response(get_plotlyjs(), media_type="text/javascript", headers=CACHE_ONE_DAY)


def answers(answer: Callable[[Request], Any], refusal: int = 404) -> Callable[[Request], Response]:
    """Return a route that answers in JSON, and a UserError with the status of its class, or else `refusal`."""
    def route(request: Request) -> Response:
        try:
            return JSONResponse(answer(request), headers=NO_CACHE)
        except UserError as error:
            return JSONResponse({"error": str(error)}, getattr(error, "status", refusal))

    return route


def live(request: Request) -> dict[str, Any]:
    """Return the status of the requested runs, and the figures of their curves that have changed."""
    from .results import live_curves

    ids = [item.partition("@")[0] for item in request.query_params.get("runs", "").split(",")]
    try:
        asked = json.loads(request.query_params.get("view", "{}"))
        return live_curves.answer(ids, asked if isinstance(asked, dict) else {})
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"this view cannot be drawn ({error})") from None


def whole_number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= MOST_DIGITS else None


def player_description(request: Request) -> Response:
    """Return the description of a run's snapshots, or status 204 if it is of the `known` version."""
    run = services().store.find(request.path_params["run"])
    if run is None:
        return JSONResponse({"why": "This run was deleted"}, 404)
    found = player_data.describe(run)
    if not found["epochs"]:  # the player will not ask for more
        components.data_sent(run.id)
    if found["version"] and found["version"] == request.query_params.get("known"):
        return Response(status_code=204, headers=NO_CACHE)
    return JSONResponse(found, headers=NO_CACHE)


def player_epoch(request: Request) -> Response:
    run = services().store.find(request.path_params["run"])
    try:
        if run is None:
            raise UserError("this run was deleted")
        if (epoch := whole_number(request.path_params["epoch"])) is None:
            raise UserError("an epoch is a whole number")
        content = player_data.epoch_block(run, epoch)
    except UserError as error:
        return JSONResponse({"error": str(error)}, 404)
    finally:
        components.data_sent(request.path_params["run"])
    return Response(content, media_type="application/octet-stream", headers=NO_CACHE)


def study(request: Request) -> dict[str, Any]:
    from .questions import live

    return live.study(request.path_params["name"])


def search(request: Request) -> dict[str, Any]:
    from .questions import live

    return live.search(request.path_params["name"], request.query_params.get("since", ""))


def frame(request: Request) -> dict[str, Any]:
    """Return a frame that is newer than `after`, as soon as there is one; {} if nothing changes for a while."""
    session = services().playgrounds.get(request.path_params["name"])
    found = session.frame(whole_number(request.query_params.get("after", "")) or 0, PATIENCE)
    return describe(found) if found is not None else {}


async def command(request: Request) -> Response:
    """Apply a command after the current training step; the answer to a bad one says what is wrong."""
    def send(message: Any) -> None:
        from acenode.playground.settings import read_command

        services().playgrounds.get(request.path_params["name"]).send(read_command(message))

    try:
        if request.headers.get("content-type", "").partition(";")[0] != "application/json":
            raise UserError("send a command as application/json")  # which other sites cannot do unasked
        body = b""
        async for part in request.stream():
            body += part
            if len(body) > MOST_BYTES:
                raise UserError(f"a command has at most {MOST_BYTES:,} bytes: draw shorter paths")
        try:
            message = json.loads(body)
        except (ValueError, RecursionError):
            raise UserError("a command is an object in JSON") from None
        await anyio.to_thread.run_sync(send, message)
    except UserError as error:
        return JSONResponse({"error": str(error)}, 400)
    return JSONResponse({}, headers=NO_CACHE)


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
            "picture": {name: _array(value) if isinstance(value, np.ndarray) else value for name, value in
                        vars(network.picture).items()} if network.picture is not None else None}


def _array(value: np.ndarray) -> dict[str, Any]:
    return {"shape": value.shape, "data": b64encode(np.ascontiguousarray(value, "<f4").tobytes()).decode()}


def active(request: Request) -> dict[str, Any]:
    launcher = services().launcher if services().launcher_ready else None  # do not wait for torch
    queue = {run: place for place, run in enumerate(launcher.queue(), 1)} if launcher else {}
    busy = services().catalogue.busy_entries()
    named = run_names(busy)
    runs = [{"id": e.id, "name": named[e.id], "state": e.state, "experiment": e.experiment, "progress": e.progress,
             "epoch": e.epoch, "epochs": e.epochs, "seconds_left": e.seconds_left, "place": queue.get(e.id, 0),
             "device": e.device_name}
            for e in sorted(busy, key=lambda e: (e.state != "running", queue.get(e.id, 0)))]
    devices = [{"name": d.name, "title": d.title, "running": d.running, "workers": d.workers,
                "memory_used": d.memory_used, "memory_total": d.memory_total, "utilisation": d.utilisation,
                "load": load_words(d)} for d in (launcher.device_states() if launcher else [])]
    return {"runs": runs, "devices": devices}


def load_words(device: DeviceState) -> str:
    """Say how many runs of this app a device trains, and how busy it is; runs of a terminal are other processes."""
    busy = None if device.utilisation is None else f"{100 * device.utilisation:.0f}%"
    if not device.running:
        return "No run started in this app" + ("" if busy is None else f" · {busy} used by other processes")
    workers = f"{device.running} of {device.workers} workers in use"
    return workers if busy is None else f"{workers} · {busy} utilisation"


def run_names(entries: list[Entry]) -> dict[str, str]:
    """Name runs of a study by their group there, others by experiment, method, settings and seed; what differs between
    these comes first."""
    store, found, settings = services().store, dict[str, str](), dict[str, str]()
    if entries and services().launcher_ready:  # studies and settings need torch
        studies = _studies(store, stamp(StudyStore(store).folder))
        found = {e.id: f"{name} · {labels.experiment_title(e.experiment)}" for e in entries
                 if (name := _name(e, studies))}
        settings = _settings([e for e in entries if e.id not in found])
    parts = {e.id: (labels.experiment_title(e.experiment), labels.method_title(e.experiment, e.method),
                    settings.get(e.id, ""), f"seed {e.seed}") for e in entries if e.id not in found}
    differs = [len(set(column)) > 1 for column in zip(*parts.values(), strict=True)]
    return found | {run: " · ".join(text for first in (True, False) for text, differing
                                    in zip(texts, differs, strict=True) if text and differing is first)
                    for run, texts in parts.items()}


@lru_cache(maxsize=1)
def _studies(store: RunStore, at: Stamp | None) -> tuple[Study, ...]:
    """Read the studies of a folder with this stamp, which changes when one is written or deleted."""
    return tuple(found.study for found in StudyStore(store).list() if found.study is not None)


def _name(entry: Entry, studies: tuple[Study, ...]) -> str:
    """Return the group, seed and fold of a run in the first study that has it; empty if none has it."""
    from acenode.compare.study_grid import group_config, group_names  # they need torch

    fold = entry.config.get("fold")
    for study in studies:
        repeat = next((r for r in study.repeats if r[0] == entry.seed and r[1] in (None, fold)), None)
        if repeat is None or study.experiment != entry.experiment:
            continue
        try:
            for group, title in zip(study.groups, group_names(study), strict=True):
                if same_run(group_config(study, group, repeat), entry):
                    return f"{title}, seed {entry.seed}" + (f", fold {fold}" if study.folds else "")
        except UserError:  # the study is for another version
            continue
    return ""


def _settings(entries: list[Entry]) -> dict[str, str]:
    methods: dict[tuple[str, str], list[Entry]] = {}
    for entry in entries:
        methods.setdefault((entry.experiment, entry.method), []).append(entry)
    texts = {}
    for alike in methods.values():
        changed = dict.fromkeys(key for entry in alike for key in changed_in(entry.config) if key != "epochs")
        differing = [key for key in changed if len(alike) == 1 or len({str(e.config.get(key)) for e in alike}) > 1]
        for entry in alike:
            texts[entry.id] = labels.settings_words({k: entry.config[k] for k in differing
                                                     if entry.config.get(k) is not None})
    return texts


ROUTES = [
    Route("/lab/assets/{version}/{name}", asset),
    Route("/lab/plotly.js", plotly),
    Route("/lab/live", answers(live, 400)),  # ?runs=ID,…&view=…
    Route("/lab/active", answers(active)),
    Route("/lab/film/{run}", player_description),
    Route("/lab/film/{run}/{epoch}", player_epoch),
    Route("/lab/playground/{name}", answers(frame)),
    Route("/lab/playground/{name}", command, methods=["POST"]),
    Route("/lab/study/{name}", answers(study)),
    Route("/lab/search/{name}", answers(search)),
]
