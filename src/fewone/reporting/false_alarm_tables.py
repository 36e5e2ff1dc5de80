"""Target and observed false-alarm rates -> tables: was the promise kept on tasks that nobody had seen?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from fewone.reporting.seed_averages import TOGETHER, AlarmAverage, SeedAverages
from fewone.reporting.tables import Cell, Comparison, Table, scale
from fewone.results import Interval

FACTOR = 1.5
"""A promise counts as kept where the mean observed rate is within this factor of the target one."""

SHIFTED = "cnc/M02"
"""Datasets whose test tasks come from a machine that no calibration task comes from."""

_Key = tuple[str, str, int, str, str]

KINDS = (
    (False, "New tasks"),
    (True, "A new machine: a shift, for which no rate is promised"),
)


def build_alarm_tables(averages: SeedAverages) -> tuple[Table, ...]:
    """One table for new tasks of a known kind, one for a new machine; those without any are left out."""
    tables = []
    for shifted, title in KINDS:
        found = [one for one in averages.alarms if _dataset(one).startswith(SHIFTED) == shifted]
        if found:
            tables.append(_build_table(title, found))
    return tuple(tables)


def compare_rate(target: float, observed: Interval) -> Comparison:
    """Better: within the factor; worse: not. Rates in the same unit."""
    return "better" if target / FACTOR <= observed.mean <= target * FACTOR else "worse"


def _build_table(title: str, found: Sequence[AlarmAverage]) -> Table:
    rates = sorted({one.first.rate for one in found}, reverse=True)
    columns = tuple(name for rate in rates for name in (f"target {100 * rate:g} %", "missed"))
    # Of two settings that bear the same name the one that was evaluated last.
    newest = sorted(found, key=lambda one: max(record.provenance.timestamp for record in one.records))
    placed = {(_key(one), one.first.rate): one for one in newest}
    placed |= _join(placed)
    keys = sorted({key for key, _ in placed})
    labels = _label(keys)
    rows = []
    for key in keys:
        cells: list[Cell | None] = []
        for rate in rates:
            one = placed.get((key, rate))
            cells += [None, None] if one is None else _fill(one)
        rows.append((labels[key], tuple(cells)))
    return Table(title, columns, tuple(rows))


def _join(placed: dict[tuple[_Key, float], AlarmAverage]) -> dict[tuple[_Key, float], AlarmAverage]:
    """The datasets that belong together as one, where all of them were evaluated."""
    joined = {}
    for name, members in TOGETHER.items():
        for key, rate in placed:
            parts = [placed.get(((member, *key[1:]), rate)) for member in members]
            whole = [part for part in parts if part is not None]
            if key[0] == members[0] and len(whole) == len(members):
                records = tuple(record for part in whole for record in part.records)
                joined[(name, *key[1:]), rate] = AlarmAverage(records)
    return joined


def _fill(one: AlarmAverage) -> list[Cell | None]:
    observed, misses = scale(one.observed), scale(one.misses)
    minutes = sum(record.provenance.cpu_seconds for record in one.records) / len(one.records) / 60
    comparison = compare_rate(100 * one.first.rate, observed)
    return [
        Cell(None, values, comparison_of, None, one.seeds, minutes, one.records)
        for values, comparison_of in ((observed, comparison), (misses, "new"))
    ]


def _key(one: AlarmAverage) -> _Key:
    """Dataset, learner, K, level, and the network, by which two settings of one learner are told apart."""
    experiment = one.first.experiment
    trained = f"trained for K={experiment.k}, filters {'-'.join(map(str, experiment.network.filters))}"
    return _dataset(one), experiment.learner, one.first.k, one.first.level, trained


def _label(keys: Sequence[_Key]) -> dict[_Key, str]:
    shared = Counter(key[:4] for key in keys)
    return {
        key: f"{key[0]}, {key[1]} K={key[2]}, each {key[3]}" + (f" ({key[4]})" if shared[key[:4]] > 1 else "")
        for key in keys
    }


def _dataset(one: AlarmAverage) -> str:
    return one.first.experiment.dataset
