"""Evaluating a learner on validation tasks: always the same episodes, so that losses of one run compare."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from fewone.episodes import Episodes, Task
from fewone.errors import FewoneError
from fewone.evaluation.balance import balance
from fewone.evaluation.metrics import measure
from fewone.evaluation.protocol import evaluation_mode, score_queries
from fewone.evaluation.validation_plan import plan_validation, spread
from fewone.learners import MetaLearner, query_loss
from fewone.sampling import EpisodeSampler
from fewone.workers import ALONE, Exchange

_TASKS_AT_ONCE = 8


@dataclass(frozen=True)
class Validator:
    """Fixed episodes of the validation tasks, drawn as a new task would be met: sampler has the target's share.

    queries: of each episode, half of either class; None: the sampler's query size.
    """

    tasks: tuple[Task, ...]
    sampler: EpisodeSampler
    episodes: int
    seed: int
    queries: int | None = None

    def __post_init__(self) -> None:
        if not self.tasks:
            raise FewoneError("there is no validation task: the best weights cannot be chosen; add tasks to the split")

    def validate(self, learner: MetaLearner, exchange: Exchange = ALONE) -> tuple[float, float, float]:
        """Mean query loss and accuracy, both class-balanced, and AUROC: means over episodes; batches are shared out."""
        with evaluation_mode(learner):
            found = exchange.share_out(
                len(self._batches), lambda number: self._evaluate(learner, self._batches[number])
            )
        loss, accuracy, auroc = (sum(float(one[column]) for one in found) for column in range(3))
        count = sum(map(len, self._batches))
        return loss / count, accuracy / count, auroc / count

    def _evaluate(self, learner: MetaLearner, batch: Episodes) -> Tensor:
        """Summed loss, accuracy and AUROC of one batch."""
        logits = score_queries(learner.adapt(batch.support), batch.query.inputs)
        query = balance(batch.query)
        right = ((logits > 0) == (query.labels > 0.5)).to(query.weights.dtype)
        # A training that diverges says so by its loss; its logits have no order.
        finite = bool(torch.isfinite(logits).all())
        auroc = float(measure(logits, query.labels, query.weights).auroc.sum()) if finite else 0.0
        sums = [float(query_loss(logits, query)) * len(batch), float((right * query.weights).sum()), auroc]
        return torch.tensor(sums, dtype=torch.float64)

    @cached_property
    def _batches(self) -> tuple[Episodes, ...]:
        """All tasks (or, if there are more of them than episodes, evenly spread ones) in several draws."""
        tasks = spread(self.tasks, self.episodes)
        sets = max(1, round(self.episodes / len(tasks)))
        plan = plan_validation(tasks, self.sampler, sets, queries=(self.queries or self.sampler.query_size) // 2)
        return tuple(
            self.sampler.draw_evaluation(tasks[start : start + _TASKS_AT_ONCE], plan, number, self.seed)
            for number in range(sets)
            for start in range(0, len(tasks), _TASKS_AT_ONCE)
        )
