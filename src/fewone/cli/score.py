"""fewone score: a detector and new files -> what is normal and what is not; the exit code says if anything is not."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import tyro
from rich.console import Console
from rich.progress import Progress as Bar
from rich.progress import track

from fewone.cli.options import parse_options
from fewone.errors import FewoneError
from fewone.file_scoring.exported import RuntimeDetector, is_exported, open_exported
from fewone.file_scoring.user_files import FileExamples, check_stride, list_files, stream_examples, take_decoded
from fewone.file_scoring.verdict_rows import (
    MISSING,
    Judged,
    NotJudged,
    Verdict,
    as_csv,
    as_json,
    count_anomalous,
    write_text,
)
from fewone.picture_files import AHEAD, Decoded, stream_pictures, takes_any_picture
from fewone.reading import ReadOptions

if TYPE_CHECKING:  # with them comes torch, which an exported detector does without
    from fewone.detector.aligned import AlignedDetector
    from fewone.detector.few_shot_detector import FewShotDetector

LARGEST_LIST = 20

Opened: TypeAlias = "FewShotDetector | AlignedDetector | RuntimeDetector"


@dataclass(frozen=True)
class Arguments:
    """Score new files. Exit code 0: all normal; 1: anomalies were found; 2: a mistake, nothing was scored; 3: no
    anomalies, but something could not be judged (values are missing, or a file cannot be read)."""

    detector: Annotated[Path, tyro.conf.Positional]
    """A folder made by fewone fit, or an .onnx file made by fewone export."""
    new: Annotated[Path, tyro.conf.Positional]
    """A file or a folder of files: recordings, tables with one example per row, or pictures."""
    out: Path | None = None
    """Write the verdicts as a .csv file."""
    plot: Path | None = None
    """Write a page with plots of the most anomalous examples and where the anomaly is."""
    stride: int | None = None
    """Recordings are cut into a window every so many time steps (default: one window after the other)."""
    each_window: bool = False
    """One verdict for each window of a recording instead of one for the recording."""
    json: bool = False
    """Print one JSON object per verdict and line."""
    workers: int = 1
    """Processes that share the files."""
    reading: Annotated[ReadOptions, tyro.conf.arg(name="")] = field(default_factory=ReadOptions)


@dataclass(frozen=True)
class Cut:
    """How the files of a call are read, cut and judged."""

    stride: int | None
    each_window: bool
    reading: ReadOptions


def main(arguments: list[str]) -> int:
    """Score every file; the exit code says what was found."""
    chosen = parse_options(Arguments, arguments, "fewone score")
    open_once.cache_clear()
    check_plot(chosen.detector, chosen.plot)
    check_stride(chosen.stride)
    files = list_files(chosen.new)
    if chosen.workers <= 1 or len(files) == 1:
        # Where there are workers they open it, at once: this process does without torch, whose import they would await.
        open_once(chosen.detector)
    judged = list(_judge_all(chosen, files))
    verdicts = [verdict for one in judged for verdict in one.verdicts]
    left = [one for found in judged for one in found.not_judged]
    if not verdicts and len(left) == len(files) and all(one.place is None for one in left):
        more = f" (none of the {len(files)} files can be read)" if len(files) > 1 else ""
        raise FewoneError(left[0].cause + more)
    tell_readings(judged)
    if chosen.out is not None:
        write_text(chosen.out, as_csv([*verdicts, *left]))
    if chosen.plot is not None and verdicts:
        draw_page(chosen.plot, chosen.detector, verdicts, chosen.stride, chosen.reading)
    if chosen.json:
        everything: list[Verdict | NotJudged] = [*verdicts, *left]
        for one in everything:
            print(as_json(one))
    else:
        _print(verdicts, chosen.out)
        print_not_judged(left)
    return find_exit_code(count_anomalous(verdicts), len(left))


def check_plot(detector: Path, plot: Path | None) -> None:
    """Where an anomaly is needs the network's derivatives, which an exported file has not."""
    if plot is not None and is_exported(detector):
        raise FewoneError(f"--plot: {detector} cannot tell where an anomaly is; give the folder it was exported from")


def draw_page(plot: Path, folder: Path, verdicts: Sequence[Verdict], stride: int | None, reading: ReadOptions) -> None:
    """The page of the verdicts of a folder's detector."""
    from fewone.file_scoring.verdict_page import render_page

    detector, shape = open_once(folder)
    assert not isinstance(detector, RuntimeDetector)
    write_text(plot, render_page(detector, verdicts, shape, stride, reading))


def find_exit_code(anomalous: int, not_judged: int) -> int:
    """The same for score and watch."""
    if anomalous:
        return 1
    return 3 if not_judged else 0


def _judge_all(chosen: Arguments, files: Sequence[Path]) -> Iterator[Judged]:
    """A bar over the files, or over the one file."""
    console = Console(stderr=True)
    cut = Cut(chosen.stride, chosen.each_window, chosen.reading)
    hidden = not console.is_terminal
    if len(files) == 1:
        with Bar(console=console, transient=True, disable=hidden) as bar:
            task = bar.add_task("scoring", total=1.0)
            yield judge_path(chosen.detector, cut, files[0], lambda share: bar.update(task, completed=share))
        return
    if chosen.workers == 1 and len(files) > AHEAD and takes_any_picture(open_once(chosen.detector)[1]):
        detector, _ = open_once(chosen.detector)
        found: Iterator[Judged] = (_judge_picture(detector, picture) for picture in stream_pictures(files))
    else:
        from fewone.archive import share_out  # only on need: processes and their tools take time to import

        found = share_out(partial(judge_path, chosen.detector, cut), files, chosen.workers)
    yield from track(found, "scoring", total=len(files), console=console, transient=True, disable=hidden)


def _judge_picture(detector: Opened, picture: Decoded) -> Judged:
    """What is said of a picture that a second process decoded."""
    try:
        return _judge(detector, [take_decoded(picture)])
    except FewoneError as error:
        return Judged(not_judged=(NotJudged(str(picture.file), None, str(error)),))


def judge_path(folder: Path, cut: Cut, file: Path, progress: Callable[[float], None] | None = None) -> Judged:
    """What is said of one file by the detector of a folder, which a process opens once; a fault of the file is told."""
    detector, shape = open_once(folder)
    tail, rate = _find_manner(detector)
    try:
        blocks = stream_examples(file, shape, cut.stride, cut.reading, tail, rate, progress)
        return _judge(detector, blocks, cut.each_window)
    except FewoneError as error:
        return Judged(not_judged=(NotJudged(str(file), None, str(error)),))


def _judge(detector: Opened, blocks: Iterable[FileExamples], each_window: bool = False) -> Judged:
    if isinstance(detector, RuntimeDetector):
        return detector.judge_blocks(blocks, each_window)
    from fewone.file_scoring.verdicts import judge_blocks

    return judge_blocks(detector, blocks, each_window)


def _find_manner(detector: Opened) -> tuple[bool, float | None]:
    """Whether a last window ends where the recording ends, and the sampling rate that is taken."""
    if isinstance(detector, RuntimeDetector):
        return True, detector.facts.sampling_rate
    from fewone.detector.aligned import AlignedDetector

    aligned = isinstance(detector, AlignedDetector)
    first = detector.segments_[0] if isinstance(detector, AlignedDetector) else detector
    return not aligned, first.sampling_rate or (None if first.card is None else first.card.sampling_rate)


def tell_readings(judged: Sequence[Judged]) -> None:
    """How the files were read, each way once, and what is missing in which, on standard error."""
    ways = Counter(one.said for one in judged if one.said)
    for said, count in ways.items():
        print(f"fewone: note: {said}" + (f" ({count} files)" if count > 1 else ""), file=sys.stderr)
    for one in judged:
        for note in one.notes:
            print(f"fewone: note: {note}", file=sys.stderr)


def print_not_judged(left: Sequence[NotJudged], counted: bool = True) -> None:
    """One line per file: the windows that were left out, or why it cannot be read."""
    windows: dict[str, list[int]] = {}
    for one in left:
        if one.place is None:
            print(f"NOT JUDGED {one.cause}")
        else:
            windows.setdefault(one.file, []).append(one.place)
    for file, places in windows.items():
        listed = ", ".join(map(str, places[:LARGEST_LIST])) + (", ..." if len(places) > LARGEST_LIST else "")
        print(f"NOT JUDGED {file} at {listed}: {MISSING}")
    if left and counted:
        print(f"{len(left)} not judged")


def load_fitted(folder: Path) -> tuple[FewShotDetector | AlignedDetector, tuple[int, ...]]:
    """The detector of a folder and the shape of one example; a model that was never fitted is refused."""
    from fewone.detector.aligned import AlignedDetector, is_aligned
    from fewone.detector.loading import load_detector

    if is_aligned(folder):
        aligned = AlignedDetector.load(folder)
        return aligned, tuple(aligned.segments_[0].support_.values.shape[1:])
    detector = load_detector(folder if folder.is_dir() else str(folder))
    if not hasattr(detector, "support_") or detector.card is None:
        raise FewoneError(
            f"{folder}: a model, not a fitted detector; first: fewone fit {folder} NORMALS --out DETECTOR"
        )
    shape = detector.card.shape
    return detector, tuple(detector.support_.values.shape[1:]) if len(shape) == 2 else shape


@lru_cache(1)
def open_once(path: Path) -> tuple[Opened, tuple[int, ...]]:
    """A folder or an exported file; for the workers: `main` forgets what an earlier call opened."""
    if is_exported(path):
        exported = open_exported(path)
        return exported, exported.facts.shape
    return load_fitted(path)


def describe(verdict: Verdict, alone: bool) -> str:
    """One line for people; alone: the only verdict of its file, which needs no place."""
    word = "ANOMALOUS" if verdict.anomalous else "normal   "
    place = f" window at {verdict.worst} is the worst of {verdict.windows}" if verdict.windows > 1 else ""
    if verdict.anomalous and verdict.windows > 1:
        place = f" {verdict.cause}:{place}"
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
