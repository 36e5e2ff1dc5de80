"""A learner and a user's support -> one module: values in, anomaly logits out. The detector scores with it, the export
writes it. Enters: values (n, *shape) as the user has them. Leaves: logits (n,), above 0 = anomalous.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fewone.calibration import Adapting, Calibrated, CalibratedScorer, LeavingOneOut
from fewone.episodes import NORMAL, Examples, InputScaling, Moments
from fewone.errors import FewoneError
from fewone.learners import DataFacts, MetaLearner, PldaSettings, Scorer
from fewone.learners.evidence import Locating
from fewone.learners.meta_learner import PARAMETER_SCALE
from fewone.learners.plda import build_plda
from fewone.networks import NetworkSettings

TABLE_WITHIN = 0.05
"""The share of a table's variance that is taken to be within what is normal."""

FOLD_VALUES = 1 << 24
"""Leave-one-out adapts to many supports at once, of about this many values in all."""


@dataclass(frozen=True)
class Support:
    """What a detector was fitted on: values (K, *shape) as given, labels (K,) 0 normal and 1 known anomaly."""

    values: Tensor
    labels: Tensor

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def normals(self) -> Tensor:
        return self.values[self.labels == NORMAL]

    def joined(self, more: Support) -> Support:
        return Support(torch.cat([self.values, more.values]), torch.cat([self.labels, more.labels]))


class Adapted(nn.Module):
    """InputScaling, standardisation by the normals of the support, and the adapted scorer, in one module."""

    mean: Tensor
    deviation: Tensor

    def __init__(self, scorer: Scorer, preparation: InputScaling, moments: Moments | None) -> None:
        """Moments shaped (1, channels, 1, ...)."""
        super().__init__()
        self.scorer = scorer
        self.preparation = preparation
        self.standardizes = moments is not None
        if moments is not None:
            self.register_buffer("mean", moments.mean)
            self.register_buffer("deviation", moments.deviation)

    def forward(self, values: Tensor) -> Tensor:
        """values (n, *shape) -> logits (n,)."""
        logits: Tensor = self.scorer(self.prepare(values).unsqueeze(0)).squeeze(0)
        return logits

    @property
    def locates(self) -> bool:
        """Whether the scorer itself knows where."""
        return isinstance(self.scorer.scorer if isinstance(self.scorer, CalibratedScorer) else self.scorer, Locating)

    def locate(self, values: Tensor) -> Tensor:
        """values (n, *shape) of a scorer that knows where -> maps (n, *space), the higher, the stranger the place."""
        scorer = self.scorer.scorer if isinstance(self.scorer, CalibratedScorer) else self.scorer
        if not isinstance(scorer, Locating):
            raise FewoneError(f"{type(scorer).__name__} does not know where an anomaly is; use another learner")
        return scorer.locate(self.prepare(values).unsqueeze(0)).squeeze(0)

    def prepare(self, values: Tensor) -> Tensor:
        """Values as given -> inputs of the scorer, (n, *shape)."""
        inputs = self.preparation(values)
        return Moments(self.mean, self.deviation).apply(inputs) if self.standardizes else inputs


@torch.no_grad()
def adapt_to(learner: Adapting, preparation: InputScaling, support: Support) -> Adapted:
    """The learner adapted to one support."""
    inputs, moments = preparation(support.values), None
    if preparation.standardize:
        moments = Moments.of(preparation(support.normals), space=inputs.dim() - 2)
        inputs = moments.apply(inputs)
    examples = Examples.of(inputs.unsqueeze(0), support.labels.to(inputs.dtype).unsqueeze(0))
    return Adapted(learner.adapt(examples), preparation, moments).eval()


class AdaptedTogether(Adapted):
    """The same for S aligned segments, each a task of its own: one module with the learner's weights once.

    Moments shaped (S, 1, channels, 1, ...).
    """

    def forward(self, values: Tensor) -> Tensor:
        """values (n, S, *shape) -> logits (n, S)."""
        logits: Tensor = self.scorer(self.prepare(values.transpose(0, 1))).transpose(0, 1)
        return logits


@torch.no_grad()
def adapt_together(learner: Adapting, preparation: InputScaling, normals: Tensor) -> AdaptedTogether:
    """The learner adapted to the normals of S segments, (S, K, *shape)."""
    inputs, moments = preparation(normals), None
    if preparation.standardize:
        moments = Moments.of(inputs, space=inputs.dim() - 3)
        inputs = moments.apply(inputs)
    examples = Examples.of(inputs, inputs.new_full(inputs.shape[:2], NORMAL))
    return AdaptedTogether(learner.adapt(examples), preparation, moments).eval()


@torch.no_grad()
def leave_one_out(learner: Adapting, preparation: InputScaling, support: Support) -> Tensor:
    """The logit of each normal when all the others are the support, (K,); K = 1 has no others: empty."""
    normal = (support.labels == NORMAL).nonzero().flatten()
    if len(normal) < 2:
        return support.values.new_zeros(0)
    if not preparation.standardize:
        labels = support.labels.to(support.values.dtype)
        examples = Examples.of(preparation(support.values).unsqueeze(0), labels.unsqueeze(0))
        short = _leave_out_at_once(learner, examples, normal)
        if short is not None:
            return short
    folds = max(1, FOLD_VALUES // support.values.numel())
    return torch.cat([_judge_folds(learner, preparation, support, left) for left in torch.split(normal, folds)])


def _leave_out_at_once(learner: Adapting, examples: Examples, left: Tensor) -> Tensor | None:
    """The same in one go where the learner has a way to; None where it has none."""
    if isinstance(learner, Calibrated):
        point = learner.calibration.at(len(left) - 1)
        logits = None if point.support_weight else _leave_out_at_once(learner.learner, examples, left)
        return None if logits is None else point.slope * (logits - point.threshold)
    return learner.leave_one_out(examples, left) if isinstance(learner, LeavingOneOut) else None


def _judge_folds(learner: Adapting, preparation: InputScaling, support: Support, left: Tensor) -> Tensor:
    """The logits of the examples left (F,), each a task of its own whose support are all other examples."""
    everything = torch.arange(len(support))
    rest = torch.stack([everything[everything != position] for position in left])
    inputs = preparation(support.values)
    supports, queries = inputs[rest], inputs[left].unsqueeze(1)
    if preparation.standardize:
        # As for a new example: what is left out has no part in the moments, and known anomalies never have.
        folds = [
            Moments.of(fold[marks == NORMAL], fold.dim() - 2)
            for fold, marks in zip(supports, support.labels[rest], strict=True)
        ]
        moments = Moments(torch.stack([m.mean for m in folds]), torch.stack([m.deviation for m in folds]))
        supports, queries = moments.apply(supports), moments.apply(queries)
    scorer = learner.adapt(Examples.of(supports, support.labels[rest].to(inputs.dtype)))
    logits: Tensor = scorer(queries).squeeze(1)
    return logits


def plain_learner(width: int) -> MetaLearner:
    """The learner for tables of any width that needs no training: the Bayesian head on the columns themselves."""
    facts = DataFacts((width,))
    learner = build_plda(PldaSettings(dimensions=0), NetworkSettings(architecture="identity"), facts).double()
    state = learner.state_dict()
    state["within_logit"] = torch.full_like(state["within_logit"], TABLE_WITHIN).logit() / PARAMETER_SCALE
    # Columns arrive in units of the normals' deviation; the head wants a total variance of 1, of which they are a part.
    state["last_norm.running_variance"] = torch.full_like(state["last_norm.running_variance"], 1.0 / TABLE_WITHIN)
    state["log_scale"] = torch.zeros_like(state["log_scale"])
    learner.load_state_dict(state)
    return learner.eval()
