"""Downloads: from the first mirror that serves, checked while they stream, whole or not at all."""

import hashlib
import http.client
import socket
import ssl
from collections.abc import Sequence
from functools import partial
from http.client import HTTPResponse
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from acenode.data.data_source import Progress
from acenode.data.disk import replacing
from acenode.errors import UserError

CHUNK = 1 << 16

_NETWORK = "check the network connection and any proxy, then try again"
_AGAIN = "try again"
_LATER = "try again later"


class _MirrorError(Exception):
    """Why one mirror did not serve, and what to do about it; the next mirror may serve."""

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
    """Bring `target` here from the first of `urls` that serves it; one that has the checksum is kept."""
    wanted = {name: digest.lower() for name, digest in (("md5", md5), ("sha256", sha256)) if digest}
    if _is_whole(target, wanted):
        if progress is not None:
            size = target.stat().st_size
            progress(size, size, target.name)
        return target
    troubles: list[str] = []
    advice = _AGAIN
    for url in urls:
        try:
            _download(url, target, wanted, progress, timeout)
        except _MirrorError as trouble:
            troubles.append(f"{urlsplit(url).netloc} {trouble}")
            advice = trouble.advice
        else:
            return target
    words = f"cannot download {target.name}: {'; '.join(troubles)}: {advice}"
    raise UserError(" ".join(words.split()))  # a server's words may hold a line break


def _is_whole(path: Path, wanted: dict[str, str]) -> bool:
    """Whether the file is there with every checksum asked for; without one nothing can be said."""
    if not wanted:
        return False
    try:
        with open(path, "rb") as handle:
            for name, digest in wanted.items():
                handle.seek(0)
                if hashlib.file_digest(handle, partial(_digest, name)).hexdigest() != digest:
                    return False
    except OSError:  # unreadable is as good as not there
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
        error.close()  # it is a response too
        raise _MirrorError(f"answered {error.code} {error.reason}", _LATER) from error
    except (OSError, http.client.HTTPException) as error:
        raise _explain(error) from error


def _read(response: HTTPResponse) -> bytes:
    # The network's errors are told from the disk's here: both are OSErrors.
    try:
        return response.read(CHUNK)
    except (OSError, http.client.HTTPException) as error:
        raise _explain(error) from error


def _length(response: HTTPResponse) -> int | None:
    stated = response.headers.get("Content-Length", "")
    return int(stated) if stated.isdecimal() else None


def _explain(error: Exception) -> _MirrorError:
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
