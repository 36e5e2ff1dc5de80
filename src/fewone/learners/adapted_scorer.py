"""The scorer of the gradient-based learners: a classifier with parameters of its own for each task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.func import functional_call

from fewone.learners.meta_learner import Scorer, snapshot
from fewone.networks import Classifier, Statistics

LARGEST_CHUNK = 2**17
"""Places (pixels or samples) that a chunk of queries may have."""


class AdaptedScorer(Scorer):
    """Adapted parameters of T tasks, and the statistics of their supports under them."""

    def __init__(self, classifier: Classifier, adapted: Mapping[str, Tensor], statistics: Statistics) -> None:
        """adapted (T, ...) each: what is not among them stays the classifier's. statistics (T, channels) each."""
        super().__init__()
        self.classifier = snapshot(classifier)
        self.names = tuple(adapted)
        self.adapted = nn.ParameterList(nn.Parameter(value, requires_grad=False) for value in adapted.values())
        self.statistics = nn.ParameterList(nn.Parameter(value, requires_grad=False) for value in statistics)
        # The parameters of a single task are the classifier's own: nothing has to be put in their place at every call.
        self.alone = {len(value) for value in adapted.values()} == {1}
        if self.alone:
            for name, value in adapted.items():
                self.classifier.get_parameter(name).data = value[0].detach()

    def forward(self, inputs: Tensor) -> Tensor:
        return torch.stack([self._score(task, values) for task, values in enumerate(inputs.unbind())])

    def _score(self, task: int, inputs: Tensor) -> Tensor:
        statistics = tuple(value[task] for value in self.statistics)
        if self.alone:
            logits = [self.classifier(chunk, statistics)[0] for chunk in _chunks(inputs)]
        else:
            parameters = {name: value[task] for name, value in zip(self.names, self.adapted, strict=True)}
            logits = [functional_call(self.classifier, parameters, (chunk, statistics))[0] for chunk in _chunks(inputs)]
        return logits[0] if len(logits) == 1 else torch.cat(logits)


def _chunks(inputs: Tensor) -> tuple[Tensor, ...]:
    """Inputs (n, channels, *space) in chunks, so that maps stay within memory that is fetched once."""
    if torch.compiler.is_compiling():
        return (inputs,)
    places = max(1, inputs[0, 0].numel()) if len(inputs) else 1
    return torch.split(inputs, max(1, LARGEST_CHUNK // places))


def stack_tasks(rows: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """The parameters of T tasks, one after the other -> (T, ...) each."""
    return {name: torch.stack([row[name].detach() for row in rows]) for name in rows[0]}


def stack_statistics(rows: Sequence[Statistics]) -> Statistics:
    """The statistics of T tasks, one after the other -> (T, channels) each."""
    return tuple(torch.stack(column).detach() for column in zip(*rows, strict=True))
