"""The service beside the plain library call: latency, throughput, workers, memory.

`python benchmarks/service.py [--seconds 5] [--detectors 200] [--markdown FILE]`: one table each.

Service, clients and the plain calls share one machine of two cores and run in one go; clients speak HTTP over
loopback and every decision is stored before it is told. Times are of the wall; only ratios within a table count. Run
it as `chrt -r 1 python benchmarks/service.py` where others use the machine as well: then none of it waits for them,
though they still empty the caches between two requests. The detector is `series`, fitted on 10 sines of 128 steps;
service and library score with one thread. Single windows: closed loop by 8 connections for the saturating rate, then an
open loop (Poisson) at half of it, latency from the moment a request was due, by one client that sleeps between answers.
Beside it, by the same clock and at the same rate: the library, called by one thread for one window after the other,
which is what waiting for a single server makes of its median; and `/health`, which does nothing, under the same client.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import select
import socket
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.table import Table

from fewone import FewShotDetector
from fewone.detector.loading import load_detector
from pages import present

LENGTH, NORMALS, BATCH, CONNECTIONS = 128, 10, 1000, 8
LOADED = 32
HEALTH = b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


@dataclass(frozen=True)
class Served:
    """A running service."""

    port: int
    process: int

    def resident(self) -> float:
        """Megabytes in memory of the one worker."""
        text = Path(f"/proc/{self.process}/status").read_text()
        found = re.search(r"VmRSS:\s+(\d+) kB", text)
        assert found is not None
        return int(found[1]) / 1024

    def used(self) -> float:
        """Seconds of processor time of all its processes."""
        children = Path(f"/proc/{self.process}/task/{self.process}/children").read_text().split()
        return sum(read_used(number) for number in (str(self.process), *children))


def read_used(process: str) -> float:
    fields = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def serve(folder: Path, workers: int) -> Iterator[Served]:
    command = [sys.executable, "-m", "fewone", "serve", "--folder", str(folder), "--port", "0"]
    command += ["--workers", str(workers), "--loaded", str(LOADED)]
    log = (folder.parent / "service.log").open("a")
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, env=environment)
    try:
        assert process.stdout is not None
        found = re.search(r":(\d+)$", process.stdout.readline().strip())
        assert found, "the service did not start"
        yield Served(int(found[1]), process.pid)
    finally:
        process.terminate()
        process.wait(60)
        log.close()


class Connection:
    """A kept-alive HTTP connection that does as little as possible."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, method: str, path: str, body: bytes, kind: str = "application/json", more: str = "") -> bytes:
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self._port, limit=1 << 24)
        reader, writer = self._streams
        head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: {kind}\r\n{more}"
        writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        await writer.drain()
        answer = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        length = re.search(r"\ncontent-length: (\d+)", answer, re.IGNORECASE)
        content = await reader.readexactly(int(length[1])) if length else b""
        status = int(answer.split(" ", 2)[1])
        if status >= 300:
            raise RuntimeError(f"{method} {path}: {status} {content[:200]!r}")
        return content

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()


async def wait_until_ready(port: int, workers: int) -> None:
    """Every worker answers: each takes seconds to import."""
    good = 0
    for _ in range(600):
        connection = Connection(port)
        try:
            await asyncio.wait_for(connection.ask("GET", "/ready", b""), 5)
            good += 1
        except (OSError, TimeoutError, asyncio.IncompleteReadError, RuntimeError):
            good = 0
        finally:
            connection.close()
        if good >= 8 * workers:
            return
        await asyncio.sleep(0.1)
    raise RuntimeError("the service did not become ready")


class Client:
    """Kept-alive HTTP connections of one thread that sleeps until an answer comes: it takes little of the cores."""

    def __init__(self, port: int, connections: int) -> None:
        self._free = [socket.create_connection(("127.0.0.1", port)) for _ in range(connections)]
        self._asked: dict[socket.socket, tuple[float, bytearray]] = {}
        for one in self._free:
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(self, request: bytes, since: float) -> bool:
        """Send it if a connection is free."""
        if not self._free:
            return False
        chosen = self._free.pop()
        chosen.sendall(request)
        self._asked[chosen] = since, bytearray()
        return True

    def hear(self, seconds: float) -> list[float]:
        """Wait at most so long; of the answers that are whole now: the seconds since they were due."""
        latencies: list[float] = []
        for one in select.select([*self._asked], [], [], max(0.0, seconds))[0]:
            since, answer = self._asked[one]
            came = one.recv(1 << 20)
            if not came:
                raise RuntimeError("the service closed a connection: it was idle for too long")
            answer += came
            if is_whole(answer):
                latencies.append(time.perf_counter() - since)
                del self._asked[one]
                self._free.append(one)
        return latencies

    def close(self) -> None:
        for one in (*self._free, *self._asked):
            one.close()


def is_whole(answer: bytearray) -> bool:
    head = answer.find(b"\r\n\r\n")
    if head < 0:
        return False
    found = re.search(rb"\ncontent-length: (\d+)", answer[:head].lower())
    if not answer.startswith(b"HTTP/1.1 200") or found is None:
        raise RuntimeError(f"the service answered {bytes(answer[:300])!r}")
    return len(answer) >= head + 4 + int(found[1])


def write_request(path: str, body: bytes, kind: str = "application/json", more: str = "") -> bytes:
    head = (
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: {kind}\r\n{more}Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def saturate(port: int, requests: list[bytes], seconds: float, connections: int) -> float:
    """Requests per second, as many as go."""
    client, sent, done = Client(port, connections), 0, 0
    begin = now = time.perf_counter()
    while now < begin + seconds:
        while client.ask(requests[sent % len(requests)], now):
            sent += 1
        done += len(client.hear(1.0))
        now = time.perf_counter()
    client.close()
    return done / (now - begin)


def load_at(port: int, requests: list[bytes], rate: float, seconds: float) -> np.ndarray:
    """Latencies in seconds of requests that come at random at a rate, from the moment each was due."""
    moments = choose_moments(rate, seconds)
    due = deque(moments)
    client, sent = Client(port, 4 * CONNECTIONS), 0
    latencies: list[float] = []
    while len(latencies) < len(moments):
        while due and due[0] <= time.perf_counter() and client.ask(requests[sent % len(requests)], due[0]):
            due.popleft()
            sent += 1
        wait = due[0] - time.perf_counter() if due else 1.0
        latencies += client.hear(wait if wait > 0 else 0.001)
    client.close()
    return np.array(latencies)


def choose_moments(rate: float, seconds: float) -> list[float]:
    """When requests are due that come at random at a rate, the same ones in every run."""
    gaps = np.random.default_rng(0).exponential(1 / rate, int(rate * seconds))
    moments: list[float] = (time.perf_counter() + 0.05 + np.cumsum(gaps)).tolist()
    return moments


def call_at(detector: FewShotDetector, windows: np.ndarray, rate: float, seconds: float) -> np.ndarray:
    """The library instead of the service: one call after the other, each not before its moment."""
    latencies = []
    for number, due in enumerate(choose_moments(rate, seconds)):
        time.sleep(max(0.0, due - time.perf_counter()))
        detector.decision_function(windows[number % len(windows)])
        latencies.append(time.perf_counter() - due)
    return np.array(latencies)


def time_library(detector: FewShotDetector, windows: np.ndarray, seconds: float) -> list[float]:
    """Seconds of each call on one window, or on a batch where `windows` holds batches."""
    found: list[float] = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(found) < 5:
        begin = time.perf_counter()
        detector.decision_function(windows[len(found) % len(windows)])
        found.append(time.perf_counter() - begin)
    return found


def create(port: int, names: list[str], normals: np.ndarray) -> None:
    async def run() -> None:
        connection = Connection(port)
        for name in names:
            body = json.dumps({"name": name, "model": "series", "examples": normals.tolist()}).encode()
            await connection.ask("POST", "/detectors", body)
        connection.close()

    asyncio.run(run())


def as_tensor(windows: np.ndarray) -> tuple[bytes, str]:
    """Raw tensors of the Open Inference Protocol, and the header that says where they begin."""
    tensor: dict[str, Any] = {"name": "values", "shape": list(windows.shape), "datatype": "FP32"}
    tensor["parameters"] = {"binary_data_size": windows.nbytes}
    head = json.dumps({"inputs": [tensor], "parameters": {"binary_data_output": True}}).encode()
    return head + windows.tobytes(), f"Inference-Header-Content-Length: {len(head)}\r\n"


def as_inference(raw: bytes, head: str) -> bytes:
    return write_request("/v2/models/press/infer", raw, "application/octet-stream", head)


def measure_single(
    served: Served, detector: FewShotDetector, windows: np.ndarray, seconds: float
) -> tuple[Table, float]:
    port = served.port
    path = "/detectors/press/score"
    requests = [write_request(path, json.dumps({"examples": one.tolist()}).encode()) for one in windows[:, None]]
    time_library(detector, windows[:, None], 1.0)  # the first hundred calls are slower, of either
    saturate(port, requests, 1.0, 1)
    saturate(port, requests, 5.0, CONNECTIONS)  # until the recordings of a few windows are made
    plain = float(np.median(time_library(detector, windows[:, None], seconds / 2)))
    before = served.used()
    rate = saturate(port, requests, seconds, CONNECTIONS)
    processor = (served.used() - before) / (rate * seconds)
    before = served.used()
    # Twice: of so many connections some are idle, and the service closes what is idle for ten seconds.
    found = np.concatenate([load_at(port, requests, rate / 2, seconds) for _ in range(2)])
    each = (served.used() - before) / len(found)
    nothing = load_at(port, [HEALTH], rate / 2, seconds)
    alone = call_at(detector, windows[:, None], rate / 2, seconds)
    after = float(np.median(time_library(detector, windows[:, None], seconds / 2)))
    library = (plain + after) / 2
    table = Table(title="Single windows as JSON, one worker, at half of the saturating rate")
    for head in ("", "ms", "against the library's median"):
        table.add_column(head)
    rows = {"library, one window, median": library}
    rows |= {f"service, p{share}": float(np.percentile(found, share)) for share in (50, 95, 99)}
    rows |= {f"library at the same moments, p{share}": float(np.percentile(alone, share)) for share in (50, 99)}
    rows |= {f"`/health` at the same moments, p{share}": float(np.percentile(nothing, share)) for share in (50, 99)}
    rows["service, processor time of a request at this rate"] = each
    rows["service, processor time of a request at the saturating rate"] = processor
    rows[f"saturating rate: {rate:.0f} requests a second"] = 1 / rate
    for name, value in rows.items():
        table.add_row(name, f"{1000 * value:.2f}", f"{value / library:.1f}x")
    return table, float(np.percentile(found, 99)) / library


def measure_batches(port: int, detector: FewShotDetector, windows: np.ndarray, seconds: float) -> tuple[Table, float]:
    batches = windows[:BATCH][None].astype(np.float32)
    body = json.dumps({"examples": batches[0].round(4).tolist()}).encode()
    raw, head = as_tensor(batches[0])
    before = BATCH / np.median(time_library(detector, batches, seconds / 2))
    asked = {
        "service, JSON": saturate(port, [write_request("/detectors/press/score", body)], seconds, 2),
        "service, Open Inference, raw tensors": saturate(port, [as_inference(raw, head)], seconds, 2),
    }
    library = (before + BATCH / np.median(time_library(detector, batches, seconds / 2))) / 2
    table = Table(title=f"Batches of {BATCH} windows, one worker, two connections")
    for name in ("", "windows a second", "of the library"):
        table.add_column(name)
    table.add_row("library", f"{library:.0f}", "100 %")
    for name, rate in asked.items():
        table.add_row(name, f"{BATCH * rate:.0f}", f"{100 * BATCH * rate / library:.0f} %")
    return table, float(BATCH * asked["service, JSON"] / library)


def measure_workers(folder: Path, windows: np.ndarray, seconds: float) -> tuple[Table, float]:
    """Batches, so that the clients weigh little beside the workers."""
    raw, head = as_tensor(windows[:BATCH].astype(np.float32))
    rates, cores = {}, {}
    for workers in (1, 2):
        with serve(folder, workers) as served:
            asyncio.run(wait_until_ready(served.port, workers))
            saturate(served.port, [as_inference(raw, head)], 2.0, CONNECTIONS)
            before = served.used()
            rates[workers] = saturate(served.port, [as_inference(raw, head)], seconds, CONNECTIONS)
            cores[workers] = (served.used() - before) / seconds
    table = Table(title=f"Workers over one folder: batches of {BATCH} windows, {CONNECTIONS} connections")
    for name in ("workers", "windows a second", "against one", "cores in use"):
        table.add_column(name)
    for workers, rate in rates.items():
        table.add_row(str(workers), f"{BATCH * rate:.0f}", f"{rate / rates[1]:.2f}x", f"{cores[workers]:.2f}")
    return table, rates[2] / rates[1]


def measure_memory(folder: Path, normals: np.ndarray, window: np.ndarray, count: int) -> Table:
    names = [f"d{number}" for number in range(count)]
    table = Table(title=f"{count} detectors, any of which is asked, at most {LOADED} in memory (--loaded)")
    for name in ("", "detectors asked", "resident, MB"):
        table.add_column(name)
    with serve(folder, 1) as served:
        asyncio.run(wait_until_ready(served.port, 1))
        create(served.port, names, normals)
    with serve(folder, 1) as served:  # a fresh process: what fitting needed does not count
        asyncio.run(wait_until_ready(served.port, 1))
        body = json.dumps({"examples": window[None].tolist()}).encode()

        async def ask(chosen: list[str]) -> None:
            connection = Connection(served.port)
            for name in chosen:
                await connection.ask("POST", f"/detectors/{name}/score", body)
            connection.close()

        for title, chosen in {
            "the first": names[:1],
            "as many as are kept": names[:LOADED],
            "all": names,
            "all, a second time": names,
        }.items():
            asyncio.run(ask(chosen))
            table.add_row(title, str(len(chosen)), f"{served.resident():.0f}")
    return table


def tell_bounds(tail: float, share: float, gain: float) -> Table:
    table = Table(title="What was asked for, and whether it held in this run")
    for name in ("", "asked", "found", "held"):
        table.add_column(name)
    for title, asked, found, held in (
        ("single windows, p99 against the library's median", "< 5x", f"{tail:.1f}x", tail < 5),
        ("batches as JSON, of the library's throughput", ">= 60 %", f"{100 * share:.0f} %", share >= 0.6),
        ("two workers against one", ">= 1.7x", f"{gain:.2f}x", gain >= 1.7),
    ):
        table.add_row(title, asked, found, "yes" if held else "no")
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--detectors", type=int, default=200)
    parser.add_argument("--markdown", type=Path, help="write the tables to this page as well")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    random = np.random.default_rng(0)
    phase = random.uniform(0, 2 * np.pi, (NORMALS + BATCH, 1))
    values = np.sin(np.arange(LENGTH) / 4 + phase) + 0.1 * random.normal(size=(NORMALS + BATCH, LENGTH))
    normals, windows = values[:NORMALS].round(4), values[NORMALS:].round(4).astype(np.float32)
    detector = load_detector("series").fit(normals.astype(np.float32))
    with tempfile.TemporaryDirectory(prefix="fewone-bench-") as place:
        folder = Path(place) / "detectors"
        tables: list[Table] = []
        with serve(folder, 1) as served:
            asyncio.run(wait_until_ready(served.port, 1))
            create(served.port, ["press"], normals)
            single, tail = measure_single(served, detector, windows, chosen.seconds)
            batches, share = measure_batches(served.port, detector, windows, chosen.seconds)
        workers, gain = measure_workers(folder, windows, chosen.seconds)
        tables += [tell_bounds(tail, share, gain), single, batches, workers]
        tables.append(measure_memory(Path(place) / "many", normals, windows[0], chosen.detectors))
    present(tables, chosen.markdown, "The service beside the library", "service.py", __doc__)


if __name__ == "__main__":
    main()
