"""One port, several worker processes: each takes a connection when it is its turn.

Connections are kept alive, so who takes eight of them at once has all the work for as long as they last, and the other
workers have none. The workers keep a list of who took the last ones, and who is on it waits a moment for the others.
"""

from __future__ import annotations

import mmap
import os
import socket
import time
from multiprocessing import reduction
from pathlib import Path
from typing import Any

PATIENCE = 0.02
"""Seconds that a worker waits for others whose turn it is; then they are taken to be busy, or gone."""
FREE = 1.0
"""For so many seconds it does not wait again."""
NUMBER = 8


class FairListener(socket.socket):
    """A listening socket whose `accept` waits for its turn; turns: a file of `make_turns` (None: only one worker)."""

    turns: Path | None = None

    def __init__(self, *arguments: Any, me: int | None = None, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._me = me
        self._list: mmap.mmap | None = None
        self._waiting_since: float | None = None
        self._free_until = 0.0

    def accept(self) -> tuple[socket.socket, Any]:
        """A connection; BlockingIOError when there is none, or when it is for another worker."""
        if not self._may_take(time.monotonic()):
            raise BlockingIOError
        taken = super().accept()
        self._note()
        return taken

    def _may_take(self, now: float) -> bool:
        if self._number not in self._read() or now < self._free_until:
            self._waiting_since = None
            return True
        if self._waiting_since is None:
            self._waiting_since = now
        if now - self._waiting_since < PATIENCE:
            return False
        self._waiting_since, self._free_until = None, now + FREE
        return True

    @property
    def _number(self) -> int:
        return os.getpid() if self._me is None else self._me

    def _read(self) -> list[int]:
        if self.turns is None:
            return []
        if self._list is None:
            with self.turns.open("r+b") as file:
                self._list = mmap.mmap(file.fileno(), 0)
        return [int.from_bytes(self._list[at : at + NUMBER]) for at in range(0, len(self._list), NUMBER)]

    def _note(self) -> None:
        """On the list, and the first one off it. Two at the same moment may forget one of them: no harm."""
        if self._list is not None:
            self._list[:] = self._list[NUMBER:] + self._number.to_bytes(NUMBER)


def make_turns(place: Path, workers: int) -> Path:
    """The list of the last who took a connection, all workers but one."""
    place.write_bytes(bytes(NUMBER * (workers - 1)))
    return place


def _rebuild(handle: Any, family: int, kind: int, protocol: int, turns: Path | None) -> FairListener:
    listener = FairListener(family, kind, protocol, fileno=handle.detach())
    listener.turns = turns
    return listener


def _take_apart(one: FairListener) -> Any:
    return _rebuild, (reduction.DupFd(one.fileno()), one.family, one.type, one.proto, one.turns)


reduction.register(FairListener, _take_apart)
"""How it comes to the worker processes."""
