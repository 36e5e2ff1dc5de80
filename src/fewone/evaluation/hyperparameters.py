"""One hyper-parameter of a learner, chosen on validation tasks. Never on test tasks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from fewone.episodes import Task
from fewone.errors import FewoneError
from fewone.evaluation.protocol import evaluate
from fewone.evaluation.validation_plan import plan_validation, spread
from fewone.learners import MetaLearner
from fewone.sampling import EpisodeSampler


class Choosing(Protocol):
    """One setting with a few options."""

    @property
    def options(self) -> tuple[float, ...]: ...

    @property
    def episodes(self) -> int: ...

    def choose(self, option: float) -> None: ...


@runtime_checkable
class HasHyperparameter(Protocol):
    """A learner with one setting to be chosen on validation tasks."""

    @property
    def hyperparameter(self) -> Choosing: ...


def select_hyperparameter(
    learner: MetaLearner, tasks: Sequence[Task], sampler: EpisodeSampler, seed: int, episodes: int | None = None
) -> float | None:
    """Set the hyper-parameter to its best option on validation tasks (accuracy, then AUROC); None: it has none."""
    if not isinstance(learner, HasHyperparameter) or not learner.hyperparameter.options:
        return None
    if not tasks:
        raise FewoneError("there is no validation task to choose a setting on; add tasks to the split")
    episodes = episodes or learner.hyperparameter.episodes
    chosen = spread(tasks, episodes)
    plan = plan_validation(chosen, sampler, sets=max(1, episodes // len(chosen)))

    def measure(option: float) -> tuple[float, float]:
        learner.hyperparameter.choose(option)
        summary = evaluate(learner, chosen, plan, sampler, seed).examples.summarize()
        return summary.accuracy.mean, summary.auroc.mean

    best = max(learner.hyperparameter.options, key=measure)
    learner.hyperparameter.choose(best)
    return best
