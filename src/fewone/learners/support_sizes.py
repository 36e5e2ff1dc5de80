"""Which K the tasks of a training batch adapt with, for learners that serve every K with one model."""

from __future__ import annotations

import torch
from torch import Tensor


def spread_sizes(count: int, largest: int) -> Tensor:
    """`count` support sizes spread evenly over 1..largest, (count,) int64: the tasks of a batch train every K."""
    return torch.linspace(largest, 1, count).round().to(torch.int64)
