"""Rows <-> JSON lines: every evaluation is kept with its experiment, its values per unit and where it came from.

Appending is atomic between processes: one write at the end of the file, under a lock.
"""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version
from pathlib import Path
from platform import python_version
from typing import Literal

from fewone.documents import DocumentError, Json, from_plain
from fewone.errors import FewoneError
from fewone.evaluation.scores import Results, Summary, UnitScores

Level = Literal["example", "run"]
Split = Literal["train", "validation", "test"]
Threshold = Literal["own", "calibrated"]


@dataclass(frozen=True)
class Versions:
    """What computed a row."""

    fewone: str
    python: str
    torch: str
    numpy: str
    sklearn: str


@dataclass(frozen=True)
class Origin:
    """Where a row comes from: code, data, time and cost. commit ends in +dirty where the tree had changes."""

    commit: str
    fingerprint: str
    versions: Versions
    timestamp: str
    seconds: float
    cpu_seconds: float


@dataclass(frozen=True)
class Row:
    """One evaluation of one experiment. threshold: the method's own, or calibrated over tasks.

    scores keep the values per unit, so that runs can be paired and averaged later; summary is their mean and interval.
    """

    experiment: dict[str, Json]
    seed: int
    split: Split
    level: Level
    threshold: Threshold
    summary: Summary
    scores: UnitScores
    origin: Origin


@dataclass(frozen=True)
class Failure:
    """A job that died, and of what."""

    experiment: dict[str, Json]
    seed: int
    error: str
    origin: Origin


@dataclass(frozen=True)
class Point:
    """One validation during a training: mean query loss and balanced accuracy on the validation tasks."""

    iteration: int
    cpu_seconds: float
    loss: float
    accuracy: float


@dataclass(frozen=True)
class Training:
    """How a training went, validation by validation."""

    experiment: dict[str, Json]
    seed: int
    history: tuple[Point, ...]
    origin: Origin


@dataclass(frozen=True)
class Cosine:
    """Cosine between the gradients of one-class and class-balanced batches at the learned initialisation, per unit."""

    experiment: dict[str, Json]
    seed: int
    units: tuple[str, ...]
    values: tuple[float, ...]
    origin: Origin


@dataclass(frozen=True)
class Alarms:
    """What became of an asked false-alarm rate on test tasks, per unit, at the threshold that a detector would take.

    k: normals in the support (the experiment's own or one of its further_k). false_alarms: share of the normals
    (level "run": of the good recordings) called anomalous; misses: share of the anomalies called normal.
    """

    experiment: dict[str, Json]
    seed: int
    k: int
    level: Level
    rate: float
    units: tuple[str, ...]
    false_alarms: tuple[float, ...]
    misses: tuple[float, ...]
    origin: Origin


Record = Row | Failure | Training | Cosine | Alarms


@dataclass(frozen=True)
class Reading:
    """What a results file holds; notice says what was repaired ("" if nothing)."""

    rows: tuple[Row, ...]
    failures: tuple[Failure, ...]
    trainings: tuple[Training, ...] = ()
    cosines: tuple[Cosine, ...] = ()
    alarms: tuple[Alarms, ...] = ()
    notice: str = ""


def find_origin(fingerprint: str, seconds: float, cpu_seconds: float) -> Origin:
    """The origin of a row made here and now."""
    return Origin(
        find_commit(),
        fingerprint,
        find_versions(),
        datetime.now(UTC).isoformat(timespec="seconds"),
        seconds,
        cpu_seconds,
    )


def find_commit(folder: Path | None = None) -> str:
    """The commit of the source tree, with +dirty where tracked files differ from it; "unknown" outside of git."""
    where = folder or Path(__file__).parent

    def ask(*words: str) -> str:
        return subprocess.run(
            ["git", *words], cwd=where, capture_output=True, text=True, check=True, timeout=30
        ).stdout.strip()

    try:
        commit = ask("rev-parse", "HEAD")
        dirty = ask("status", "--porcelain", "--untracked-files=no", "--", ".")
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return f"{commit}+dirty" if dirty else commit


@cache
def find_versions() -> Versions:
    """The versions of fewone and of what it computes with."""
    return Versions(version("fewone"), python_version(), version("torch"), version("numpy"), version("scikit-learn"))


def make_rows(
    results: Results, experiment: dict[str, Json], seed: int, split: Split, threshold: Threshold, origin: Origin
) -> tuple[Row, ...]:
    """The rows of an evaluation: per example and, where there are recordings, per run."""
    levels: tuple[tuple[Level, UnitScores | None], ...] = (("example", results.examples), ("run", results.runs))
    return tuple(
        Row(experiment, seed, split, level, threshold, scores.summarize(), scores, origin)
        for level, scores in levels
        if scores is not None
    )


_KINDS: dict[str, type[Record]] = {
    "row": Row,
    "failure": Failure,
    "training": Training,
    "cosine": Cosine,
    "alarms": Alarms,
}


def append(path: Path, *records: Record) -> str:
    """Add records at the end of a results file, all or none; returns what had to be repaired ("" if nothing)."""
    names = {kind: name for name, kind in _KINDS.items()}
    lines = [json.dumps({"kind": names[type(record)], **asdict(record)}, allow_nan=False) for record in records]
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        end, opening, notice = _find_end(handle, path)
        os.ftruncate(handle, end)
        data = (opening + "".join(line + "\n" for line in lines)).encode()
        try:
            while data:
                data = data[os.write(handle, data) :]
        except OSError:
            os.ftruncate(handle, end)
            raise
        os.fsync(handle)
    finally:
        os.close(handle)
    return notice


def _find_end(handle: int, path: Path) -> tuple[int, str, str]:
    """Where to go on: the size without a torn last line, a newline if the last line lacks only that, and a notice."""
    size = os.fstat(handle).st_size
    tail, start = b"", size
    while start > 0 and b"\n" not in tail:
        step = min(1 << 16, start)
        start -= step
        tail = os.pread(handle, step, start) + tail
    last = tail[tail.rfind(b"\n") + 1 :]
    if not last:
        return size, "", ""
    if _is_whole(last):
        return size, "\n", ""
    return size - len(last), "", f"{path}: the last line was torn ({len(last)} bytes) and has been dropped"


def _is_whole(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False


def read(path: Path) -> Reading:
    """All records of a results file. A torn last line is dropped, and said; anything else wrong is an error."""
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH)
            content = file.read()
    except OSError as error:
        raise FewoneError(f"{path}: cannot be read ({error.strerror}); give a results file (.jsonl)") from error
    lines = content.split(b"\n")
    notice = ""
    if lines[-1] and not _is_whole(lines[-1]):
        notice = f"{path}: the last line is torn ({len(lines[-1])} bytes) and was dropped"
        lines.pop()
    records = [
        _parse(line, f"{path}, line {number}")
        for number, line in enumerate(lines, start=1)
        if line or number < len(lines)
    ]
    return Reading(
        tuple(record for record in records if isinstance(record, Row)),
        tuple(record for record in records if isinstance(record, Failure)),
        tuple(record for record in records if isinstance(record, Training)),
        tuple(record for record in records if isinstance(record, Cosine)),
        tuple(record for record in records if isinstance(record, Alarms)),
        notice,
    )


def _parse(line: bytes, where: str) -> Record:
    try:
        values = json.loads(line)
    except ValueError as error:
        raise FewoneError(f"{where}: not JSON ({error}); remove the line") from error
    if not isinstance(values, dict) or values.get("kind") not in _KINDS:
        kinds = ", ".join(map(repr, _KINDS))
        raise FewoneError(f"{where}: not a result, its kind must be one of {kinds}; remove the line")
    content = {key: value for key, value in values.items() if key != "kind"}
    try:
        return from_plain(_KINDS[values["kind"]], content)
    except DocumentError as error:
        raise FewoneError(f"{where}: {error}") from error
