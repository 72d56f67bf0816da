"""CRC-32C (Castagnoli) of many blocks at once: a byte of every block at a time, so that numpy does the looping."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

POLYNOMIAL = 0x82F63B78  # reflected


def _table() -> np.ndarray:
    """The remainders of all bytes."""
    rest: np.ndarray = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        rest = (rest >> 1) ^ (rest & 1) * np.uint32(POLYNOMIAL)
    return rest


TABLE = _table()


def crc32c(blocks: Sequence[bytes]) -> np.ndarray:
    """The checksum of each block, uint32."""
    lengths = np.array([len(b) for b in blocks], dtype=np.int64)
    order = np.argsort(-lengths, kind="stable")  # longest first: those still going on are a prefix
    sizes = lengths[order]
    data = np.frombuffer(b"".join(blocks), dtype=np.uint8)
    starts = (np.cumsum(lengths) - lengths)[order]
    state = np.full(len(blocks), 0xFFFFFFFF, dtype=np.uint32)
    for i in range(int(sizes[0]) if len(blocks) else 0):
        n = int(np.searchsorted(-sizes, -i, side="left"))  # blocks longer than i
        live = state[:n]
        state[:n] = TABLE[(live ^ data[starts[:n] + i]) & 0xFF] ^ (live >> 8)
    result = np.empty_like(state)
    result[order] = ~state
    return result
