"""Averages and the paper's numbers -> tables of cells: what is published, what we have and how they compare."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from fewone.reporting.published import TITLES, Published, read_published
from fewone.reporting.seed_averages import SeedAverage, SeedAverages, average_units
from fewone.reporting.ways import describe_choice, follows_authors, follows_paper, is_current, is_valid, mark
from fewone.results import Interval, Record, compare, interval, summarize_over_seeds

Comparison = Literal["better", "within", "worse", "unjudged", "open", "new"]
UNREACHABLE = ("miniimagenet", "cnc-mmd/")
"""The paper's datasets that cannot be had here: too large for this repository's rows, or private."""
CONTROL = "no-support"


@dataclass(frozen=True)
class Cell:
    """One number beside the paper's, both in the paper's unit; comparison: the paper's value against our interval.

    authors: the same by the authors' program where that differs from the paper's words. plain: with the paper's own
    settings, where the number is of others. choice: which iteration was kept; marks: settings that are not the paper's.
    """

    published: float | None
    ours: Interval | None
    comparison: Comparison
    auroc: float | None = None
    seeds: int = 0
    cpu_minutes: float = 0.0
    rows: tuple[Record, ...] = ()
    notes: tuple[str, ...] = ()
    authors: float | None = None
    plain: float | None = None
    choice: str = ""
    marks: str = ""


@dataclass(frozen=True)
class Table:
    """Rows of cells under columns; a row without a cell in a column has None there."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[Cell | None, ...]], ...]

    @property
    def filled(self) -> int:
        return sum(cell is not None and cell.ours is not None for _, cells in self.rows for cell in cells)

    @property
    def wanted(self) -> int:
        return sum(cell is not None for _, cells in self.rows for cell in cells)

    @property
    def reachable(self) -> int:
        """Cells of datasets that can be had."""
        columns = [not column.startswith(UNREACHABLE) for column in self.columns]
        return sum(
            cell is not None and reachable
            for _, cells in self.rows
            for cell, reachable in zip(cells, columns, strict=True)
        )

    def keep_filled(self) -> Table:
        """Without the rows and columns in which nothing was run."""
        places = [
            place
            for place in range(len(self.columns))
            if any(cells[place] is not None and cells[place].ours is not None for _, cells in self.rows)  # type: ignore[union-attr]
        ]
        rows = [(label, tuple(cells[place] for place in places)) for label, cells in self.rows]
        filled = [row for row in rows if any(cell is not None and cell.ours is not None for cell in row[1])]
        return Table(self.title, tuple(self.columns[place] for place in places), tuple(filled))


def build_paper_tables(averages: SeedAverages) -> tuple[Table, ...]:
    """Each table of the paper, as published, with what we measured in the same places."""
    return tuple(_build_paper_table(table, averages) for table in TITLES)


def _build_paper_table(name: str, averages: SeedAverages) -> Table:
    numbers = [number for number in read_published() if number.table == name]
    columns = tuple(dict.fromkeys(_column(number) for number in numbers))
    labels = tuple(dict.fromkeys(_label(number) for number in numbers))
    placed = {(_label(number), _column(number)): number for number in numbers}
    rows = []
    for label in labels:
        found = [placed.get((label, column)) for column in columns]
        rows.append((label, tuple(None if number is None else _fill(number, averages) for number in found)))
    return Table(TITLES[name], columns, tuple(rows))


def _column(number: Published) -> str:
    return number.dataset if number.k is None else f"{number.dataset}, K={number.k}"


def _label(number: Published) -> str:
    norm = {"yes": " (BN)", "no": "", "best": ""}[number.batch_norm]
    return f"{number.model}{norm}" + (f" (c = {number.support_cir} %)" if number.support_cir else "")


def _fill(number: Published, averages: SeedAverages) -> Cell:
    if number.metric == "gradient_cosine":
        return _fill_cosine(number, averages)
    candidates = [average for average in _find_candidates(number, averages) if follows_paper(average)]
    if not candidates:
        return Cell(number.value, None, "open", authors=_find_authors(number, averages))
    average = choose(candidates, averages)
    # Beside the best of both norms the authors' way with that norm.
    authors = _find_authors(replace(number, batch_norm="yes" if average.normed else "no"), averages)
    ours = measure(average, "f1" if number.metric == "f1_pct" else "accuracy")
    plain = [one for one in candidates if averages.find_trainings(one) and not mark(one)]
    return Cell(
        number.value,
        ours,
        compare_with_paper(number.value, ours),
        100 * average.summary.auroc.mean,
        average.seeds,
        average.cpu_minutes,
        average.rows,
        authors=authors,
        plain=measure(choose(plain, averages)).mean if plain and mark(average) else None,
        choice=describe_choice(averages.find_trainings(average)),
        marks=mark(average) if averages.find_trainings(average) else "",
    )


def _find_candidates(number: Published, averages: SeedAverages) -> list[SeedAverage]:
    """What was evaluated as the paper's number was, by whatever settings."""
    found = averages.find(number.learner, number.dataset, number.k or 10)
    return find_current([average for average in found if _answers(average, number)])


def find_current(found: Sequence[SeedAverage]) -> list[SeedAverage]:
    """Without trainings that were not what their name says, and without those of before where there are newer ones."""
    valid = [average for average in found if is_valid(average)]
    return [average for average in valid if is_current(average)] or valid


def _find_authors(number: Published, averages: SeedAverages) -> float | None:
    """The accuracy by the authors' program, where it contradicts the paper's words."""
    if number.support_cir:
        return None
    supports = [replace(number, support_cir=share) for share in (0, 50)]
    found = [one for alike in supports for one in _find_candidates(alike, averages) if follows_authors(one)]
    return measure(choose(found, averages)).mean if found else None


def measure(average: SeedAverage, metric: str = "accuracy") -> Interval:
    """In per cent, with the 95 % interval over test tasks; where there is one task, over seeds if there are several."""
    value: Interval = getattr(average.summary, metric)
    if value.low is None and average.seeds > 1:
        value = getattr(summarize_over_seeds([row.scores for row in average.rows]), metric)
    return scale(value)


def _fill_cosine(number: Published, averages: SeedAverages) -> Cell:
    """Cosines at K=10 of the trainings whose accuracy the other tables show, among those that have one."""
    alike = replace(number, k=10, support_cir=0)
    candidates = [
        one for one in _find_candidates(alike, averages) if follows_paper(one) and averages.cosines.get(one.key)
    ]
    if not candidates:
        return Cell(number.value, None, "open")
    average = choose(candidates, averages)
    cosines = averages.cosines[average.key]
    ours = interval(average_units([(cosine.units, cosine.values) for cosine in cosines]))
    minutes = sum(cosine.provenance.cpu_seconds for cosine in cosines) / len(cosines) / 60
    note = f"accuracy {100 * average.summary.accuracy.mean:.1f}"
    comparison, choice = compare_with_paper(number.value, ours), describe_choice(averages.find_trainings(average))
    return Cell(number.value, ours, comparison, None, len(cosines), minutes, average.rows, (note,), choice=choice)


def _answers(average: SeedAverage, number: Published) -> bool:
    norm_fits = number.batch_norm == "best" or average.normed == (number.batch_norm == "yes")
    return (
        average.support_cir == number.support_cir
        and average.threshold == "own"
        and average.level == "example"
        and norm_fits
    )


def choose(candidates: Sequence[SeedAverage], averages: SeedAverages) -> SeedAverage:
    """Of the settings with the most seeds that with the lowest validation loss (never by test), or else the latest."""
    most = max(average.seeds for average in candidates)
    candidates = [average for average in candidates if average.seeds == most]
    losses = [(averages.validation_loss(average), average) for average in candidates]
    if all(loss is not None for loss, _ in losses):
        return min(losses, key=lambda item: item[0] if item[0] is not None else 0.0)[1]
    return max(candidates, key=lambda average: max(row.provenance.timestamp for row in average.rows))


def scale(value: Interval) -> Interval:
    """A share as per cent."""
    low = None if value.low is None else 100 * value.low
    high = None if value.high is None else 100 * value.high
    return Interval(100 * value.mean, low, high, value.units)


def compare_with_paper(published: float, ours: Interval) -> Comparison:
    """Better or worse only where the paper's number lies outside of our 95 % interval; without one, no comparison."""
    if ours.low is None or ours.high is None:
        return "unjudged"
    return "better" if published < ours.low else "worse" if published > ours.high else "within"


def build_unadapted_table(averages: SeedAverages) -> Table:
    """Accuracy of gradient-based learners without a step on the support, beside that of the same training adapted."""
    placed: dict[str, dict[str, Cell]] = {}
    adapted = {(one.key, one.k, one.normal_share, one.level): one for one in averages.single if one.threshold == "own"}
    columns: set[tuple[str, int]] = set()
    for average in sorted(averages.unadapted, key=lambda one: one.rows[-1].provenance.timestamp):
        same = adapted.get((average.key, average.k, average.normal_share, average.level))
        if same is None or average.level != "example" or not follows_paper(average):
            continue
        columns.add((average.dataset, average.k))
        note = f"{measure(same).mean:.1f}"
        cell = Cell(None, measure(average), "new", None, average.seeds, 0.0, average.rows, (note,))
        label = f"{average.learner}{' (BN)' if average.normed else ''}"
        placed.setdefault(label, {})[f"{average.dataset}, K={average.k}"] = cell
    names = tuple(f"{dataset}, K={k}" for dataset, k in sorted(columns))
    rows = tuple((label, tuple(cells.get(name) for name in names)) for label, cells in sorted(placed.items()))
    return Table("Without a step: what the initialisation says before it is adapted", names, rows)


def build_dataset_tables(averages: SeedAverages) -> tuple[Table, ...]:
    """One table per dataset and level: every method, its thresholds, and whether it beats the control."""
    keys = sorted({(average.dataset, average.level) for average in averages.shown})
    return tuple(_build_dataset_table(dataset, level, averages.shown) for dataset, level in keys)


METRIC_COLUMNS = ("accuracy", "auroc", "pr_auc", "f1", "false_alarms", "misses")


def _build_dataset_table(dataset: str, level: str, shown: Sequence[SeedAverage]) -> Table:
    found = [f for f in shown if f.dataset == dataset and f.level == level]
    controls = {f.k: f for f in found if f.learner == CONTROL and f.threshold == "own"}
    rows = []
    ordered = sorted(found, key=lambda f: (f.k, -f.summary.accuracy.mean))
    for average, label in zip(ordered, _label_averages(ordered), strict=True):
        notes = _compare_with_control(average, controls.get(average.k))
        cells = [
            Cell(
                None,
                scale(getattr(average.summary, metric)),
                "new",
                None,
                average.seeds,
                average.cpu_minutes,
                average.rows,
                notes if metric == "accuracy" else (),
            )
            for metric in METRIC_COLUMNS
        ]
        rows.append((label, tuple(cells)))
    title = f"{dataset}, {'per example' if level == 'example' else 'per run (all segments of a recording together)'}"
    return Table(title, METRIC_COLUMNS, tuple(rows))


def _label_averages(found: Sequence[SeedAverage]) -> list[str]:
    """What each is; those that would be called the same are told apart by the settings in which they differ."""
    names = [_describe(average) for average in found]
    settings = [average.flat_settings for average in found]
    labels = []
    for name, own in zip(names, settings, strict=True):
        alike = [other for other, called in zip(settings, names, strict=True) if called == name]
        differing = [key for key, value in own.items() if any(other.get(key) != value for other in alike)]
        labels.append("; ".join([name, *(f"{key.replace('_', ' ')} {own[key]}" for key in differing)]))
    return labels


def _describe(average: SeedAverage) -> str:
    norm = ", BN" if average.normed else ""
    share = f", c = {average.support_cir} %" if average.support_cir else ""
    front: str = average.experiment.network.front_end
    front = "" if front == "none" else f", {front}"
    threshold = "" if average.threshold == "own" else ", calibrated threshold"
    return f"{average.learner} K={average.k}{norm}{front}{share}{threshold}"


def _compare_with_control(average: SeedAverage, control: SeedAverage | None) -> tuple[str, ...]:
    """A note where the support taught a method nothing: the paired difference to the control is not above 0."""
    if control is None or average.learner == CONTROL:
        return ()
    ours, theirs = average.scores, control.scores
    if set(ours.units) != set(theirs.units) or ours.episodes != theirs.episodes:
        return ()
    difference = compare(ours, theirs).accuracy
    return (
        ()
        if difference.low is None or difference.low > 0
        else ("does not beat the control that never sees the support",)
    )
