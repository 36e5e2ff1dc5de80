"""fewone fit: a model and a few normals -> a detector in a folder."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import tyro
from rich.console import Console
from rich.progress import track

from fewone.detector.aligned import AlignedDetector
from fewone.detector.few_shot_detector import FewShotDetector
from fewone.detector.loading import load_detector
from fewone.detector.user_files import FileExamples, list_files, read_examples
from fewone.errors import FewoneError


@dataclass(frozen=True)
class Arguments:
    """Fit a model on a few normal examples. Exit code 0: the detector is written; 2: a mistake, nothing is written."""

    model: Annotated[str, tyro.conf.Positional]
    """A model of the zoo (see: fewone models), a folder made by fewone train, or a detector to be fitted anew."""
    normals: Annotated[Path, tyro.conf.Positional]
    """A file or a folder of files: recordings, tables with one example per row, or pictures."""
    out: Path
    """Folder for the detector."""
    false_alarm_rate: float | None = None
    """The share of normals that may be called anomalous (default: the model's own threshold)."""
    sampling_rate: float | None = None
    """Of your recordings in Hz; refused where the model was trained for another one."""
    stride: int | None = None
    """Recordings are cut into a window every so many time steps (default: one window after the other)."""
    aligned: bool = False
    """Every recording is a run of one course (an operation of a machine), all cut alike: window p is judged by window
    p of the normals, and there is one decision per run."""
    json: bool = False
    """Print one JSON object instead of text."""


@dataclass(frozen=True)
class Outcome:
    """What fitting says: how many normals, which of them look odd and where, warnings."""

    normals: int
    odd: tuple[str, ...]
    warnings: tuple[str, ...]


def main(arguments: list[str]) -> int:
    """Fit and save; says which normals look odd."""
    chosen = tyro.cli(Arguments, args=arguments, prog="fewone fit")
    console = Console(stderr=True)
    detector = load_detector(chosen.model, false_alarm_rate=chosen.false_alarm_rate, sampling_rate=chosen.sampling_rate)
    if detector.card is None:
        raise FewoneError(f"{chosen.model}: a detector of plain tables; it is fitted from Python, not from files")
    files = list_files(chosen.normals)
    reading = track(files, "reading", console=console, transient=True, disable=not console.is_terminal)
    found = [read_examples(file, detector.card.shape, chosen.stride) for file in reading]
    outcome = _fit_aligned(detector, found, chosen.out) if chosen.aligned else _fit(detector, found, chosen.out)
    if chosen.json:
        print(json.dumps({"out": str(chosen.out), **asdict(outcome)}, ensure_ascii=False))
        return 0
    print(f"fitted on {outcome.normals} normals from {len(files)} files, written to {chosen.out}")
    for origin in outcome.odd:
        print(f"looks unlike the other normals: {origin}; if it is no normal, leave it out and fit again")
    for line in outcome.warnings:
        print(line)
    return 0


def _fit(detector: FewShotDetector, found: Sequence[FileExamples], out: Path) -> Outcome:
    detector.fit(np.concatenate([examples.values for examples in found])).save(out)
    report = detector.report()
    origins = [f"{one.file} at {place}" for one in found for place in one.places.tolist()]
    return Outcome(report.support_size, tuple(origins[number] for number in report.odd), report.warnings)


def _fit_aligned(detector: FewShotDetector, found: Sequence[FileExamples], out: Path) -> Outcome:
    """A detector for each window of the course."""
    for one in found:
        if not one.recording or len(one.places) != len(found[0].places):
            raise FewoneError(
                f"{one.file}: {len(one.places)} windows, {found[0].file} has {len(found[0].places)}; --aligned takes"
                f" recordings of one course, all of the same length"
            )
    aligned = AlignedDetector(detector).fit(np.stack([one.values for one in found]))
    aligned.save(out)
    reports = aligned.report()
    odd = [f"{found[run].file} at {found[run].places[p]}" for p, report in enumerate(reports) for run in report.odd]
    lines = Counter(line for report in reports for line in report.warnings)
    told = tuple(f"{line} (in {count} of {len(reports)} windows of the course)" for line, count in lines.items())
    return Outcome(len(found), tuple(odd), told)
