"""One window through `detector.predict`, many at once, and one call of the command: python benchmarks/one_window.py,
one table each.

Plain: the detector as it is for the first hundred calls, and was for all of them before there were recordings.
Recorded: after them, by a recording of the same operations, with the same bits. Both take turns in one process on one
thread, in bursts of 50 calls; the median round of CPU time is given. Many at once: `score_samples` in blocks, by the
detector and by its exported file. The command: `fewone score` on a table of 30 rows beside `import torch` alone, new
processes that take turns, by CPU time of the whole process.
"""

from __future__ import annotations

import copy
import csv
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch
from rich.table import Table

from detector import BURST, LENGTH, NORMALS, collect, interleave
from fewone import FewShotDetector
from fewone.detector.loading import load_detector
from fewone.detector.one_example import RECORD_AFTER
from fewone.file_scoring.exported import open_exported
from fewone.onnx_export import export_onnx
from pages import make_parser, present

BATCH = 4000
SHAPES = {"periodic": (1, LENGTH), "vibration": (3, 2048), "digits": (1, 28, 28), "series": (1, LENGTH)}
"""Models of the zoo, and the shape of one example; `collect` has untrained ones beside them, for windows of 128."""


def measure(detector: FewShotDetector, window: np.ndarray, rounds: int) -> dict[str, float]:
    """Milliseconds a window."""
    recorded, plain = detector, copy.deepcopy(detector)
    recorded.one_example_.calls = RECORD_AFTER - 1
    recorded.predict(window)
    assert recorded.one_example_.recorded is not None
    plain.one_example_.calls = RECORD_AFTER  # past the call that would record
    assert recorded.score_samples(window) == plain.score_samples(window)
    rivals: dict[str, Callable[[], object]] = {
        "plain": partial(_call_often, plain, window),
        "recorded": partial(_call_often, recorded, window),
    }
    found = interleave(rivals, rounds)
    assert plain.one_example_.recorded is None
    return {name: 1e3 * seconds / BURST for name, seconds in found.items()}


def _call_often(detector: FewShotDetector, window: np.ndarray) -> None:
    for _ in range(BURST):
        detector.predict(window)


def tabulate_windows(rounds: int) -> Table:
    table = Table("", "plain, ms", "recorded, ms", "plain / recorded", title="One window")
    random = np.random.default_rng(0)
    detectors = {name: (load_detector(name), shape) for name, shape in SHAPES.items()}
    untrained = {name: (detector, (1, LENGTH)) for name, detector in collect().items() if "zoo" not in name}
    for name, (detector, shape) in (detectors | untrained).items():
        values = random.normal(size=(NORMALS + 1, *shape)).astype(np.float32)
        values = 100 + 40 * values if len(shape) == 3 else values
        found = measure(detector.fit(values[:NORMALS]), values[NORMALS:], rounds)
        ratio = found["plain"] / found["recorded"]
        table.add_row(name, f"{found['plain']:.3f}", f"{found['recorded']:.3f}", f"{ratio:.1f}x")
    return table


def tabulate_batches(rounds: int) -> Table:
    """What ONNX Runtime would bring to large batches: the detector's own scores beside those of its exported file."""
    table = Table("", "torch, ms", "ONNX Runtime, ms", "torch / ONNX Runtime", title=f"{BATCH:,} windows at once")
    random = np.random.default_rng(0)
    for name in ("periodic", "series"):
        values = random.normal(size=(NORMALS + BATCH, 1, LENGTH)).astype(np.float32)
        detector, new = load_detector(name).fit(values[:NORMALS]), values[NORMALS:]
        with tempfile.TemporaryDirectory() as place:
            file = Path(place) / "detector.onnx"
            export_onnx(detector, file)
            exported = open_exported(file)
        rivals: dict[str, Callable[[], object]] = {
            "torch": partial(detector.score_samples, new),
            "onnx": partial(exported.score_samples, new),
        }
        found = interleave(rivals, rounds)
        ratio = found["torch"] / found["onnx"]
        table.add_row(name, f"{1e3 * found['torch']:.0f}", f"{1e3 * found['onnx']:.0f}", f"{ratio:.2f}x")
    return table


def tabulate_commands(rounds: int) -> Table:
    with tempfile.TemporaryDirectory() as place:
        folder, random = Path(place), np.random.default_rng(0)
        with (folder / "new.csv").open("w", newline="") as file:
            csv.writer(file).writerows(random.normal(size=(30, LENGTH)).round(4).tolist())
        for name in ("series", "periodic"):
            load_detector(name).fit(random.normal(size=(NORMALS, LENGTH))).save(folder / name)

        def run(*words: str) -> None:
            found = subprocess.run([sys.executable, *words], cwd=folder, capture_output=True, text=True)
            assert found.returncode in (0, 1), found.stderr

        programs: dict[str, Callable[[], object]] = {"import torch": partial(run, "-c", "import torch")}
        for name in ("series", "periodic"):
            programs[f"fewone score {name}"] = partial(run, "-m", "fewone", "score", name, "new.csv")
        times = interleave(programs, rounds)
    table = Table("", "s", "of import torch", title="One call of the command, 30 rows")
    for name, seconds in times.items():
        table.add_row(name, f"{seconds:.2f}", f"{seconds / times['import torch']:.2f}x")
    return table


def main() -> None:
    parser = make_parser(__doc__)
    parser.set_defaults(rounds=15)
    options = parser.parse_args()
    torch.set_num_threads(1)
    few = max(3, options.rounds // 3)
    tables = [tabulate_windows(options.rounds), tabulate_batches(few), tabulate_commands(few)]
    present(tables, options.markdown, "One window", "one_window.py", __doc__)


if __name__ == "__main__":
    main()
