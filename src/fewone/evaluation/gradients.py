"""The paper's question to an initialisation: do the gradients of one-class and of class-balanced batches agree?"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from fewone.episodes import EvaluationProtocol, Examples, Task
from fewone.errors import FewoneError
from fewone.evaluation.balance import balance
from fewone.learners import LEARNERS, MetaLearner, query_loss
from fewone.learners.inner_rates import FixedRates
from fewone.networks import Classifier
from fewone.sampling import EpisodeSampler


@dataclass(frozen=True)
class UnitCosines:
    """The mean cosine of each unit (a task, or a cluster of dependent tasks) over its adaptation sets."""

    units: tuple[str, ...]
    values: tuple[float, ...]


def measure_cosines(
    learner: MetaLearner, tasks: Sequence[Task], plan: EvaluationProtocol, sampler: EpisodeSampler, seed: int
) -> UnitCosines:
    """Gradient of K normals against that of a disjoint class-balanced batch, at the initialisation, no step taken.

    The supports are those of an evaluation with the same seed; the balanced batch has the sampler's query size, or as
    much of it as the plan allows.
    """
    classifier = find_classifier(learner)
    one_class, plan = replace(sampler, normal_share=1.0), _shorten(plan, sampler.query_size // 2)
    found: dict[str, list[float]] = {}
    for number in range(plan.supports_per_task):
        for task in tasks:
            episode = one_class.draw_evaluation([task], plan, number, seed)
            normals = find_gradient(classifier, episode.support[0])
            balanced = find_gradient(classifier, balance(episode.query)[0])
            found.setdefault(task.unit, []).append(float(F.cosine_similarity(normals, balanced, dim=0)))
    return UnitCosines(tuple(found), tuple(sum(values) / len(values) for values in found.values()))


def without_steps(learner: MetaLearner) -> MetaLearner:
    """A copy of a gradient-based learner that takes no step: of the support it uses the batch-norm statistics alone."""
    find_classifier(learner)
    unadapted = copy.deepcopy(learner)
    unadapted.rates = FixedRates((), 0.0, 0)
    return unadapted


def find_classifier(learner: MetaLearner) -> Classifier:
    """The network that a gradient-based learner starts from; other learners have no such initialisation."""
    classifier = learner.initialisation
    if classifier is None:
        *names, last = (name for name, entry in LEARNERS.items() if entry.gradient_based)
        raise FewoneError(
            f"{type(learner).__name__} does not adapt by gradients from an initialisation: there is no cosine to"
            f" measure; choose {', '.join(names)} or {last}, or their oc- forms"
        )
    return classifier


def find_gradient(classifier: Classifier, examples: Examples) -> Tensor:
    """The gradient of the mean loss of one batch (n, ...) by all parameters, flattened to one vector (P,).

    Batch norm, if any, takes the statistics of this very batch.
    """
    parameters = list(classifier.parameters())
    with torch.enable_grad():
        logits, _ = classifier(examples.inputs)
        gradients = torch.autograd.grad(query_loss(logits, examples), parameters)
    return torch.cat([gradient.flatten() for gradient in gradients])


def _shorten(plan: EvaluationProtocol, half: int) -> EvaluationProtocol:
    """The plan with at most `half` queries of each class, equally many where the plan fixes their numbers."""
    if plan.normals is None or plan.anomalies is None:
        return plan
    size = min(half, plan.normals, plan.anomalies)
    return replace(plan, normals=size, anomalies=size)
