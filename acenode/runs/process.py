"""Identify the process that trains a run, so that another process with the same number is not mistaken for it."""

from __future__ import annotations

import os
import socket
from functools import cache
from pathlib import Path
from typing import Any

from acenode.runs.heartbeat import HeartbeatWatch, queued_beat

_WATCH = HeartbeatWatch()


def _boot() -> str | None:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return None


def _started(pid: int) -> str | None:
    """Return the boot id and the clock tick at which a process began (Linux), or None."""
    boot = _boot()
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    return f"{boot}/{stat.rsplit(')', 1)[1].split()[19]}" if boot else None


@cache
def _pid_namespace() -> str | None:
    """Return the namespace of process numbers (Linux): containers on one machine have their own."""
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return None


def identity() -> dict[str, Any]:
    """Describe this process."""
    return {"pid": os.getpid(), "started": _started(os.getpid()), "host": socket.gethostname(),
            "pid_namespace": _pid_namespace()}


def is_here(who: dict[str, Any]) -> bool:
    """Return True if the process ran on this machine, where its number can be looked up."""
    return who.get("host") == socket.gethostname() and who.get("pid_namespace", _pid_namespace()) == _pid_namespace()


def alive(who: dict[str, Any], heartbeat: float, folder: Path | str, *, queued: bool = False) -> bool:
    """Return True if the process of a run still exists: on this machine by its number, elsewhere by its heartbeat.

    Args:
        who: the process, as `identity` describes it.
        heartbeat: in the run's status.json.
        folder: of the run.
        queued: the run waits in the queue of the process, which renews the time of the folder only.
    """
    pid, started = who.get("pid"), who.get("started")
    beat = queued_beat(folder, heartbeat) if queued else heartbeat
    if not is_here(who) or not isinstance(pid, int) or not 0 < pid < 2**31:
        return _WATCH.alive(folder, beat)
    if isinstance(started, str):
        if started == _started(pid):
            return True
        # Another boot: this machine was started again since, or another machine has the same name.
        return started.split("/")[0] != _boot() and _WATCH.alive(folder, beat, trust_clock=False)
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass
    return _WATCH.alive(folder, beat)
