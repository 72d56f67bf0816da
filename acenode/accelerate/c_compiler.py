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

import torch.nn.functional as F
from torch import Tensor

from acenode import files
from acenode.files import user_cache

COMPILERS = ("cc", "gcc", "clang")
HEADERS = Path(__file__).parent / "c_headers"  # that all kernels share
# no -ffast-math: a NaN must stay one; no scheduling: the products are written in an order that fits the registers
FLAGS = ["-std=gnu11", "-O3", "-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math", "-fno-schedule-insns",
          "-shared", "-fPIC"]
# the first set that the compiler accepts is used
OPTIONAL_FLAGS: list[list[str]] = [["-march=native", "-fopenmp"], ["-fopenmp"], ["-march=native"], []]
TIMEOUT = 120.0  # seconds for the compiler


class Kernel:
    """A C file that is compiled and loaded when it is first needed. Threads may share one.

    Args:
        source: the file.
        job: the struct to which its functions take a pointer.
        functions: their names.
    """

    def __init__(self, source: Path, job: type[ctypes.Structure], functions: Sequence[str]) -> None:
        self.source, self.job, self.functions = source, job, functions
        self._lock = Lock()

    def load(self) -> ctypes.CDLL | None:
        """Return the library, or None if there is no compiler that can compile it."""
        with self._lock:
            return self._library

    @cached_property
    def _library(self) -> ctypes.CDLL | None:
        found = library(self.source)
        for name in self.functions if found is not None else ():
            getattr(found, name).argtypes = [ctypes.POINTER(self.job)]
        return found

    def call(self, function: str, **values: Any) -> bool:
        """Call a function with a struct of these values, tensors as addresses; return True if it found no memory."""
        job = self.job()
        for name, value in values.items():
            if isinstance(value, Sequence):
                for i, one in enumerate(value):
                    getattr(job, name)[i] = _to_c(one)
            else:
                setattr(job, name, _to_c(value))
        return bool(getattr(self.load(), function)(job))


def _to_c(value: Any) -> Any:
    return value.data_ptr() if isinstance(value, Tensor) else value


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
        return user_cache() / "acenode" / "kernels"
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
                    _keep(key, made.read_bytes())
                    return loaded
    return None


def _keep(key: str, content: bytes) -> None:
    folder = _folder()
    if folder is not None:
        with suppress(OSError):
            files.write_atomic(folder / _name(key, content), content)
