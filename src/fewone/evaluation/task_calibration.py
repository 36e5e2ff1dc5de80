"""A learner and tasks that it was not trained on -> what its scores mean: the map from score to log-odds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fewone.calibration import Calibrated, CalibrationMap, HeldOut, count_draws
from fewone.calibration import calibrate as calibrate_held_out
from fewone.episodes import Task
from fewone.errors import InputError
from fewone.evaluation.embedded import count_examples, embed_once
from fewone.evaluation.validation_plan import spread
from fewone.learners import MetaLearner
from fewone.sampling import EpisodeSampler, check_shapes
from fewone.workers import ALONE, Exchange

CALIBRATED_SIZES = (1, 2, 5, 10, 20, 50)
"""The K for which a learner that serves every K is calibrated."""

ENOUGH_TASKS = 10
"""With fewer independent validation tasks than this a threshold is calibrated over training tasks too."""


def calibrate(
    learner: MetaLearner,
    held_out_tasks: Sequence[Task],
    sampler: EpisodeSampler,
    *,
    sizes: Sequence[int] = (),
    seed: int = 0,
) -> CalibrationMap:
    """What held-out tasks say of a learner's scores: for `FewShotDetector(learner, calibration=...)`.

    Scores become log-odds, and a false-alarm rate can be asked for with few normals.

    Parameters
    ----------
    learner
        Trained, by whatever loop.
    held_out_tasks
        Tasks with normals and anomalies that it was not trained on; ten or more.
    sampler
        The one of the training: K and how inputs are made.
    sizes
        The K to calibrate for; none: the sampler's own, and 1 to 50 for a learner that serves every K.
    seed
        Fixes which examples are drawn.

    Returns
    -------
    Points per K, for `FewShotDetector(calibration=...)`.

    Raises
    ------
    InputError
        There are fewer than two held-out tasks, one has no anomalies, or they have different shapes.

    Examples
    --------
    >>> import numpy as np, torch, fewone
    >>> from fewone.learners import ProtoNet
    >>> random = np.random.default_rng(0)
    >>> tasks = [fewone.Task.from_arrays(str(n), random.normal(size=(20, 3)), 4 + random.normal(size=(9, 3)))
    ...          for n in range(10)]
    >>> learner = ProtoNet(torch.nn.Linear(3, 8))
    >>> sampler = fewone.EpisodeSampler(support_size=5, query_size=4, standardize=True)
    >>> [point.k for point in fewone.calibrate(learner, tasks, sampler).points]
    [5]
    """
    check_shapes(held_out_tasks)
    for task in held_out_tasks:
        if not len(task.anomalous):
            raise InputError(
                f"task {task.name}: it has no anomalies, so it cannot say what a score means; leave it out"
            )
    if len({task.unit for task in held_out_tasks}) == 1:
        raise InputError(
            f"held_out_tasks: {held_out_tasks[0].name} alone does not say how scores differ from task to task; give two"
            f" or more, better ten, or no calibration"
        )
    tasks, sets = count_calibration(learner)
    found = calibrate_over_tasks(
        learner,
        (),
        held_out_tasks,
        sampler,
        seed,
        tasks=tasks,
        sizes=choose_sizes(learner, sizes or (sampler.support_size,)),
        supports_per_task=sets,
    )
    return found.calibration


def choose_sizes(learner: MetaLearner, asked: Sequence[int]) -> tuple[int, ...]:
    """The K to calibrate for: those asked, and the usual ones where a learner serves every K."""
    return tuple(sorted({*asked, *CALIBRATED_SIZES} if learner.every_k else {*asked}))


def count_calibration(learner: MetaLearner) -> tuple[int, int]:
    """How many tasks, and supports of each: fewer where a learner takes gradient steps to each of them."""
    return (40, 5) if learner.every_k or learner.fits_supports else (20, 3)


def calibrate_over_tasks(
    learner: MetaLearner,
    training: Sequence[Task],
    validation: Sequence[Task],
    sampler: EpisodeSampler,
    seed: int,
    others: Sequence[HeldOut] = (),
    tasks: int = 40,
    sizes: Sequence[int] = (),
    supports_per_task: int = 5,
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
    if _draws_again(held_out, sizes, supports_per_task):
        embedded = [embed_once(part.learner, part.tasks, sampler.preparation) for part in held_out]
        held_out = [HeldOut(part.learner, part.tasks) for part in embedded]
        sampler = replace(sampler, preparation=embedded[0].preparation)
    # Leaving one out takes K adaptations for one: not where each of them is a descent.
    cheap = learner.every_k or learner.fits_supports
    found = calibrate_held_out(
        held_out, sampler, sizes, supports_per_task, seed=seed, by_support=cheap, exchange=exchange
    )
    return Calibrated(learner, found)


def _draws_again(held_out: Sequence[HeldOut], sizes: Sequence[int], supports_per_task: int) -> bool:
    """Whether more examples are drawn than there are: only then does it pay to embed each of them once."""
    drawn = sum(count_draws(part.tasks, sizes, supports_per_task) for part in held_out)
    return drawn > sum(count_examples(part.tasks) for part in held_out)
