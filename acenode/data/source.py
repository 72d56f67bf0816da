"""What all data sets from official files have in common: verified downloads, and one prepared file, made once.

Files come from the first mirror that works, are verified while they arrive, and are saved completely or not at all.
"""

from __future__ import annotations

import hashlib
import http.client
import shutil
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from acenode import files
from acenode.data.folder import is_file, locked, replacing
from acenode.errors import UserError

Progress = Callable[[int, int | None, str], None]
"""Called with the bytes done, the total if it is known, and a label."""

CHUNK = 1 << 16
REPORT_LINES = 5000  # between two calls of progress
Arrays = TypeVar("Arrays")
_NETWORK = "check the network connection and any proxy, then try again"


@dataclass(frozen=True)
class RemoteFile:
    """A file to download: its name, its mirrors in the order to try them, and its checksum if it is known."""

    name: str
    urls: tuple[str, ...]
    checksum: tuple[str, str] | None = None  # the algorithm, such as md5, and the digest in lower case


@dataclass(frozen=True)
class DataState:
    """The state of a prepared file; `detail` describes it in words."""

    name: str
    state: Literal["ready", "missing", "broken"]
    path: Path
    bytes: int
    detail: str


@dataclass(frozen=True)
class DataSource(Generic[Arrays]):
    """A data set that is prepared once under a root folder and then read from there.

    A subclass makes the file (`_make`) and reads it with a description in words (`_read`, whose ValueError says what is
    wrong with the file).
    """

    name: str
    title: str

    def path(self, root: Path) -> Path:
        return root / f"{self.name}.npz"

    def prepare(self, root: Path, progress: Progress | None = None) -> Path:
        """Write the prepared file, and download what that needs; a usable file is left as it is.

        Several processes may ask at the same time. After a failure the downloads stay, so that the next attempt needs
        only what is missing.
        """
        path, downloads = self.path(root), root / "downloads" / self.name
        # Checked before the lock is taken, too: the file may be in a folder that cannot be written.
        if self.check(root).state == "ready":
            return path
        waiting = partial(progress, 0, None, f"waiting for another download of {self.name}") if progress else None
        with locked(root / f".{self.name}.lock", waiting):
            if self.check(root).state == "ready":
                return path
            for part in root.glob(f".{path.name}.*.part"):  # a killed process left it: nobody else holds the lock
                files.discard(part)
            self._make(root, downloads, progress)
            shutil.rmtree(downloads, ignore_errors=True)
            with suppress(OSError):  # downloads of another data set may be in it
                downloads.parent.rmdir()
        return path

    def load(self, root: Path) -> Arrays:
        path, get = self.path(root), f"`acenode data get {self.name}`"
        if not is_file(path):
            raise UserError(f"{self.name} is not downloaded yet: run {get}, or train with --data sample")
        try:
            return self._read(path)[0]
        except ValueError as error:
            raise UserError(f"{path} cannot be used ({error}): delete it, or get it again with {get}") from error

    def check(self, root: Path) -> DataState:
        """Tell whether the set is ready. The whole file is read, so that a damaged byte is found."""
        path, get = self.path(root), f"run `acenode data get {self.name}`"
        if not is_file(path):
            return DataState(self.name, "missing", path, 0, f"{self._missing(root)}: {get}")
        size = path.stat().st_size
        try:
            return DataState(self.name, "ready", path, size, self._read(path)[1])
        except ValueError as error:
            return DataState(self.name, "broken", path, size, f"{error}: {get}")

    def _missing(self, root: Path) -> str:
        return "not downloaded yet"

    def _make(self, root: Path, downloads: Path, progress: Progress | None) -> None:
        raise NotImplementedError

    def _read(self, path: Path) -> tuple[Arrays, str]:
        raise NotImplementedError


def lines_of(path: Path, progress: Progress | None = None) -> Iterator[str]:
    """Iterate over the lines that are not blank, stripped of surrounding white space."""
    done = count = 0
    try:
        size = path.stat().st_size
        with open(path, "rb") as handle:
            for raw in handle:
                done += len(raw)
                if progress is not None and count % REPORT_LINES == 0:
                    progress(done, size, f"reading {path.name}")
                if line := raw.decode("utf-8", errors="replace").strip():
                    count += 1
                    yield line
    except OSError as error:
        raise UserError(f"cannot read {path} ({error.strerror or error})") from error


class _MirrorError(Exception):
    """Why a mirror failed, and what to do about it; the next mirror may work."""

    def __init__(self, what: str, advice: str = "try again") -> None:
        super().__init__(what)
        self.advice = advice


def fetch(file: RemoteFile, target: Path, progress: Progress | None = None, timeout: float = 30.0) -> Path:
    """Download a file to `target` from its first mirror that works; a file with the right checksum is kept.

    `timeout` is the time in seconds without any data after which a mirror has failed.
    """
    name, wanted = file.checksum or ("md5", None)
    digest = partial(hashlib.new, name, usedforsecurity=False)
    if wanted and is_file(target):
        with suppress(OSError), open(target, "rb") as handle:
            if hashlib.file_digest(handle, digest).hexdigest() == wanted:
                if progress is not None:
                    progress(handle.tell(), handle.tell(), target.name)
                return target
    failures, advice = [], "try again"
    for url in file.urls:
        try:
            _download(url, target, digest(), wanted, progress, timeout)
        except _MirrorError as failure:
            failures.append(f"{urlsplit(url).netloc} {failure}")
            advice = failure.advice
        else:
            return target
    words = f"cannot download {target.name}: {'; '.join(failures)}: {advice}"
    raise UserError(" ".join(words.split()))  # a server's message may contain line breaks


def _download(url: str, target: Path, digest: Any, wanted: str | None, progress: Progress | None,
              timeout: float) -> None:
    with _network():
        response = urlopen(Request(url, headers={"User-Agent": "acenode"}), timeout=timeout)
    with response, replacing(target) as part:
        stated = response.headers.get("Content-Length", "")
        total = int(stated) if stated.isdecimal() else None
        while True:
            with _network():
                chunk = response.read(CHUNK)
            if not chunk:
                break
            part.write(chunk)
            digest.update(chunk)
            if progress is not None:
                progress(part.tell(), total, target.name)
        if total is not None and part.tell() != total:
            raise _MirrorError(f"broke off after {part.tell()} of {total} bytes")
        if wanted is not None and digest.hexdigest() != wanted:
            raise _MirrorError(f"sent a file whose {digest.name} is {digest.hexdigest()} and not {wanted}, which was "
                               "discarded", "try again later")


@contextmanager
def _network() -> Iterator[None]:
    """Describe errors of the network in plain words, apart from those of the disk: both are OSErrors."""
    try:
        yield
    except HTTPError as error:
        error.close()  # it holds the open response
        raise _MirrorError(f"answered {error.code} {error.reason}", "try again later") from error
    except (OSError, http.client.HTTPException) as error:
        cause = error.reason if isinstance(error, URLError) else error
        match cause:
            case socket.gaierror():
                failure = _MirrorError("was not found", _NETWORK)
            case TimeoutError():
                failure = _MirrorError("did not answer in time", _NETWORK)
            case ConnectionRefusedError():
                failure = _MirrorError("refused the connection", _NETWORK)
            case ssl.SSLError():
                failure = _MirrorError(f"could not be trusted ({cause.reason})", _NETWORK)
            case http.client.IncompleteRead() | ConnectionError():
                failure = _MirrorError("broke off")
            case _:
                failure = _MirrorError(f"could not be reached ({cause})", _NETWORK)
        raise failure from error
