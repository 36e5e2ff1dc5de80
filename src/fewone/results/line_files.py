"""Results as version 0.1 kept them (JSON lines, one record each) -> records. Only read, never written.

There a row's experiment had the K and the share of normals of the evaluation in the place of the training's own; here
each row finds its training again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fewone.documents import DocumentError, from_plain
from fewone.errors import FewoneError
from fewone.experiment import Experiment
from fewone.results.records import Alarms, Cosine, Failure, Record, Row, Training, read_experiment_table

_KINDS: dict[str, type[Record]] = {
    "row": Row,
    "failure": Failure,
    "training": Training,
    "cosine": Cosine,
    "alarms": Alarms,
}
# What an evaluation changed in the experiment of its rows.
_EVALUATED = ("k", "further_k", "test_normal_share")


def read_lines(content: bytes, place: str) -> tuple[list[Record], str]:
    """The records, and a notice ("" if there is none) where the last line was torn and dropped."""
    lines = content.split(b"\n")
    notice = ""
    if lines[-1] and not _is_whole(lines[-1]):
        notice = f"{place}: the last line is torn ({len(lines[-1])} bytes) and was dropped"
        lines.pop()
    tables = [
        _parse(line, f"{place}, line {number}")
        for number, line in enumerate(lines, start=1)
        if line or number < len(lines)
    ]
    trainings = _find_trainings(tables)
    records = []
    read: dict[int, Experiment] = {}
    for number, table in enumerate(tables, start=1):
        try:
            records.append(_build(table, trainings, read))
        except DocumentError as error:
            raise FewoneError(f"{place}, line {number}: {error}") from error
    return records, notice


def _is_whole(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False


def _parse(line: bytes, where: str) -> dict[str, Any]:
    try:
        values = json.loads(line)
    except ValueError as error:
        raise FewoneError(f"{where}: not JSON ({error}); remove the line") from error
    if not isinstance(values, dict) or values.get("kind") not in _KINDS:
        kinds = ", ".join(map(repr, _KINDS))
        raise FewoneError(f"{where}: not a result, its kind must be one of {kinds}; remove the line")
    if not isinstance(values.get("experiment"), dict):
        raise FewoneError(f"{where}: experiment: a table is needed; remove the line")
    return values


def _settle(experiment: Mapping[str, Any]) -> str:
    """The same for a training and for all of its evaluations."""
    return json.dumps({key: value for key, value in experiment.items() if key not in _EVALUATED}, sort_keys=True)


_Trainings = dict[str, list[dict[str, Any]]]


def _find_trainings(tables: Sequence[Mapping[str, Any]]) -> _Trainings:
    """The experiments as they were trained: those of trainings, or else of rows at K that are not further ones."""
    found: dict[str, dict[tuple[Any, Any], dict[str, Any]]] = {}
    chances: tuple[Callable[[Mapping[str, Any]], bool], ...] = (
        lambda table: table["kind"] not in ("row", "failure"),
        lambda table: table["experiment"].get("k") not in table["experiment"].get("further_k", ()),
        lambda table: True,
    )
    for speaks_for_itself in chances:
        known = set(found)
        for table in filter(speaks_for_itself, tables):
            experiment = table["experiment"]
            if (settled := _settle(experiment)) not in known:
                place = experiment.get("k"), experiment.get("test_normal_share")
                found.setdefault(settled, {})[place] = experiment
    return {settled: list(alike.values()) for settled, alike in found.items()}


def _find_training(experiment: Mapping[str, Any], trainings: _Trainings) -> dict[str, Any]:
    """Of the trainings with these settings the one at the same K and share of normals, as far as there is one."""

    def agrees(one: Mapping[str, Any]) -> tuple[bool, bool]:
        return one.get("k") == experiment.get("k"), one.get("test_normal_share") == experiment.get("test_normal_share")

    return max(trainings[_settle(experiment)], key=agrees)


def _build(table: Mapping[str, Any], trainings: _Trainings, read: dict[int, Experiment]) -> Record:
    """read: the experiments so far, by the table that they were read from, so that records share them."""
    kind = _KINDS[table["kind"]]
    values = {key: value for key, value in table.items() if key not in ("kind", "origin", "seed", "summary")}
    if "origin" in table:
        values["provenance"] = table["origin"]
    if kind is Row:
        values |= {"k": table["experiment"].get("k"), "normal_share": table["experiment"].get("test_normal_share", 1.0)}
    if table.get("seed") != table["experiment"].get("seed"):
        raise DocumentError(("seed",), f"{table['experiment'].get('seed')!r} is needed, as in its experiment")
    training = _find_training(table["experiment"], trainings)
    if id(training) not in read:
        read[id(training)] = read_experiment_table(training)
    values["experiment"] = read[id(training)]
    return from_plain(kind, values)
