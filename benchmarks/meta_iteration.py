"""What one exact second-order meta-iteration costs, here and elsewhere: python benchmarks/meta_iteration.py

All variants make the same meta-gradient from the same data (compared before any timing, those of torch in double
precision) and take turns in one process on one thread. Times are processor milliseconds, of every variant the smallest:
the one that other programs of the machine disturbed least. Memory is measured in fresh processes, two threads and two
trainings side by side by the clock.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")

import torch
from rich.console import Console
from rich.table import Table

from fewone.episodes import Episodes, Examples, RowPool, Store, Task, generator_for
from fewone.learners import LEARNERS, MetaLearner
from fewone.networks import NetworkSettings
from fewone.training.process import own_process
from peers import Gradient, Peer, Workload, build_higher, build_plain, build_torchopt

WORKLOADS = {
    work.name: work
    for work in (
        Workload("W1", (1, 128), (32, 32, 32), 5, 10, 50, 8),
        Workload("W2", (1, 28, 28), (32, 32, 32, 32), 3, 10, 100, 8),
        Workload("W3", (3, 32, 32), (32, 32, 32, 32), 3, 10, 60, 8),
        Workload("W4", (3, 2048), (32, 32, 64, 64), 5, 10, 16, 16),
        Workload("W5", (3, 84, 84), (32, 32, 32, 32), 3, 10, 60, 8),
    )
}
OURS = ("maml", "fomaml", "anil")
PEERS = ("higher", "torchopt", "plain", "jax im2col", "jax conv")
# XLA's own convolution takes seconds where its matrix products take a fifth of one; only measured when asked for.
SLOW_PEER = "jax conv"
MEMORY_WORKLOADS = ("W4", "W5")
CLOCKED_SECONDS = 8


@dataclass(frozen=True)
class Row:
    """One workload: milliseconds by variant, gradient differences by peer, and what was measured beside them."""

    workload: str
    norm: bool
    milliseconds: dict[str, float]
    differences: dict[str, float]
    gigaflops: float
    seconds_by_threads: tuple[float, float] | None
    seconds_by_processes: tuple[float, float] | None
    megabytes: dict[str, float]


def build_learner(work: Workload, norm: bool, name: str = "maml") -> MetaLearner:
    """With the same first weights every time."""
    torch.manual_seed(0)
    network = NetworkSettings(filters=work.filters, kernel=work.kernel, norm="support" if norm else "none")
    return LEARNERS[name](LEARNERS[name].choose(inner_rate=0.01, inner_steps=5), network, work.shape)


def draw_episodes(work: Workload) -> Episodes:
    """Noise: the cost does not depend on what is in the data. One-class support, balanced query."""
    generator = generator_for(0, work.name)
    nothing = RowPool(Store(torch.zeros(1)), torch.zeros(1, dtype=torch.int64))
    labels = (torch.arange(work.query) % 2).float().repeat(work.tasks, 1)
    rows = torch.zeros(work.tasks, 1, dtype=torch.int64)
    return Episodes(
        (Task("noise", nothing, nothing),) * work.tasks,
        Examples.normals(torch.randn(work.tasks, work.support, *work.shape, generator=generator)),
        Examples.of(torch.randn(work.tasks, work.query, *work.shape, generator=generator), labels),
        rows,
        rows,
    )


def in_double(episodes: Episodes) -> Episodes:
    parts = [Examples.of(one.inputs.double(), one.labels.double()) for one in (episodes.support, episodes.query)]
    return replace(episodes, support=parts[0], query=parts[1])


def build_ours(name: str, work: Workload, norm: bool, episodes: Episodes) -> Peer:
    learner = build_learner(work, norm, name).to(episodes.support.inputs.dtype)
    optimizer = torch.optim.Adam(learner.parameters(), 0.001)

    def iterate() -> None:
        optimizer.zero_grad()
        learner.accumulate_gradient(episodes)
        optimizer.step()

    def differentiate() -> Gradient:
        optimizer.zero_grad()
        learner.accumulate_gradient(episodes)
        return {name: value.grad.clone() for name, value in learner.named_parameters() if value.grad is not None}

    return Peer(iterate, differentiate)


def build(name: str, work: Workload, norm: bool, episodes: Episodes) -> Peer:
    if name in OURS:
        return build_ours(name, work, norm, episodes)
    learner = build_learner(work, norm).to(episodes.support.inputs.dtype)
    start = {key: value.detach().clone() for key, value in learner.named_parameters()}
    if name.startswith("jax"):
        from jax_peer import build_jax, convolve_directly, convolve_patches

        convolve = convolve_patches if name == "jax im2col" else convolve_directly
        return build_jax(convolve, work, norm, start, episodes)
    builders = {"higher": build_higher, "torchopt": build_torchopt, "plain": build_plain}
    return builders[name](work, norm, start, episodes)


def difference(one: Gradient, other: Gradient) -> float:
    """The distance of two gradients relative to the second."""
    joined = [torch.cat([values[name].double().flatten() for name in other]) for values in (one, other)]
    return float((joined[0] - joined[1]).norm() / joined[1].norm())


def measure_in_turns(actions: Mapping[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """The smallest processor time of each action in milliseconds."""
    smallest = dict.fromkeys(actions, float("inf"))
    for _ in range(repeats):
        for name, action in actions.items():
            start = time.process_time()
            action()
            smallest[name] = min(smallest[name], 1000 * (time.process_time() - start))
    return smallest


def count_operations(work: Workload, norm: bool) -> float:
    """Multiplications and additions of the convolutions in one second-order meta-iteration, in units of 1e9."""
    total, channels = 0.0, work.shape[0]
    for layer, filters in enumerate(work.filters):
        places = 1
        for side in work.shape[1:]:
            places *= side >> layer
        product = 2 * channels * filters * work.kernel ** len(work.shape[1:]) * places
        # Products per image: forward, weights and inputs; the Hessian-vector product takes each twice. The network's
        # inputs have no gradient and do not move.
        gradient, curvature = (2, 2) if layer == 0 else (3, 6)
        steps = 5 * work.support * (gradient + curvature) + work.query * gradient
        total += product * (steps + (work.support * gradient if norm else 0))
        channels = filters
    return total * work.tasks / 1e9


def measure_peak() -> float:
    """GFLOP/s of a large matrix product."""
    left, right = torch.randn(1024, 1024), torch.randn(1024, 1024)
    milliseconds = measure_in_turns({"product": lambda: torch.mm(left, right)}, 20)["product"]
    return 2 * 1024**3 / milliseconds / 1e6


def measure_threads(work: Workload, norm: bool, episodes: Episodes, repeats: int) -> tuple[float, float]:
    """The smallest seconds by the clock on one thread and on two, in turns."""
    peer, smallest = build_ours("maml", work, norm, episodes), [float("inf"), float("inf")]
    for _ in range(repeats + 1):
        for position in (0, 1):
            own_process(position + 1)
            start = time.perf_counter()
            peer.iterate()
            smallest[position] = min(smallest[position], time.perf_counter() - start)
    own_process(1)
    return smallest[0], smallest[1]


def command_for(work: Workload, norm: bool, *what: str) -> list[str]:
    """This program again, to measure something of one workload in a fresh process."""
    return [sys.executable, __file__, *what, "--workloads", work.name, *(["--norm"] if norm else [])]


def measure_processes(work: Workload, norm: bool) -> tuple[float, float]:
    """Seconds by the clock for one meta-iteration of a training alone, and of the slower of two side by side."""
    return _time_processes(work, norm, 1), _time_processes(work, norm, 2)


def _time_processes(work: Workload, norm: bool, count: int) -> float:
    arguments = command_for(work, norm, "--clock")
    started = [subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) for _ in range(count)]
    return max(float(process.communicate()[0]) for process in started)


def print_clock(work: Workload, norm: bool) -> None:
    """The mean over enough iterations that processes which were started together overlap."""
    peer, taken = build_ours("maml", work, norm, draw_episodes(work)), 0
    peer.iterate()
    start = time.perf_counter()
    while taken < 3 or time.perf_counter() - start < CLOCKED_SECONDS:
        peer.iterate()
        taken += 1
    sys.stdout.write(f"{(time.perf_counter() - start) / taken}\n")


def peak_megabytes() -> float:
    """The most memory that this process has had. On Linux getrusage would count what its parent had, too."""
    status = Path("/proc/self/status")
    if status.exists():
        peak = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(peak.split()[1]) / 2**10
    kilobytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return kilobytes / (2**10 if sys.platform != "darwin" else 2**20)


def measure_memory(name: str, work: Workload, norm: bool) -> float:
    """Megabytes that three meta-iterations add to a fresh process."""
    done = subprocess.run(command_for(work, norm, "--memory", name), check=True, capture_output=True, text=True)
    return float(done.stdout)


def print_memory(name: str, work: Workload, norm: bool) -> None:
    peer = build(name, work, norm, draw_episodes(work))
    before = peak_megabytes()
    for _ in range(3):
        peer.iterate()
    sys.stdout.write(f"{peak_megabytes() - before}\n")


def measure(work: Workload, norm: bool, options: argparse.Namespace) -> Row:
    episodes = draw_episodes(work)
    peers = {name: build(name, work, norm, episodes) for name in (*OURS, *options.peers)}
    differences = compare_gradients(work, norm, episodes, peers)
    repeats = options.repeats if work.name not in MEMORY_WORKLOADS else -(-options.repeats // 2)
    milliseconds = measure_in_turns({name: peer.iterate for name, peer in peers.items()}, repeats)
    remembered = ("maml", *(("plain",) if "plain" in options.peers else ()))
    return Row(
        work.name,
        norm,
        milliseconds,
        differences,
        count_operations(work, norm) / milliseconds["maml"] * 1000,
        measure_threads(work, norm, episodes, repeats) if options.threads else None,
        measure_processes(work, norm) if options.threads else None,
        {name: measure_memory(name, work, norm) for name in remembered if work.name in MEMORY_WORKLOADS},
    )


def compare_gradients(work: Workload, norm: bool, episodes: Episodes, peers: dict[str, Peer]) -> dict[str, float]:
    """How far each gradient in single precision is from ours in double; ends the program where one is another gradient.

    Rounding may turn a ReLU or a maximum around, and then single precision is off by some per cent, in any program. So
    those of torch are compared in double precision, where that does not happen.
    """
    doubled = in_double(episodes)
    exact = build("maml", work, norm, doubled).differentiate()
    for name in peers:
        if name not in OURS and not name.startswith("jax"):
            apart = difference(build(name, work, norm, doubled).differentiate(), exact)
            if not apart < 1e-8:
                raise SystemExit(f"{work.name}: {name} has another meta-gradient, relative difference {apart}")
    names = [name for name in peers if name == "maml" or name not in OURS]
    differences = {name: difference(peers[name].differentiate(), exact) for name in names}
    wrong = {name: value for name, value in differences.items() if not value < 0.1}
    if wrong:
        raise SystemExit(f"{work.name}: not the same meta-gradient, relative differences {wrong}")
    return differences


def describe_machine(peak: float) -> str:
    """Versions and what the processor can do, nothing of whose machine it is."""
    libraries = ", ".join(f"{name} {version(name)}" for name in ("torch", "higher", "torchopt", "jax"))
    return (
        f"Python {platform.python_version()}, {libraries}; {platform.machine()},"
        f" torch uses {torch.backends.cpu.get_cpu_capability()}; matrix product {peak:.0f} GFLOP/s on one thread."
    )


def tabulate(rows: list[Row], options: argparse.Namespace) -> tuple[list[str], list[list[str]]]:
    heads = ["workload", "norm", "fewone ms", *(f"{name} ms (x)" for name in options.peers)]
    heads += ["GFLOP/s", "first order x", "ANIL x", "2 threads x", "2 trainings x", "MB (plain)"]
    lines = []
    for row in rows:
        ours = row.milliseconds["maml"]
        cells = [row.workload, "support" if row.norm else "none", f"{ours:.0f}"]
        cells += [f"{row.milliseconds[name]:.0f} ({row.milliseconds[name] / ours:.2f})" for name in options.peers]
        cells += [f"{row.gigaflops:.0f}", *(f"{ours / row.milliseconds[name]:.2f}" for name in ("fomaml", "anil"))]
        threads = row.seconds_by_threads
        cells.append("-" if threads is None else f"{threads[0] / threads[1]:.2f}")
        processes = row.seconds_by_processes
        cells.append("-" if processes is None else f"{2 * processes[0] / processes[1]:.2f}")
        memory = row.megabytes
        cells.append(f"{memory['maml']:.0f} ({memory['plain']:.0f})" if len(memory) == 2 else "-")
        lines.append(cells)
    return heads, lines


def write_markdown(path: Path, heads: list[str], lines: list[list[str]], machine: str, rows: list[Row]) -> None:
    worst = max(value for row in rows for value in row.differences.values())
    ours = max(row.differences["maml"] for row in rows)
    table = [heads, ["---"] * len(heads), *lines]
    text = "# One meta-iteration, here and elsewhere\n\n"
    text += "Written by `python benchmarks/meta_iteration.py --markdown FILE`.\n\n"
    text += (__doc__ or "").split("\n\n", 1)[1].replace("\n", " ").strip() + "\n\n" + machine + "\n\n"
    text += "\n".join("| " + " | ".join(cells) + " |" for cells in table)
    text += f"""

x: how many times longer than fewone's MAML (columns of peers), or shorter (first order, ANIL, two threads by the
clock); two trainings: how many times the iterations of one when two processes run side by side. GFLOP/s counts the
convolutions that a second-order meta-iteration needs. MB: what three iterations add to the
process. In double precision all meta-gradients of torch agree to 1e-8; in single precision they are at most
{worst:.0e} from it (a ReLU or a maximum turned around by rounding), fewone's at most {ours:.0e}. Every peer runs conv,
norm, ReLU, pool; fewone pools before the ReLU, which is the same function, and with a norm pools first too (a norm
keeps the order of values).
JAX's compilation is not counted.
"""
    aside = path.with_suffix(".part")
    path.parent.mkdir(parents=True, exist_ok=True)
    aside.write_text(text)
    aside.replace(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workloads", nargs="+", choices=WORKLOADS, default=list(WORKLOADS))
    parser.add_argument("--norms", nargs="+", choices=("none", "support"), default=["none", "support"])
    parser.add_argument("--peers", nargs="*", choices=PEERS, default=[name for name in PEERS if name != SLOW_PEER])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--markdown", type=Path)
    parser.add_argument("--memory", help=argparse.SUPPRESS)
    parser.add_argument("--clock", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--norm", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    own_process(1)
    if options.memory:
        print_memory(options.memory, WORKLOADS[options.workloads[0]], options.norm)
        return
    if options.clock:
        print_clock(WORKLOADS[options.workloads[0]], options.norm)
        return
    console = Console() if sys.stdout.isatty() else Console(width=200)
    rows, peak = [], measure_peak()
    for norm in options.norms:
        for name in options.workloads:
            console.print(f"{name}, norm {norm} ...")
            rows.append(measure(WORKLOADS[name], norm == "support", options))
            if options.json:
                options.json.write_text(json.dumps([asdict(row) for row in rows], indent=1))
    heads, lines = tabulate(rows, options)
    table = Table(*heads, title=describe_machine(peak))
    for cells in lines:
        table.add_row(*cells)
    console.print(table)
    if options.markdown:
        write_markdown(options.markdown, heads, lines, describe_machine(peak), rows)


if __name__ == "__main__":
    main()
