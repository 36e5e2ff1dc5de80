"""What is said of each example and of each recording, as rows for people and programs."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fewone.detector.recording_limits import RecordingVerdict
from fewone.errors import FewoneError, say_count
from fewone.file_scoring.user_files import FileExamples
from fewone.files import atomic_write


@dataclass(frozen=True)
class Verdict:
    """One thing that is called normal or anomalous: a recording, one of its windows, a picture or a row of a table.

    place: the row of a table or the first time step of a window, from 0. windows: how many a recording has. worst: the
    first time step of its most anomalous window. decision: below 0 = anomalous. cause, of a recording: normal, event
    (at the worst window) or whole recording, or both; whole and event: the decision values of these two parts.
    """

    file: str
    place: int
    windows: int
    worst: int
    decision: float
    anomaly_probability: float
    anomalous: bool
    cause: str = ""
    judged: bool = True
    whole: float | None = None
    event: float | None = None


@dataclass(frozen=True)
class NotJudged:
    """A window, a row or a whole file of which nothing can be said, and why. place: None for a whole file."""

    file: str
    place: int | None
    cause: str
    judged: bool = False


@dataclass(frozen=True)
class Judged:
    """All that is said of one file. said: how it was read; notes: what is missing in it, in one line each."""

    verdicts: tuple[Verdict, ...] = ()
    not_judged: tuple[NotJudged, ...] = ()
    said: str = ""
    notes: tuple[str, ...] = field(default=())


MISSING = "a value is missing or time jumps"


def note_missing(last: FileExamples, verdicts: Sequence[Verdict], left_out: NDArray[np.int64]) -> Judged:
    notes = []
    if not last.findings.whole:
        counted = say_count(len(left_out), "window" if last.recording else "row")
        notes.append(f"{last.file}: {last.findings}; {counted} not judged")
    left = tuple(NotJudged(str(last.file), place, MISSING) for place in left_out.tolist())
    return Judged(tuple(verdicts), left, last.said, tuple(notes))


def list_all(judged: Judged) -> list[Verdict | NotJudged]:
    return [*judged.verdicts, *judged.not_judged]


def as_json(one: Verdict | NotJudged) -> str:
    """One object on one line, the same from every command; `judged` says which of the two it is."""
    return json.dumps(asdict(one), ensure_ascii=False)


def tell_recording(file: str, found: RecordingVerdict, places: NDArray[np.int64], probability: float) -> Verdict:
    return Verdict(
        file,
        0,
        found.windows,
        int(places[found.worst]),
        found.decision,
        probability,
        found.decision < 0,
        cause=found.cause,
        whole=found.whole,
        event=found.event,
    )


def as_csv(verdicts: Iterable[Verdict | NotJudged], header: bool = True) -> str:
    """One line per verdict, the columns named after its fields; what was not judged has empty cells."""
    names = [field.name for field in fields(Verdict)]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    if header:
        writer.writerow(names)
    writer.writerows([getattr(verdict, name, None) for name in names] for verdict in verdicts)
    return text.getvalue()


def write_text(path: Path, text: str) -> None:
    """A file for the user, written aside and renamed."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(path, text.encode())
    except OSError as error:
        raise FewoneError(f"{path}: cannot be written ({error.strerror}); give another place") from error


def count_anomalous(verdicts: Sequence[Verdict]) -> int:
    return sum(verdict.anomalous for verdict in verdicts)
