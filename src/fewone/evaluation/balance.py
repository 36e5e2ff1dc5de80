"""Queries in which each class counts alike, however many there are of it."""

from __future__ import annotations

from dataclasses import replace

import torch

from fewone.episodes import ANOMALOUS, NORMAL, Examples


def balance(query: Examples) -> Examples:
    """The same examples (T, n), weighted so that each class counts for half of its task (all, if it is alone)."""
    weights = torch.zeros_like(query.weights)
    for label in (NORMAL, ANOMALOUS):
        own = query.weights * (query.labels == label)
        weights = weights + own / own.sum(-1, keepdim=True).clamp_min(torch.finfo(own.dtype).tiny)
    return replace(query, weights=weights / weights.sum(-1, keepdim=True))
