"""Identify the process that trains a run, so that another process with the same number is not mistaken for it."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path
from typing import Any

HEARTBEAT_TIMEOUT = 120.0  # seconds without a heartbeat after which a process on another machine counts as dead


def _started(pid: int) -> str | None:
    """Return the boot id and the clock tick at which a process began (Linux), or None."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return None
    return f"{boot}/{stat.rsplit(')', 1)[1].split()[19]}"


def identity() -> dict[str, Any]:
    """Describe this process."""
    return {"pid": os.getpid(), "started": _started(os.getpid()), "host": socket.gethostname()}


def alive(who: dict[str, Any], heartbeat: float) -> bool:
    """Return True if the process still runs; on another machine, judge by its heartbeat."""
    recent = time.time() - heartbeat < HEARTBEAT_TIMEOUT
    pid = who.get("pid")
    if who.get("host") != socket.gethostname() or not isinstance(pid, int) or not 0 < pid < 2**31:
        return recent
    if who.get("started") is not None:
        return who["started"] == _started(pid)
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return recent
    return recent
