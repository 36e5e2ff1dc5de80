"""Records <-> files: one small JSON file per training and evaluation of it, written once and never changed.

A file holds its experiment, its lists of unit names and its sources (commit, data, versions) once; records point to
them. Its name ends in a digest of its content, so two writers cannot disagree and branches merge without conflict.
Values are kept to five decimals: a hundredth of what the tables show.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from fewone.documents import DocumentError, Json, from_plain, nearest, to_plain
from fewone.errors import FewoneError
from fewone.experiment import Experiment
from fewone.files import atomic_write
from fewone.results.line_files import read_lines
from fewone.results.provenance import Versions
from fewone.results.records import (
    Alarms,
    Cosine,
    Failure,
    Record,
    Row,
    Training,
    ValidationPoint,
    identify_training,
    read_experiment_table,
)
from fewone.results.statistics import Summary

FORMAT = "fewone results 1"
_DIGITS = 5
_METRICS = tuple(one.name for one in fields(Summary))
_POINT = tuple(one.name for one in fields(ValidationPoint))
_PARTS: dict[str, type[Record]] = {
    "trainings": Training,
    "rows": Row,
    "cosines": Cosine,
    "alarms": Alarms,
    "failures": Failure,
}


@dataclass(frozen=True)
class ResultSet:
    """All records of a file or folder; notices say what could not be read; files: where each training's stand.

    The records of one file share their experiment.
    """

    rows: tuple[Row, ...] = ()
    failures: tuple[Failure, ...] = ()
    trainings: tuple[Training, ...] = ()
    cosines: tuple[Cosine, ...] = ()
    alarms: tuple[Alarms, ...] = ()
    notices: tuple[str, ...] = ()
    files: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @staticmethod
    def of(records: Iterable[Record], notices: Sequence[str] = (), file: str = "") -> ResultSet:
        kept = list(records)
        return ResultSet(
            tuple(record for record in kept if isinstance(record, Row)),
            tuple(record for record in kept if isinstance(record, Failure)),
            tuple(record for record in kept if isinstance(record, Training)),
            tuple(record for record in kept if isinstance(record, Cosine)),
            tuple(record for record in kept if isinstance(record, Alarms)),
            tuple(notices),
            {identify_training(record.experiment): (file,) for record in _first_of_each(kept)},
        )

    @staticmethod
    def join(parts: Iterable[ResultSet]) -> ResultSet:
        """All of them together."""
        kept = list(parts)
        files: dict[str, tuple[str, ...]] = {}
        for part in kept:
            for training, places in part.files.items():
                files[training] = (*files.get(training, ()), *places)
        return ResultSet(
            tuple(row for part in kept for row in part.rows),
            tuple(failure for part in kept for failure in part.failures),
            tuple(training for part in kept for training in part.trainings),
            tuple(cosine for part in kept for cosine in part.cosines),
            tuple(alarms for part in kept for alarms in part.alarms),
            tuple(notice for part in kept for notice in part.notices),
            files,
        )


def _first_of_each(records: Sequence[Record]) -> Iterable[Record]:
    """One record of each experiment."""
    return {id(record.experiment): record for record in records}.values()


def write_records(folder: Path, *records: Record) -> tuple[Path, ...]:
    """Write the records into the folder, one new file per training; what is there already is never touched.

    Parameters
    ----------
    folder
        The folder of a study, such as ``results/main``; it is made if needed.
    records
        Of one training or of several.

    Returns
    -------
    The files.

    Raises
    ------
    FewoneError
        The folder is a file.
    ValueError
        A value is not a finite number; nothing is written then.
    """
    if folder.suffix == ".jsonl" or folder.is_file():
        better = folder.with_suffix("")
        raise FewoneError(f"{folder}: results are kept in a folder, a file per training; give one such as {better}")
    by_training: dict[str, list[Record]] = {}
    for record in records:
        by_training.setdefault(identify_training(record.experiment), []).append(record)
    contents = [(name_file(group[0].experiment), _encode(group)) for group in by_training.values()]
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, content in contents:
        path = folder / f"{name}.{hashlib.sha256(content).hexdigest()[:6]}.json"
        if not path.exists():
            atomic_write(path, content, aside=f".{os.getpid()}.part")
        written.append(path)
    return tuple(written)


def name_file(experiment: Experiment) -> str:
    """What the files of a training are called: people read the beginning, the end keeps trainings apart.

    >>> from fewone.experiments import default_experiment
    >>> name_file(default_experiment("mt-mnist/0", "oc-maml", k=10, seed=3)).rpartition(".")[0]
    'mt-mnist-0.oc-maml.K10.seed3'
    """
    about = [re.sub(r"[^\w+-]+", "-", name)[-40:] for name in (experiment.dataset, experiment.learner)]
    return ".".join([*about, f"K{experiment.k}", f"seed{experiment.seed}", identify_training(experiment)])


def read_results(place: Path) -> ResultSet:
    """All records of a file or of a folder: `*.json` in it and in the folders in it, and old `*.jsonl` in it.

    Raises
    ------
    FewoneError
        Something is there that is not a result, with the file and what is wrong.
    """
    if not place.is_dir():
        return _read_file(place, place.name)
    paths = sorted((*place.glob("*.jsonl"), *place.glob("*.json"), *place.glob("*/*.json")))
    return ResultSet.join(_read_file(path, path.relative_to(place).as_posix()) for path in paths)


def _read_file(path: Path, name: str) -> ResultSet:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise FewoneError(f"{path}: cannot be read ({error.strerror}); give a folder of results") from error
    if path.suffix == ".jsonl":
        records, notice = read_lines(content, str(path))
        return ResultSet.of(records, [notice] if notice else [], name)
    try:
        document = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise FewoneError(f"{path}: not JSON ({error}); remove it") from error
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise FewoneError(f'{path}: not a file of results ("format" must be "{FORMAT}"); remove it')
    try:
        return ResultSet.of(_decode(document), file=name)
    except DocumentError as error:
        raise FewoneError(f"{path}: {error}") from error


class _Encoder:
    """Lists that many records share are kept once, in the order in which they are first met."""

    def __init__(self) -> None:
        self.units: dict[tuple[str, ...], int] = {}
        self.sources: dict[tuple[str, str, Versions], int] = {}

    def encode(self, record: Record) -> dict[str, Json]:
        provenance = record.provenance
        source = (provenance.commit, provenance.fingerprint, provenance.versions)
        return {
            **self._encode_values(record),
            "source": self.sources.setdefault(source, len(self.sources)),
            "timestamp": provenance.timestamp,
            "seconds": round(provenance.seconds, 3),
            "cpu_seconds": round(provenance.cpu_seconds, 3),
        }

    def _encode_values(self, record: Record) -> dict[str, Json]:
        match record:
            case Row(k=k, normal_share=share, split=split, level=level, threshold=threshold, scores=scores):
                about: dict[str, Json] = {"k": k, "normal_share": share, "split": split, "level": level}
                values: dict[str, Json] = {name: _round_all(getattr(scores, name)) for name in _METRICS}
                places: dict[str, Json] = {"units": self._place(scores.units), "episodes": scores.episodes}
                taken: dict[str, Json] = {} if record.steps is None else {"steps": record.steps}
                return {**about, "threshold": threshold, **taken, **places, **values}
            case Training(history=history):
                columns = {name: [_round(getattr(point, name)) for point in history] for name in _POINT}
                return {"history": {name: [*column] for name, column in columns.items() if {*column} != {None}}}
            case Cosine(units=units, values=cosines):
                return {"units": self._place(units), "values": _round_all(cosines)}
            case Alarms(k=k, level=level, rate=rate, units=units, false_alarms=false_alarms, misses=misses):
                values = {"false_alarms": _round_all(false_alarms), "misses": _round_all(misses)}
                return {"k": k, "level": level, "rate": rate, "units": self._place(units), **values}
            case Failure(error=error):
                return {"error": error}

    def _place(self, units: tuple[str, ...]) -> int:
        return self.units.setdefault(units, len(self.units))


def _round_all(values: Sequence[float]) -> list[Json]:
    return [_round(value) for value in values]


def _round(value: float | None) -> float | None:
    return round(value, _DIGITS) if isinstance(value, float) else value


def _encode(records: Sequence[Record]) -> bytes:
    """One line per record, so that a difference between two files can be read."""
    encoder = _Encoder()
    parts: dict[str, list[str]] = {}
    for name, kind in _PARTS.items():
        of_kind = [record for record in records if type(record) is kind]
        if of_kind:
            parts[name] = [_dump(encoder.encode(record)) for record in of_kind]
    sources = [
        _dump({"commit": commit, "fingerprint": fingerprint, "versions": to_plain(versions)})
        for commit, fingerprint, versions in encoder.sources
    ]
    lines = [f'"format": {_dump(FORMAT)}', f'"experiment": {_dump(records[0].experiment.to_plain())}']
    lines += [_list("sources", sources), _list("units", [_dump(list(units)) for units in encoder.units])]
    lines += [_list(name, encoded) for name, encoded in parts.items()]
    return ("{" + ",\n".join(lines) + "}\n").encode()


def _dump(value: Json) -> str:
    return json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":"))


def _list(name: str, items: Sequence[str]) -> str:
    return f'"{name}": [\n' + ",\n".join(items) + "]"


def _decode(document: Mapping[str, Any]) -> Iterator[Record]:
    """The records of a file; all of them share one experiment."""
    experiment = read_experiment_table(document.get("experiment"))
    known = ["format", "experiment", "sources", "units", *_PARTS]
    for key in document:
        if key not in known:
            raise DocumentError((key,), f"there is no such key; {nearest(key, known)}")
    shared = {key: _take_list(document, key) for key in ("sources", "units")}
    for name, kind in _PARTS.items():
        for number, plain in enumerate(_take_list(document, name)):
            try:
                values = _expand(kind, plain, shared["sources"], shared["units"])
                yield from_plain(kind, {**values, "experiment": experiment})
            except DocumentError as error:
                raise DocumentError((name, str(number), *error.path), error.reason) from error


def _take_list(document: Mapping[str, Any], key: str) -> list[Any]:
    found = document.get(key, [])
    if not isinstance(found, list):
        raise DocumentError((key,), "a list is needed")
    return found


_COST = ("timestamp", "seconds", "cpu_seconds")


def _expand(kind: type[Record], plain: object, sources: Sequence[Any], units: Sequence[Any]) -> dict[str, Any]:
    """A record's table with what it points to in its place."""
    if not isinstance(plain, dict):
        raise DocumentError((), "a table is needed")
    values = {key: value for key, value in plain.items() if key != "source" and key not in _COST}
    source = _find(sources, plain.get("source"), "source")
    if not isinstance(source, dict):
        raise DocumentError(("source",), "must point to a table")
    values["provenance"] = source | {key: plain[key] for key in _COST if key in plain}
    if "units" in values:
        values["units"] = _find(units, values["units"], "units")
    if kind is Training:
        values["history"] = _turn(plain.get("history"))
    if kind is Row:
        values["scores"] = {key: values.pop(key) for key in ("units", "episodes", *_METRICS) if key in values}
    return values


def _find(things: Sequence[Any], number: object, key: str) -> Any:
    if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < len(things):
        raise DocumentError((key,), f"must be one of the file's {len(things)}, counted from 0, got {number!r}")
    return things[number]


def _turn(columns: object) -> list[dict[str, Any]]:
    """Validations from their columns."""
    if not isinstance(columns, dict) or not all(isinstance(column, list) for column in columns.values()):
        raise DocumentError(("history",), "a table of lists is needed")
    if len({len(column) for column in columns.values()}) > 1:
        raise DocumentError(("history",), "its lists must be of one length")
    return [dict(zip(columns, point, strict=True)) for point in zip(*columns.values(), strict=True)]
