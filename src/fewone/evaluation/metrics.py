"""Logits and labels -> one number of each kind per episode, for all episodes at once, ties included."""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch
import torch.nn.functional as F
from torch import Tensor

from fewone.episodes import ANOMALOUS, NORMAL


@dataclass(frozen=True)
class Metrics:
    """What each of T episodes scored, (T,) float64 each. Anomalous is the positive class, the threshold is logit 0.

    accuracy is balanced (mean of both classes' hit rates); false_alarms: share of normals called anomalous;
    misses: share of anomalies called normal; loss: cross-entropy, mean over the queries.
    """

    accuracy: Tensor
    auroc: Tensor
    pr_auc: Tensor
    f1: Tensor
    false_alarms: Tensor
    misses: Tensor
    loss: Tensor


METRICS: tuple[str, ...] = tuple(field.name for field in fields(Metrics))


def measure(logits: Tensor, labels: Tensor, weights: Tensor) -> Metrics:
    """All metrics of logits, labels and weights (T, n); a query of weight 0 is padding and counts nowhere."""
    counted = weights > 0
    logits = logits.to(torch.float64)
    if bool(torch.isnan(logits[counted]).any()):
        raise ValueError("a score is not a number")
    logits = torch.where(counted, logits, torch.zeros_like(logits))
    anomalous = (counted & (labels == ANOMALOUS)).to(torch.float64)
    normal = (counted & (labels == NORMAL)).to(torch.float64)
    anomalies, normals = anomalous.sum(-1), normal.sum(-1)
    if bool((anomalies == 0).any() or (normals == 0).any()):
        raise ValueError("an episode needs normal and anomalous queries to be evaluated")
    called = (logits > 0).to(torch.float64)
    hits, alarms = (anomalous * called).sum(-1), (normal * called).sum(-1)
    misses, false_alarms = 1 - hits / anomalies, alarms / normals
    auroc, pr_auc = _integrate_curves(logits, normal, anomalous)
    losses = F.binary_cross_entropy_with_logits(logits, labels.to(torch.float64), reduction="none")
    return Metrics(
        accuracy=1 - (misses + false_alarms) / 2,
        auroc=auroc,
        pr_auc=pr_auc,
        f1=2 * hits / (hits + alarms + anomalies),
        false_alarms=false_alarms,
        misses=misses,
        loss=(losses * counted).sum(-1) / counted.sum(-1),
    )


def _integrate_curves(scores: Tensor, normal: Tensor, anomalous: Tensor) -> tuple[Tensor, Tensor]:
    """Area under the ROC curve and average precision of scores (T, n); equal scores form one step of the curves."""
    order = scores.argsort(dim=-1, descending=True)
    ordered = scores.gather(-1, order)
    hits = anomalous.gather(-1, order).cumsum(-1)
    alarms = normal.gather(-1, order).cumsum(-1)
    ends = torch.ones_like(ordered, dtype=torch.bool)
    ends[:, :-1] = ordered[:, :-1] != ordered[:, 1:]
    hits_before, alarms_before = _at_previous_end(hits, ends), _at_previous_end(alarms, ends)
    trapezia = (alarms - alarms_before) * (hits + hits_before) / 2 * ends
    # The first examples may all be padding: no alarm and no hit yet, so precision is 0 / 0 there and counts nothing.
    precision = hits / (hits + alarms).clamp(min=1)
    steps = (hits - hits_before) * precision * ends
    return trapezia.sum(-1) / (hits[:, -1] * alarms[:, -1]), steps.sum(-1) / hits[:, -1]


def _at_previous_end(counts: Tensor, ends: Tensor) -> Tensor:
    """The growing counts (T, n) as they stood at the end of the tie group before each position's own."""
    reached = torch.where(ends, counts, torch.zeros_like(counts)).cummax(-1).values
    return F.pad(reached[:, :-1], (1, 0))
