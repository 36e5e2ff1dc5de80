"""fewone watch: scores files as they arrive in a folder, until it is stopped."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import tyro

from fewone.cli.score import describe, load_fitted
from fewone.datasets.example_files import SUFFIXES
from fewone.detector.aligned import AlignedDetector
from fewone.detector.few_shot_detector import FewShotDetector
from fewone.detector.user_files import read_examples
from fewone.detector.verdicts import Verdict, as_csv, judge_file
from fewone.errors import FewoneError


@dataclass(frozen=True)
class Arguments:
    """Score files as they arrive, until Ctrl-C or --for-seconds.

    A file is read once it has stopped growing. Exit code 0: all were normal; 1: anomalies were found; 2: a mistake.
    A file that cannot be read is told and passed over.
    """

    detector: Annotated[Path, tyro.conf.Positional]
    """A folder made by fewone fit."""
    folder: Annotated[Path, tyro.conf.Positional]
    """The folder into which new files come."""
    out: Path | None = None
    """Append the verdicts to a .csv file."""
    every: float = 1.0
    """Look for new files every so many seconds."""
    for_seconds: float | None = None
    """Stop after so many seconds (default: never)."""
    json: bool = False
    """Print one JSON object per verdict and line."""


def main(arguments: list[str]) -> int:
    """Watch; Ctrl-C is the ordinary end."""
    chosen = tyro.cli(Arguments, args=arguments, prog="fewone watch")
    detector, shape = load_fitted(chosen.detector)
    if not chosen.folder.is_dir():
        raise FewoneError(f"{chosen.folder}: no such folder to watch")
    if chosen.every <= 0:
        raise FewoneError(f"--every is {chosen.every:g}: more than 0 seconds are needed")
    anomalous = False
    try:
        for file in arrivals(chosen.folder, chosen.every, chosen.for_seconds):
            verdicts = _judge(detector, file, shape)
            for verdict in verdicts:
                anomalous |= verdict.anomalous
                print(json.dumps(asdict(verdict)) if chosen.json else describe(verdict, len(verdicts) == 1), flush=True)
                _append(chosen.out, verdict)
    except KeyboardInterrupt:
        pass
    return 1 if anomalous else 0


def arrivals(folder: Path, every: float, seconds: float | None) -> Iterator[Path]:
    """Each readable file of the folder once, when two looks in a row found it the same."""
    end = None if seconds is None else time.monotonic() + seconds
    seen: dict[Path, tuple[int, int]] = {}
    done: set[Path] = set()
    while True:
        present = {
            path: (path.stat().st_size, path.stat().st_mtime_ns)
            for path in sorted(folder.iterdir())
            if path.suffix.lower() in SUFFIXES and not path.name.startswith(".") and path.is_file()
        }
        for path, state in present.items():
            if path not in done and seen.get(path) == state:
                done.add(path)
                yield path
        seen, done = present, done & present.keys()
        if end is not None and time.monotonic() >= end:
            return
        time.sleep(every)


def _judge(detector: FewShotDetector | AlignedDetector, file: Path, shape: tuple[int, ...]) -> list[Verdict]:
    try:
        return judge_file(detector, read_examples(file, shape))
    except FewoneError as error:
        print(f"fewone: {error}", flush=True)
        return []


def _append(path: Path | None, verdict: Verdict) -> None:
    if path is None:
        return
    try:
        new = not path.exists()
        with path.open("a") as file:
            file.write(as_csv([verdict], header=new))
    except OSError as error:
        raise FewoneError(f"{path}: cannot be written ({error.strerror}); give another place") from error
