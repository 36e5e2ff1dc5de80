"""fewone score: a detector and new files -> what is normal and what is not; the exit code says if anything is not."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console
from rich.progress import track

from fewone.archive import share_out
from fewone.detector.aligned import AlignedDetector, is_aligned
from fewone.detector.few_shot_detector import FewShotDetector
from fewone.detector.loading import load_detector
from fewone.detector.user_files import list_files, read_examples
from fewone.detector.verdict_page import render_page
from fewone.detector.verdicts import Verdict, as_csv, count_anomalous, judge_file, write_text
from fewone.errors import FewoneError

LARGEST_LIST = 20


@dataclass(frozen=True)
class Arguments:
    """Score new files. Exit code 0: all normal; 1: anomalies were found; 2: a mistake, nothing was scored."""

    detector: Annotated[Path, tyro.conf.Positional]
    """A folder made by fewone fit."""
    new: Annotated[Path, tyro.conf.Positional]
    """A file or a folder of files: recordings, tables with one example per row, or pictures."""
    out: Path | None = None
    """Write the verdicts as a .csv file."""
    plot: Path | None = None
    """Write a page with plots of the most anomalous examples and where the anomaly is."""
    stride: int | None = None
    """Recordings are cut into a window every so many time steps (default: one window after the other)."""
    each_window: bool = False
    """One verdict for each window of a recording instead of one for their mean: finds a short event in a long one."""
    json: bool = False
    """Print one JSON object per verdict and line."""
    workers: int = 1
    """Processes that share the files."""


def main(arguments: list[str]) -> int:
    """Score every file; 1 if anything is anomalous."""
    chosen = tyro.cli(Arguments, args=arguments, prog="fewone score")
    open_once.cache_clear()
    detector, shape = open_once(chosen.detector)
    console = Console(stderr=True)
    files = list_files(chosen.new)
    work = partial(judge_path, chosen.detector, chosen.stride, chosen.each_window)
    found = track(
        share_out(work, files, chosen.workers),
        "scoring",
        total=len(files),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    verdicts = [verdict for judged in found for verdict in judged]
    if chosen.out is not None:
        write_text(chosen.out, as_csv(verdicts))
    if chosen.plot is not None:
        write_text(chosen.plot, render_page(detector, verdicts, shape, chosen.stride))
    if chosen.json:
        for verdict in verdicts:
            print(json.dumps(asdict(verdict), ensure_ascii=False))
    else:
        _print(verdicts, chosen.out)
    return 1 if count_anomalous(verdicts) else 0


def judge_path(folder: Path, stride: int | None, each_window: bool, file: Path) -> list[Verdict]:
    """The verdicts on one file by the detector of a folder, which a process opens once."""
    detector, shape = open_once(folder)
    examples = read_examples(file, shape, stride)
    return judge_file(detector, replace(examples, recording=False) if each_window else examples)


def load_fitted(folder: Path) -> tuple[FewShotDetector | AlignedDetector, tuple[int, ...]]:
    """The detector of a folder and the shape of one example; a model that was never fitted is refused."""
    if is_aligned(folder):
        aligned = AlignedDetector.load(folder)
        return aligned, tuple(aligned.stretches_[0].support_.values.shape[1:])
    detector = load_detector(folder)
    if not hasattr(detector, "support_") or detector.card is None:
        raise FewoneError(
            f"{folder}: a model, not a fitted detector; first: fewone fit {folder} NORMALS --out DETECTOR"
        )
    return detector, detector.card.shape


open_once = lru_cache(1)(load_fitted)
"""For the workers; `main` forgets what an earlier call opened."""


def describe(verdict: Verdict, alone: bool) -> str:
    """One line for people; alone: the only verdict of its file, which needs no place."""
    word = "ANOMALOUS" if verdict.anomalous else "normal   "
    place = f" window at {verdict.worst} is the worst of {verdict.windows}" if verdict.windows > 1 else ""
    row = "" if alone else f" at {verdict.place}"
    return f"{word} {verdict.decision:+8.2f}  {verdict.file}{row}{place}"


def _print(verdicts: Sequence[Verdict], out: Path | None) -> None:
    """The most anomalous first; a long list is cut, the file has all of it."""
    worst = sorted(verdicts, key=lambda verdict: verdict.decision)
    verdicts_of = Counter(verdict.file for verdict in verdicts)
    for verdict in worst[:LARGEST_LIST]:
        print(describe(verdict, verdicts_of[verdict.file] == 1))
    if len(worst) > LARGEST_LIST:
        print(f"... and {len(worst) - LARGEST_LIST} more" + ("" if out else "; --out FILE.csv writes all of them"))
    print(f"{count_anomalous(verdicts)} of {len(verdicts)} anomalous")
