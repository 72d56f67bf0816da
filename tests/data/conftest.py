"""A local mirror that serves small image sets in their official formats, and misbehaves on request."""

import errno
import gzip
import hashlib
import io
import struct
import tarfile
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from acenode import files
from acenode.data.sources import SOURCES, ImageSource, RemoteFile


@dataclass
class Answer:
    body: bytes
    status: int = 200
    missing: int = 0  # bytes promised and not sent
    stated: bool = True  # whether the length is
    gate: threading.Event | None = None  # waited for before anything is sent


@dataclass
class Mirror:
    url: str
    answers: dict[str, Answer] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)

    def serve(self, name: str, body: bytes, **manners: object) -> str:
        self.answers[f"/{name}"] = Answer(body, **manners)  # type: ignore[arg-type]
        return f"{self.url}/{name}"


@pytest.fixture(autouse=True)
def _direct(monkeypatch: pytest.MonkeyPatch) -> None:
    """No proxy between a test and its own server."""
    monkeypatch.setenv("no_proxy", "*")


@pytest.fixture
def mirror() -> Iterator[Mirror]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            mirror.requests.append(self.path)
            answer = mirror.answers.get(self.path, Answer(b"", status=404))
            if answer.gate is not None:
                answer.gate.wait(10)
            self.send_response(answer.status)
            if answer.stated:
                self.send_header("Content-Length", str(len(answer.body) + answer.missing))
            self.end_headers()
            self.wfile.write(answer.body)

        def handle(self) -> None:
            with suppress(ConnectionError):  # a client that gave up
                super().handle()

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    mirror = Mirror(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield mirror
    server.shutdown()
    server.server_close()
    thread.join()


@dataclass(frozen=True)
class Official:
    """A small set: where the mirror serves it, its raw files, and the arrays they stand for."""

    source: ImageSource
    files: dict[str, bytes]
    arrays: dict[str, np.ndarray]


@pytest.fixture
def official(mirror: Mirror) -> Callable[[str], Official]:
    def build(name: str) -> Official:
        source = replace(SOURCES[name], train=15, test=4)
        rng = np.random.default_rng(7)
        arrays = {}
        for part, count in (("train", source.train), ("test", source.test)):
            arrays[f"x_{part}"] = rng.integers(0, 256, (count, *source.shape), dtype=np.uint8)
            arrays[f"y_{part}"] = (np.arange(count) % 10).astype(np.uint8)  # a zero is among them
        files = {"mnist": _mnist, "svhn": _svhn, "cifar10": _cifar10}[name](arrays)
        assert set(files) == {file.name for file in source.files}
        remote = tuple(
            RemoteFile(file, (mirror.serve(file, body),), hashlib.md5(body).hexdigest())
            for file, body in files.items()
        )
        return Official(replace(source, files=remote), files, arrays)

    return build


def _mnist(arrays: dict[str, np.ndarray]) -> dict[str, bytes]:
    files = {}
    for part, prefix in (("train", "train"), ("test", "t10k")):
        x, y = arrays[f"x_{part}"], arrays[f"y_{part}"]
        images = struct.pack(">IIII", 2051, len(x), 28, 28) + x.tobytes()
        labels = struct.pack(">II", 2049, len(y)) + y.tobytes()
        files[f"{prefix}-images-idx3-ubyte.gz"] = gzip.compress(images)
        files[f"{prefix}-labels-idx1-ubyte.gz"] = gzip.compress(labels)
    return files


def _svhn(arrays: dict[str, np.ndarray]) -> dict[str, bytes]:
    from scipy.io import savemat

    files = {}
    for part in ("train", "test"):
        x, y = arrays[f"x_{part}"], arrays[f"y_{part}"]
        content = io.BytesIO()
        savemat(
            content,
            {"X": np.moveaxis(x, 0, 3), "y": np.where(y == 0, 10, y)[:, None]},
            do_compression=True,
        )
        files[f"{part}_32x32.mat"] = content.getvalue()
    return files


def _cifar10(arrays: dict[str, np.ndarray]) -> dict[str, bytes]:
    members = {"readme.html": b"<html></html>", "test_batch.bin": _cifar_records(arrays, "test", slice(None))}
    for batch in reversed(range(5)):  # the archive keeps no order of its own
        members[f"data_batch_{batch + 1}.bin"] = _cifar_records(
            arrays, "train", slice(3 * batch, 3 * batch + 3)
        )
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as archive:
        for name, body in members.items():
            info = tarfile.TarInfo(f"cifar-10-batches-bin/{name}")
            info.size = len(body)
            archive.addfile(info, io.BytesIO(body))
    return {"cifar-10-binary.tar.gz": content.getvalue()}


def _cifar_records(arrays: dict[str, np.ndarray], part: str, which: slice) -> bytes:
    pairs = zip(arrays[f"x_{part}"][which], arrays[f"y_{part}"][which], strict=True)
    return b"".join(
        bytes([label]) + b"".join(image[:, :, channel].tobytes() for channel in range(3))
        for image, label in pairs
    )


@pytest.fixture
def files_under() -> Callable[[Path], list[str]]:
    """Every file under a folder but the locks, which are meant to stay."""

    def listing(folder: Path) -> list[str]:
        found = (path for path in folder.rglob("*") if path.is_file() and path.suffix != ".lock")
        return sorted(str(path.relative_to(folder)) for path in found)

    return listing


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that takes the first bytes of a file and no more."""

    class Full(io.FileIO):
        def write(self, data: bytes) -> int:  # type: ignore[override]
            if self.tell() > 0:
                raise OSError(errno.ENOSPC, "No space left on device")
            return super().write(bytes(data)[:64])

    monkeypatch.setattr(files, "create", lambda path: io.BufferedWriter(Full(path, "xb")))
