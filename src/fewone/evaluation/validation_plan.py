"""Which validation tasks are asked, and how many queries of each."""

from __future__ import annotations

from collections.abc import Sequence

from fewone.episodes import EvaluationProtocol, Task
from fewone.sampling import EpisodeSampler, count_normals


def spread(tasks: Sequence[Task], count: int) -> list[Task]:
    """At most `count` of the tasks, evenly spread over them."""
    number = min(len(tasks), count)
    return [tasks[position * len(tasks) // number] for position in range(number)]


def plan_validation(tasks: Sequence[Task], sampler: EpisodeSampler, sets: int, queries: int = 50) -> EvaluationProtocol:
    """`queries` of each class, or as many as every task has; where recordings must stay whole, all that remain."""
    if any(task.normal.store.recording is not None for task in tasks):
        return EvaluationProtocol(sets, None, None)
    normals = count_normals(sampler.support_size, sampler.normal_share)

    def available(task: Task, size: int, support: int) -> int:
        return size - size // 2 if task.fixed_split else size - support

    return EvaluationProtocol(
        sets,
        min(queries, *(available(task, len(task.normal), normals) for task in tasks)),
        min(queries, *(available(task, len(task.anomalous), sampler.support_size - normals) for task in tasks)),
    )
