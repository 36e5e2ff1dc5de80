"""The library's own learners beside the paper's best numbers and beside OC-MAML as it was run here."""

from __future__ import annotations

from fewone.learners import LEARNERS
from fewone.reporting.published import read_published
from fewone.reporting.seed_averages import TOGETHER, SeedAverage, SeedAverages
from fewone.reporting.tables import Cell, Comparison, Table, choose, compare_with_paper, measure
from fewone.reporting.ways import follows_paper
from fewone.results import Interval, Level, Threshold

REFERENCE = "oc-maml"
SHOWN_K = (2, 10)
THRESHOLDS: tuple[Threshold, ...] = ("own", "calibrated")


def build_own_table(averages: SeedAverages) -> Table:
    """Balanced accuracy of every own learner and setting, before and after calibration over tasks."""
    columns = [f"K={k}, {threshold} threshold" for k in SHOWN_K for threshold in THRESHOLDS]
    columns += [f"OC-MAML here, K={k}" for k in SHOWN_K]
    found: dict[tuple[str, Level, str], dict[tuple[int, str], list[SeedAverage]]] = {}
    for average in averages.shown:
        if _is_own(average.learner) and average.support_cir == 0:
            row = found.setdefault((average.dataset, average.level, average.settings), {})
            row.setdefault((average.k, average.threshold), []).append(average)
    rows = []
    for dataset, level, label in sorted(found):
        settings = found[dataset, level, label]
        cells = [_fill(settings.get((k, threshold), []), averages) for k in SHOWN_K for threshold in THRESHOLDS]
        cells += [_fill(_find_reference(averages, dataset, level, k), averages) for k in SHOWN_K]
        name = dataset if level == "example" else f"{dataset}, each run"
        rows.append((f"{name}: {label}", tuple(cells)))
    return Table("The library's own learners", tuple(columns), tuple(rows))


def _is_own(learner: str) -> bool:
    return learner in LEARNERS and LEARNERS[learner].own


def best_published(dataset: str, k: int) -> float | None:
    """The paper's best accuracy with one-class supports of K; of datasets together, the best model's mean over them."""
    members = TOGETHER.get(dataset, (dataset,))
    best: dict[str, dict[str, float]] = {}
    for number in read_published():
        if number.dataset in members and (number.k, number.support_cir, number.metric) == (k, 0, "accuracy_pct"):
            model = best.setdefault(number.model, {})
            model[number.dataset] = max(number.value, model.get(number.dataset, 0.0))
    means = [sum(model.values()) / len(members) for model in best.values() if len(model) == len(members)]
    return round(max(means), 1) if means else None


def _find_reference(averages: SeedAverages, dataset: str, level: Level, k: int) -> list[SeedAverage]:
    return [
        average
        for average in averages.shown
        if (average.learner, average.dataset, average.level, average.k) == (REFERENCE, dataset, level, k)
        and average.threshold == "own"
        and average.support_cir == 0
        and follows_paper(average)
    ]


def _fill(candidates: list[SeedAverage], averages: SeedAverages) -> Cell | None:
    if not candidates:
        return None
    average = choose(candidates, averages)
    ours = measure(average)
    published = best_published(average.dataset, average.k)
    comparison = _compare(published, ours)
    return Cell(
        published,
        ours,
        comparison,
        100 * average.summary.auroc.mean,
        average.seeds,
        average.cpu_minutes,
        average.rows,
    )


def _compare(published: float | None, ours: Interval) -> Comparison:
    return "new" if published is None else compare_with_paper(published, ours)
