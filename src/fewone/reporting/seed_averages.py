"""Rows -> averages: all seeds of one experiment together, and the trainings behind them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, TypeVar

from fewone.errors import FewoneError
from fewone.experiment import Experiment
from fewone.results import (
    EVALUATIONS,
    Alarms,
    Cosine,
    Failure,
    Interval,
    Level,
    ResultSet,
    Row,
    Summary,
    Threshold,
    Training,
    UnitScores,
    average_seeds,
    bootstrap,
    join_units,
    read_results,
)

Record = TypeVar("Record", Training, Cosine)

TOGETHER: dict[str, tuple[str, ...]] = {
    "cnc/A to D together": ("cnc/A", "cnc/B", "cnc/C", "cnc/D"),
    "cnc/M02-A to D together": ("cnc/M02-A", "cnc/M02-B", "cnc/M02-C", "cnc/M02-D"),
    "mt-mnist/0 to 8 together": tuple(f"mt-mnist/{digit}" for digit in range(9)),
}
"""Datasets whose test tasks are different ones: as one they say more than each of a few."""


@dataclass(frozen=True)
class SeedAverage:
    """One experiment over its seeds, evaluated in one way: scores are means over seeds, intervals over units.

    experiment: as it was trained, of the first seed; key: the same for all its seeds and evaluations.
    """

    experiment: Experiment
    key: str
    k: int
    normal_share: float
    level: Level
    threshold: Threshold
    rows: tuple[Row, ...]
    scores: UnitScores

    @cached_property
    def summary(self) -> Summary:
        return self.scores.summarize()

    @property
    def seeds(self) -> int:
        """How many; of datasets together, those of the one with the fewest."""
        return min(Counter(row.experiment.dataset for row in self.rows).values())

    @property
    def cpu_minutes(self) -> float:
        """Training and evaluation, mean over the trainings."""
        return sum(row.provenance.cpu_seconds for row in self.rows) / len(self.rows) / 60

    @property
    def learner(self) -> str:
        return self.experiment.learner

    @property
    def dataset(self) -> str:
        return self.experiment.dataset

    @property
    def normed(self) -> bool:
        return self.experiment.network.norm != "none"

    @property
    def support_cir(self) -> int:
        """Per cent of anomalies in the support at test."""
        return round(100 * (1 - self.normal_share))

    @property
    def settings(self) -> str:
        """The learner and what distinguishes its settings: network, augmentation, what calibrates it."""
        network, training = self.experiment.network, self.experiment.training
        parts = ["-".join(str(width) for width in network.filters)]
        parts += [network.front_end] if network.front_end != "none" else []
        parts += ["+".join(training.augmentation)] if training.augmentation else []
        parts += ["leave-tasks-out calibration"] if training.leave_out else []
        return f"{self.learner} ({', '.join(parts)})"

    @property
    def flat_settings(self) -> dict[str, str]:
        """Every setting of network, learner and training by its name, but how often a training was looked at."""
        return _flatten(self.experiment)

    def shown_at(self, path: str) -> Any:
        """A setting by its path, such as learning.inner_rate; None where the learner has none of that name."""
        return self.experiment.flatten().get(path)


@dataclass(frozen=True)
class AlarmAverage:
    """What became of one target rate over the seeds of an experiment: means with bootstrap intervals over units."""

    records: tuple[Alarms, ...]

    @cached_property
    def observed(self) -> Interval:
        """Each unit's mean over the seeds, and from there the mean over units."""
        return bootstrap(average_units([(record.units, record.false_alarms) for record in self.records]))

    @cached_property
    def misses(self) -> Interval:
        """Likewise."""
        return bootstrap(average_units([(record.units, record.misses) for record in self.records]))

    @property
    def first(self) -> Alarms:
        return self.records[0]

    @property
    def seeds(self) -> int:
        """How many; of datasets together, those of the one with the fewest."""
        return min(Counter(record.experiment.dataset for record in self.records).values())


@dataclass(frozen=True)
class SeedAverages:
    """Everything that a folder of results holds; trainings and cosines by the key of their experiment, a seed each.

    unadapted: gradient-based learners evaluated without an inner step.
    """

    single: tuple[SeedAverage, ...]
    joined: tuple[SeedAverage, ...]
    unadapted: tuple[SeedAverage, ...]
    trainings: Mapping[str, tuple[Training, ...]]
    cosines: Mapping[str, tuple[Cosine, ...]]
    failures: tuple[Failure, ...]
    notices: tuple[str, ...]
    alarms: tuple[AlarmAverage, ...] = ()
    files: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def shown(self) -> tuple[SeedAverage, ...]:
        """Every average, of single datasets and of those together."""
        return self.single + self.joined

    @cached_property
    def _by_place(self) -> Mapping[tuple[str, str, int], tuple[SeedAverage, ...]]:
        places: dict[tuple[str, str, int], list[SeedAverage]] = {}
        for average in self.single:
            places.setdefault((average.learner, average.dataset, average.k), []).append(average)
        return {place: tuple(found) for place, found in places.items()}

    def find(self, learner: str, dataset: str, k: int) -> tuple[SeedAverage, ...]:
        """What was evaluated of a learner on a dataset with supports of K, in whatever way."""
        return self._by_place.get((learner, dataset, k), ())

    def find_trainings(self, average: SeedAverage) -> tuple[Training, ...]:
        """How the average's trainings went, as far as it was kept."""
        keys = dict.fromkeys(_key(row.experiment) for row in average.rows)
        return tuple(training for key in keys for training in self.trainings.get(key, ()) if training.history)

    def validation_loss(self, average: SeedAverage) -> float | None:
        """The lowest validation loss of the average's trainings, mean over seeds; None where none was kept."""
        lowest = [min(point.loss for point in training.history) for training in self.find_trainings(average)]
        return sum(lowest) / len(lowest) if lowest else None


def collect(folder: Path) -> SeedAverages:
    """All test rows under a folder of results, the newest of each experiment and seed."""
    found = read_results(folder) if folder.is_dir() else ResultSet()
    if not (found.rows or found.failures or found.trainings or found.alarms):
        raise FewoneError(f"{folder}: no results are there; make some with fewone sweep or fewone evaluate")
    evaluated = [row for row in found.rows if row.split == "test"]
    key_of = _remember_keys()
    single = tuple(_gather([row for row in evaluated if row.steps is None], key_of))
    return SeedAverages(
        single,
        tuple(_join(single)),
        tuple(_gather([row for row in evaluated if row.steps == 0], key_of)),
        _newest(found.trainings, key_of),
        _newest(found.cosines, key_of),
        _unanswered(found, key_of),
        found.notices,
        tuple(_gather_alarms(found.alarms, key_of)),
        found.files,
    )


def _unanswered(found: ResultSet, key_of: KeyOf) -> tuple[Failure, ...]:
    """The failures of experiments that have no row: those that were tried again with success are history."""
    answered = {(key_of(row.experiment), row.seed) for row in found.rows}
    return tuple(one for one in found.failures if (key_of(one.experiment), one.seed) not in answered)


def _gather(rows: Sequence[Row], key_of: KeyOf) -> Iterable[SeedAverage]:
    groups: dict[tuple[str, int, float, Level, Threshold], dict[int, Row]] = {}
    for row in sorted(rows, key=lambda one: one.provenance.timestamp):
        # A later row of the same seed replaces an earlier one: the experiment was run again.
        way = (key_of(row.experiment), row.k, row.normal_share, row.level, row.threshold)
        groups.setdefault(way, {})[row.seed] = row
    for way, group in groups.items():
        kept = tuple(group[seed] for seed in sorted(group))
        yield SeedAverage(kept[0].experiment, *way, kept, average_seeds([row.scores for row in kept]))


def _join(averages: Sequence[SeedAverage]) -> Iterable[SeedAverage]:
    """The datasets that belong together as one, wherever all of them were evaluated in the same way."""
    ways: dict[tuple[str, int, float, str, str], dict[str, SeedAverage]] = {}
    for average in averages:
        if any(average.dataset in members for members in TOGETHER.values()):
            key = average.experiment.key(["dataset", *SEEDS])
            way = (key, average.k, average.normal_share, average.level, average.threshold)
            ways.setdefault(way, {})[average.dataset] = average
    for name, members in TOGETHER.items():
        for found in ways.values():
            if found.keys() >= set(members):
                yield _unite(name, [found[member] for member in members])


def _unite(name: str, parts: Sequence[SeedAverage]) -> SeedAverage:
    scores = join_units({part.dataset: part.scores for part in parts})
    return replace(
        parts[0],
        experiment=replace(parts[0].experiment, dataset=name),
        rows=tuple(row for part in parts for row in part.rows),
        scores=scores,
    )


def _newest(records: Sequence[Record], key_of: KeyOf) -> dict[str, tuple[Record, ...]]:
    """The newest of each experiment and seed, by experiment."""
    found: dict[str, dict[int, Record]] = {}
    for record in sorted(records, key=lambda one: one.provenance.timestamp):
        found.setdefault(key_of(record.experiment), {})[record.seed] = record
    return {key: tuple(seeds[seed] for seed in sorted(seeds)) for key, seeds in found.items()}


def _gather_alarms(alarms: Sequence[Alarms], key_of: KeyOf) -> Iterable[AlarmAverage]:
    groups: dict[tuple[str, int, str, float], dict[int, Alarms]] = {}
    for record in sorted(alarms, key=lambda one: one.provenance.timestamp):
        key = (key_of(record.experiment), record.k, record.level, record.rate)
        groups.setdefault(key, {})[record.seed] = record
    for group in groups.values():
        yield AlarmAverage(tuple(group[seed] for seed in sorted(group)))


def average_units(seeds: Sequence[tuple[tuple[str, ...], tuple[float, ...]]]) -> list[float]:
    """The mean over the seeds of each unit's value."""
    found: dict[str, list[float]] = {}
    for units, values in seeds:
        for unit, value in zip(units, values, strict=True):
            found.setdefault(unit, []).append(value)
    return [sum(values) / len(values) for values in found.values()]


SEEDS = ("seed", *EVALUATIONS)
"""What does not make a training another experiment: its seed, and at which further K it was evaluated."""


def _key(experiment: Experiment) -> str:
    return experiment.key(SEEDS)


KeyOf = Callable[[Experiment], str]


def _remember_keys() -> KeyOf:
    """As `_key`, by identity: the records of a file share their experiment; to hash it for each takes a second."""
    known: dict[int, tuple[Experiment, str]] = {}

    def find(experiment: Experiment) -> str:
        if id(experiment) not in known:
            # With the experiment itself, so that no other can have its identity.
            known[id(experiment)] = experiment, _key(experiment)
        return known[id(experiment)][1]

    return find


@lru_cache(maxsize=10_000)
def _flatten(experiment: Experiment) -> dict[str, str]:
    plain = experiment.to_plain()
    return {
        name: _show(value)
        for part in ("network", "learning", "training")
        for name, value in plain[part].items()
        if not name.startswith("validat")
    }


def _show(value: object) -> str:
    return ("-".join(map(str, value)) or "none") if isinstance(value, list | tuple) else str(value)
