"""What loading and drawing cost: python benchmarks/data.py prints one table. Real data: FEWONE_DATA.

Each load runs in a fresh process, what is compared runs in turns on one thread, times are processor seconds, and of
every quantity the smallest is taken: the one that other programs of the machine disturbed least.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import torch
from rich.console import Console
from rich.table import Table

from fewone.datasets import DATASETS, load
from fewone.datasets.sources import default_data_dirs
from fewone.episodes import Episodes, generator_for
from fewone.learners import LEARNERS, MamlSettings
from fewone.networks import NetworkSettings
from fewone.sampling import EpisodeSampler

REPEATS = 5
Result = TypeVar("Result")

_MEASURE = """
import json, resource, sys, time
from pathlib import Path
import fewone.datasets.{module}
from fewone.datasets import DATASETS, load
from fewone.datasets.sources import default_data_dirs
start = time.process_time()
{action}
seconds = time.process_time() - start
# Kilobytes on Linux, bytes on a Mac.
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**10 if sys.platform != "darwin" else 2**20)
print(json.dumps([seconds, peak]))
"""
_READ_FILES = """
folder = DATASETS["cifar-fs"].source.require("cifar-fs", default_data_dirs())
content = [(folder / name).read_bytes() for name in ("train.bin", "test.bin")]
"""


@dataclass(frozen=True)
class Workload:
    """One meta-iteration of the performance notes: W1 series, W2 digits, W3 CIFAR."""

    name: str
    dataset: str
    network: NetworkSettings
    query_size: int


WORKLOADS = (
    Workload("W1", "sts-sine", NetworkSettings(filters=(32, 32, 32), kernel=5), 50),
    Workload("W2", "mt-mnist/0", NetworkSettings(), 100),
    Workload("W3", "cifar-fs", NetworkSettings(), 60),
)


def main() -> None:
    """Measure, print."""
    torch.set_num_threads(1)
    table = Table("what", "measured", "against", "ratio", "goal", "reached")
    if _is_present("cifar-fs"):
        _measure_cifar(table)
    if _is_present("omniglot"):
        _measure_omniglot(table)
    for workload in WORKLOADS:
        if _is_present(workload.dataset.split("/")[0]):
            _measure_drawing(table, workload)
    Console().print(table)


def _is_present(family: str) -> bool:
    source = DATASETS[family].source
    present = source is None or source.find(default_data_dirs()) is not None
    if not present:
        print(f"{family} is not in the folders of FEWONE_DATA: left out")
    return present


def _measure_cifar(table: Table) -> None:
    reads, loads, peaks = [], [], []
    for _ in range(REPEATS):
        reads.append(_run_apart("cifar", _READ_FILES)[0])
        seconds, peak = _run_apart("cifar", 'splits = load("cifar-fs")')
        loads.append(seconds)
        peaks.append(peak)
    _add(table, "CIFAR-FS: load / read its files", min(loads), min(reads), 2.0)
    table.add_row("CIFAR-FS: peak memory", f"{max(peaks):.0f} MB", "", "", "< 450 MB", _say(max(peaks) < 450))


def _measure_omniglot(table: Table) -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.environ["FEWONE_CACHE"] = folder
        first = _run_apart("omniglot", 'splits = load("omniglot")')[0]
        cached = min(_run_apart("omniglot", 'splits = load("omniglot")')[0] for _ in range(REPEATS))
    _add(table, "Omniglot: from the cache / first load", cached, first, 0.1)


def _measure_drawing(table: Table, workload: Workload) -> None:
    splits = load(workload.dataset)
    sampler = EpisodeSampler(10, workload.query_size, preparation=splits.preparation)
    learner = LEARNERS["maml"](MamlSettings(inner_steps=5), workload.network, splits.shape)
    optimizer = torch.optim.Adam(learner.parameters(), 1e-3)
    draws, iterations = [], []
    for number in range(2 * REPEATS):
        generator = generator_for(0, "train", number)
        seconds, batch = _time(partial(sampler.draw, splits.train, 8, generator))
        draws.append(seconds)

        def iterate(batch: Episodes = batch) -> None:
            optimizer.zero_grad()
            learner.accumulate_gradient(batch)
            optimizer.step()

        iterations.append(_time(iterate)[0])
    _add(table, f"{workload.name} {workload.dataset}: draw / meta-iteration", min(draws), min(iterations), 0.05)


def _time(action: Callable[[], Result]) -> tuple[float, Result]:
    start = time.process_time()
    result = action()
    return time.process_time() - start, result


def _run_apart(module: str, action: str) -> tuple[float, float]:
    """Seconds of the action and peak megabytes of a fresh process (imports are not timed, but take memory)."""
    program = _MEASURE.format(module=module, action=action)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    seconds, peak = json.loads(done.stdout)
    return seconds, peak


def _add(table: Table, what: str, seconds: float, against: float, goal: float) -> None:
    ratio = seconds / against
    table.add_row(
        what, f"{1e3 * seconds:.1f} ms", f"{1e3 * against:.1f} ms", f"{ratio:.3f}", f"<= {goal}", _say(ratio <= goal)
    )


def _say(reached: bool) -> str:
    return "yes" if reached else "NO"


if __name__ == "__main__":
    main()
