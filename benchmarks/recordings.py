"""One verdict per recording: how often normal recordings are called anomalous, by their number of windows.

python benchmarks/recordings.py UCR_FOLDER --page docs/benchmarks/recordings.md

Simulated: tasks whose level wanders, windows that follow each other or do not, a calibration over 60 such tasks with
and without measured maxima. Real, with the zoo's `series` fitted on ten windows: further members of a class of the UCR
archive joined at random, and runs of the milling machines (where FEWONE_DATA has them) cut into windows.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

import fewone
from fewone.calibration import CalibrationMap, CalibrationPoint, NormalQuantiles
from fewone.calibration.calibrated import LEVELS
from fewone.calibration.quantiles import find_quantiles
from fewone.datasets.cnc_milling import MACHINES, OPERATIONS, read_segments
from fewone.datasets.sources import default_data_dirs
from fewone.datasets.ucr import read_datasets
from fewone.detector.recording_verdicts import RecordingScorer, find_limits
from fewone.detector.thresholds import find_tail_scale
from pages import write_page

Values = NDArray[np.float64]

RATES = (0.1, 0.05, 0.01)
SIZE = 10
WANDER = 0.5
SIMULATED, REAL = (5, 23, 100, 1000, 5000), (1, 5, 12, 23, 48)
CORRELATIONS = (0.0, 0.6)
DRAWS = 40
LONGEST, CLASSES, WINDOW, RUNS = 400, 2, 256, 26
INTRODUCTION = """Per cent of normal recordings that are called anomalous: at all / as a whole / for an event (a
recording can be both). Simulated are logits whose level wanders from task to task; the bound is what a calibration
without measured maxima uses. The real ones are judged by the zoo's `series`, fitted on ten windows. It was trained
and calibrated on the families of UCR, not on milling. Members of a class are joined at random; of milling, normal
runs of one operation are cut into consecutive windows, and the ten windows are of other runs, at random places of the
course: most of the 48 places of the course were never shown. Means over classes or operations. Earlier rows had 13
and 22 % at 5 % asked and 48 windows: nearly all from windows a little outside the envelope, whose logit grew too fast
beyond the bound (fewone.detector.envelope, TAIL_POWER, since then measured on the classes of UCR, not on milling)."""


def simulate(random: np.random.Generator, recordings: int, windows: int, correlation: float) -> Values:
    """Logits of normal windows (recordings, windows), each recording of a task of its own."""
    fresh = random.normal(size=(recordings, windows))
    logits = fresh.copy()
    for number in range(1, windows):
        logits[:, number] = correlation * logits[:, number - 1] + np.sqrt(1 - correlation**2) * fresh[:, number]
    found: Values = WANDER * random.normal(size=(recordings, 1)) + logits
    return found


def calibrate(peaks: bool) -> CalibrationMap:
    """As over 60 tasks of such logits, with or without their maxima."""
    random = np.random.default_rng(0)
    tasks = [WANDER * random.normal() + random.normal(size=288) for _ in range(60)]

    def keep(combine: Callable[..., Any], groups: tuple[int, ...]) -> tuple[NormalQuantiles, ...]:
        return tuple(
            NormalQuantiles(
                group,
                find_quantiles([torch.from_numpy(combine(task.reshape(-1, group), axis=1)) for task in tasks], LEVELS),
            )
            for group in groups
        )

    largest = keep(np.max, (2, 6, 24, 48)) if peaks else ()
    return CalibrationMap((CalibrationPoint(SIZE, 1.0, 0.0, 0.0, 0.0, keep(np.mean, (1, 2, 6, 24, 48)), largest),))


def make_scorer(calibration: CalibrationMap, rate: float) -> RecordingScorer:
    scale = find_tail_scale(calibration, SIZE)
    return RecordingScorer(find_limits(calibration.threshold(SIZE, rate), rate, calibration, SIZE, scale))


def judge(scorer: RecordingScorer, logits: Values) -> list[float]:
    """The shares of recordings (n, windows) that are anomalous at all, as a whole, for an event."""
    parts = scorer(torch.from_numpy(np.ascontiguousarray(logits))).numpy() < 0
    return [float(parts.any(-1).mean()), *map(float, parts.mean(axis=0))]


def judge_simulation() -> Iterator[dict[str, Any]]:
    for peaks in (True, False):
        calibration = calibrate(peaks)
        for correlation in CORRELATIONS:
            for windows in SIMULATED:
                random = np.random.default_rng([1, windows])
                logits = simulate(random, 2000 if windows < 1000 else 400, windows, correlation)
                for rate in RATES:
                    source = f"simulated, correlation {correlation:g}, {'measured maxima' if peaks else 'bound'}"
                    shares = judge(make_scorer(calibration, rate), logits)
                    yield {"source": source, "windows": windows, "rate": rate, "shares": shares}


def score_ucr(folder: Path) -> Iterator[Values]:
    """The logits of further members of a class, (members,)."""
    random = np.random.default_rng(0)
    for dataset in read_datasets(folder):
        if dataset.values.shape[1] > LONGEST:
            continue
        classes = [np.flatnonzero(dataset.classes == one) for one in range(int(dataset.classes.max()) + 1)]
        for rows in [rows for rows in classes if len(rows) >= SIZE + 24][:CLASSES]:
            values = dataset.values[random.permutation(rows)]
            yield -fewone.load("series").fit(values[:SIZE]).score_samples(values[SIZE:])


def score_milling() -> Iterator[Values]:
    """The logits of consecutive windows of normal runs, (runs, windows)."""
    random = np.random.default_rng(0)
    places = [folder / "cnc" / "data" for folder in default_data_dirs() if (folder / "cnc" / "data").is_dir()]
    for place in places[:1]:
        for name in [f"{machine}/{operation}" for machine in MACHINES for operation in OPERATIONS]:
            files = sorted((place / name / "good").glob("*.h5"))
            if len(files) < RUNS:
                continue
            chosen = [files[number] for number in np.linspace(0, len(files) - 1, RUNS).astype(int)]
            runs = np.stack([read_segments(file) for file in chosen]).astype(np.float64).transpose(0, 2, 1, 3)
            windows = runs.reshape(*runs.shape[:2], -1, WINDOW).transpose(0, 2, 1, 3)
            order = random.permutation(RUNS)
            shown = np.stack([windows[run, random.integers(windows.shape[1])] for run in order[:SIZE]])
            detector = fewone.load("series").fit(shown)
            yield np.stack([-detector.score_samples(windows[run]) for run in order[SIZE:]])


def judge_real(source: str, tasks: list[Values]) -> Iterator[dict[str, Any]]:
    detector = fewone.load("series")
    assert isinstance(detector, fewone.FewShotDetector) and detector.calibration is not None
    calibration = detector.calibration
    random = np.random.default_rng(1)
    for windows in REAL:
        recordings = [cut(logits, windows, random) for logits in tasks]
        for rate in RATES:
            scorer = make_scorer(calibration, rate)
            shares = np.mean([judge(scorer, logits) for logits in recordings], axis=0).tolist()
            yield {"source": source, "windows": windows, "rate": rate, "shares": shares, "tasks": len(tasks)}


def cut(logits: Values, windows: int, random: np.random.Generator) -> Values:
    """Recordings (n, windows): of members at random, of runs what follows each other."""
    if logits.ndim == 1:
        replaced = windows > len(logits)
        return np.stack([random.choice(logits, windows, replace=replaced) for _ in range(DRAWS)])
    whole = logits.shape[1] // windows * windows
    return logits[:, :whole].reshape(-1, windows)


def tabulate(rows: list[dict[str, Any]]) -> Iterator[Table]:
    for source in dict.fromkeys(row["source"] for row in rows):
        mine = [row for row in rows if row["source"] == source]
        tasks = f" ({mine[0]['tasks']})" if "tasks" in mine[0] else ""
        table = Table(title=f"{source[0].upper()}{source[1:]}{tasks}")
        table.add_column("asked")
        sizes = list(dict.fromkeys(row["windows"] for row in mine))
        for size in sizes:
            table.add_column(f"{size} windows" if size > 1 else "1 window")
        for rate in RATES:
            found = {row["windows"]: row["shares"] for row in mine if row["rate"] == rate}
            table.add_row(
                f"{100 * rate:g}", *(" / ".join(f"{100 * share:.1f}" for share in found[size]) for size in sizes)
            )
        yield table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", help="with the UCR archive; none: the page from the rows alone")
    parser.add_argument("--rows", type=Path, default=Path("results/validation/recordings.jsonl"))
    parser.add_argument("--page", type=Path)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    if chosen.folder is not None:
        found = [*judge_simulation(), *judge_real("classes of UCR", list(score_ucr(chosen.folder)))]
        found += judge_real("runs of milling", list(score_milling()))
        for row in found:
            row["shares"] = [round(share, 4) for share in row["shares"]]
        chosen.rows.parent.mkdir(parents=True, exist_ok=True)
        chosen.rows.write_text("".join(json.dumps(row) + "\n" for row in found), encoding="utf-8")
    rows = [json.loads(line) for line in chosen.rows.read_text(encoding="utf-8").splitlines()]
    tables = list(tabulate(rows))
    if chosen.page is not None:
        introduction = f"Written by `python benchmarks/recordings.py`; rows in `{chosen.rows}`. {INTRODUCTION}"
        write_page(chosen.page, "False alarms of recordings", introduction, tables)
    for table in tables:
        Console(width=200).print(table)


if __name__ == "__main__":
    main()
