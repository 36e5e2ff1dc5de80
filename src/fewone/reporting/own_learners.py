"""The library's own learners beside the paper's best numbers and beside OC-MAML as it was run here."""

from __future__ import annotations

from fewone.learners import LEARNERS
from fewone.reporting.findings import TOGETHER, Evidence, SeedAverage
from fewone.reporting.published import read_published
from fewone.reporting.tables import Cell, Table, Verdict, choose, compare_with_paper, measure
from fewone.reporting.ways import follows_paper
from fewone.results import Interval, Level, Threshold

REFERENCE = "oc-maml"
SHOWN_K = (2, 10)
THRESHOLDS: tuple[Threshold, ...] = ("own", "calibrated")


def build_own_table(evidence: Evidence) -> Table:
    """Balanced accuracy of every own learner and setting, before and after calibration over tasks."""
    columns = [f"K={k}, {threshold} threshold" for k in SHOWN_K for threshold in THRESHOLDS]
    columns += [f"OC-MAML here, K={k}" for k in SHOWN_K]
    found: dict[tuple[str, Level, str], dict[tuple[int, str], list[SeedAverage]]] = {}
    for finding in evidence.shown:
        if _is_own(finding.learner) and finding.support_cir == 0:
            row = found.setdefault((finding.dataset, finding.level, finding.settings), {})
            row.setdefault((finding.k, finding.threshold), []).append(finding)
    rows = []
    for dataset, level, label in sorted(found):
        settings = found[dataset, level, label]
        cells = [_fill(settings.get((k, threshold), []), evidence) for k in SHOWN_K for threshold in THRESHOLDS]
        cells += [_fill(_find_reference(evidence, dataset, level, k), evidence) for k in SHOWN_K]
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


def _find_reference(evidence: Evidence, dataset: str, level: Level, k: int) -> list[SeedAverage]:
    return [
        finding
        for finding in evidence.shown
        if (finding.learner, finding.dataset, finding.level, finding.k) == (REFERENCE, dataset, level, k)
        and finding.threshold == "own"
        and finding.support_cir == 0
        and follows_paper(finding)
    ]


def _fill(candidates: list[SeedAverage], evidence: Evidence) -> Cell | None:
    if not candidates:
        return None
    finding = choose(candidates, evidence)
    ours = measure(finding)
    published = best_published(finding.dataset, finding.k)
    verdict = _verdict(published, ours)
    return Cell(
        published,
        ours,
        verdict,
        100 * finding.summary.auroc.mean,
        finding.seeds,
        finding.cpu_minutes,
        finding.rows,
    )


def _verdict(published: float | None, ours: Interval) -> Verdict:
    return "new" if published is None else compare_with_paper(published, ours)
