"""MetaOptNet (Lee et al. 2019): an embedding learned through the support vector machine that is fitted on it.

Which machine is read off the support's labels: one class gives the one-class dual (Schölkopf et al. 2001), two give
the binary dual. With signs s = +1 for anomalous and -1 for normal, and kernel matrix G = k(x_i, x_j) + ridge * I:

    one class:   minimise 1/2 a'Ga                    subject to  sum(a) = 1,  0 <= a_i <= 1 / (nu K)
    two classes: minimise 1/2 (s*a)'G(s*a) - sum(a)   subject to  s'a = 0,     0 <= a_i <= penalty

Both score a query by scale * (sum_i s_i a_i k(x_i, query) + bias). For a one-class support of normals that is
scale * (rho - w'x), rho = bias. The ridge is the usual one of a machine with squared slacks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from fewone.episodes import ANOMALOUS, ClassBatch, Episodes, Examples
from fewone.errors import FewoneError
from fewone.learners.meta_learner import Scorer, query_loss
from fewone.learners.quadratic_program import QuadraticProgram, Solution, solve
from fewone.learners.settings import LearnerSettings
from fewone.learners.task_embedding import FeatureLearner, TaskEmbedding
from fewone.networks import NetworkSettings, Statistics, build_embedding


class MetaOptNet(FeatureLearner):
    """An embedding, a support vector machine per task, and a learned scale of its decision values (as a logarithm)."""

    def __init__(self, embedding: TaskEmbedding, kernel: Kernel, machine: Machine, scale: float = 1.0) -> None:
        super().__init__(embedding)
        self.kernel, self.machine = kernel, machine
        self.log_scale = nn.Parameter(torch.tensor(scale).log())

    @torch.no_grad()
    def adapt(self, support: Examples) -> MetaOptNetScorer:
        features, statistics = self.embedding.embed_support(support.inputs)
        fitted = self.machine.fit(self.kernel(features, features), support.labels)
        scale = self.log_scale.exp()
        return MetaOptNetScorer(self.embedding, statistics, self.kernel, features, fitted, scale)

    @torch.no_grad()
    def after_embedding(self) -> MetaOptNet:
        """The learner for examples that are embedded already."""
        return MetaOptNet(self.embedding.passing(), self.kernel, self.machine, float(self.log_scale.exp()))

    def accumulate_gradient(self, batch: Episodes | ClassBatch) -> Tensor:
        assert isinstance(batch, Episodes)
        support, query = self.embedding.embed_episodes(batch.support.inputs, batch.query.inputs)
        fitted = self.machine.fit(self.kernel(support, support), batch.support.labels)
        logits = self.log_scale.exp() * fitted.decide(self.kernel(query, support)).to(query.dtype)
        loss = query_loss(logits, batch.query)
        loss.backward()  # type: ignore[no-untyped-call]
        return loss.detach()


class MetaOptNetScorer(Scorer):
    """Scores by the support features (T, K, width), their signed weights (T, K) and the bias (T,)."""

    def __init__(
        self,
        embedding: TaskEmbedding,
        statistics: Statistics,
        kernel: Kernel,
        features: Tensor,
        fitted: FittedMachine,
        scale: Tensor,
    ) -> None:
        super().__init__()
        self.embedding, self.kernel = embedding, kernel
        self.statistics = nn.ParameterList([nn.Parameter(entry, requires_grad=False) for entry in statistics])
        self.features: Tensor
        self.coefficients: Tensor
        self.bias: Tensor
        self.scale: Tensor
        self.register_buffer("features", features)
        self.register_buffer("coefficients", fitted.coefficients)
        self.register_buffer("bias", fitted.bias)
        self.register_buffer("scale", scale)

    def forward(self, inputs: Tensor) -> Tensor:
        queries = self.embedding.embed_queries(inputs, tuple(self.statistics))
        fitted = FittedMachine(self.coefficients, self.bias)
        return self.scale * fitted.decide(self.kernel(queries, self.features)).to(queries.dtype)


class Kernel(nn.Module):
    """features (T, n, width), (T, m, width) -> similarities (T, n, m), float64.

    linear: the inner product. rbf: exp(-rate * mean squared difference), the rate learned from 1 on.
    """

    def __init__(self, kind: Literal["linear", "rbf"]) -> None:
        super().__init__()
        self.log_rate = nn.Parameter(torch.tensor(0.0)) if kind == "rbf" else None

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        left, right = left.to(torch.float64), right.to(torch.float64)
        products = left @ right.mT
        if self.log_rate is None:
            return products
        squares = left.square().sum(-1).unsqueeze(-1) + right.square().sum(-1).unsqueeze(-2)
        distances = (squares - 2 * products).clamp_min(0) / left.shape[-1]
        return torch.exp(-self.log_rate.to(torch.float64).exp() * distances)


@dataclass(frozen=True)
class FittedMachine:
    """Signed weights of the support (T, K) and the bias (T,), float64."""

    coefficients: Tensor
    bias: Tensor

    def decide(self, similarities: Tensor) -> Tensor:
        """similarities (T, n, K) of the queries to the support -> decision values (T, n), above 0 = anomalous."""
        return (similarities @ self.coefficients.unsqueeze(-1)).squeeze(-1) + self.bias.unsqueeze(-1)


@dataclass(frozen=True)
class Machine:
    """nu: the one-class machine's bound on the share of outliers. penalty: the binary machine's box. ridge: on both."""

    nu: float
    penalty: float
    ridge: float

    def __post_init__(self) -> None:
        if not 0 < self.nu <= 1:
            raise FewoneError(f"nu is {self.nu}: the share of outliers lies above 0 and at most at 1")
        if self.penalty <= 0 or self.ridge < 0:
            raise FewoneError(f"penalty is {self.penalty} and ridge {self.ridge}: above 0, and 0 or more, are needed")

    def fit(self, kernel: Tensor, labels: Tensor) -> FittedMachine:
        """kernel (T, K, K) of the supports, labels (T, K) -> a machine per task, differentiable in the kernel."""
        program, signs = self.pose(kernel, labels)
        solution = solve(program)
        return FittedMachine(signs * solution.x, find_bias(program, solution, signs))

    def pose(self, kernel: Tensor, labels: Tensor) -> tuple[QuadraticProgram, Tensor]:
        """The duals, and the signs (T, K); a batch may mix tasks with one and with two classes."""
        size = labels.shape[-1]
        signs = torch.where(labels == ANOMALOUS, 1.0, -1.0).to(kernel.dtype)
        one_class = (signs == signs[:, :1]).all(-1)
        wide = one_class.unsqueeze(-1)
        program = QuadraticProgram(
            quadratic=signs.unsqueeze(-1) * signs.unsqueeze(-2) * kernel
            + self.ridge * torch.eye(size, dtype=kernel.dtype, device=kernel.device),
            linear=torch.where(wide, 0.0, -1.0).to(kernel.dtype).expand_as(signs),
            equality=torch.where(wide, 1.0, signs),
            level=one_class.to(kernel.dtype),
            upper=torch.where(wide, 1.0 / (self.nu * size), self.penalty).to(kernel.dtype).expand_as(signs),
        )
        return program, signs


def find_bias(program: QuadraticProgram, solution: Solution, signs: Tensor) -> Tensor:
    """The bias (T,) that puts the margin vectors on the margin: its mean over them (rho, for one class).

    A margin vector's weight lies strictly inside its box; each of them asks for the same bias, up to rounding. Where
    there is none, the optimality conditions leave an interval of biases: its middle is taken, or its only end
    where it is one-sided (all weights at their upper bound: the support's most typical member is on the margin).
    """
    asked = -signs * program.gradient(solution.x)
    margin = solution.free
    mean = (asked * margin).sum(-1) / margin.sum(-1).clamp_min(1)
    at_upper = solution.x > 0.5 * program.upper
    from_below = at_upper == (signs < 0)
    least = torch.where(from_below, asked, -torch.inf).amax(-1)
    most = torch.where(from_below, torch.inf, asked).amin(-1)
    least, most = torch.where(least.isinf(), most, least), torch.where(most.isinf(), least, most)
    return torch.where(margin.any(-1), mean, 0.5 * (least + most))


def build_metaoptnet(settings: LearnerSettings, network: NetworkSettings, shape: tuple[int, ...]) -> MetaOptNet:
    """The learner `metaoptnet`; it reads nu, kernel, ridge and penalty."""
    embedding = TaskEmbedding(build_embedding(network, shape), centred=False)
    machine = Machine(settings.nu, settings.penalty, settings.ridge)
    # Inner products grow with the width; a scale of 1 starts wide networks on saturated logits.
    scale = embedding.width**-0.5 if settings.kernel == "linear" else 1.0
    return MetaOptNet(embedding, Kernel(settings.kernel), machine, scale)
