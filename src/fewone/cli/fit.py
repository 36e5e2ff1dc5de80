"""fewone fit: a model and a few normals -> a detector in a folder."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated

import numpy as np
import tyro
from rich.console import Console
from rich.progress import track

from fewone.cli.options import parse_options
from fewone.cli.score import tell_readings
from fewone.detector.aligned import AlignedDetector, is_aligned
from fewone.detector.few_shot_detector import FewShotDetector
from fewone.detector.files import is_detector
from fewone.detector.loading import load_detector
from fewone.errors import FewoneError, say_count
from fewone.file_scoring.choosing import choose_model
from fewone.file_scoring.user_files import (
    FileExamples,
    check_stride,
    choose_shape,
    find_stride_out_of_step,
    list_files,
    read_examples,
)
from fewone.file_scoring.verdict_rows import Judged
from fewone.reading import ReadOptions


@dataclass(frozen=True)
class Arguments:
    """Fit a model on a few normal examples. Exit code 0: the detector is written; 2: a mistake, nothing is written.

    fewone fit NORMALS --out DETECTOR chooses a model of the zoo by the kind of the files and says which.
    """

    model: Annotated[str, tyro.conf.Positional]
    """A model of the zoo (see: fewone models), a folder made by fewone train, or a detector to be fitted anew."""
    out: Path
    """Folder for the detector."""
    normals: Annotated[Path | None, tyro.conf.Positional] = None
    """A file or a folder of files: recordings, tables with one example per row, or pictures."""
    false_alarm_rate: float | None = None
    """The share of normals that may be called anomalous (default: the model's own threshold)."""
    sampling_rate: float | None = None
    """Of your recordings in Hz; refused where the model was trained for another one (default: by their times)."""
    window: int | None = None
    """How many time steps a window has, for a model that takes any (default: found from the recordings, and said)."""
    stride: int | None = None
    """Recordings are cut into a window every so many time steps (default: one window after the other)."""
    aligned: bool = False
    """Every recording is a run of one operation of a machine, all cut alike: window p is judged by window
    p of the normals, and there is one decision per run."""
    force: bool = False
    """Replace a detector that is there already."""
    json: bool = False
    """Print one JSON object instead of text."""
    reading: Annotated[ReadOptions, tyro.conf.arg(name="")] = field(default_factory=ReadOptions)


@dataclass(frozen=True)
class Outcome:
    """What fitting says: how many normals, which of them look odd and where, warnings, what was left out."""

    normals: int
    odd: tuple[str, ...]
    warnings: tuple[str, ...]


def main(arguments: list[str]) -> int:
    """Fit and save; says which normals look odd."""
    chosen = parse_options(Arguments, arguments, "fewone fit")
    console = Console(stderr=True)
    check_stride(chosen.stride)
    check_place(chosen.out, chosen.force)
    place = chosen.normals or Path(chosen.model)
    files = list_files(place)
    name = chosen.model
    if chosen.normals is None:
        name = choose_model(files, chosen.reading, chosen.sampling_rate)
        tell(f"model {name}: chosen by the kind of the files; another one: fewone fit MODEL {place} --out {chosen.out}")
    detector = load_detector(name, false_alarm_rate=chosen.false_alarm_rate, sampling_rate=chosen.sampling_rate)
    if detector.card is None:
        raise FewoneError(f"{name}: a detector of plain tables; it is fitted from Python, not from files")
    shape = choose_shape(detector.card.shape, files, chosen.window, chosen.reading)
    if shape != detector.card.shape:
        many = "1 channel" if shape[0] == 1 else f"{shape[0]} channels"
        tell(f"windows of {shape[-1]} time steps in {many}" + ("" if chosen.window else " (--window)"))
    rate = chosen.sampling_rate or detector.card.sampling_rate
    found, faults = [], []
    for file in track(files, "reading", console=console, transient=True, disable=not console.is_terminal):
        try:
            found.append(read_examples(file, shape, chosen.stride, chosen.reading, sampling_rate=rate))
        except FewoneError as error:
            if len(files) == 1 or chosen.aligned or not found:
                raise
            faults.append(str(error))
        else:
            rate = rate or found[-1].findings.sampling_rate
    tell_readings([_as_judged(one) for one in found])
    for fault in faults:
        tell(f"passed over: {fault}")
    if not chosen.aligned and (step := say_step(found[0], chosen.stride)):
        tell(step)
    if not sum(len(one.places) for one in found):
        raise FewoneError(f"{place}: no window without a missing value; fill gaps with --fill and --largest-gap")
    if rate is not None and detector.sampling_rate is None:
        detector.set_params(sampling_rate=rate)
    outcome = _fit_aligned(detector, found, chosen.out) if chosen.aligned else _fit(detector, found, chosen.out)
    left_out = sum(len(one.not_judged) for one in found)
    if chosen.json:
        facts = {"out": str(chosen.out), "model": name, "window": shape[-1], "left_out": left_out, "unreadable": faults}
        print(json.dumps({**facts, **asdict(outcome)}, ensure_ascii=False))
        return 0
    source = f"{say_count(outcome.normals, 'normal')} from {say_count(len(found), 'file')}"
    print(f"fitted on {source}, written to {chosen.out}")
    for origin in outcome.odd:
        print(f"looks unlike the other normals: {origin}; if it is no normal, leave it out and fit again")
    for line in outcome.warnings:
        print(line)
    return 0


def tell(line: str) -> None:
    print(f"fewone: note: {line}", file=sys.stderr)


def say_step(one: FileExamples, stride: int | None) -> str | None:
    """Whether windows that follow each other show one part of what repeats alone."""
    if not one.recording or len(one.not_judged) or len(one.places) < 2:
        return None
    window = one.values.shape[-1]
    if stride not in (None, window):
        return None
    found = find_stride_out_of_step(np.concatenate(one.values, axis=-1).T, window)
    if found is None:
        return None
    return (
        f"the windows are in step with what repeats every {found[0]} time steps and know it from there alone: where new"
        f" recordings may begin elsewhere, say --stride {found[1]}"
    )


def _as_judged(one: FileExamples) -> Judged:
    whole = one.findings.whole
    note = f"{one.file}: {one.findings}; {len(one.not_judged)} left out: {', '.join(map(str, one.not_judged[:20]))}"
    return Judged(said=one.said, notes=() if whole else (note.removesuffix(": "),))


def check_place(folder: Path, force: bool) -> None:
    """Refuse to write over a detector unasked, and into a folder that is none of ours at all."""
    if not folder.exists():
        return
    if not folder.is_dir():
        raise FewoneError(f"{folder}: is a file; name a folder for the detector")
    ours = is_detector(folder) or is_aligned(folder)
    if not ours and any(folder.iterdir()):
        raise FewoneError(f"{folder}: holds other files and no detector; give another --out, so that nothing is lost")
    if ours and not force:
        raise FewoneError(f"{folder}: holds a detector already; give another --out, or --force to replace it")


def _fit(detector: FewShotDetector, found: Sequence[FileExamples], out: Path) -> Outcome:
    alike = len({examples.values.dtype for examples in found}) == 1  # pictures may have 8 bits, 16 or floats
    values = np.concatenate([examples.values for examples in found]) if alike else None
    detector.fit([one for examples in found for one in examples.values] if values is None else values).save(out)
    report = detector.report()
    origins = [f"{one.file} at {place}" for one in found for place in one.places.tolist()]
    return Outcome(report.support_size, tuple(origins[number] for number in report.odd), report.warnings)


def _fit_aligned(detector: FewShotDetector, found: Sequence[FileExamples], out: Path) -> Outcome:
    """A detector for each window of the operation."""
    for one in found:
        if not one.recording or len(one.places) != len(found[0].places):
            raise FewoneError(
                f"{one.file}: {len(one.places)} windows, {found[0].file} has {len(found[0].places)}; --aligned takes"
                f" runs of one operation, all of the same length"
            )
    aligned = AlignedDetector(detector).fit(np.stack([one.values for one in found]))
    aligned.save(out)
    reports = aligned.report()
    odd = [f"{found[run].file} at {found[run].places[p]}" for p, report in enumerate(reports) for run in report.odd]
    lines = Counter(line for report in reports for line in report.warnings)
    told = tuple(f"{line} (in {count} of {len(reports)} windows of the operation)" for line, count in lines.items())
    return Outcome(len(found), tuple(odd), told)
