"""MetaOptNet (Lee et al. 2019): an embedding learned through the support vector machine that is fitted on it.

Which machine is read off the support's labels: one class gives the one-class dual (Schölkopf et al. 2001), two give
the binary dual. With signs s = +1 for anomalous and -1 for normal, and kernel matrix G = k(x_i, x_j) + ridge * I:

    one class:   minimise 1/2 a'Ga                    subject to  sum(a) = 1,  0 <= a_i <= 1 / (nu K)
    two classes: minimise 1/2 (s*a)'G(s*a) - sum(a)   subject to  s'a = 0,     0 <= a_i <= penalty

Both score a query by scale * (sum_i s_i a_i k(x_i, query) + bias). For a one-class support of normals that is
scale * (rho - w'x), rho = bias. The ridge is the usual one of a machine with squared slacks. Training takes nu as it is
set; for evaluation it is chosen on validation tasks, as the paper does.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fewone.documents import AboveZero, Limit, NotNegative
from fewone.episodes import ANOMALOUS, ClassBatch, Episodes, Examples
from fewone.errors import FewoneError
from fewone.learners.algorithm import DataFacts, LearnerSettings
from fewone.learners.meta_learner import Scorer, query_loss, snapshot
from fewone.learners.quadratic_program import QuadraticProgram, Solution, solve
from fewone.learners.task_embedding import FeatureLearner, TaskEmbedding, as_task_embedding
from fewone.networks import NetworkSettings, Statistics, build_embedding

KernelKind = Literal["linear", "cosine", "rbf"]
NUS = (0.1, 0.2, 0.3, 0.5, 0.7, 0.9)


@dataclass(frozen=True)
class MetaOptNetSettings(LearnerSettings):
    """nu: in training; for evaluation it is chosen on validation tasks. ridge: added to the kernel's diagonal.

    kernel: between embeddings, linear or of radial basis functions.
    penalty: the upper bound of a weight where the support has two classes (nu rules with one).

    >>> MetaOptNetSettings(kernel="rbf").nu
    0.1
    """

    nu: Annotated[float, Limit(lambda value: 0 < value <= 1, "a number above 0 and at most 1")] = 0.1
    kernel: KernelKind = "linear"
    ridge: NotNegative = 1.0
    penalty: AboveZero = 0.1


class OutlierShare(nn.Module):
    """The one-class machine's nu, to be chosen on validation tasks: a buffer, so that it is saved with the learner."""

    nu: Tensor
    options = NUS
    episodes = 60

    def __init__(self, nu: float) -> None:
        super().__init__()
        self.register_buffer("nu", torch.tensor(nu, dtype=torch.float64))

    def choose(self, option: float) -> None:
        """Settle on one of the options."""
        self.nu.fill_(option)


class MetaOptNet(FeatureLearner):
    """MetaOptNet (Lee et al. 2019): an embedding, a support vector machine per task, a learned scale of what it says.

    Parameters
    ----------
    module
        Any torch module, inputs (n, *shape) -> features (n, d). Its batch norm and dropout, if any, work as usual in
        meta-training and are fixed in evaluation.
    kernel
        Of the machine; "rbf" learns its rate.
    nu
        The one-class machine's bound on the share of outliers.
    penalty
        The binary machine's box, where the support has two classes.
    ridge
        Added to the kernel's diagonal.
    features
        How many the module gives, where it cannot be read off its last layer.

    References
    ----------
    Lee, Maji, Ravichandran, Soatto: Meta-learning with differentiable convex optimization, CVPR 2019.

    Examples
    --------
    >>> import torch
    >>> from fewone.learners import MetaOptNet
    >>> from fewone.episodes import Examples
    >>> learner = MetaOptNet(torch.nn.Linear(3, 8), nu=0.2)
    >>> learner.adapt(Examples.normals(torch.zeros(1, 5, 3)))(torch.ones(1, 4, 3)).shape
    torch.Size([1, 4])
    """

    def __init__(
        self,
        module: nn.Module,
        *,
        kernel: KernelKind = "linear",
        nu: float = 0.1,
        penalty: float = 0.1,
        ridge: float = 1.0,
        features: int | None = None,
    ) -> None:
        super().__init__(as_task_embedding(module, features, centred=False))
        self.kernel, self.machine = Kernel(kernel), Machine(nu, penalty, ridge)
        # Inner products grow with the width; a scale of 1 starts wide networks on saturated logits.
        scale = {"linear": self.embedding.width**-0.5, "cosine": 10.0, "rbf": 1.0}[kernel]
        self.share = OutlierShare(nu)
        self.log_scale = nn.Parameter(torch.tensor(scale).log())
        self.note(kernel=kernel, penalty=penalty, ridge=ridge)

    @property
    def hyperparameter(self) -> OutlierShare:
        return self.share

    @torch.no_grad()
    def adapt(self, support: Examples) -> MetaOptNetScorer:
        features, statistics = self.embedding.embed_support(support.inputs)
        fitted = replace(self.machine, nu=float(self.share.nu)).fit(self.kernel(features, features), support.labels)
        scale = self.log_scale.exp()
        return MetaOptNetScorer(self.embedding, statistics, self.kernel, features, fitted, scale)

    @torch.no_grad()
    def after_embedding(self) -> MetaOptNet:
        """The learner for examples that are embedded already."""
        after = MetaOptNet(self.embedding.passing())
        after.kernel, after.machine = self.kernel, replace(self.machine, nu=float(self.share.nu))
        after.share.choose(float(self.share.nu))
        after.log_scale.copy_(self.log_scale)
        return after

    def accumulate_gradient(self, batch: Episodes | ClassBatch) -> Tensor:
        batch = self.expect_episodes(batch)
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
        self.embedding, self.kernel = snapshot(embedding), snapshot(kernel)
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

    linear: the inner product. cosine: that of features of length 1, so that the machine sees directions and not how
    large a feature is. rbf: exp(-rate * mean squared difference), the rate learned from 1 on.
    """

    def __init__(self, kind: KernelKind) -> None:
        super().__init__()
        self.unit_length = kind == "cosine"
        self.log_rate = nn.Parameter(torch.tensor(0.0)) if kind == "rbf" else None

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        left, right = left.to(torch.float64), right.to(torch.float64)
        if self.unit_length:
            left, right = F.normalize(left, dim=-1), F.normalize(right, dim=-1)
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


def build_metaoptnet(settings: MetaOptNetSettings, network: NetworkSettings, facts: DataFacts) -> MetaOptNet:
    """The learner `metaoptnet`; it reads nu, kernel, ridge and penalty."""
    return MetaOptNet(
        build_embedding(network, facts.shape),
        kernel=settings.kernel,
        nu=settings.nu,
        penalty=settings.penalty,
        ridge=settings.ridge,
    )
