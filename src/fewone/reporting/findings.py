"""Rows -> findings: all seeds of one experiment together, with where each row stands."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeVar

from fewone.documents import DocumentError, from_plain, to_plain
from fewone.errors import FewoneError
from fewone.evaluation.results import Alarms, Cosine, Failure, Level, Row, Threshold, Training, read
from fewone.evaluation.scores import Interval, Summary, UnitScores, average_seeds, bootstrap, interval, join_units
from fewone.learners import LearnerSettings
from fewone.networks import NetworkSettings
from fewone.training import TrainingSettings

Record = TypeVar("Record", Training, Cosine)

TOGETHER: dict[str, tuple[str, ...]] = {
    "cnc/A to D together": ("cnc/A", "cnc/B", "cnc/C", "cnc/D"),
    "cnc/M02-A to D together": ("cnc/M02-A", "cnc/M02-B", "cnc/M02-C", "cnc/M02-D"),
    "mt-mnist/0 to 8 together": tuple(f"mt-mnist/{digit}" for digit in range(9)),
}
"""Datasets whose test tasks are different ones: as one they say more than each of a few."""


@dataclass(frozen=True)
class Place:
    """Where a record stands: the file and its number among the records of its kind in it, from 1."""

    file: str
    number: int
    kind: Literal["row", "alarms"] = "row"

    @property
    def anchor(self) -> str:
        return f"{self.kind}-{self.file.removesuffix('.jsonl')}-{self.number}"


@dataclass(frozen=True)
class Finding:
    """One experiment over its seeds, at one level and threshold: scores are means over seeds, intervals over units."""

    experiment: dict[str, Any]
    level: Level
    threshold: Threshold
    rows: tuple[Row, ...]
    places: tuple[Place, ...]
    scores: UnitScores
    summary: Summary

    @property
    def seeds(self) -> int:
        """How many; of datasets together, those of the one with the fewest."""
        return min(Counter(row.experiment["dataset"] for row in self.rows).values())

    @property
    def cpu_minutes(self) -> float:
        """Training and judging, mean over the trainings."""
        return sum(row.origin.cpu_seconds for row in self.rows) / len(self.rows) / 60

    @property
    def learner(self) -> str:
        return str(self.experiment["learner"])

    @property
    def dataset(self) -> str:
        return str(self.experiment["dataset"])

    @property
    def k(self) -> int:
        return int(self.experiment["k"])

    @property
    def normed(self) -> bool:
        return bool(self.experiment["network"]["norm"] != "none")

    @property
    def support_cir(self) -> int:
        """Per cent of anomalies in the support at test."""
        return round(100 * (1 - float(self.experiment["test_normal_share"])))

    @property
    def settings(self) -> str:
        """The learner and what distinguishes its settings: network, augmentation, what calibrates it."""
        network, training = self.experiment["network"], self.experiment["training"]
        parts = ["-".join(str(width) for width in network["filters"])]
        parts += [network["front_end"]] if network.get("front_end", "none") != "none" else []
        parts += ["+".join(training["augmentation"])] if training.get("augmentation") else []
        parts += ["leave-tasks-out calibration"] if training.get("leave_out") else []
        return f"{self.learner} ({', '.join(parts)})"

    @property
    def flat_settings(self) -> dict[str, str]:
        """Every setting of network, learner and training by its name, but how often a training was looked at."""
        complete = _complete(self.experiment)
        return {
            name: _show(value)
            for part in SETTINGS
            for name, value in complete[part].items()
            if not name.startswith("validat")
        }

    @property
    def trained_as(self) -> str:
        """The same for findings of one trained learner (one per seed), however it was judged."""
        return _key({**self.experiment, **dict.fromkeys(JUDGING)})


@dataclass(frozen=True)
class AlarmFinding:
    """What became of one asked rate over the seeds of an experiment: means with bootstrap intervals over units."""

    records: tuple[Alarms, ...]
    places: tuple[Place, ...]
    realised: Interval
    misses: Interval

    @staticmethod
    def of(records: Sequence[Alarms], places: Sequence[Place]) -> AlarmFinding:
        """Each unit's mean over the seeds, and from there the means over units."""
        realised = _average_units([(record.units, record.false_alarms) for record in records])
        misses = _average_units([(record.units, record.misses) for record in records])
        return AlarmFinding(tuple(records), tuple(places), bootstrap(realised), bootstrap(misses))

    @property
    def first(self) -> Alarms:
        return self.records[0]

    @property
    def seeds(self) -> int:
        """How many; of datasets together, those of the one with the fewest."""
        return min(Counter(record.experiment["dataset"] for record in self.records).values())


@dataclass(frozen=True)
class Evidence:
    """Everything that the results files hold."""

    findings: tuple[Finding, ...]
    joined: tuple[Finding, ...]
    trainings: tuple[Training, ...]
    cosines: tuple[tuple[Cosine, Interval], ...]
    failures: tuple[Failure, ...]
    notices: tuple[str, ...]
    alarms: tuple[AlarmFinding, ...] = ()

    @property
    def shown(self) -> tuple[Finding, ...]:
        """Every finding, of single datasets and of those together."""
        return self.findings + self.joined

    def validation_loss(self, finding: Finding) -> float | None:
        """The lowest validation loss of the finding's trainings, mean over seeds; None where none was kept."""
        keys = {_key(row.experiment) for row in finding.rows}
        lowest = [min(p.loss for p in t.history) for t in self.trainings if t.history and _key(t.experiment) in keys]
        return sum(lowest) / len(lowest) if lowest else None


def collect(folder: Path) -> Evidence:
    """All test rows under a folder of *.jsonl files, the newest of each experiment and seed."""
    files = sorted(folder.glob("*.jsonl"))
    if not files:
        raise FewoneError(f"{folder}: no results (*.jsonl) are there; make some with fewone sweep or fewone evaluate")
    rows: list[tuple[Row, Place]] = []
    trainings: list[Training] = []
    cosines: list[Cosine] = []
    failures: list[Failure] = []
    notices: list[str] = []
    alarms: list[tuple[Alarms, Place]] = []
    for file in files:
        reading = read(file)
        rows += [(row, Place(file.name, number)) for number, row in enumerate(reading.rows, start=1)]
        alarms += [(one, Place(file.name, number, "alarms")) for number, one in enumerate(reading.alarms, start=1)]
        trainings += reading.trainings
        cosines += reading.cosines
        failures += reading.failures
        notices += [reading.notice] if reading.notice else []
    findings = tuple(_gather([(row, place) for row, place in rows if row.split == "test"]))
    return Evidence(
        findings,
        tuple(_join(findings)),
        tuple(_newest(trainings)),
        tuple((cosine, interval(cosine.values)) for cosine in _newest(cosines)),
        tuple(failures),
        tuple(notices),
        tuple(_gather_alarms(alarms)),
    )


def _gather(rows: Sequence[tuple[Row, Place]]) -> Iterable[Finding]:
    groups: dict[tuple[str, str, str], dict[int, tuple[Row, Place]]] = {}
    for row, place in sorted(rows, key=lambda item: item[0].origin.timestamp):
        # A later row of the same seed replaces an earlier one: the experiment was run again.
        groups.setdefault((_key(row.experiment), row.level, row.threshold), {})[row.seed] = (row, place)
    for group in groups.values():
        kept = [group[seed] for seed in sorted(group)]
        chosen, places = tuple(row for row, _ in kept), tuple(place for _, place in kept)
        scores = average_seeds([row.scores for row in chosen])
        first = chosen[0]
        yield Finding(first.experiment, first.level, first.threshold, chosen, places, scores, scores.summarize())


def _join(findings: Sequence[Finding]) -> Iterable[Finding]:
    """The datasets that belong together as one, wherever all of them were judged in the same way."""
    ways: dict[tuple[str, str, str], dict[str, Finding]] = {}
    for finding in findings:
        way = (_key({**finding.experiment, "dataset": None}), finding.level, finding.threshold)
        ways.setdefault(way, {})[finding.dataset] = finding
    for name, members in TOGETHER.items():
        for found in ways.values():
            if found.keys() >= set(members):
                yield _unite(name, [found[member] for member in members])


def _unite(name: str, parts: Sequence[Finding]) -> Finding:
    scores = join_units({part.dataset: part.scores for part in parts})
    return replace(
        parts[0],
        experiment={**parts[0].experiment, "dataset": name},
        rows=tuple(row for part in parts for row in part.rows),
        places=tuple(place for part in parts for place in part.places),
        scores=scores,
        summary=scores.summarize(),
    )


def _newest(records: Sequence[Record]) -> Iterable[Record]:
    """The newest of each experiment and seed."""
    found: dict[tuple[str, int], Record] = {}
    for record in sorted(records, key=lambda one: one.origin.timestamp):
        found[_key(record.experiment), record.seed] = record
    return found.values()


def _gather_alarms(alarms: Sequence[tuple[Alarms, Place]]) -> Iterable[AlarmFinding]:
    groups: dict[tuple[str, int, str, float], dict[int, tuple[Alarms, Place]]] = {}
    for record, place in sorted(alarms, key=lambda item: item[0].origin.timestamp):
        key = (_key(record.experiment), record.k, record.level, record.rate)
        groups.setdefault(key, {})[record.seed] = (record, place)
    for group in groups.values():
        kept = [group[seed] for seed in sorted(group)]
        yield AlarmFinding.of([record for record, _ in kept], [place for _, place in kept])


def _average_units(seeds: Sequence[tuple[tuple[str, ...], tuple[float, ...]]]) -> list[float]:
    """The mean over the seeds of each unit's value."""
    found: dict[str, list[float]] = {}
    for units, values in seeds:
        for unit, value in zip(units, values, strict=True):
            found.setdefault(unit, []).append(value)
    return [sum(values) / len(values) for values in found.values()]


# What may change from one judging of a trained learner to the next.
JUDGING = ("k", "further_k", "test_normal_share")
SETTINGS = {"network": NetworkSettings, "learning": LearnerSettings, "training": TrainingSettings}


def _key(experiment: dict[str, Any]) -> str:
    """What makes two runs the same experiment: everything but the seed; settings unknown then count as left alone.

    At which other K it was judged as well does not make it another learner.
    """
    return json.dumps({**_complete(experiment), "seed": None, "further_k": None}, sort_keys=True)


def _show(value: object) -> str:
    return ("-".join(map(str, value)) or "none") if isinstance(value, list | tuple) else str(value)


def _complete(experiment: dict[str, Any]) -> dict[str, Any]:
    completed = dict(experiment)
    for name, kind in SETTINGS.items():
        # A row of a version with other settings stands for itself.
        with suppress(DocumentError):
            completed[name] = to_plain(from_plain(kind, experiment[name]))
    return completed
