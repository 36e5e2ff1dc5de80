"""A bounded number of things in memory, the least recently used put out first: detectors, explanations."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from threading import Lock
from typing import Generic, TypeVar

Value = TypeVar("Value")
Key = tuple[str, *tuple[int, ...]]
"""A detector's uid and numbers: what was loaded under a key never changes."""


class Loaded(Generic[Value]):
    """Things by detector and numbers, at most `capacity` of them."""

    def __init__(self, capacity: int) -> None:
        self.capacity = max(1, capacity)
        self._found: OrderedDict[Key, Value] = OrderedDict()
        self._lock = Lock()
        self._loading: dict[Key, Lock] = {}

    def __len__(self) -> int:
        return len(self._found)

    def __contains__(self, key: Key) -> bool:
        return key in self._found

    def get(self, key: Key, load: Callable[[], Value]) -> Value:
        """The thing of a key; loaded once, however many ask at the same time."""
        found = self._look_up(key)
        if found is not None:
            return found
        with self._lock:
            turn = self._loading.setdefault(key, Lock())
        with turn:
            found = self._look_up(key)
            if found is None:
                found = load()
                self._put(key, found)
        with self._lock:
            self._loading.pop(key, None)
        return found

    def forget(self, uid: str) -> None:
        with self._lock:
            for key in [key for key in self._found if key[0] == uid]:
                del self._found[key]

    def _look_up(self, key: Key) -> Value | None:
        with self._lock:
            found = self._found.get(key)
            if found is not None:
                self._found.move_to_end(key)
            return found

    def _put(self, key: Key, value: Value) -> None:
        with self._lock:
            self._found[key] = value
            while len(self._found) > self.capacity:
                self._found.popitem(last=False)
