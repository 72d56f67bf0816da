"""Read and create run directories: training and every reader of its results exchange nothing but these files.

    config.json      everything needed to repeat the run     status.json     state, progress, heartbeat, error
    metrics.jsonl    append-only, source of every curve      snapshots/      h(t) and a(t) of the probes
    checkpoints/     last.pt to resume, best.safetensors     result.json     test metrics at the best parameters
    log.txt          what happened, for people               stop            requests that the run stop
    lock             held while the run is trained           notes.json      notes and tags of the user

A recorded run (acenode.export.record) has metrics.jsonl.gz instead, and its snapshots as `acenode.runs.recorded` says.
"""

from __future__ import annotations

import contextlib
import errno
import gzip
import io
import json
import os
import re
import secrets
import shutil
import time
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from acenode.config import FORMAT, Config
from acenode.errors import UserError
from acenode.files import NO_ROOM, open_regular, parse_json, read_json, write_json
from acenode.runs.process import REASON, alive, identity, try_lock, within_limit
from acenode.runs.recorded import decode

STATES = ("queued", "running", "stopped", "finished", "failed", "interrupted")
BUSY = frozenset({"queued", "running"})  # a process is expected to train it
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,120}")
LARGEST = 1e300  # in size, of a number in a run's files
LAST_TIME = 253_402_300_799  # the end of the year 9999, in seconds
MAX_PARAMETERS = 10**15
MAX_METRICS = 100_000_000  # bytes of compressed metrics, once decompressed; recorded runs have less than 1 MB
MAX_SNAPSHOT = 64_000_000  # bytes of all arrays; training writes less than 2 MB
STUDIES, SEARCHES = "studies", "searches"  # the folders of studies and searches beside the runs
NOT_RUNS = frozenset({STUDIES, SEARCHES})


@dataclass(frozen=True)
class Run:
    """One run's directory; every method reads the files anew. A recorded run can only be read."""

    path: Path
    recorded: bool = False

    @property
    def id(self) -> str:
        return self.path.name

    def _read(self, name: str) -> dict[str, Any]:
        try:
            value = within_limit(self.path, lambda: read_json(self.path / name))
        except FileNotFoundError:
            raise UserError(f"{self.path} is not a run: it has no {name}") from None
        except TimeoutError:
            raise UserError(f"{self.path} cannot be read: {REASON}") from None
        except PermissionError:
            raise UserError(f"{self.path / name} may not be read (permission denied): change its permissions, or ask "
                            "its owner") from None
        except (ValueError, OSError) as error:
            raise UserError(f"{self.path / name} cannot be read ({error}): delete the run, or restore it") from None
        if not isinstance(value, dict):
            raise UserError(f"{self.path / name} is not a valid {name}: delete the run, or restore the file")
        return value

    def description(self) -> dict[str, Any]:
        """Read config.json: the configuration, versions, device and number of parameters."""
        value = self._read("config.json")
        version, created, params = value.get("format"), value.get("created", 0), value.get("params", 0)
        if not (isinstance(version, int) and isinstance(value.get("config"), dict) and _numbers(created, params)
                and 0 <= created <= LAST_TIME and 0 <= params <= MAX_PARAMETERS):
            raise UserError(f"{self.path} is not a run: its config.json is not valid")
        if version > FORMAT:
            raise UserError(f"{self.id} was written by a newer version (format {version}, this one reads {FORMAT}): "
                            "update acenode")
        return value

    def config(self) -> Config:
        """Return the configuration in config.json."""
        return Config.from_dict(self.description()["config"])

    @property
    def is_trial(self) -> bool:
        """True if the run is a trial of a search: it is validated, and never tested."""
        return bool(self.description().get("search"))

    def status(self) -> dict[str, Any]:
        """Read status.json; the state is `interrupted` if the training process no longer exists."""
        status = self._read("status.json")
        state, process, heartbeat, progress = map(status.get, ("state", "process", "heartbeat", "progress"))
        if state not in STATES or not isinstance(process, dict) or not _numbers(heartbeat, progress or 0):
            raise UserError(f"{self.path / 'status.json'} is not a valid status.json: delete the run")
        if state in BUSY and not alive(process, float(heartbeat or 0), self.path, queued=state == "queued"):
            status |= {"state": "interrupted", "error": "the training process ended unexpectedly"}
        return status

    def stored_state(self) -> str | None:
        """Return the state in status.json, even if its process is gone."""
        return self._read("status.json").get("state")

    @property
    def locked(self) -> bool:
        """True while a thread or process trains the run. A missing lock is not created: the disk may be full."""
        if not (self.path / "lock").exists():
            return False
        lock = try_lock(self.path / "lock")
        if lock is not None:
            lock.release()
        return lock is None

    def refuse_recorded(self, action: str) -> None:
        """Raise a UserError if the run is recorded; `action` is what was to be done, such as `stopped`."""
        if self.recorded:
            raise UserError(f"{self.id} is a recorded run and cannot be {action}: it can be read, and run again as a "
                            "new run")

    def set_state(self, state: str, **values: Any) -> None:
        """Write a state without training the run; the other values of the status stay."""
        self.refuse_recorded("changed")
        status = self._read("status.json") | {"state": state, "heartbeat": time.time(), "process": identity(), **values}
        write_json(self.path / "status.json", status, make_folder=False)  # a deleted run stays deleted

    def log(self, line: str) -> None:
        """Append a line with the current time to log.txt."""
        with open(self.path / "log.txt", "a", encoding="utf-8") as file:
            file.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {line}\n")

    def result(self) -> dict[str, Any] | None:
        """Read result.json; None if the run has not finished."""
        if not (self.path / "result.json").exists():
            return None
        result = self._read("result.json")
        test = result.get("test")
        if not isinstance(test, dict) or not all(v is None or _numbers(v) for v in test.values()):
            raise UserError(f"{self.path / 'result.json'} is not a valid result.json: delete the run")
        return result

    def metrics(self, offset: int = 0) -> tuple[list[dict[str, Any]], int]:
        """Return the records from a byte offset on, and the offset for the next call, which will also read a last line
        that is still incomplete."""
        try:
            with self.open_metrics() as file:
                file.seek(offset)
                data = file.read()
        except OSError:  # not written yet, or damaged
            return [], 0
        end = data.rfind(b"\n") + 1
        records = []
        for line in data[:end].splitlines():
            with contextlib.suppress(ValueError):  # a damaged line
                record = parse_json(line, only_numbers=True)
                if isinstance(record, dict) and all(  # that can be plotted
                        not isinstance(v, int) or isinstance(v, bool) or _numbers(v) for v in record.values()):
                    record.pop(CHECKSUM, None)
                    records.append(record)
        return records, offset + end

    def changed_metrics(self) -> str:
        """Say which lines of metrics.jsonl were changed after they were written; empty if none were."""
        changed: list[int] = []
        with contextlib.suppress(OSError), self.open_metrics() as file:  # not written yet, or damaged
            changed = changed_lines(file.read())
        if not changed:
            return ""
        named = ", ".join(map(str, changed[:5])) + (" …" if len(changed) > 5 else "")
        lines = f"line {named} was" if len(changed) == 1 else f"{len(changed)} lines ({named}) were"
        return (f"metrics.jsonl: {lines} changed after training wrote {'it' if len(changed) == 1 else 'them'}, so that "
                "curves may be wrong there; restore the file from a backup, or train the run again")

    def open_metrics(self) -> BinaryIO:
        """Open the metrics for reading; those of a recorded run are compressed. Raise an OSError if damaged."""
        try:
            return open_regular(self.path / "metrics.jsonl")
        except FileNotFoundError:
            path = self.path / "metrics.jsonl.gz"
        try:
            with open_regular(path) as stored, gzip.open(stored) as file:
                content = file.read(MAX_METRICS + 1)
        except (EOFError, zlib.error) as error:
            raise OSError(errno.EIO, f"it is damaged: {error}", str(path)) from None
        if len(content) > MAX_METRICS:
            raise OSError(errno.EFBIG, f"it unpacks to more than {MAX_METRICS / 1e6:.0f} MB", str(path))
        return io.BytesIO(content)

    def snapshots(self) -> list[Path]:
        """List the snapshot files in order."""
        return sorted((self.path / "snapshots").glob("*.npz"))

    def snapshot(self, path: Path) -> dict[str, np.ndarray]:
        """Read the arrays of a snapshot."""
        try:
            with open_regular(path) as handle, np.load(handle, allow_pickle=False) as file:
                size = sum(member.file_size for member in file.zip.infolist())
                if size > MAX_SNAPSHOT:
                    raise ValueError(f"it unpacks to {size / 1e6:.0f} MB, more than {MAX_SNAPSHOT / 1e6:.0f}")
                return decode({k: file[k] for k in file.files})
        except (OSError, ValueError, EOFError, KeyError, MemoryError, AttributeError, zipfile.BadZipFile,
                zlib.error) as error:
            raise UserError(f"{path} cannot be read ({error})") from None

    def request_stop(self) -> None:
        """Ask the process that trains the run to stop."""
        self.refuse_recorded("stopped")
        (self.path / "stop").touch()

    def cancel_stop(self) -> None:
        self.refuse_recorded("resumed")
        (self.path / "stop").unlink(missing_ok=True)

    def delete(self) -> None:
        self.refuse_recorded("deleted")
        shutil.rmtree(self.path)


def _numbers(*values: Any) -> bool:
    return all(isinstance(v, int | float) and not isinstance(v, bool) and abs(v) <= LARGEST for v in values)


class RunStore:
    """A folder of runs, `root`, in which new ones are created, and a folder of recorded runs that are read beside them.

    Ids of recorded runs can be opened like those of others, but iterating over the store yields those of `root` only.
    If both folders are the same, all runs are recorded.
    """

    def __init__(self, root: Path | str, recorded: Path | None = None) -> None:
        self.root = Path(root)
        self._recorded = recorded.resolve() if recorded is not None else None
        self.only_recorded = False
        if self._recorded is not None:
            with contextlib.suppress(TimeoutError):
                self.only_recorded = within_limit(self.root, self.root.resolve) == self._recorded

    def create(self, config: Config, extra: dict[str, Any]) -> Run:
        """Create a run in state `queued`; `extra` is added to config.json."""
        if self.only_recorded:
            raise UserError("recorded runs can only be read: choose another folder with --runs DIR")
        run: Run | None = None
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            while run is None:
                name = f"{config.experiment}-{config.method}-{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}"
                with contextlib.suppress(FileExistsError):
                    (self.root / name).mkdir()
                    run = Run(self.root / name)
            write_json(run.path / "config.json", {"format": FORMAT, "id": run.id, "created": time.time(),
                                                  "config": config.to_dict(), **extra}, indent=2)
            write_json(run.path / "status.json", {"state": "queued", "progress": 0.0, "heartbeat": time.time(),
                                                  "process": identity(), "error": None})
        except OSError as error:
            remedy = "use"
            if run is not None:
                shutil.rmtree(run.path, ignore_errors=True)  # half a run is of no use
                remedy = "free disk space, or use" if error.errno in NO_ROOM else "use"
            raise UserError(f"runs cannot be written to {self.root} ({error.strerror}): {remedy} --runs DIR") from None
        return run

    def open(self, name: str) -> Run:
        """Return the run of that id; `name` may be a unique beginning of the id, or `last`."""
        if name == "last":
            runs = [run for run in self if (run.path / "config.json").exists()]
            if not runs:
                raise UserError(f"there is no run in {self.root} yet: start one with `acenode train`")
            return max(runs, key=lambda run: (run.path / "config.json").stat().st_mtime)
        if not NAME.fullmatch(name):
            raise UserError(f"{name!r} is not a run id: see `acenode list`")
        found = self.find(name)
        if found is not None:
            return found
        near = [run for run in self if run.id.startswith(name)] or \
            [run for run in self.recorded_runs() if run.id.startswith(name)]
        if len(near) == 1:
            return near[0]
        if not near:
            raise UserError(f"there is no run {name!r} in {self.root}: see `acenode list`")
        some = ", ".join(sorted(run.id for run in near)[:4]) + ", …" * (len(near) > 4)
        raise UserError(f"{name!r} matches {len(near)} runs: use a longer prefix of the id ({some})")

    def find(self, name: str) -> Run | None:
        """Return the run of exactly that id, or None. A run of the folder comes before a recorded one of that id."""
        if not NAME.fullmatch(name):
            return None
        if self._has(name):
            return self.run_of(name)
        if self._recorded is not None and name not in NOT_RUNS and (self._recorded / name).is_dir():
            return Run(self._recorded / name, recorded=True)
        return None

    def folder(self, name: str) -> Run:
        """Return the folder of that exact name even if it is not a run, to delete what cannot be read."""
        if Path(name).name == name and self._has(name):
            return self.run_of(name)
        raise UserError(f"there is no folder {name!r} in {self.root}")

    def check_readable(self) -> None:
        """Raise a UserError if the folder exists and cannot be listed, which is not the same as having no runs."""
        try:
            within_limit(self.root, lambda: os.scandir(self.root).close())
        except FileNotFoundError:
            return
        except TimeoutError:
            raise UserError(f"{self.root} cannot be read: {REASON}") from None
        except OSError as error:
            raise UserError(f"{self.root} cannot be read ({error.strerror}): change its permissions, or use --runs "
                            "DIR") from None

    def __iter__(self) -> Iterator[Run]:
        """Iterate over all folders that may be runs, by name."""
        yield from map(self.run_of, self.names())

    def names(self) -> list[str]:
        """List the names of all folders that may be runs, in order."""
        def listed() -> list[tuple[str, bool]]:
            if not self.root.is_dir():
                return []
            with os.scandir(self.root) as found:  # says which are folders without asking for each
                return sorted((p.name, p.is_symlink()) for p in found
                              if p.is_dir(follow_symlinks=False) or p.is_symlink())

        return [name for name, is_link in within_limit(self.root, listed)
                if self._may_be_run(name) and (not is_link or self._has(name))]

    def recorded_runs(self) -> Iterator[Run]:
        """Iterate over the recorded runs by name, without those that are runs of the folder as well."""
        if self._recorded is not None and not self.only_recorded and self._recorded.is_dir():
            own: set[str] = set()
            with contextlib.suppress(OSError):  # there is no such folder, or it does not answer
                own = set(within_limit(self.root, lambda: os.listdir(self.root)))
            yield from (Run(p, recorded=True) for p in sorted(self._recorded.iterdir())
                        if p.is_dir() and not p.name.startswith(".") and p.name not in own | NOT_RUNS)

    def run_of(self, name: str) -> Run:
        """Return the run in the folder of this name, which need not exist."""
        return Run(self.root / name, recorded=self.only_recorded)

    def _has(self, name: str) -> bool:
        """Return True if there is a folder of this name that may be a run, also if its disk does not answer."""
        try:
            return within_limit(self.root / name, lambda: self._may_be_run(name) and (self.root / name).is_dir())
        except TimeoutError:
            return True

    def _may_be_run(self, name: str) -> bool:
        if not name or name in NOT_RUNS or name.startswith("."):
            return False
        place = self.root / name
        return (self._recorded is None or name.lower() != self._recorded.name.lower()  # quick to compare
                or not place.exists() or not place.samefile(self._recorded))


# Lines of metrics.jsonl ---------------------------------------------------------------------------------------------
#
# Each is a JSON object, which ends with a checksum that shows whether the line was changed: the CRC-32 of the line
# without it. Lines that older versions wrote have none.
#
#     {"kind": "step", "step": 0, "L_h": 2.31, "crc": "5f0c91d2"}

CHECKSUM = "crc"
_END = re.compile(rb', "crc": "([0-9a-f]{8})"\}$', re.MULTILINE)


def encode_record(record: dict[str, Any]) -> bytes:
    """Return a record as a line with its checksum."""
    text = json.dumps(record).encode()
    return text[:-1] + f', "{CHECKSUM}": "{zlib.crc32(text):08x}"}}\n'.encode()


def changed_lines(lines: bytes) -> list[int]:
    """Return the numbers of the lines, counted from 1, that do not match their checksums."""
    changed, begun = [], False  # after the first line with a checksum all have one
    for number, line in enumerate(lines[:lines.rfind(b"\n") + 1].splitlines(), 1):
        end = _END.search(line)
        begun = begun or end is not None
        if (end is not None and int(end[1], 16) != zlib.crc32(line[:end.start()] + b"}")) or (begun and end is None):
            changed.append(number)
    return changed
