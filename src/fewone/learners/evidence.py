"""The library's learner for data it was not trained on: many kinds of evidence, each relative to the support's own.

For one kind of evidence, with d its squared distance (fewone.learners.evidence_kinds; of kinds `own-...` each feature
in units of how those normals vary in it that judge), normals x_1 ... x_K, a query q:

v(q) = 0.5 log(min_k d(q, x_k) + floor)                 how far the nearest normal is
v_i  = the same of each normal, scored by the others        what that number is among normals
m    = (n mean(v_i) + a m0) / (n + a) - b log(K / (K - 1))        n = K / 2: neighbours are shared
s^2  = (c s0^2 + sum_i (v_i - m)^2 / 2) / (c + n - 1)
t(q) = (v(q) - m) / (s sqrt(1 + 1 / (n + a)))
e(q) = -log P(Student's t with c + n - 1 degrees of freedom > t(q))

and over all kinds      logit = sum_k w_k e_k + u log(mean_k exp e_k) - threshold - further / K.

Whatever moves a query away from the normals can only raise e, and all weights are positive: the farther, the more
anomalous, whatever was trained. Learned over tasks are the priors m0, s0, a, b, c (the likelihood of normals), the
weights w and u and the threshold (the loss on queries), all of which know neither level nor unit of anybody's data.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fewone.episodes import NORMAL, ClassBatch, Episodes, Examples
from fewone.errors import FewoneError
from fewone.learners.algorithm import DataFacts, LearnerSettings
from fewone.learners.evidence_kinds import KINDS, VIEWS, EvidenceKind, Features
from fewone.learners.meta_learner import PARAMETER_SCALE, MetaLearner, Scorer, query_loss, snapshot
from fewone.networks import NetworkSettings

FAR = 1e30
"""A squared distance beyond which nothing is told apart, and that to what is not a normal of the support."""
SHARED = 0.5
"""K nearest distances among K normals are worth so many times K independent ones: near ones have each other."""
UNEQUAL = 0.05
"""What it costs, in nats, when the log of a weight is 1 away from that of the others: near-equal weights transfer."""
PULL = 1.0
"""What one task of history must gain, in nats, to move a number by 1 from where a given start has it."""
TASKS_OF_START = 10.0
"""For so many tasks counts the calibration of a start beside that of a history."""
SERIES = (
    *("raw", "shape", "shifted", "phase", "slope", "elastic", "elastic-slope", "pieces"),
    *("power", "spectrum", "level", "statistics", "texture", "texture-128", "texture-slope", "movement"),
)
"""The kinds for series where the settings name none."""
PICTURES = ("patches", "fine-patches", "coarse-patches", "in-place", "whole", "object", "glance", "surface")
"""The kinds for pictures where the settings name none."""


@dataclass(frozen=True)
class Observed:
    """What is seen of T tasks: values (T, n, kinds) of queries, own (T, K, kinds) of the normals, each by the others.

    normal (T, K): 1 for the normals of the support, 0 for the rest, which count for nothing.
    """

    values: Tensor
    own: Tensor
    normal: Tensor


@dataclass(frozen=True)
class Prediction:
    """What the next normal is expected to show, (T, 1, kinds) each: Student's t around a centre."""

    centre: Tensor
    scale: Tensor
    freedom: Tensor

    def standardize(self, values: Tensor) -> Tensor:
        return (values - self.centre) / self.scale

    def log_density(self, values: Tensor) -> Tensor:
        half = 0.5 * (self.freedom + 1.0)
        constant = torch.lgamma(half) - torch.lgamma(0.5 * self.freedom) - 0.5 * (math.pi * self.freedom).log()
        return constant - self.scale.log() - half * (self.standardize(values).square() / self.freedom).log1p()


def find_nearest(squares: Tensor, allowed: Tensor) -> Tensor:
    """Squared distances (T, n, K, parts) to the nearest normal that is allowed, (T, n, parts)."""
    counted = torch.where(allowed.unsqueeze(-1) > 0, torch.nan_to_num(squares, FAR, FAR), FAR)
    return counted.amin(2).clamp_max(FAR)


def measure_kinds(kinds: Sequence[EvidenceKind], distances: Sequence[Tensor], allowed: Tensor) -> Tensor:
    """v (T, n, kinds): squared distances (T, n, K, parts) of each kind -> the log distances to the nearest.

    Kinds of a single part go through it together: for a single query the number of operations is the time.
    """
    single = [squares.shape[-1] == 1 for squares in distances]
    together = [squares for squares, one in zip(distances, single, strict=True) if one]
    alone = find_nearest(torch.cat(together, -1), allowed) if together else None
    if alone is None or not all(single):
        columns = iter(() if alone is None else alone.unbind(-1))
        found = [
            next(columns) if one else kind.reduce(find_nearest(squares, allowed))
            for kind, squares, one in zip(kinds, distances, single, strict=True)
        ]
        alone = torch.stack(found, -1)
    return 0.5 * (alone + alone.new_tensor([kind.floor for kind in kinds])).log()


def leave_out(normal: Tensor) -> Tensor:
    """normal (T, K) -> who may judge whom, (T, K, K): every normal but oneself."""
    size = normal.shape[1]
    return normal.unsqueeze(1) * (1.0 - torch.eye(size, dtype=normal.dtype, device=normal.device))


def _square(kind: EvidenceKind, queries: dict[str, Features], normals: dict[str, Features], allowed: Tensor) -> Tensor:
    return kind.square(queries[kind.view], normals[kind.view], allowed)


def log_tail(t: Tensor, freedom: Tensor) -> Tensor:
    """log P(Student's t > t): Wallace's normal deviate of t, then the tail of the normal distribution.

    Never rises with t, finite for every finite t.
    """
    deviate = (8.0 * freedom + 1.0) / (8.0 * freedom + 3.0) * (freedom * (t.square() / freedom).log1p()).sqrt()
    deviate = torch.where(t < 0, -deviate, deviate)
    if torch.is_grad_enabled() or torch.compiler.is_compiling():
        return log_normal_tail(deviate)
    found: Tensor = torch.special.log_ndtr(-deviate)
    return found


def log_normal_tail(deviate: Tensor) -> Tensor:
    """log P(a normal deviate > this one), by elementary functions, which every runtime has."""
    near = (0.5 - 0.5 * torch.erf(deviate.clamp_max(2.0) * math.sqrt(0.5))).log()
    far = deviate.clamp_min(2.0)
    fraction = far
    for term in range(24, 0, -1):
        fraction = far + term / fraction
    beyond = -0.5 * far.square() - 0.5 * math.log(2.0 * math.pi) - fraction.log()
    return torch.where(deviate < 2.0, near, beyond)


class Evidence(MetaLearner):
    """Views of the inputs, kinds of evidence, and what tasks taught of them.

    Parameters
    ----------
    kinds
        Names of KINDS, or what was registered there; none: those for series.

    Examples
    --------
    >>> import torch
    >>> from fewone.learners import Evidence
    >>> from fewone.episodes import Examples
    >>> support = Examples.normals(torch.randn(1, 5, 1, 32))
    >>> Evidence(("raw", "level")).adapt(support)(torch.randn(1, 4, 1, 32)).shape
    torch.Size([1, 4])
    """

    every_k = True

    def __init__(self, kinds: tuple[str, ...] = SERIES) -> None:
        super().__init__()
        unknown = [name for name in kinds if name not in KINDS]
        if unknown:
            raise FewoneError(f"no kind of evidence is called {unknown[0]!r}; there are {', '.join(KINDS)}")
        self.note(kinds=kinds)
        self.names = kinds
        self.kinds: tuple[EvidenceKind, ...] = tuple(KINDS[name] for name in kinds)
        self.views = nn.ModuleDict({name: VIEWS[name]() for name in dict.fromkeys(kind.view for kind in self.kinds)})
        count = len(kinds)
        # All numbers, from here on, in tenths.
        self.prior_centre = nn.Parameter(torch.full((count,), -0.7 / PARAMETER_SCALE))
        self.prior_log_scale = nn.Parameter(torch.full((count,), -1.2 / PARAMETER_SCALE))
        self.log_centre_strength = nn.Parameter(torch.full((count,), -2.0 / PARAMETER_SCALE))
        self.log_freedom = nn.Parameter(torch.full((count,), 1.0 / PARAMETER_SCALE))
        self.crowding = nn.Parameter(torch.full((count,), 0.1 / PARAMETER_SCALE))
        self.log_weight = nn.Parameter(torch.full((count,), math.log(1.0 / count) / PARAMETER_SCALE))
        self.log_peak = nn.Parameter(torch.tensor(-1.0 / PARAMETER_SCALE))
        # Divided before it is a tensor: where weights are only given their shapes, a division loads torch's compiler.
        self.threshold = nn.Parameter(torch.tensor([2.0 / PARAMETER_SCALE, 0.0]))
        self._start: dict[str, Tensor] = {}
        self._pull = 0.0

    def start_from(self, other: Evidence, tasks: int) -> None:
        """Begin where another learner of the same kinds ended, and be drawn back there: the less, the more tasks."""
        if other.names != self.names:
            raise FewoneError(
                f"a start with the evidence {', '.join(other.names)} cannot begin a learner with"
                f" {', '.join(self.names)}; leave learning.evidence to the start"
            )
        self.load_state_dict(other.state_dict())
        self._start = {name: value.detach().clone() for name, value in other.named_parameters()}
        self._pull = PULL / max(1, tasks)

    def look(self, inputs: Tensor) -> dict[str, Features]:
        """inputs (T, n, *shape) -> what each view sees, (T, n, ...) each."""
        flat = inputs.flatten(0, 1)
        return {
            name: tuple(torch.unflatten(feature, 0, inputs.shape[:2]) for feature in view(flat))
            for name, view in self.views.items()
        }

    def compare(
        self, queries: dict[str, Features], normals: dict[str, Features], allowed: Tensor | None = None
    ) -> list[Tensor]:
        """Squared distances (T, n, K, parts) of each kind; without `allowed` (T, n or 1, K) all normals are."""
        if allowed is None:
            first = next(iter(normals.values()))[0]
            allowed = first.new_ones(first.shape[0], 1, first.shape[1])
        return [_square(kind, queries, normals, allowed) for kind in self.kinds]

    def measure(self, distances: list[Tensor], allowed: Tensor) -> Tensor:
        """v (T, n, kinds): the log distance to the nearest normal that is allowed, (T, n or 1, K) 0 or 1."""
        return measure_kinds(self.kinds, distances, allowed)

    def measure_support(self, distances: list[Tensor], normal: Tensor) -> Tensor:
        """v_i (T, K, kinds) of a support's own distances: each normal by the other normals."""
        return self.measure(distances, leave_out(normal))

    def measure_normals(self, normals: dict[str, Features], normal: Tensor) -> Tensor:
        """v_i (T, K, kinds) of what the views see of a support, normal (T, K)."""
        return self.measure_support(self.compare(normals, normals, leave_out(normal)), normal)

    def observe(self, support: Examples, queries: Tensor) -> Observed:
        """Supports (T, K, ...) and queries (T, n, *shape): all that scoring needs, and nothing that is learned."""
        normals = self.look(support.inputs)
        normal = (support.labels == NORMAL).to(support.inputs.dtype)
        allowed = normal.unsqueeze(1)
        values = self.measure(self.compare(self.look(queries), normals, allowed), allowed)
        return Observed(values, self.measure_normals(normals, normal), normal)

    def predict(self, own: Tensor, normal: Tensor) -> Prediction:
        """What a support's own values (T, K, kinds) say of the next normal's, together with what other tasks said."""
        counted = normal.unsqueeze(-1)
        size = counted.sum(1, keepdim=True)
        enough = size > 1.0  # a single normal has no others: the prior alone speaks
        number = torch.where(enough, SHARED * size, torch.zeros_like(size))
        own = torch.where((counted > 0) & enough, own, torch.zeros_like(own))
        strength = (PARAMETER_SCALE * self.log_centre_strength).exp()
        mean = own.sum(1, keepdim=True) / size.clamp_min(1.0)
        centre = (number * mean + strength * PARAMETER_SCALE * self.prior_centre) / (number + strength)
        squares = SHARED * ((own - mean).square() * counted).sum(1, keepdim=True)
        before = (PARAMETER_SCALE * self.log_freedom).exp()
        freedom = before + (number - 1.0).clamp_min(0.0)
        spread = (before * (2.0 * PARAMETER_SCALE * self.prior_log_scale).exp() + squares) / freedom
        nearer = torch.where(enough, (size / (size - 1.0).clamp_min(1.0)).log(), torch.zeros_like(size))
        scale = (spread * (1.0 + 1.0 / (number + strength))).sqrt()
        return Prediction(centre - PARAMETER_SCALE * self.crowding * nearer, scale, freedom)

    def weigh(self, surprises: Tensor, size: Tensor) -> Tensor:
        """e (T, n, kinds) of supports of so many normals, (T, 1) -> logits (T, n)."""
        weights = (PARAMETER_SCALE * self.log_weight).exp()
        peak = torch.logsumexp(surprises, -1) - math.log(surprises.shape[-1])
        threshold = PARAMETER_SCALE * (self.threshold[0] + self.threshold[1] / size.clamp_min(1.0))
        return (surprises * weights).sum(-1) + (PARAMETER_SCALE * self.log_peak).exp() * peak - threshold

    def score(self, observed: Observed) -> Tensor:
        """Logits (T, n) of what was observed."""
        prediction = self.predict(observed.own, observed.normal)
        surprises = -log_tail(prediction.standardize(observed.values), prediction.freedom)
        return self.weigh(surprises, observed.normal.sum(-1, keepdim=True))

    def adapt(self, support: Examples) -> EvidenceScorer:
        """Known anomalies among the support are left out: they are no normals, and this learner has no use for them."""
        normal = (support.labels == NORMAL).to(support.inputs.dtype)
        return EvidenceScorer(self, self.look(support.inputs), normal)

    def leave_one_out(self, support: Examples, left: Tensor) -> Tensor:
        """Logits (F,) of the normals `left` (F,) of one support (1, K, ...), each scored by the rest; compared once."""
        normals = self.look(support.inputs)
        normal = (support.labels == NORMAL).to(support.inputs.dtype).repeat(len(left), 1)
        kept = normal.scatter(1, left.unsqueeze(-1), 0.0)
        own, values = [], []
        for kind in self.kinds:
            among, judged = self._leave_one_out(kind, normals, kept, left)
            own.append(measure_kinds([kind], [among], leave_out(kept)))
            values.append(measure_kinds([kind], [judged], kept.unsqueeze(1)))
        return self.score(Observed(torch.cat(values, -1), torch.cat(own, -1), kept)).squeeze(1)

    def _leave_one_out(
        self, kind: EvidenceKind, normals: dict[str, Features], kept: Tensor, left: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Squared distances among one support, (F, K, K, parts), and of the normals left to all, (F, 1, K, parts)."""
        if kind.in_units is None:
            among = _square(kind, normals, normals, kept[:1].unsqueeze(1))
            return among.expand(len(left), *among.shape[1:]), among[0, left].unsqueeze(1)
        many = {kind.view: tuple(one.expand(len(left), *one.shape[1:]) for one in normals[kind.view])}
        chosen = {kind.view: tuple(one[0, left].unsqueeze(1) for one in normals[kind.view])}
        return _square(kind, many, many, leave_out(kept)), _square(kind, chosen, many, kept.unsqueeze(1))

    def accumulate_gradient(self, batch: Episodes | ClassBatch) -> Tensor:
        if isinstance(batch, ClassBatch):
            raise FewoneError("evidence learns from episodes: set learning.batch to 'episodes'")
        with torch.no_grad():
            observed = self.observe(batch.support, batch.query.inputs)
        loss = self.find_loss(observed, batch.query)
        loss.backward()  # type: ignore[no-untyped-call]
        return loss.detach()

    def find_loss(self, observed: Observed, query: Examples) -> Tensor:
        """Of the logits, of what is predicted of normals, and of weights that differ.

        The priors learn from normals alone and the weights from logits alone: a prior that is bent to tell apart the
        anomalies of the training tasks does not transfer.
        """
        prediction = self.predict(observed.own, observed.normal)
        fixed = Prediction(prediction.centre.detach(), prediction.scale.detach(), prediction.freedom.detach())
        surprises = -log_tail(fixed.standardize(observed.values), fixed.freedom)
        logits = self.weigh(surprises, observed.normal.sum(-1, keepdim=True))
        normal = (query.labels == NORMAL).to(logits.dtype) * query.weights.to(logits.dtype)
        share = normal / normal.sum(-1, keepdim=True).clamp_min(torch.finfo(logits.dtype).tiny)
        surprise = -(prediction.log_density(observed.values) * share.unsqueeze(-1)).sum(1).mean()
        return query_loss(logits, query) + surprise + self.shrink()

    def shrink(self) -> Tensor:
        """What it costs to leave the start; without one, to have weights that differ."""
        if self._start:
            departures = [
                (PARAMETER_SCALE * (value - self._start[name])).square().sum()
                for name, value in self.named_parameters()
            ]
            return self._pull * torch.stack(departures).sum()
        logs = PARAMETER_SCALE * self.log_weight
        return UNEQUAL * (logs - logs.mean()).square().mean()


@runtime_checkable
class Locating(Protocol):
    """A scorer that knows where: inputs (T, n, *shape) -> maps (T, n, *space), in one pass."""

    def locate(self, inputs: Tensor) -> Tensor: ...


class EvidenceScorer(Scorer):
    """The support as the views see it, and what its own values predict of the next normal."""

    normal: Tensor
    centre: Tensor
    scale: Tensor
    freedom: Tensor

    def __init__(self, evidence: Evidence, normals: dict[str, Features], normal: Tensor) -> None:
        super().__init__()
        self.evidence = snapshot(evidence)
        own = evidence.measure_normals(normals, normal)
        prediction = evidence.predict(own, normal)
        self.sizes = {name: len(features) for name, features in normals.items()}
        for name, features in normals.items():
            for number, feature in enumerate(features):
                self.register_buffer(f"seen_{name}_{number}", feature)
        self.register_buffer("normal", normal)
        self.register_buffer("centre", prediction.centre.detach())
        self.register_buffer("scale", prediction.scale.detach())
        self.register_buffer("freedom", prediction.freedom.detach())

    def measure(self, inputs: Tensor) -> Tensor:
        """v (T, n, kinds) of queries (T, n, *shape)."""
        return self.evidence.measure(self._compare(inputs), self.normal.unsqueeze(1))

    def _compare(self, inputs: Tensor) -> list[Tensor]:
        seen = {
            name: tuple(self.get_buffer(f"seen_{name}_{number}") for number in range(size))
            for name, size in self.sizes.items()
        }
        return self.evidence.compare(self.evidence.look(inputs), seen, self.normal.unsqueeze(1))

    def locate(self, inputs: Tensor) -> Tensor:
        """Pictures (T, n, channels, height, width) -> how strange each place is, (T, n, height, width)."""
        distances = self._compare(inputs)
        maps = []
        for number, kind in enumerate(self.evidence.kinds):
            if kind.grid is None:
                continue
            values = 0.5 * (find_nearest(distances[number], self.normal.unsqueeze(1)) + kind.floor).log()
            departures = (values - self.centre[..., number : number + 1]) / self.scale[..., number : number + 1]
            surprises = -log_tail(departures, self.freedom[..., number : number + 1])
            weight = (PARAMETER_SCALE * self.evidence.log_weight[number]).exp()
            laid = torch.unflatten(surprises, -1, kind.grid)
            maps.append(weight * F.interpolate(laid, inputs.shape[-2:], mode="bilinear"))
        if not maps:
            raise FewoneError("none of these kinds of evidence knows where an anomaly is; choose kinds of pictures")
        return torch.stack(maps).sum(0)

    def forward(self, inputs: Tensor) -> Tensor:
        prediction = Prediction(self.centre, self.scale, self.freedom)
        surprises = -log_tail(prediction.standardize(self.measure(inputs)), self.freedom)
        return self.evidence.weigh(surprises, self.normal.sum(-1, keepdim=True))


@dataclass(frozen=True)
class EvidenceSettings(LearnerSettings):
    """evidence: the kinds of evidence by name (none: those of the start, or all that suit the inputs).

    start: the model that training begins with and is drawn back to, by its name in the zoo or its folder ("": none).

    >>> EvidenceSettings(evidence=("raw", "level"), start="series")
    EvidenceSettings(evidence=('raw', 'level'), start='series')
    """

    evidence: tuple[str, ...] = ()
    start: str = ""


def build_evidence(settings: EvidenceSettings, network: NetworkSettings, facts: DataFacts) -> MetaLearner:
    """The learner `evidence`: it reads no network; a shape of zeros takes inputs of every size."""
    if not settings.evidence and len(facts.shape) not in (2, 3):
        raise FewoneError(
            f"evidence is for series (channels, length) and pictures (channels, height, width), the input shape is"
            f" {facts.shape}"
        )
    kinds = settings.evidence or (SERIES if len(facts.shape) == 2 else PICTURES)
    return Evidence(kinds)
