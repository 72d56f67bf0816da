"""Compile C with the system's compiler, once per machine, into the user's cache folder.

A library's file name holds a hash of its sources, compiler and processor, and one of its content. So a library for
another processor is not loaded, and a damaged one is compiled again.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from acenode import files
from acenode.backend import Backend

COMPILERS = ("cc", "gcc", "clang")
HEADERS = Path(__file__).parent / "c_headers"  # that all kernels share
# no -ffast-math: a NaN must stay one; no scheduling: the products are written in an order that fits the registers
FLAGS = ["-std=gnu11", "-O3", "-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math", "-fno-schedule-insns",
          "-shared", "-fPIC"]
# the first set that the compiler accepts is used
OPTIONAL_FLAGS: list[list[str]] = [["-march=native", "-fopenmp"], ["-fopenmp"], ["-march=native"], []]
TIMEOUT = 120.0  # seconds for the compiler


def fields(names: str, kind: Any = ctypes.c_void_p) -> list[tuple[str, Any]]:
    """Return fields of a struct that have one type."""
    return [(name, kind) for name in names.split()]


class Kernel:
    """A C file that is compiled and loaded when it is first needed; its functions take a pointer to a struct, `job`.

    Threads may share one.
    """

    def __init__(self, source: Path, job: type[ctypes.Structure]) -> None:
        self.source, self.job, self._lock = source, job, Lock()

    def load(self) -> ctypes.CDLL | None:
        """Return the library, or None if there is no compiler that can compile it."""
        with self._lock:
            return self._library

    @cached_property
    def _library(self) -> ctypes.CDLL | None:
        return library(self.source)

    def allowed(self, backend: Backend) -> ctypes.CDLL | None:
        """Return the library, compiled the first time; None if the backend allows no C or no compiler works."""
        return self.load() if backend.accelerated and backend.compile_c else None

    def call(self, function: str, *, weights: Sequence[Tensor | None] = (), **values: Any) -> None:
        """Call a function with a struct of these values, tensors as addresses; `sizes` are those of the weights."""
        values["threads"] = torch.get_num_threads()
        if weights:
            values |= {"weights": weights, "sizes": [0 if w is None else w.numel() for w in weights]}
        job = self.job()
        for name, value in values.items():
            if isinstance(value, Sequence):
                getattr(job, name)[:len(value)] = [_to_c(one) for one in value]
            else:
                setattr(job, name, _to_c(value))
        if getattr(self.load(), function)(ctypes.byref(job)):
            raise MemoryError("there is no memory left for this batch")


def _to_c(value: Any) -> Any:
    return value.data_ptr() if isinstance(value, Tensor) else value


def split_gradients(shares: Tensor, weights: Sequence[Tensor | None], needed: Sequence[bool]) -> list[Tensor | None]:
    """Return the gradients of the weights, which the first row of `shares` holds one after another."""
    parts = shares[0].split([0 if w is None else w.numel() for w in weights])
    return [d.view_as(w) if w is not None and wanted else None
            for d, w, wanted in zip(parts, weights, needed, strict=True)]


def padded(x: Tensor, lanes: int, rows: bool = True) -> Tensor:
    """Pad the columns of a tensor, and with `rows` the rows of a matrix, with zeros to whole vectors."""
    missing = [-n % lanes for n in x.shape]
    return F.pad(x, (0, missing[-1], *((0, missing[0]) if rows and x.dim() == 2 else ())))


def library(source: Path) -> ctypes.CDLL | None:
    """Compile and load a C file; return None if there is no compiler that can."""
    compiler = next(filter(None, map(shutil.which, COMPILERS)), None)
    if compiler is None or os.name != "posix":
        return None
    try:
        headers = [path for folder in (source.parent, HEADERS) for path in sorted(folder.glob("*.h"))]
        code = [path.read_bytes() for path in (source, *headers)]
        made_from = [*code, compiler.encode(), repr((FLAGS, OPTIONAL_FLAGS)).encode(), _machine()]
        key = hashlib.sha256(b"\0".join(made_from)).hexdigest()[:24]
        return _load(_folder(), key) or _build(compiler, source, key)
    except (OSError, subprocess.SubprocessError):
        return None


def _folder() -> Path | None:
    """Return the cache folder, or None for an account without a home folder."""
    with suppress(RuntimeError):
        return files.user_cache() / "acenode" / "kernels"
    return None


def _machine() -> bytes:
    """Describe the processor, which a library compiled with -march=native depends on."""
    description = [platform.machine(), platform.system(), platform.processor()]
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
        description += sorted({line for line in lines
                               if line.startswith(("flags", "Features", "model name", "CPU part"))})
    return "\n".join(description).encode()


def _name(key: str, content: bytes) -> str:
    return f"{key}-{hashlib.sha256(content).hexdigest()[:24]}.so"


def _load(folder: Path | None, key: str) -> ctypes.CDLL | None:
    for path in sorted(folder.glob(f"{key}-*.so")) if folder is not None else []:
        with suppress(OSError):  # damaged, removed meanwhile, or not loadable
            if path.name == _name(key, path.read_bytes()):
                return ctypes.CDLL(str(path))
    return None


def _build(compiler: str, source: Path, key: str) -> ctypes.CDLL | None:
    with tempfile.TemporaryDirectory(prefix="acenode-") as scratch:
        made = Path(scratch) / "made.so"
        for optional in OPTIONAL_FLAGS:
            command = [compiler, *FLAGS, *optional, f"-I{HEADERS}", str(source), "-o", str(made), "-lm"]
            if subprocess.run(command, capture_output=True, timeout=TIMEOUT, check=False).returncode == 0:
                with suppress(OSError):  # compiled but not loadable, for example without OpenMP's library
                    loaded = ctypes.CDLL(str(made))  # stays loaded after its file is removed
                    folder, content = _folder(), made.read_bytes()
                    with suppress(OSError):
                        if folder is not None:
                            files.write_atomic(folder / _name(key, content), content)
                    return loaded
    return None
