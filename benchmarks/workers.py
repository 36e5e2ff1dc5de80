"""What more processes bring: python benchmarks/workers.py, one table each.

One worker and two, one thread each, take turns in one run on the same batches cut into the same shards (the bits are
the same, see tests/workers). Times are by the clock, of each the smallest of the rounds. W1 to W5: OC-MAML as in
meta_iteration.md; the others: the library's own learners by their recipes, on batches of noise of the size of the data
that they are named after. The exchange alone is measured with more ranks than cores by processor time. Scoring: windows
of the zoo's `series` in a hundred files, by the command `fewone score` from its start to its end, with the processor
time of all its processes.
"""

from __future__ import annotations

import json
import os
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
from rich.table import Table

from fewone.archive import PackedDetector
from fewone.detector.loading import load
from fewone.episodes import ClassBatch
from fewone.experiments.own_recipes import find_own_recipe
from fewone.learners import LEARNERS, MetaLearner
from fewone.training.batches import Batch
from fewone.training.process import own_process
from fewone.training.shards import accumulate_in_shards
from fewone.workers import connect
from meta_iteration import WORKLOADS, build_learner, draw_episodes, peak_megabytes
from pages import make_parser, present
from peers import Workload

SHARDS = 4
SUPPORT = 10
CLOCKED_SECONDS = 5.0
EXCHANGED = 30
RANKS = (2, 4, 8)
PARTS = ("training", "exchange", "scoring")
FILES = 100
OWN = {
    f"{learner} on {dataset}": (learner, dataset, shape)
    for learner, dataset, shape in (
        ("plda", "cifar-fs", (3, 32, 32)),
        ("plda", "sts-sawtooth", (1, 128)),
        ("plda", "cnc/A", (3, 2048)),
        ("support-distance", "sts-sawtooth", (1, 128)),
        ("support-distance", "cnc/A", (3, 2048)),
        ("evidence", "ucr", (1, 128)),
    )
}
"""The library's own learners by their recipes: learner, dataset, shape of one example."""
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


def prepare_work(name: str) -> tuple[MetaLearner, Batch]:
    """The learner with the same first weights everywhere, and one batch of noise of the size that it is trained on."""
    if name in WORKLOADS:
        return build_learner(WORKLOADS[name], norm=True), draw_episodes(WORKLOADS[name])
    algorithm, dataset, shape = OWN[name]
    recipe = find_own_recipe(algorithm, dataset.partition("/")[0])
    torch.manual_seed(0)
    learner, training = LEARNERS[algorithm](recipe.learning, recipe.network, shape), recipe.training
    if learner.batch == "classes":
        return learner, ClassBatch(
            torch.randn(training.classes, training.class_examples, *shape), torch.arange(training.classes)
        )
    sizes = Workload(name, shape, (), 0, SUPPORT, training.query_size, training.meta_batch)
    return learner, draw_episodes(sizes)


def run_worker(what: str, begun: float) -> None:
    """One rank: rounds of a workload, or of the exchange of a gradient of so many numbers."""
    own_process(1)
    with connect({"what": what}) as exchange:
        if what.isdecimal():
            payload = torch.zeros(int(what))

            def act(number: int) -> None:
                exchange.share_out(max(SHARDS, exchange.size), lambda shard: payload)
        else:
            learner, batch = prepare_work(what)
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


def measure_training(names: list[str], rounds: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in names:
        one, two = [], []
        for _ in range(rounds):
            one.append(start_workers(1, name)[0])
            two.append(max(start_workers(2, name), key=lambda measured: measured.clock))
        alone, shared = (min(measured.clock for measured in many) for many in (one, two))
        memory, start = max(m.megabytes for m in two), min(m.start for m in two)
        found[name] = {"one": alone, "two": shared, "megabytes": memory, "start": start}
    return found


def measure_exchange(sizes: list[int]) -> dict[str, Any]:
    return {
        str(size): {str(ranks): max(one.processor for one in start_workers(ranks, str(size))) for ranks in RANKS}
        for size in sizes
    }


def measure_scoring(windows: int) -> dict[str, Any]:
    """The command on files of single precision, two workers first; both must decide alike."""
    found: dict[str, Any] = {"windows": windows}
    with TemporaryDirectory() as place:
        folder, random = Path(place), np.random.default_rng(0)
        load("series").fit(random.normal(size=(10, 128))).save(folder / "detector")
        found["bytes"] = len(PackedDetector.of(folder / "detector").content)
        (folder / "new").mkdir()
        for number in range(FILES):
            values = random.standard_normal(windows // FILES * 128, np.float32)
            np.save(folder / "new" / f"{number:03d}.npy", values)
        for key, workers in (("two", "2"), ("one", "1")):
            words = ["score", "detector", "new", "--workers", workers, "--out", f"{key}.csv"]
            clock, processor = time.perf_counter(), _children_seconds()
            subprocess.run([sys.executable, "-m", "fewone", *words], cwd=folder, stdout=subprocess.DEVNULL)
            found[key], found[f"{key}_cpu"] = time.perf_counter() - clock, _children_seconds() - processor
        assert (folder / "one.csv").read_bytes() == (folder / "two.csv").read_bytes()
    return found


def _children_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def tabulate(constants: dict[str, Any]) -> list[Table]:
    """All that was measured, now or in an earlier run of its part."""
    training = Table("workload", "1 worker s", "2 workers s", "x", "MB per worker", "start s", title="Meta-iterations")
    for name, one in constants["training"].items():
        numbers = (f"{one['one']:.3f}", f"{one['two']:.3f}", f"{one['one'] / one['two']:.2f}")
        training.add_row(name, *numbers, f"{one['megabytes']:.0f}", f"{one['start']:.1f}")
    exchange = Table("numbers", *(f"{ranks} ranks, CPU ms each" for ranks in RANKS), title="Exchange alone")
    for size, costs in constants["exchange"].items():
        exchange.add_row(f"{int(size):,}", *(f"{1000 * costs[str(ranks)]:.1f}" for ranks in RANKS))
    headings = ("windows", "1 worker s", "2 workers s", "x", "1 worker CPU s", "2 workers CPU s", "bytes shipped")
    scoring, one = Table(*headings, title="Scoring"), constants["scoring"]
    scoring.add_row(
        f"{one['windows']:,}",
        f"{one['one']:.1f}",
        f"{one['two']:.1f}",
        f"{one['one'] / one['two']:.2f}",
        *(f"{one[key]:.1f}" if key in one else "" for key in ("one_cpu", "two_cpu")),
        f"{one['bytes']:,}",
    )
    return [training, exchange, scoring]


def main() -> None:
    parser = make_parser(__doc__)
    parser.set_defaults(rounds=2)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS), help="the others stay as measured")
    parser.add_argument("--workloads", nargs="+", choices=[*WORKLOADS, *OWN], default=[*WORKLOADS, *OWN])
    parser.add_argument("--windows", type=int, default=1_000_000)
    parser.add_argument("--worker", help="a workload's name, or how many numbers to exchange")
    parser.add_argument("--begun", type=float, default=0.0)
    options = parser.parse_args()
    if options.worker is not None:
        run_worker(options.worker, options.begun)
        return
    constants = json.loads(CONSTANTS.read_text())
    if "training" in options.parts:
        constants["training"] |= measure_training(options.workloads, options.rounds)
    if "exchange" in options.parts:
        constants["exchange"] = measure_exchange([30_000, 120_000, 1_000_000])
    if "scoring" in options.parts:
        constants["scoring"] = measure_scoring(options.windows)
    CONSTANTS.write_text(json.dumps(constants, indent=1) + "\n")
    present(tabulate(constants), options.markdown, "More processes", "workers.py", __doc__)


if __name__ == "__main__":
    main()
