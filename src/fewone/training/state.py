"""Everything that changes during a training, so that keeping it is keeping the run."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from fewone.learners import MetaLearner
from fewone.training.settings import Cost, TrainingSettings, Validation

# What each optimizer keeps for a parameter, beside its weights.
SLOTS: dict[type[torch.optim.Optimizer], tuple[str, ...]] = {
    torch.optim.Adam: ("step", "exp_avg", "exp_avg_sq"),
    torch.optim.AdamW: ("step", "exp_avg", "exp_avg_sq"),
    torch.optim.SGD: ("momentum_buffer",),
}


def make_optimizer(learner: MetaLearner, settings: TrainingSettings) -> torch.optim.Optimizer:
    """The outer optimizer over all parameters of the learner."""
    parameters, rate, decay = list(learner.parameters()), settings.outer_rate, settings.weight_decay
    if settings.optimizer == "adam":
        return torch.optim.Adam(parameters, lr=rate, weight_decay=decay)
    if settings.optimizer == "adamw":
        return torch.optim.AdamW(parameters, lr=rate, weight_decay=decay)
    return torch.optim.SGD(parameters, lr=rate, momentum=0.9, nesterov=True, weight_decay=decay)


@dataclass
class TrainingState:
    """After `iteration` iterations: the learner, its optimizer, the best weights so far and the validation history."""

    learner: MetaLearner
    optimizer: torch.optim.Optimizer
    iteration: int = 0
    history: list[Validation] = field(default_factory=list)
    best: dict[str, Tensor] = field(default_factory=dict)
    spent: Cost = field(default_factory=lambda: Cost(0.0, 0.0))
    _started: Cost = field(default_factory=lambda: Cost(time.monotonic(), time.process_time()))

    @property
    def cost(self) -> Cost:
        """Time and CPU time of the run so far, earlier sittings included."""
        return Cost(
            round(self.spent.seconds + time.monotonic() - self._started.seconds, 3),
            round(self.spent.cpu_seconds + time.process_time() - self._started.cpu_seconds, 3),
        )

    @property
    def best_validation(self) -> Validation | None:
        """The earliest of the lowest losses."""
        return min(self.history, key=lambda validation: validation.loss, default=None)

    def add(self, loss: float, accuracy: float) -> Validation:
        """Note a validation; if no earlier one was as good, the present weights become the best."""
        best = self.best_validation
        validation = Validation(self.iteration, loss, accuracy, self.cost.cpu_seconds)
        self.history.append(validation)
        if best is None or loss < best.loss:
            self.best = {name: tensor.detach().clone() for name, tensor in self.learner.state_dict().items()}
        return validation

    def ending(self, settings: TrainingSettings) -> str:
        """Why the run is over; empty while it is not."""
        if self.iteration >= settings.iterations:
            return f"all {settings.iterations} iterations are done"
        if settings.minutes is not None and self.cost.cpu_seconds >= 60 * settings.minutes:
            return f"its {settings.minutes:g} CPU minutes are spent"
        best = self.best_validation
        if settings.patience is not None and best is not None:
            since = sum(validation.iteration > best.iteration for validation in self.history)
            if since >= settings.patience:
                return f"{since} validations brought no better one than iteration {best.iteration}"
        return ""

    def tensors(self) -> dict[str, Tensor]:
        """All tensors under one roof: learner.*, best.*, optimizer.NUMBER.*."""
        found = {f"learner.{name}": tensor for name, tensor in self.learner.state_dict().items()}
        found |= {f"best.{name}": tensor for name, tensor in self.best.items()}
        for number, values in self.optimizer.state_dict()["state"].items():
            for name, value in values.items():
                if isinstance(value, Tensor):
                    found[f"optimizer.{number}.{name}"] = value
        return found

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """The inverse of `tensors`."""
        self.learner.load_state_dict(_below("learner.", tensors))
        self.best = _below("best.", tensors)
        slots: dict[int, dict[str, Tensor]] = {}
        for name, tensor in _below("optimizer.", tensors).items():
            number, _, key = name.partition(".")
            slots.setdefault(int(number), {})[key] = tensor
        groups: Any = self.optimizer.state_dict()["param_groups"]
        self.optimizer.load_state_dict({"state": slots, "param_groups": groups})


def _below(prefix: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def outer_rate(settings: TrainingSettings, iteration: int) -> float:
    """The outer rate of an iteration, numbered from 0."""
    if settings.schedule == "constant":
        return settings.outer_rate
    return settings.outer_rate * 0.5 * (1.0 + math.cos(math.pi * iteration / settings.iterations))
