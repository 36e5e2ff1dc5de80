"""Where the meta-gradient of a batch is computed. Drawing, validation, calibration, exchange and files stay with the
processor: what is small is not worth the way.

No GPU was there when this was written: on one it is untested.
"""

from __future__ import annotations

import copy
import os
from dataclasses import fields, replace
from typing import Any, Literal

import torch
from torch import Tensor

from fewone.episodes import ClassBatch, Episodes, Examples
from fewone.errors import FewoneError
from fewone.learners import MetaLearner
from fewone.training.batches import Batch

Device = Literal["cpu", "cuda"]

PROCESSOR = torch.device("cpu")

_chosen = PROCESSOR


def use_device(name: Device) -> None:
    """For this whole process. Of several workers on a machine each takes the GPU of its number, as torchrun counts."""
    global _chosen
    if name == "cuda" and not torch.cuda.is_available():
        raise FewoneError(
            f"--device cuda: torch {torch.__version__} finds no GPU here; take --device cpu, or install a torch that is"
            f" built for your GPU"
        )
    local = int(os.environ.get("LOCAL_RANK", os.environ.get("RANK", "0")))
    _chosen = torch.device("cuda", local % torch.cuda.device_count()) if name == "cuda" else PROCESSOR


def accumulate(learner: MetaLearner, batch: Batch) -> Tensor:
    """`learner.accumulate_gradient`, on the device in use."""
    return learner.accumulate_gradient(batch) if _chosen == PROCESSOR else accumulate_on(_chosen, learner, batch)


def accumulate_on(device: torch.device, learner: MetaLearner, batch: Batch) -> Tensor:
    """The same by a copy on a device, whose loss, gradients and buffers come back."""
    twin = copy.deepcopy(learner).to(device)
    loss = twin.accumulate_gradient(move(batch, device))
    with torch.no_grad():
        for own, other in zip(learner.parameters(), twin.parameters(), strict=True):
            own.grad = None if other.grad is None else other.grad.to(own.device)
        for buffer, changed in zip(learner.buffers(), twin.buffers(), strict=True):
            buffer.copy_(changed)
    return loss.to(PROCESSOR)


def move(values: Any, device: torch.device) -> Any:
    """The one way of a batch, and of all that is in it, to a device."""
    if isinstance(values, Tensor):
        return values.to(device)
    if isinstance(values, (ClassBatch, Episodes, Examples)):
        return replace(values, **{field.name: move(getattr(values, field.name), device) for field in fields(values)})
    return values
