"""A cache of the values used last, limited by their size in bytes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class ByteCache(Generic[T]):
    """Keep the values used last, up to a number of bytes; the newest value always stays."""

    def __init__(self, size_of: Callable[[T], int], limit: int) -> None:
        self.size_of, self.limit, self.bytes = size_of, limit, 0
        self.values: OrderedDict[Any, T] = OrderedDict()

    def get(self, key: Any, make: Callable[[], T]) -> T:
        """Return the value of a key, made if it is not in the cache."""
        if key not in self.values:
            return self.put(key, make())
        self.values.move_to_end(key)
        return self.values[key]

    def put(self, key: Any, value: T) -> T:
        """Store or replace a value, whose size must not change while it is in the cache."""
        if key in self.values:
            self.bytes -= self.size_of(self.values.pop(key))
        self.values[key] = value
        self.bytes += self.size_of(value)
        while self.bytes > self.limit and len(self.values) > 1:
            self.bytes -= self.size_of(self.values.popitem(last=False)[1])
        return value
