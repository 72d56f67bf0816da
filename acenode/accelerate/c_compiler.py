"""C that is compiled where it runs, once for a machine: by the system's compiler, into the user's cache folder.

A library's name holds the hash of what it was made from and of what it holds, so that one for another processor is not
taken for this one's, and a torn one is made again.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path

from acenode import files
from acenode.files import user_cache

COMPILERS = ("cc", "gcc", "clang")
# a NaN stays one: no -ffast-math; the products are written in the order in which their numbers fit the registers
ALWAYS = ["-std=gnu11", "-O3", "-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math", "-fno-schedule-insns",
          "-shared", "-fPIC"]
WISHES: list[list[str]] = [["-march=native", "-fopenmp"], ["-fopenmp"], ["-march=native"], []]  # the first that works
PATIENCE = 120.0  # seconds for the compiler


def library(source: Path) -> ctypes.CDLL | None:
    """The library made from a C file; None without a compiler that makes it."""
    compiler = next(filter(None, map(shutil.which, COMPILERS)), None)
    if compiler is None or os.name != "posix":
        return None
    try:
        code = [path.read_bytes() for path in (source, *sorted(source.parent.glob("*.h")))]
        made_from = [*code, compiler.encode(), repr((ALWAYS, WISHES)).encode(), _machine()]
        key = hashlib.sha256(b"\0".join(made_from)).hexdigest()[:24]
        return _load(_folder(), key) or _build(compiler, source, key)
    except (OSError, subprocess.SubprocessError):
        return None


def _folder() -> Path | None:
    """None for an account without a home folder."""
    with suppress(RuntimeError):
        return user_cache() / "acenode" / "kernels"
    return None


def _machine() -> bytes:
    """What a library that is made for this very processor depends on."""
    told = [platform.machine(), platform.system(), platform.processor()]
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
        told += sorted({line for line in lines if line.startswith(("flags", "Features", "model name", "CPU part"))})
    return "\n".join(told).encode()


def _name(key: str, content: bytes) -> str:
    return f"{key}-{hashlib.sha256(content).hexdigest()[:24]}.so"


def _load(folder: Path | None, key: str) -> ctypes.CDLL | None:
    for path in sorted(folder.glob(f"{key}-*.so")) if folder is not None else []:
        with suppress(OSError):  # torn, gone in between, or not loadable
            if path.name == _name(key, path.read_bytes()):
                return ctypes.CDLL(str(path))
    return None


def _build(compiler: str, source: Path, key: str) -> ctypes.CDLL | None:
    with tempfile.TemporaryDirectory(prefix="acenode-") as scratch:
        made = Path(scratch) / "made.so"
        for wish in WISHES:
            words = [compiler, *ALWAYS, *wish, str(source), "-o", str(made), "-lm"]
            if subprocess.run(words, capture_output=True, timeout=PATIENCE, check=False).returncode == 0:
                with suppress(OSError):  # made, but not loadable: without OpenMP's library, for one
                    loaded = ctypes.CDLL(str(made))  # stays so when its file has gone
                    _keep(key, made.read_bytes())
                    return loaded
    return None


def _keep(key: str, content: bytes) -> None:
    folder = _folder()
    if folder is not None:
        with suppress(OSError):
            files.write_atomic(folder / _name(key, content), content)
