"""Download files: from the first mirror that works, verified while they arrive, saved completely or not at all."""

import hashlib
import http.client
import socket
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from http.client import HTTPResponse
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from acenode.data.folder import replacing
from acenode.errors import UserError

Progress = Callable[[int, int | None, str], None]
"""Called with the bytes done, the total if it is known, and a label."""

CHUNK = 1 << 16

_NETWORK = "check the network connection and any proxy, then try again"
_AGAIN = "try again"
_LATER = "try again later"


@dataclass(frozen=True)
class RemoteFile:
    """A file to download: its name, its mirrors in the order to try them, and its checksums if they are known."""

    name: str
    urls: tuple[str, ...]
    md5: str | None = None
    sha256: str | None = None


class _MirrorError(Exception):
    """Why a mirror failed, and what to do about it; the next mirror may work."""

    def __init__(self, what: str, advice: str) -> None:
        super().__init__(what)
        self.advice = advice


def fetch(
    urls: Sequence[str],
    target: Path,
    *,
    md5: str | None = None,
    sha256: str | None = None,
    progress: Progress | None = None,
    timeout: float = 30.0,
) -> Path:
    """Download `target` from the first of `urls` that works; a file with the right checksum is kept.

    `timeout` is the time in seconds without any data after which a mirror has failed.
    """
    wanted = {name: digest.lower() for name, digest in (("md5", md5), ("sha256", sha256)) if digest}
    if _has_checksums(target, wanted):
        if progress is not None:
            size = target.stat().st_size
            progress(size, size, target.name)
        return target
    failures: list[str] = []
    advice = _AGAIN
    for url in urls:
        try:
            _download(url, target, wanted, progress, timeout)
        except _MirrorError as failure:
            failures.append(f"{urlsplit(url).netloc} {failure}")
            advice = failure.advice
        else:
            return target
    words = f"cannot download {target.name}: {'; '.join(failures)}: {advice}"
    raise UserError(" ".join(words.split()))  # a server's message may contain line breaks


def _has_checksums(path: Path, wanted: dict[str, str]) -> bool:
    """Return True if the file exists and has all the checksums; False if no checksum is known."""
    if not wanted:
        return False
    try:
        with open(path, "rb") as handle:
            for name, digest in wanted.items():
                handle.seek(0)
                if hashlib.file_digest(handle, partial(_digest, name)).hexdigest() != digest:
                    return False
    except OSError:  # missing or unreadable
        return False
    return True


def _digest(name: str) -> "hashlib._Hash":
    return hashlib.new(name, usedforsecurity=False)


def _download(
    url: str, target: Path, wanted: dict[str, str], progress: Progress | None, timeout: float
) -> None:
    with _open(url, timeout) as response, replacing(target) as part:
        total = _length(response)
        digests = {name: _digest(name) for name in wanted}
        done = 0
        while chunk := _read(response):
            part.write(chunk)
            for digest in digests.values():
                digest.update(chunk)
            done += len(chunk)
            if progress is not None:
                progress(done, total, target.name)
        if total is not None and done != total:
            raise _MirrorError(f"broke off after {done} of {total} bytes", _AGAIN)
        for name, digest in digests.items():
            if digest.hexdigest() != wanted[name]:
                raise _MirrorError(
                    f"sent a file whose {name} is {digest.hexdigest()} and not {wanted[name]}, "
                    "which was discarded",
                    _LATER,
                )


def _open(url: str, timeout: float) -> HTTPResponse:
    request = Request(url, headers={"User-Agent": "acenode"})
    try:
        return urlopen(request, timeout=timeout)
    except HTTPError as error:
        error.close()  # it holds the open response
        raise _MirrorError(f"answered {error.code} {error.reason}", _LATER) from error
    except (OSError, http.client.HTTPException) as error:
        raise _explain(error) from error


def _read(response: HTTPResponse) -> bytes:
    # Errors of the network are caught here, apart from those of the disk: both are OSErrors.
    try:
        return response.read(CHUNK)
    except (OSError, http.client.HTTPException) as error:
        raise _explain(error) from error


def _length(response: HTTPResponse) -> int | None:
    stated = response.headers.get("Content-Length", "")
    return int(stated) if stated.isdecimal() else None


def _explain(error: Exception) -> _MirrorError:
    """Describe an error of the network in plain words."""
    cause = error.reason if isinstance(error, URLError) else error
    match cause:
        case socket.gaierror():
            return _MirrorError("was not found", _NETWORK)
        case TimeoutError():
            return _MirrorError("did not answer in time", _NETWORK)
        case ConnectionRefusedError():
            return _MirrorError("refused the connection", _NETWORK)
        case ssl.SSLError():
            return _MirrorError(f"could not be trusted ({cause.reason})", _NETWORK)
        case http.client.IncompleteRead() | ConnectionError():
            return _MirrorError("broke off", _AGAIN)
        case _:
            return _MirrorError(f"could not be reached ({cause})", _NETWORK)
