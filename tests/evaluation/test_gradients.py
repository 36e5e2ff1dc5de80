"""The cosine of one-class and class-balanced gradients: right by hand, disjoint, and only where it means something."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from fewone.baselines import BASELINES
from fewone.episodes import EvaluationProtocol, Examples, TaskSplits
from fewone.errors import FewoneError
from fewone.evaluation.balance import balance
from fewone.evaluation.gradients import find_gradient, measure_cosines
from fewone.learners import LEARNERS, Algorithm
from fewone.networks import Classifier, NetworkSettings
from fewone.networks.settings import IdentityEmbedding
from fewone.sampling import EpisodeSampler

SAMPLER = EpisodeSampler(3, 6, 1.0)
GRADIENT_BASED = ("maml", "fomaml", "reptile", "anil", "foanil", "metasgd")


def test_the_gradient_of_a_linear_classifier_is_what_one_writes_down_by_hand() -> None:
    classifier = Classifier(IdentityEmbedding((2,)))
    inputs = torch.tensor([[1.0, 2.0], [-1.0, 0.5], [0.0, 3.0]])
    labels = torch.tensor([0.0, 1.0, 0.0])
    found = find_gradient(classifier, Examples.of(inputs, labels))
    residual = torch.sigmoid(inputs @ classifier.head.weight[0] + classifier.head.bias) - labels
    expected = torch.cat([(residual[:, None] * inputs).mean(0), residual.mean()[None]])
    assert torch.allclose(found, expected, atol=1e-6)


@pytest.mark.parametrize("name", GRADIENT_BASED)
@pytest.mark.parametrize("norm", ["none", "support"])
def test_every_gradient_based_learner_has_a_cosine_and_is_left_as_it_was(
    name: str, norm: str, tiny_splits: TaskSplits
) -> None:
    network = NetworkSettings(filters=(4,), norm="support" if norm == "support" else "none")
    learner = LEARNERS[name](LEARNERS[name].choose(inner_steps=1), network, (1, 16))
    before = [tensor.clone() for tensor in learner.state_dict().values()]
    plan = EvaluationProtocol(2, 3, 3)
    found = measure_cosines(learner, tiny_splits.test, plan, SAMPLER, seed=0)
    assert found.units == ("task 8", "task 9")
    assert all(-1.0 <= value <= 1.0 for value in found.values)
    assert found == measure_cosines(learner, tiny_splits.test, plan, SAMPLER, seed=0)
    assert found != measure_cosines(learner, tiny_splits.test, plan, SAMPLER, seed=1)
    assert all(torch.equal(a, b) for a, b in zip(before, learner.state_dict().values(), strict=True))
    assert all(parameter.grad is None for parameter in learner.parameters())


def test_the_value_is_the_mean_over_adaptation_sets_of_the_cosine_over_all_parameters(tiny_splits: TaskSplits) -> None:
    learner = LEARNERS["maml"](LEARNERS["maml"].choose(inner_steps=1), NetworkSettings(filters=(4,)), (1, 16))
    classifier = learner.classifier
    assert isinstance(classifier, Classifier)
    plan = EvaluationProtocol(3, 3, 3)
    found = measure_cosines(learner, tiny_splits.test[:1], plan, SAMPLER, seed=4)
    values = []
    for number in range(3):
        episode = SAMPLER.draw_evaluation(tiny_splits.test[:1], plan, number, 4)
        assert set(episode.support_rows.flatten().tolist()).isdisjoint(episode.query_rows.flatten().tolist())
        assert bool((episode.support.labels == 0).all())
        vectors = []
        for examples in (episode.support[0], episode.query[0]):
            logits, _ = classifier(examples.inputs)
            loss = F.binary_cross_entropy_with_logits(logits, examples.labels)
            gradients = torch.autograd.grad(loss, list(classifier.parameters()))
            vectors.append(torch.cat([gradient.flatten() for gradient in gradients]))
        values.append(float(vectors[0] @ vectors[1] / vectors[0].norm() / vectors[1].norm()))
    assert found.values[0] == pytest.approx(sum(values) / 3, abs=1e-5)


@pytest.mark.parametrize("entry", [LEARNERS["plda"], BASELINES["no-support"]], ids=["plda", "no-support"])
def test_a_learner_without_an_initialisation_to_step_from_is_an_error(
    entry: Algorithm[Any], tiny_splits: TaskSplits
) -> None:
    learner = entry(entry.choose(), NetworkSettings(filters=(4,), norm="running"), (1, 16))
    with pytest.raises(FewoneError, match="no cosine to measure"):
        measure_cosines(learner, tiny_splits.test, EvaluationProtocol(1, 3, 3), SAMPLER, seed=0)


def test_balancing_gives_each_class_half_whatever_its_number_and_padding_nothing() -> None:
    labels = torch.tensor([[0.0, 0.0, 0.0, 1.0, 0.0], [0.0, 1.0, 1.0, 1.0, 1.0], [0.0, 0.0, 0.0, 0.0, 0.0]])
    weights = torch.tensor([[0.25, 0.25, 0.25, 0.25, 0.0], [0.2] * 5, [0.2] * 5])
    found = balance(Examples(torch.zeros(3, 5, 1), labels, weights)).weights
    assert torch.allclose(found[0], torch.tensor([1 / 6, 1 / 6, 1 / 6, 0.5, 0.0]))
    assert torch.allclose(found[1], torch.tensor([0.5, 0.125, 0.125, 0.125, 0.125]))
    assert torch.allclose(found[2], torch.full((5,), 0.2))
