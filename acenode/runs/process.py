"""Who trains a run: a process named so that another one with the same number is not taken for it."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path
from typing import Any

PATIENCE = 120.0  # seconds without a heartbeat after which a process that cannot be looked at counts as dead


def _started(pid: int) -> str | None:
    """Boot and clock ticks at which a process began (Linux); None where it cannot be told or there is none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return None
    return f"{boot}/{stat.rsplit(')', 1)[1].split()[19]}"


def identity() -> dict[str, Any]:
    """This process."""
    return {"pid": os.getpid(), "started": _started(os.getpid()), "host": socket.gethostname()}


def alive(who: dict[str, Any], heartbeat: float) -> bool:
    """Whether that process still runs; by its heartbeat where it is on another machine."""
    recent = time.time() - heartbeat < PATIENCE
    pid = who.get("pid")
    if who.get("host") != socket.gethostname() or not isinstance(pid, int) or pid <= 0:
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
