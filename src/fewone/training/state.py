"""Everything that changes during a training, so that keeping it is keeping the run."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from safetensors.torch import load as read_tensors
from safetensors.torch import save as write_tensors
from torch import Tensor

from fewone.documents import from_plain, to_plain
from fewone.learners import MetaLearner
from fewone.training.settings import Cost, Select, TrainingSettings, Validation
from fewone.workers import Exchange

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


def find_best(history: Sequence[Validation], select: Select) -> Validation | None:
    """The validation whose weights are kept: the earliest of the best, or the last; None where there is none.

    >>> history = [Validation(100, 0.4, 0.8, 1.0, 0.9), Validation(200, 0.5, 0.9, 2.0, 0.9)]
    >>> [find_best(history, select).iteration for select in ("loss", "accuracy", "auroc", "last")]
    [100, 200, 100, 200]
    """
    if select == "last":
        return history[-1] if history else None

    def measure(validation: Validation) -> float:
        if select == "loss":
            return validation.loss
        return -validation.accuracy if select == "accuracy" else -(validation.auroc or 0.0)

    return min(history, key=measure, default=None)


@dataclass
class TrainingState:
    """After `iteration` iterations: the learner, its optimizer, the best weights so far and the validation history."""

    learner: MetaLearner
    optimizer: torch.optim.Optimizer
    iteration: int = 0
    history: list[Validation] = field(default_factory=list)
    best: dict[str, Tensor] = field(default_factory=dict)
    spent: Cost = field(default_factory=lambda: Cost(0.0, 0.0))
    select: Select = "loss"
    _started: Cost = field(default_factory=lambda: Cost(time.monotonic(), time.process_time()))
    _measured: Cost | None = None

    @property
    def cost(self) -> Cost:
        """Time and CPU time of the run so far, earlier sittings and all workers included."""
        if self._measured is not None:
            return self._measured
        return Cost(
            round(self.spent.seconds + time.monotonic() - self._started.seconds, 3),
            round(self.spent.cpu_seconds + time.process_time() - self._started.cpu_seconds, 3),
        )

    def measure(self, exchange: Exchange) -> None:
        """With other workers: the cost of all of them, one number for all, so that all decide alike when to end."""
        if exchange.size == 1:
            return
        self._measured = None
        own = self.cost
        cpu_seconds = exchange.total(own.cpu_seconds - self.spent.cpu_seconds) + self.spent.cpu_seconds
        seconds = exchange.total(own.seconds if exchange.rank == 0 else 0.0)
        self._measured = Cost(round(seconds, 3), round(cpu_seconds, 3))

    def synchronise(self, exchange: Exchange) -> None:
        """Every worker takes over the first one's state: it alone has the folder."""
        if exchange.size == 1:
            return
        facts = {"iteration": self.iteration, "history": to_plain(self.history), "spent": to_plain(self.spent)}
        found = json.loads(exchange.from_first(json.dumps(facts).encode()))
        tensors = {name: tensor.detach().contiguous() for name, tensor in self.tensors().items()}
        packed = exchange.from_first(write_tensors(tensors) if exchange.rank == 0 else b"")
        if exchange.rank > 0:
            self.restore(read_tensors(packed))
            self.iteration, self.spent = found["iteration"], from_plain(Cost, found["spent"])
            self.history = [from_plain(Validation, one) for one in found["history"]]
        self.measure(exchange)

    @property
    def best_validation(self) -> Validation | None:
        """The one whose weights are kept."""
        return find_best(self.history, self.select)

    def add(self, loss: float, accuracy: float, auroc: float) -> Validation:
        """Note a validation; if no earlier one was as good, the present weights become the best."""
        validation = Validation(self.iteration, loss, accuracy, self.cost.cpu_seconds, auroc)
        self.history.append(validation)
        if self.best_validation is validation:
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
