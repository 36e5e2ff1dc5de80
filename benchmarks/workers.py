"""What more processes bring: python benchmarks/workers.py, one table each.

One worker and two, one thread each, take turns in one run on the same batches cut into the same shards (the bits are
the same, see tests/workers). Times are by the clock, of each the smallest of the rounds. The exchange alone is measured
with more ranks than cores by processor time. Scoring: windows of the zoo's `series` by `fewone.archive.share_out`.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
from rich.table import Table

from fewone.archive import PackedDetector, share_out
from fewone.detector.loading import load
from fewone.training.process import own_process
from fewone.training.shards import accumulate_in_shards
from fewone.workers import connect
from meta_iteration import WORKLOADS, build_learner, draw_episodes, peak_megabytes
from pages import make_parser, present

SHARDS = 4
CLOCKED_SECONDS = 5.0
EXCHANGED = 30
RANKS = (2, 4, 8)
CONSTANTS = Path(__file__).with_name("workers.json")


@dataclass(frozen=True)
class Measured:
    """Of one worker: seconds a round by the clock and of the processor, megabytes, seconds to its first round."""

    clock: float
    processor: float
    megabytes: float
    start: float


def start_workers(count: int, *words: str) -> list[Measured]:
    """This program again, in `count` processes of one group."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    common = os.environ | {"WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    command = [sys.executable, __file__, "--worker", *words, "--begun", str(time.time())]
    processes = [
        subprocess.Popen(command, env=common | {"RANK": str(rank)}, stdout=subprocess.PIPE, text=True)
        for rank in range(count)
    ]
    outputs = [process.communicate()[0] for process in processes]
    return [Measured(**json.loads(output)) for output in outputs]


def run_worker(what: str, begun: float) -> None:
    """One rank: rounds of a workload, or of the exchange of a gradient of so many numbers."""
    own_process(1)
    with connect({"what": what}) as exchange:
        if what.isdecimal():
            payload = torch.zeros(int(what))

            def act(number: int) -> None:
                exchange.share_out(max(SHARDS, exchange.size), lambda shard: payload)
        else:
            work = WORKLOADS[what]
            learner, batch = build_learner(work, norm=True), draw_episodes(work)
            optimizer = torch.optim.Adam(learner.parameters(), 0.001)

            def act(number: int) -> None:
                accumulate_in_shards(learner, batch, SHARDS, seed=0, iteration=number, exchange=exchange)
                optimizer.step()

        act(0)
        started = time.time() - begun
        clock, processor = _time_rounds(act, exchange.total, EXCHANGED if what.isdecimal() else None)
    print(json.dumps(asdict(Measured(clock, processor, peak_megabytes(), started))))


def _time_rounds(
    act: Callable[[int], None], total: Callable[[float], float], rounds: int | None
) -> tuple[float, float]:
    """Seconds of the fastest round; all ranks agree on how many rounds there are."""
    begun, number, clocks, processors = time.perf_counter(), 0, [], []
    while True:
        clock, processor = time.perf_counter(), time.process_time()
        act(number + 1)
        clocks.append(time.perf_counter() - clock)
        processors.append(time.process_time() - processor)
        number += 1
        over = number >= 3 and time.perf_counter() - begun > CLOCKED_SECONDS if rounds is None else number >= rounds
        if total(float(over)) > 0:
            return min(clocks), min(processors)


def score_block(packed: PackedDetector, seed: int, size: int = 1000) -> int:
    """A job of the scoring table: windows that the worker makes, as if it had read them."""
    detector = packed.open()
    values = np.random.default_rng(seed).normal(size=(size, 128)).astype(np.float32)
    return int((detector.predict(values) < 0).sum())


def tabulate_training(names: list[str], rounds: int) -> tuple[Table, dict[str, Any]]:
    table = Table("workload", "1 worker s", "2 workers s", "x", "MB per worker", "start s", title="Meta-iterations")
    found: dict[str, Any] = {}
    for name in names:
        one, two = [], []
        for _ in range(rounds):
            one.append(start_workers(1, name)[0])
            two.append(max(start_workers(2, name), key=lambda measured: measured.clock))
        alone, shared = (min(measured.clock for measured in many) for many in (one, two))
        memory, start = max(m.megabytes for m in two), min(m.start for m in two)
        table.add_row(name, f"{alone:.3f}", f"{shared:.3f}", f"{alone / shared:.2f}", f"{memory:.0f}", f"{start:.1f}")
        found[name] = {"one": alone, "two": shared, "megabytes": memory, "start": start}
    return table, found


def tabulate_exchange(sizes: list[int]) -> tuple[Table, dict[str, Any]]:
    table = Table("numbers", *(f"{ranks} ranks, CPU ms each" for ranks in RANKS), title="Exchange alone")
    found: dict[str, Any] = {}
    for size in sizes:
        costs = [max(one.processor for one in start_workers(ranks, str(size))) for ranks in RANKS]
        table.add_row(f"{size:,}", *(f"{1000 * cost:.1f}" for cost in costs))
        found[str(size)] = dict(zip(map(str, RANKS), costs, strict=True))
    return table, found


def tabulate_scoring(windows: int) -> tuple[Table, dict[str, Any]]:
    table = Table("windows", "1 worker s", "2 workers s", "x", "bytes shipped", title="Scoring")
    with TemporaryDirectory() as folder:
        load("series").fit(np.random.default_rng(0).normal(size=(10, 128))).save(folder)
        packed = PackedDetector.of(folder)
    seconds = []
    for workers in (1, 2):
        torch.set_num_threads(1)
        begun = time.perf_counter()
        scored = sum(1 for _ in share_out(partial(score_block, packed), range(windows // 1000), workers))
        seconds.append(time.perf_counter() - begun)
        assert scored == windows // 1000
    table.add_row(
        f"{windows:,}",
        f"{seconds[0]:.1f}",
        f"{seconds[1]:.1f}",
        f"{seconds[0] / seconds[1]:.2f}",
        f"{len(packed.content):,}",
    )
    return table, {"windows": windows, "one": seconds[0], "two": seconds[1], "bytes": len(packed.content)}


def main() -> None:
    parser = make_parser(__doc__)
    parser.set_defaults(rounds=2)
    parser.add_argument("--workloads", nargs="+", choices=WORKLOADS, default=list(WORKLOADS))
    parser.add_argument("--windows", type=int, default=1_000_000)
    parser.add_argument("--worker", help="a workload's name, or how many numbers to exchange")
    parser.add_argument("--begun", type=float, default=0.0)
    options = parser.parse_args()
    if options.worker is not None:
        run_worker(options.worker, options.begun)
        return
    training, trained = tabulate_training(options.workloads, options.rounds)
    exchange, exchanged = tabulate_exchange([30_000, 120_000, 1_000_000])
    scoring, scored = tabulate_scoring(options.windows)
    CONSTANTS.write_text(json.dumps({"training": trained, "exchange": exchanged, "scoring": scored}, indent=1) + "\n")
    present([training, exchange, scoring], options.markdown, "More processes", "workers.py", __doc__)


if __name__ == "__main__":
    main()
