"""Judging a learner on validation tasks: always the same episodes, so that losses of one run compare."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from fewone.episodes import Episodes, Task
from fewone.errors import FewoneError
from fewone.evaluation.balance import balance
from fewone.evaluation.protocol import evaluation_mode, score_queries
from fewone.evaluation.selection import plan_validation, spread
from fewone.learners import MetaLearner, query_loss
from fewone.sampling import EpisodeSampler

_TASKS_AT_ONCE = 8


@dataclass(frozen=True)
class Validator:
    """Fixed episodes of the validation tasks, drawn as a new task would be met: sampler has the target's share."""

    tasks: tuple[Task, ...]
    sampler: EpisodeSampler
    episodes: int
    seed: int

    def __post_init__(self) -> None:
        if not self.tasks:
            raise FewoneError("there is no validation task: the best weights cannot be chosen; add tasks to the split")

    def validate(self, learner: MetaLearner) -> tuple[float, float]:
        """Mean query loss and accuracy, both class-balanced, mean over episodes."""
        loss, accuracy = 0.0, 0.0
        with evaluation_mode(learner):
            for batch in self._batches:
                logits = score_queries(learner.adapt(batch.support), batch.query.inputs)
                query = balance(batch.query)
                loss += float(query_loss(logits, query)) * len(batch)
                right = ((logits > 0) == (query.labels > 0.5)).to(query.weights.dtype)
                accuracy += float((right * query.weights).sum())
        count = sum(map(len, self._batches))
        return loss / count, accuracy / count

    @cached_property
    def _batches(self) -> tuple[Episodes, ...]:
        """All tasks (or, if there are more of them than episodes, evenly spread ones) in several draws."""
        tasks = spread(self.tasks, self.episodes)
        sets = max(1, round(self.episodes / len(tasks)))
        plan = plan_validation(tasks, self.sampler, sets, queries=self.sampler.query_size // 2)
        return tuple(
            self.sampler.draw_evaluation(tasks[start : start + _TASKS_AT_ONCE], plan, number, self.seed)
            for number in range(sets)
            for start in range(0, len(tasks), _TASKS_AT_ONCE)
        )
