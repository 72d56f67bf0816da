"""A local web server with small image sets in their official formats, which fails on request."""

import errno
import gzip
import hashlib
import io
import pickle
import struct
import tarfile
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from acenode import files
from acenode.data.images import IMAGE_SOURCES, ImageSource, torchvision_datasets


@dataclass
class Answer:
    """The response of the server to one path."""

    body: bytes
    status: int = 200
    missing: int = 0  # bytes promised and not sent
    stated: bool = True  # whether the length is stated
    gate: threading.Event | None = None  # waited for before anything is sent


@dataclass
class Mirror:
    """The server: its address, its answers by path, and the paths that were requested."""

    url: str
    answers: dict[str, Answer] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)

    def serve(self, name: str, body: bytes, **behaviour: object) -> str:
        self.answers[f"/{name}"] = Answer(body, **behaviour)  # type: ignore[arg-type]
        return f"{self.url}/{name}"


@pytest.fixture(autouse=True)
def _own_server_and_folder(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Bypass proxies, and keep tests out of the real data."""
    monkeypatch.setenv("no_proxy", "*")
    if not request.node.get_closest_marker("realdata"):
        monkeypatch.setenv("ACENODE_DATA", str(tmp_path / "data"))


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
            with suppress(ConnectionError):  # the client closed the connection
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
    """A small image set served by the mirror: its source, its official files and the arrays in them."""

    source: ImageSource
    files: dict[str, bytes]
    arrays: dict[str, np.ndarray]


@pytest.fixture
def official(mirror: Mirror) -> Callable[[str], Official]:
    def build(name: str) -> Official:
        source = replace(IMAGE_SOURCES[name], train=15, test=4)
        rng = np.random.default_rng(7)
        arrays = {}
        for part, count in (("train", source.train), ("test", source.test)):
            arrays[f"x_{part}"] = rng.integers(0, 256, (count, *source.shape), dtype=np.uint8)
            arrays[f"y_{part}"] = (np.arange(count) % 10).astype(np.uint8)  # a zero is among them
        files, attributes = {"mnist": _mnist, "svhn": _svhn, "cifar10": _cifar10}[name](arrays, mirror.url)
        for file, body in files.items():
            mirror.serve(file, body)
        dataset = getattr(torchvision_datasets(), source.torchvision)
        return Official(replace(source, dataset=type(dataset.__name__, (dataset,), attributes)), files, arrays)

    return build


Files = tuple[dict[str, bytes], dict[str, Any]]  # by name, and the attributes of torchvision's class for them


def _md5(body: bytes) -> str:
    return hashlib.md5(body).hexdigest()


def _mnist(arrays: dict[str, np.ndarray], url: str) -> Files:
    files = {}
    for part, prefix in (("train", "train"), ("test", "t10k")):
        x, y = arrays[f"x_{part}"], arrays[f"y_{part}"]
        for name, head, array in (("images-idx3", (2051, len(x), 28, 28), x), ("labels-idx1", (2049, len(y)), y)):
            files[f"{prefix}-{name}-ubyte.gz"] = gzip.compress(struct.pack(f">{len(head)}I", *head) + array.tobytes())
    return files, {"mirrors": [f"{url}/"], "resources": [(name, _md5(body)) for name, body in files.items()]}


def _svhn(arrays: dict[str, np.ndarray], url: str) -> Files:
    from scipy.io import savemat

    files, splits = {}, {}
    for part in ("train", "test"):
        x, y, content, name = arrays[f"x_{part}"], arrays[f"y_{part}"], io.BytesIO(), f"{part}_32x32.mat"
        savemat(content, {"X": np.moveaxis(x, 0, 3), "y": np.where(y == 0, 10, y)[:, None]}, do_compression=True)
        files[name] = content.getvalue()
        splits[part] = [f"{url}/{name}", name, _md5(files[name])]
    return files, {"split_list": splits}


def _cifar10(arrays: dict[str, np.ndarray], url: str) -> Files:
    def batch(part: str, which: slice) -> bytes:
        x, labels = arrays[f"x_{part}"][which].transpose(0, 3, 1, 2), arrays[f"y_{part}"][which].tolist()
        return pickle.dumps({"data": x.reshape(len(x), -1), "labels": labels})

    members = {f"data_batch_{i + 1}": batch("train", slice(3 * i, 3 * i + 3)) for i in range(5)}
    members |= {"test_batch": batch("test", slice(None)),
                "batches.meta": pickle.dumps({"label_names": list(IMAGE_SOURCES["cifar10"].classes)})}
    content, name = io.BytesIO(), "cifar-10-python.tar.gz"
    with tarfile.open(fileobj=content, mode="w:gz") as archive:
        for member, body in reversed(members.items()):  # the order in the archive does not matter
            info = tarfile.TarInfo(f"cifar-10-batches-py/{member}")
            info.size = len(body)
            archive.addfile(info, io.BytesIO(body))
    digests = [[member, _md5(body)] for member, body in members.items()]
    return {name: content.getvalue()}, {
        "url": f"{url}/{name}", "tgz_md5": _md5(content.getvalue()),
        "train_list": digests[:5], "test_list": digests[5:6],
        "meta": {"filename": "batches.meta", "key": "label_names", "md5": digests[6][1]}}


@pytest.fixture
def files_under() -> Callable[[Path], list[str]]:
    """List every file under a folder except lock files, which are meant to stay."""

    def listing(folder: Path) -> list[str]:
        found = (path for path in folder.rglob("*") if path.is_file() and path.suffix != ".lock")
        return sorted(str(path.relative_to(folder)) for path in found)

    return listing


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulate a disk that is full after the first bytes of a file."""

    class Full(io.FileIO):
        def write(self, data: bytes) -> int:  # type: ignore[override]
            if self.tell() > 0:
                raise OSError(errno.ENOSPC, "No space left on device")
            return super().write(bytes(data)[:64])

    monkeypatch.setattr(files, "create", lambda path: io.BufferedWriter(Full(path, "xb")))
