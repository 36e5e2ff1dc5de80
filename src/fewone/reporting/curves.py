"""SeedAverages -> curves: validation accuracy by work, test accuracy by K and by the share of anomalies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fewone.reporting.line_plot import Line, draw_lines
from fewone.reporting.seed_averages import SeedAverage, SeedAverages


@dataclass(frozen=True)
class Figure:
    """A titled plot as SVG text."""

    title: str
    svg: str


def draw_curves(averages: SeedAverages) -> tuple[Figure, ...]:
    """Every curve for which there are points."""
    figures = []
    kept = [one for seeds in averages.trainings.values() for one in seeds if len(one.history) > 1]
    for dataset in sorted({training.experiment.dataset for training in kept}):
        trainings = [training for training in kept if training.experiment.dataset == dataset]
        for x_label, key in (("iterations", "iteration"), ("CPU minutes", "cpu_seconds")):
            divisor = 60 if key == "cpu_seconds" else 1
            lines = [
                Line(
                    f"{t.experiment.learner} K={t.experiment.k} seed {t.seed}",
                    tuple((getattr(p, key) / divisor, 100 * p.accuracy) for p in t.history),
                )
                for t in trainings
            ]
            figures.append(_draw(f"{dataset}: validation accuracy against {x_label}", x_label, lines))
    figures += _draw_along(averages, "K", lambda average: average.k)
    figures += _draw_along(averages, "anomalies in the support, %", lambda average: average.support_cir)
    return tuple(figures)


def _draw_along(averages: SeedAverages, x_label: str, place: Callable[[SeedAverage], int]) -> list[Figure]:
    """Test accuracy where one learner, trained in one way, was evaluated at three or more places of an axis."""
    figures = []
    for dataset in sorted({average.dataset for average in averages.single}):
        ways: dict[tuple[str, str], list[SeedAverage]] = {}
        for average in averages.single:
            if average.dataset == dataset and average.level == "example":
                label = f"{average.settings}, {average.threshold} threshold"
                ways.setdefault((label, average.key), []).append(average)
        lines = []
        for (label, _), found in sorted(ways.items()):
            fixed = [average for average in found if _others_equal(average, found, x_label)]
            points = sorted((place(average), 100 * average.summary.accuracy.mean) for average in fixed)
            if len(points) >= 3:
                lines.append(Line(label, tuple(points)))
        if lines:
            figures.append(_draw(f"{dataset}: test accuracy against {x_label}", x_label, lines))
    return figures


def _others_equal(average: SeedAverage, averages: Sequence[SeedAverage], x_label: str) -> bool:
    """Along K the support is one-class; along the anomalous share K is the most frequent one."""
    if x_label == "K":
        return average.support_cir == 0
    sizes = [one.k for one in averages]
    return average.k == max(set(sizes), key=sizes.count)


def _draw(title: str, x_label: str, lines: Sequence[Line]) -> Figure:
    return Figure(title, draw_lines(lines, x_label, "balanced accuracy, %"))
