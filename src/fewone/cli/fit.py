"""fewone fit: a model and a few normals -> a detector in a folder."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import tyro
from rich.console import Console
from rich.progress import track

from fewone.detector.loading import load
from fewone.detector.user_files import list_files, read_examples
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
    json: bool = False
    """Print one JSON object instead of text."""


def main(arguments: list[str]) -> int:
    """Fit and save; says which normals look odd."""
    chosen = tyro.cli(Arguments, args=arguments, prog="fewone fit")
    console = Console(stderr=True)
    detector = load(chosen.model, false_alarm_rate=chosen.false_alarm_rate, sampling_rate=chosen.sampling_rate)
    if detector.card is None:
        raise FewoneError(f"{chosen.model}: a detector of plain tables; it is fitted from Python, not from files")
    files = list_files(chosen.normals)
    reading = track(files, "reading", console=console, transient=True, disable=not console.is_terminal)
    found = [read_examples(file, detector.card.shape, chosen.stride) for file in reading]
    detector.fit(np.concatenate([examples.values for examples in found]))
    detector.save(chosen.out)
    report = detector.report()
    origins = [f"{one.file} at {place}" for one in found for place in one.places.tolist()]
    odd = [origins[number] for number in report.odd]
    if chosen.json:
        facts = {"out": str(chosen.out), "normals": report.support_size, "odd": odd, "warnings": list(report.warnings)}
        print(json.dumps(facts, ensure_ascii=False))
        return 0
    print(f"fitted on {report.support_size} normals from {len(files)} files, written to {chosen.out}")
    for origin in odd:
        print(f"looks unlike the other normals: {origin}; if it is no normal, leave it out and fit again")
    for line in report.warnings:
        print(line)
    return 0
