"""What a method takes from other tasks without a gradient: scales, one setting, a threshold. Never from test tasks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Protocol, runtime_checkable

from fewone.calibration import Calibrated, HeldOut, calibrate, count_draws
from fewone.episodes import ClassBatch, Episodes, EvaluationPlan, Task
from fewone.errors import FewoneError
from fewone.evaluation.embedded import count_examples, embed_once
from fewone.evaluation.protocol import evaluate
from fewone.learners import MetaLearner
from fewone.sampling import EpisodeSampler, count_normals
from fewone.workers import ALONE, Exchange

ENOUGH_TASKS = 10
"""With fewer independent validation tasks than this a threshold is calibrated over training tasks too."""


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
    def dial(self) -> Choosing: ...


@runtime_checkable
class Observing(Protocol):
    """A learner that takes scales from training batches."""

    def observe(self, batch: Episodes | ClassBatch) -> None: ...


def observe_batches(learner: MetaLearner, batches: Iterable[Episodes | ClassBatch]) -> None:
    """Show training batches to a learner that takes its scales from them; others are left as they are."""
    if isinstance(learner, Observing):
        for batch in batches:
            learner.observe(batch)


def select_hyperparameter(
    learner: MetaLearner, tasks: Sequence[Task], sampler: EpisodeSampler, seed: int, episodes: int | None = None
) -> float | None:
    """Set the learner's dial to what judges validation tasks best (accuracy, then AUROC); None: it has no dial."""
    if not isinstance(learner, HasHyperparameter) or not learner.dial.options:
        return None
    if not tasks:
        raise FewoneError("there is no validation task to choose a setting on; add tasks to the split")
    episodes = episodes or learner.dial.episodes
    chosen = spread(tasks, episodes)
    plan = plan_validation(chosen, sampler, sets=max(1, episodes // len(chosen)))

    def judge(option: float) -> tuple[float, float]:
        learner.dial.choose(option)
        summary = evaluate(learner, chosen, plan, sampler, seed).examples.summarize()
        return summary.accuracy.mean, summary.auroc.mean

    best = max(learner.dial.options, key=judge)
    learner.dial.choose(best)
    return best


def calibrate_over_tasks(
    learner: MetaLearner,
    training: Sequence[Task],
    validation: Sequence[Task],
    sampler: EpisodeSampler,
    seed: int,
    others: Sequence[HeldOut] = (),
    tasks: int = 40,
    sizes: Sequence[int] = (),
    adaptation_sets: int = 5,
    exchange: Exchange = ALONE,
) -> Calibrated:
    """The learner behind a threshold and scale calibrated over tasks that it was not trained on, for every K of sizes.

    Fewer than 10 independent validation tasks: training tasks join them where no gradient was taken on them (so they
    are held out too); for a trained learner give `others`: learners trained without some training tasks, and those.
    """
    held_out = [HeldOut(learner, tuple(spread(validation, tasks))), *others]
    if len({task.unit for task in validation}) < ENOUGH_TASKS and not learner.is_trained:
        held_out.append(HeldOut(learner, tuple(spread(training, tasks))))
    learner.eval()
    sizes = sizes or (sampler.support_size,)
    held_out = [part for part in held_out if part.tasks]
    if _draws_again(held_out, sizes, adaptation_sets):
        embedded = [embed_once(part.learner, part.tasks, sampler.preparation) for part in held_out]
        held_out = [HeldOut(part.learner, part.tasks) for part in embedded]
        sampler = replace(sampler, preparation=embedded[0].preparation)
    # Leaving one out takes K adaptations for one: not where each of them is a descent.
    cheap = learner.every_k or learner.fits_supports
    found = calibrate(held_out, sampler, sizes, adaptation_sets, seed=seed, by_support=cheap, exchange=exchange)
    return Calibrated(learner, found)


def _draws_again(held_out: Sequence[HeldOut], sizes: Sequence[int], adaptation_sets: int) -> bool:
    """Whether more examples are drawn than there are: only then does it pay to embed each of them once."""
    drawn = sum(count_draws(part.tasks, sizes, adaptation_sets) for part in held_out)
    return drawn > sum(count_examples(part.tasks) for part in held_out)


def spread(tasks: Sequence[Task], count: int) -> list[Task]:
    """At most `count` of the tasks, evenly spread over them."""
    number = min(len(tasks), count)
    return [tasks[position * len(tasks) // number] for position in range(number)]


def plan_validation(tasks: Sequence[Task], sampler: EpisodeSampler, sets: int, queries: int = 50) -> EvaluationPlan:
    """`queries` of each class, or as many as every task has; where recordings must stay whole, all that remain."""
    if any(task.normal.store.recording is not None for task in tasks):
        return EvaluationPlan(sets, None, None)
    normals = count_normals(sampler.support_size, sampler.normal_share)

    def available(task: Task, size: int, support: int) -> int:
        return size - size // 2 if task.halves else size - support

    return EvaluationPlan(
        sets,
        min(queries, *(available(task, len(task.normal), normals) for task in tasks)),
        min(queries, *(available(task, len(task.anomalous), sampler.support_size - normals) for task in tasks)),
    )
