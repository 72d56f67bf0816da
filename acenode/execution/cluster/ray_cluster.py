"""Runs on a Ray cluster, for the launcher and the command line."""

from __future__ import annotations

import importlib.util
import json
import secrets
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from acenode.errors import UserError
from acenode.execution.devices import own_cores
from acenode.execution.environment import child_environment
from acenode.execution.processes import POLL_SECONDS, ChildProcess
from acenode.runs.process import identity
from acenode.runs.store import BUSY, Run

NAME = "ray"
START_SECONDS = 180.0  # longest time to start or join Ray
LOST_SECONDS = 600.0  # for how long a lost cluster is looked for
AGAIN_SECONDS = 5.0  # between attempts to join it
EXIT_SECONDS = 150.0  # for runs to stop with a checkpoint
GPU_SHARE = 0.25  # of a GPU for each run
QUEUE_THREADS = 2  # of each of several runs
QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_TQDM": "0"}  # Ray sends nothing anywhere and draws no bars
CONNECT_SECONDS = 5.0  # longest time for an answer
START_HINT = ("start it with `ray start --head`; with a token, both sides need the same RAY_AUTH_MODE and token: see "
              "docs/cluster.md")


def address_of(on: str) -> str | None:
    """Return the address in the option `--on ray[:ADDRESS]`; None: start a local Ray."""
    name, colon, address = on.partition(":")
    if name != NAME or (colon and not address):
        raise UserError(f"--on takes ray, ray:auto or ray:IP:PORT, not {on!r}")
    return address or None


def check_device(device: str) -> None:
    """Raise a UserError for a certain GPU, such as cuda:3: Ray assigns GPUs itself."""
    if device not in ("auto", "cpu", "cuda"):
        raise UserError(f"Ray chooses the GPU of a run: use --device cuda instead of {device}")


def check_address(address: str | None, *, connect: bool = False) -> None:
    """Raise a UserError if `HOST:PORT` has an unknown host or an invalid port or, with `connect`, nothing accepts
    connections there; `auto` and None are not checked."""
    host, _, port = (address or "").rpartition(":")
    host = host.removeprefix("[").removesuffix("]")  # [::1]:6379
    if not (host and port.isascii() and port.isdigit()):
        return
    if not 1 <= int(port) <= 65535:
        raise UserError(f"{address} has no port from 1 to 65535: --on takes ray:IP:PORT")
    try:
        socket.getaddrinfo(host, int(port), type=socket.SOCK_STREAM)
    except (OSError, ValueError) as error:  # a ValueError for a name that cannot be one
        reason = getattr(error, "strerror", None) or str(error)
        raise UserError(f"there is no machine {host} ({reason}): --on takes ray:IP:PORT, or ray:auto on a machine "
                        "of the cluster") from None
    try:
        if connect:
            socket.create_connection((host, int(port)), timeout=CONNECT_SECONDS).close()
    except OSError as error:
        reason = error.strerror or str(error)
        raise UserError(f"there is no Ray cluster at {address} ({reason}); {START_HINT}") from None


@dataclass(frozen=True)
class ClusterSize:
    """What a cluster has."""

    cpus: int
    gpus: int
    machines: int
    runs: int  # that can be trained at a time: on the GPUs if there are any

    @property
    def title(self) -> str:
        """Describe the cluster for people."""
        cpus, gpus, machines = (f"{count} {what}{'s' * (count != 1)}" for count, what in (
            (self.cpus, "CPU"), (self.gpus, "GPU"), (self.machines, "machine")))
        return f"Ray, {cpus}{f', {gpus}' if self.gpus else ''} on {machines}"


def cluster_size(nodes: Iterable[Mapping[str, Any]], threads: int, gpu: float) -> ClusterSize:
    """Return the size of the machines that are alive, as `ray.nodes()` describes them, for runs that take so many CPUs
    and, where there are GPUs, this share of one."""
    found = [node.get("Resources", {}) for node in nodes if node.get("Alive")]
    cpus, gpus = ([float(have.get(kind, 0)) for have in found] for kind in ("CPU", "GPU"))
    fit = [int(c // threads) for c in cpus]
    if sum(gpus):
        fit = [min(of_cpus, int(g / gpu + 1e-6)) for of_cpus, g in zip(fit, gpus, strict=True)]
    return ClusterSize(int(sum(cpus)), int(sum(gpus)), len(found), sum(fit))


class RayCluster:
    """Trains queued runs as tasks of Ray. A launcher trains all its runs there with `Launcher(..., cluster=...)`.

    Args:
        address: of the cluster to join, as `ray.init` takes it: `IP:PORT`, or `auto` for the one of this machine. None
            starts a local Ray, which only this machine can reach, and `close` stops it.
        threads: CPU threads of each run.
        gpu: share of a GPU of each run, if the cluster has GPUs.
        cpus: CPUs of a local Ray (default: the cores of this machine).
        shared: False sends files even if the workers see the run directories.

    Several threads may call `train`. What happens to a run is in its directory, at most a second later.
    """

    name = NAME

    def __init__(self, address: str | None = None, *, threads: int = 1, gpu: float = GPU_SHARE,
                 cpus: int | None = None, shared: bool = True) -> None:
        if importlib.util.find_spec("ray") is None:
            raise UserError("Ray is not installed: run `pip install 'acenode[ray]'`")
        if address is not None and "://" in address:
            raise UserError(f"{address} is the address of a Ray client: run the command on a machine of the cluster, "
                            "with --on ray:auto")
        self.address, self.threads = address, threads
        self.options = {"address": address, "threads": threads, "gpu": gpu, "cpus": cpus or len(own_cores()),
                        "shared": shared}
        self._lock = threading.Lock()
        self._driver: _DriverProcess | None = None
        self._closed = False

    def __enter__(self) -> RayCluster:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def start(self) -> ClusterSize:
        """Start or join Ray, unless that is done; wait for a head that is still starting. A UserError if it fails, or
        if no machine is large enough for a run."""
        driver = self._process()
        try:
            driver.wait_until_ready(self.address)
        except BaseException:
            driver.kill()
            raise
        size = driver.size
        assert size is not None
        if not size.runs:
            self.close()
            raise UserError(f"no machine of the cluster can train a run with {self.threads} threads: use a smaller "
                            "--threads")
        return size

    @property
    def size(self) -> ClusterSize | None:
        """The size of the cluster at this moment; None if there is no connection."""
        driver = self._driver
        return driver.size if driver is not None and not driver.lost.is_set() else None

    def slots(self) -> int:
        """Return how many runs the cluster can train at a time; 1 if that is not known yet."""
        return max(1, self.size.runs) if self.size is not None else 1

    def train(self, run: Run, data_root: Path, stop: threading.Event) -> None:
        """Train a run and return when it has ended; how it ended is in its status.json.

        A run whose worker or machine dies continues on another one from its last checkpoint, and so does one whose
        cluster is lost, once that is started or joined again. A UserError if Ray cannot be started or joined, or the
        run asks for a certain GPU.
        """
        check_device(run.config().device)
        driver = self._connected(stop)
        while driver is None or not driver.train(run, data_root, stop):
            if run.stored_state() not in BUSY:
                return
            driver, end = None, time.monotonic() + LOST_SECONDS
            while driver is None and not stop.is_set() and not self._closed and time.monotonic() < end:
                try:
                    driver = self._connected(stop)
                except UserError:
                    stop.wait(AGAIN_SECONDS)
            if driver is None:
                state = "stopped" if stop.is_set() else "interrupted"
                run.set_state(state, error=None if stop.is_set() else "the connection to Ray was lost: resume the run")
                return

    def close(self) -> None:
        """Stop the runs with a checkpoint, and a local Ray; give up a connection that is not there yet."""
        with self._lock:
            self._closed = True
            driver = self._driver
        if driver is not None and driver.size is None:
            driver.kill("the connection is closed")
        elif driver is not None:
            driver.close()

    def _process(self) -> _DriverProcess:
        with self._lock:
            if self._closed:
                raise UserError("the connection to Ray is closed")
            if self._driver is None or self._driver.lost.is_set():
                self._driver = _DriverProcess(self.options)
            return self._driver

    def _connected(self, stop: threading.Event) -> _DriverProcess | None:
        """Return the driver process once Ray is there; None if the run should stop before. A UserError if nothing
        answers at the address, or Ray cannot be started or joined."""
        if self.size is None:
            check_address(self.address, connect=True)  # Ray itself would try for minutes
        driver = self._process()
        return driver if driver.wait_until_ready(self.address, stop) else None


class _DriverProcess(ChildProcess):
    """The process that speaks with Ray (`acenode.execution.cluster.driver`)."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.size: ClusterSize | None = None
        self.ready = threading.Event()
        self.error: str | None = None  # why the process has ended
        self.give_up = time.monotonic() + START_SECONDS
        self._messages = tempfile.TemporaryFile()  # noqa: SIM115 - of Ray, which would break progress bars
        super().__init__("acenode.execution.cluster.driver", json.dumps(options), more={"process": identity()},
                         stderr=self._messages, env=driver_environment(local=options["address"] is None))

    def wait_until_ready(self, address: str | None, stop: threading.Event | None = None) -> bool:
        """Wait until Ray is there; several threads may wait. Return False once `stop` is set; a UserError if Ray
        cannot be started or joined."""
        while not self.ready.wait(POLL_SECONDS):
            if stop is not None and stop.is_set():
                return False
            if time.monotonic() > self.give_up:
                self.kill(f"no connection within {START_SECONDS:.0f} s")
        if self.size is None:
            if stop is not None and stop.is_set():
                return False
            raise UserError(f"a local Ray could not be started ({self.error})" if address is None else
                            f"there is no Ray cluster at {address} that can be joined ({self.error}); {START_HINT}")
        return True

    def _handle(self, answer: dict[str, Any]) -> None:
        if "size" in answer:
            self.size = ClusterSize(**answer["size"])
            self.ready.set()
        elif "error" in answer:
            self.error = answer["error"]
        else:
            super()._handle(answer)

    def _handle_end(self) -> None:
        self._messages.seek(0)
        said = self._messages.read().decode(errors="replace").strip().splitlines()
        if any("InvalidAuthToken" in line for line in said):  # the error itself only says that it failed
            self.error = "the token is missing or incorrect"
        self.error = self.error or (said[-1] if said else f"exit code {self.process.poll()}")
        self.ready.set()

    def close(self) -> None:
        """Let the process stop its runs and exit."""
        self.close_input()
        try:
            self.process.wait(EXIT_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self, reason: str = "its process was killed") -> None:
        """Kill the process; threads that wait for it get the reason, unless there is one already."""
        self.error = self.error or reason
        self.process.kill()
        self.process.wait()
        self.lost.set()
        self.ready.set()


def driver_environment(*, local: bool) -> dict[str, str]:
    """Return the environment of the driver process: it imports what this process imports, and reports nothing. A local
    Ray listens on the loopback address, closed to other users of the machine."""
    closed = {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_AUTH_MODE": "token",
              "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    return {**child_environment(), **QUIET, **(closed if local else {})}
