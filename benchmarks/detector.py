"""The detector beside OneClassSVM, IsolationForest, PyOD's KNN and ECOD; ONNX Runtime beside torch; imports; scaling.

`python benchmarks/detector.py [--rounds 15] [--largest 1000000] [--markdown FILE]`: one table each. All rivals of
a table run interleaved in one process on one thread, on the same windows; the median round is given. Times are CPU
times (imports: of the new process), so that other work on the machine weighs little; still, only ratios
within a table count.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch
from rich.table import Table

from fewone import FewShotDetector
from fewone.checkpoints import ModelSpec, build_learner
from fewone.detector.loading import load_detector
from fewone.episodes import InputScaling
from fewone.experiments.own_recipes import find_own_recipe
from fewone.learners import LearnerSettings, MamlSettings, PldaSettings
from fewone.networks import NetworkSettings
from pages import present

LENGTH, NORMALS, WINDOWS = 128, 10, 1000
# As a service would call it: interleaved one by one, each rival would find the cache full of the others' weights.
BURST = 50


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--model", help="a model of the zoo or a folder, univariate windows of 128 (default: untrained)"
    )
    parser.add_argument("--markdown", type=Path, help="write the tables to this page as well")
    parser.add_argument("--rounds", type=int, default=15, help="0: the scaling alone")
    parser.add_argument("--largest", type=int, default=1_000_000)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    random = np.random.default_rng(0)
    phase = random.uniform(0, 2 * np.pi, (NORMALS + WINDOWS, 1))
    values = np.sin(np.arange(LENGTH) / 4 + phase) + 0.1 * random.normal(size=(NORMALS + WINDOWS, LENGTH))
    normals, new = values[:NORMALS].astype(np.float32), values[NORMALS:].astype(np.float32)
    detectors = {"given": load_detector(chosen.model)} if chosen.model else collect()
    tables = []
    if chosen.rounds:
        tables.append(compare_rivals(detectors, normals, new, chosen.rounds))
        tables.append(compare_runtimes(detectors, normals, new, chosen.rounds))
        tables.append(compare_imports(max(3, chosen.rounds // 3)))
    tables.append(measure_scaling(*next(iter(detectors.items())), normals, chosen.largest))
    present(tables, chosen.markdown, "The detector beside its rivals", "detector.py", __doc__)


def collect() -> dict[str, FewShotDetector]:
    """The zoo's model of series, and others untrained (weights do not change the time), for windows of 128.

    plda by its recipe for series, and with the paper's network and half of its filters; OC-MAML with the paper's.
    """
    recipe = find_own_recipe("plda", "sts-sawtooth")
    paper, half = (NetworkSettings(filters=(filters,) * 3, kernel=5) for filters in (32, 16))
    found = {}
    variants: tuple[tuple[str, str, LearnerSettings, NetworkSettings], ...] = (
        ("plda, recipe for series", "plda", recipe.learning, recipe.network),
        ("plda 32-32-32", "plda", PldaSettings(), paper),
        ("plda 16-16-16", "plda", PldaSettings(), half),
        ("OC-MAML 32-32-32", "maml", MamlSettings(), paper),
    )
    for name, algorithm, learning, network in variants:
        card = ModelSpec(
            algorithm,
            learning,
            network,
            (1, LENGTH),
            InputScaling(standardize=True),
            support_size=NORMALS,
            seed=0,
            dataset="none",
            fingerprint="",
        )
        found[name] = FewShotDetector(build_learner(card).eval(), card=card)
    return found | {"zoo's periodic (support-distance 32-64-64)": load_detector("periodic")}


def compare_rivals(detectors: dict[str, FewShotDetector], normals: np.ndarray, new: np.ndarray, rounds: int) -> Table:
    from pyod.models.ecod import ECOD
    from pyod.models.knn import KNN
    from sklearn.ensemble import IsolationForest
    from sklearn.svm import OneClassSVM

    rivals: dict[str, Callable[[], object]] = {
        f"fewone, {name}": lambda detector=detector: detector.fit(normals).decision_function(new)  # type: ignore[misc]
        for name, detector in detectors.items()
    }
    rivals |= {
        "OneClassSVM": lambda: OneClassSVM().fit(normals).decision_function(new),
        "IsolationForest": lambda: IsolationForest(random_state=0).fit(normals).decision_function(new),
        "PyOD KNN": lambda: KNN(n_neighbors=5).fit(normals).decision_function(new),
        "PyOD ECOD": lambda: ECOD().fit(normals).decision_function(new),
    }
    times = interleave(rivals, rounds)
    table = Table(title=f"fit on {NORMALS} normals and score {WINDOWS} windows of {LENGTH}")
    for heading in ("", "ms", "against IsolationForest", "against OneClassSVM"):
        table.add_column(heading, justify="right" if heading else "left")
    for name, seconds in times.items():
        ratios = (f"{seconds / times[other]:.2f}x" for other in ("IsolationForest", "OneClassSVM"))
        table.add_row(name, f"{1e3 * seconds:.1f}", *ratios)
    return table


def compare_runtimes(detectors: dict[str, FewShotDetector], normals: np.ndarray, new: np.ndarray, rounds: int) -> Table:
    table = Table(title=f"one window, called {BURST} times in a row")
    for heading in ("", "detector, ms", "torch, ms", "ONNX, ms", "detector / ONNX", "torch / ONNX"):
        table.add_column(heading, justify="right" if heading else "left")
    for name, detector in detectors.items():
        times = time_runtimes(detector.fit(normals), new[:1, None], rounds)
        milliseconds = (f"{1e3 * seconds / BURST:.3f}" for seconds in times.values())
        table.add_row(name, *milliseconds, *(f"{times[one] / times['onnx']:.1f}x" for one in ("detector", "torch")))
    return table


def time_runtimes(detector: FewShotDetector, window: np.ndarray, rounds: int) -> dict[str, float]:
    """One window (1, 1, length) by the detector, by its torch module alone and by ONNX Runtime."""
    import onnxruntime

    from fewone.onnx_export import export_onnx

    with tempfile.TemporaryDirectory() as folder:
        export_onnx(detector, Path(folder) / "out.onnx")
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        session = onnxruntime.InferenceSession(Path(folder) / "out.onnx", options)
    tensor = torch.from_numpy(window)

    def run_torch() -> object:
        with torch.inference_mode():
            return detector.adapted_(tensor)

    rivals: dict[str, Callable[[], object]] = {
        "detector": lambda: detector.decision_function(window),
        "torch": run_torch,
        "onnx": lambda: session.run(None, {"values": window}),
    }
    return interleave({name: lambda run=run: [run() for _ in range(BURST)] for name, run in rivals.items()}, rounds)  # type: ignore[misc]


def compare_imports(rounds: int) -> Table:
    """New processes, the interpreter's own start taken off."""
    programs = {
        "import fewone": "import fewone",
        "fewone --help": "from fewone.cli import main; main(['--help'])",
        "import torch": "import torch",
        "fewone.load (first use)": "import fewone; fewone.load",
    }

    def run(program: str) -> None:
        subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)

    rivals = {name: partial(run, program) for name, program in programs.items()}
    times = interleave({"python itself": lambda: run("pass"), **rivals}, rounds)
    empty = times.pop("python itself")
    table = Table(title="imports")
    for heading in ("", "ms", "of import torch"):
        table.add_column(heading, justify="right" if heading else "left")
    for name, seconds in times.items():
        share = (seconds - empty) / (times["import torch"] - empty)
        table.add_row(name, f"{1e3 * (seconds - empty):.0f}", f"{share:.1%}")
    return table


def measure_scaling(name: str, detector: FewShotDetector, normals: np.ndarray, largest: int) -> Table:
    """Throughput, and the memory that scoring takes beyond the windows and their scores."""
    detector.fit(normals)
    table = Table(title=f"scoring against the number of windows: {name}")
    for heading in ("windows", "s", "windows/s", "input, MB", "peak beyond it, MB"):
        table.add_column(heading, justify="right")
    count = 1000
    while count <= largest:
        new = np.zeros((count, LENGTH), np.float32)
        new[:] = normals[0]
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        started = time.process_time()
        detector.decision_function(new)
        seconds = time.process_time() - started
        beyond = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1e3
        table.add_row(
            f"{count:,}", f"{seconds:.3f}", f"{count / seconds:,.0f}", f"{new.nbytes / 1e6:.1f}", f"{beyond:.1f}"
        )
        count *= 10
    return table


def interleave(rivals: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """The median seconds of each over rounds in which all take turns, after one round to warm up."""
    times: dict[str, list[float]] = {name: [] for name in rivals}
    for number in range(rounds + 1):
        for name, run in rivals.items():
            started = cpu_seconds()
            run()
            if number:
                times[name].append(cpu_seconds() - started)
    return {name: float(np.median(seconds)) for name, seconds in times.items()}


def cpu_seconds() -> float:
    """Of this process and of those it waited for."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


if __name__ == "__main__":
    main()
