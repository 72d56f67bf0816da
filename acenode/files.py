"""Files that are whole or not there: written beside and renamed."""

from __future__ import annotations

import json
import os
import secrets
from pathlib import Path
from typing import Any


def write_atomic(path: Path, content: bytes) -> None:
    """Put `content` at `path`; whoever reads sees the old file or the new one, and a failure leaves nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{secrets.token_hex(6)}.part")
    try:
        with open(part, "xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def write_json(path: Path, value: Any, indent: int | None = None) -> None:
    write_atomic(path, json.dumps(value, ensure_ascii=False, indent=indent, allow_nan=False).encode())


def read_json(path: Path) -> Any:
    """The value in the file; ValueError where it is not JSON in UTF-8."""
    return json.loads(path.read_bytes().decode("utf-8"))
