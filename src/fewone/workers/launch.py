"""N processes of the same command on this machine, watched: one that dies ends all."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence

from fewone.errors import FewoneError

POLL_SECONDS = 0.05
GRACE_SECONDS = 10.0
"""So long may the others take to end after one has ended well, and so long may the first take to save on Ctrl-C."""


def launch(words: Sequence[str], workers: int, port: int | None = None) -> int:
    """Run `python -m fewone WORDS` in `workers` processes; the exit code is that of the first of them.

    The first worker alone talks to the terminal. Ctrl-C is handed to it; it saves, and the others follow.
    """
    chosen = _find_port() if port is None else _check_port(port)
    processes = [_start(words, rank, workers, chosen) for rank in range(workers)]
    stop = _Forwarder(processes[0])
    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        return _watch(processes, stop)
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
        for process in processes:
            process.wait()
        for number, handler in before.items():
            signal.signal(number, handler)


class _Forwarder:
    """Hands a signal on to the first worker."""

    def __init__(self, first: subprocess.Popen[bytes]) -> None:
        self.first, self.asked = first, False

    def __call__(self, number: int, frame: object) -> None:
        self.asked = True
        if self.first.poll() is None:
            self.first.send_signal(number)


def _start(words: Sequence[str], rank: int, size: int, port: int) -> subprocess.Popen[bytes]:
    environment = os.environ | {
        "RANK": str(rank),
        "WORLD_SIZE": str(size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
    return subprocess.Popen(
        [sys.executable, "-m", "fewone", *words],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=None if rank == 0 else subprocess.DEVNULL,
        # A terminal's Ctrl-C reaches its whole group: the workers are a group of their own.
        start_new_session=True,
    )


def _watch(processes: Sequence[subprocess.Popen[bytes]], stop: _Forwarder) -> int:
    while True:
        codes = [process.poll() for process in processes]
        killed = next((rank for rank, code in enumerate(codes) if code is not None and code < 0), None)
        if killed is not None and not stop.asked:
            name = signal.Signals(-(codes[killed] or 0)).name
            raise FewoneError(
                f"worker {killed} of {len(processes)} was killed by {name}; the same command goes on from the last"
                f" checkpoint"
            )
        failed = next((rank for rank, code in enumerate(codes) if code), None)
        if failed is not None and not stop.asked:
            return _end_after(processes, failed)
        if codes[0] is not None:
            _wait(processes)
            return codes[0]
        time.sleep(POLL_SECONDS)


def _end_after(processes: Sequence[subprocess.Popen[bytes]], failed: int) -> int:
    """One worker ended badly: who was killed is the cause, else the first one's exit code and message stand."""
    deadline = time.monotonic() + 2.0
    while time.monotonic() < deadline:
        codes = [process.poll() for process in processes]
        killed = next((rank for rank, code in enumerate(codes) if code is not None and code < 0), None)
        if killed is not None:
            name = signal.Signals(-(codes[killed] or 0)).name
            raise FewoneError(
                f"worker {killed} of {len(processes)} was killed by {name}; the same command goes on from the last"
                f" checkpoint"
            )
        if codes[0] is not None:
            return codes[0]
        time.sleep(POLL_SECONDS)
    raise FewoneError(f"worker {failed} of {len(processes)} ended with exit code {processes[failed].poll()}")


def _wait(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    deadline = time.monotonic() + GRACE_SECONDS
    while time.monotonic() < deadline and any(process.poll() is None for process in processes):
        time.sleep(POLL_SECONDS)


def _find_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _check_port(port: int) -> int:
    with socket.socket() as wanted:
        try:
            wanted.bind(("127.0.0.1", port))
        except OSError as error:
            raise FewoneError(f"port {port} is occupied ({error.strerror}); give another one, or none") from error
    return port
