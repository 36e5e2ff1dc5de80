"""Small episodes and small learners in double precision, for the tests of the gradient-based learners."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from fewone.episodes import Episodes, Examples, RowPool, Store, Task, generator_for
from fewone.learners import LEARNERS, MetaLearner
from fewone.networks import NetworkSettings

MakeEpisodes = Callable[..., Episodes]
MakeLearner = Callable[..., MetaLearner]

TASK = Task("made up", *[RowPool(Store(torch.zeros(1, 1)), torch.zeros(1, dtype=torch.int64))] * 2)


@pytest.fixture
def make_episodes() -> MakeEpisodes:
    """Random episodes in which the anomalies are shifted; one-class support unless anomalies are asked for."""

    def make(
        shape: tuple[int, ...] = (1, 8, 8),
        tasks: int = 2,
        support: int = 4,
        query: int = 6,
        anomalies: int = 0,
        dtype: torch.dtype = torch.float64,
        seed: int = 0,
    ) -> Episodes:
        generator = generator_for(seed, "episodes")
        support_labels = (torch.arange(support) >= support - anomalies).to(dtype).expand(tasks, support)
        query_labels = (torch.arange(query) >= query // 2).to(dtype).expand(tasks, query)
        centres = torch.randn(tasks, 1, *shape, generator=generator, dtype=dtype)

        def draw(labels: Tensor) -> Tensor:
            noise = torch.randn(*labels.shape, *shape, generator=generator, dtype=dtype)
            return centres + noise - 2 * labels.view(*labels.shape, *(1,) * len(shape)) * centres

        rows = torch.zeros(tasks, 1, dtype=torch.int64)
        return Episodes(
            (TASK,) * tasks,
            Examples.of(draw(support_labels), support_labels.contiguous()),
            Examples.of(draw(query_labels), query_labels.contiguous()),
            rows.expand(-1, support),
            rows.expand(-1, query),
        )

    return make


@pytest.fixture
def make_learner() -> MakeLearner:
    """A learner of the table with a tiny conv net, every parameter away from its special first value."""

    def make(
        name: str,
        shape: tuple[int, ...] = (1, 8, 8),
        norm: str = "none",
        norm_place: str = "before-relu",
        steps: int = 3,
        rate: float = 0.2,
        learn_rates: bool = False,
        filters: tuple[int, ...] = (3, 4),
        dtype: torch.dtype = torch.float64,
        seed: int = 0,
        halving: str = "floor",
        query_statistics: bool = False,
        balanced_step: bool = True,
    ) -> MetaLearner:
        torch.manual_seed(seed)
        network = NetworkSettings(filters=filters, kernel=3, norm=norm, norm_place=norm_place, halving=halving)
        settings = LEARNERS[name].choose(
            inner_rate=rate,
            inner_steps=steps,
            learn_rates=learn_rates,
            query_statistics=query_statistics,
            balanced_step=balanced_step,
        )
        learner = LEARNERS[name](settings, network, shape).to(dtype)
        generator = generator_for(seed, "parameters")
        with torch.no_grad():
            for key, parameter in learner.named_parameters():
                if not key.startswith("rates."):
                    parameter += 0.3 * torch.randn(parameter.shape, generator=generator, dtype=dtype)
                    if key.endswith("gamma"):
                        # A falling channel: the norm turns the order of its values over.
                        parameter[0] *= -1
                else:
                    parameter *= 0.7 + 0.6 * torch.rand(parameter.shape, generator=generator, dtype=dtype)
        return learner

    return make


@pytest.fixture
def gradient_of() -> Callable[[MetaLearner, Episodes], tuple[float, dict[str, Tensor]]]:
    """The loss and the gradient that a learner accumulates."""

    def find(learner: MetaLearner, episodes: Episodes) -> tuple[float, dict[str, Tensor]]:
        learner.zero_grad()
        loss = learner.accumulate_gradient(episodes)
        found = {name: value.grad for name, value in learner.named_parameters()}
        return float(loss), {name: value.clone() for name, value in found.items() if value is not None}

    return find


@pytest.fixture
def finite_difference() -> Callable[[MetaLearner, Episodes], float]:
    """How far the accumulated gradient is from central differences, relative to it, along three random directions."""

    def compare(learner: MetaLearner, episodes: Episodes, step: float = 1e-6) -> float:
        learner.zero_grad()
        learner.accumulate_gradient(episodes)
        parameters = list(learner.parameters())
        gradients = [value.grad.clone() for value in parameters if value.grad is not None]
        generator = generator_for(1, "directions")
        worst = 0.0
        for _ in range(3):
            directions = [torch.randn(value.shape, generator=generator, dtype=value.dtype) for value in parameters]
            losses = []
            for sign in (1.0, -1.0):
                _move(parameters, directions, sign * step)
                losses.append(float(learner.accumulate_gradient(episodes)))
                _move(parameters, directions, -sign * step)
            slope = (losses[0] - losses[1]) / (2 * step)
            known = sum(float((a * b).sum()) for a, b in zip(gradients, directions, strict=True))
            worst = max(worst, abs(slope - known) / abs(known))
        return worst

    return compare


@pytest.fixture
def slopes_of() -> Callable[[MetaLearner, Episodes], dict[str, tuple[float, float]]]:
    """For each parameter that has a gradient, along a random direction: its slope by the accumulated gradient, and by
    central differences. The learner is in double precision, the episodes are made so.
    """

    def find(learner: MetaLearner, episodes: Episodes, step: float = 1e-6) -> dict[str, tuple[float, float]]:
        episodes = replace(episodes, support=_to_double(episodes.support), query=_to_double(episodes.query))
        learner.accumulate_gradient(episodes)
        slopes = {}
        for name, parameter in learner.named_parameters():
            if parameter.grad is None or not bool((parameter.grad != 0).any()):
                continue
            direction = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1), dtype=parameter.dtype)
            losses = []
            for moved_by in (step, -step):
                moved = copy.deepcopy(learner)
                _move([moved.get_parameter(name)], [direction], moved_by)
                losses.append(float(moved.accumulate_gradient(episodes)))
            slopes[name] = float((parameter.grad * direction).sum()), (losses[0] - losses[1]) / (2 * step)
        return slopes

    return find


def _to_double(examples: Examples) -> Examples:
    return Examples(examples.inputs.double(), examples.labels.double(), examples.weights.double())


def _move(parameters: list[torch.nn.Parameter], directions: list[Tensor], step: float) -> None:
    with torch.no_grad():
        for value, direction in zip(parameters, directions, strict=True):
            value += step * direction
