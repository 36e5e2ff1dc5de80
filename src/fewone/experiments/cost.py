"""What experiments will cost, by what such trainings took before: said before hours are spent."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from fewone.experiment import Experiment
from fewone.results import Row


@dataclass(frozen=True)
class Estimate:
    """Core-hours of all experiments; guessed: of how many nothing alike was ever run, so that a median stands in."""

    core_hours: float
    guessed: int

    def __str__(self) -> str:
        guess = f"; {self.guessed} of them guessed" if self.guessed else ""
        return f"about {self.core_hours:.1f} core-hours by what such trainings took before{guess}"


def estimate(experiments: Sequence[Experiment], rows: Iterable[Row]) -> Estimate | None:
    """From the newest row of the same learner, dataset and K, scaled by the episodes of its training.

    A dataset's other variants (`mt-mnist/3` for `mt-mnist/0`) stand for one that was never run; None: nothing was.
    """
    known: dict[tuple[str, str, int], tuple[float, float]] = {}
    # A row without a step tells what the evaluation cost, not the training.
    for row in sorted((one for one in rows if one.steps is None), key=lambda one: one.provenance.timestamp):
        place = (_family(row.experiment), row.experiment.learner, row.k)
        known[place] = row.provenance.cpu_seconds, _count_episodes(row.experiment)
    if not known:
        return None
    usual = median(seconds for seconds, _ in known.values())
    seconds, guessed = 0.0, 0
    for experiment in experiments:
        found = known.get((_family(experiment), experiment.learner, experiment.k))
        guessed += found is None
        seconds += usual if found is None else found[0] * _count_episodes(experiment) / found[1]
    return Estimate(seconds / 3600, guessed)


def _family(experiment: Experiment) -> str:
    return experiment.dataset.split("/")[0]


def _count_episodes(experiment: Experiment) -> float:
    """Tasks of all meta-batches: what a training costs is nearly in proportion to them."""
    return float(experiment.training.iterations * experiment.training.meta_batch)
