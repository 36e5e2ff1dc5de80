"""How far each inner step goes: one fixed rate, a learned rate per tensor and step, or one per parameter."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from fewone.errors import FewoneError

StepRates = Mapping[str, Tensor]
"""The rate of one step for each adapted parameter, by name: a scalar, or a tensor of the parameter's shape."""


class InnerRates(nn.Module, ABC):
    """The rates of every inner step. A name that is missing is not adapted."""

    @abstractmethod
    def forward(self) -> tuple[StepRates, ...]:
        """One mapping per inner step, differentiable where the rates are learned."""


class FixedRates(InnerRates):
    """One rate for every named parameter in every step."""

    def __init__(self, names: Sequence[str], rate: float, steps: int) -> None:
        super().__init__()
        self.names, self.steps = tuple(names), steps
        # Not a buffer: a double-precision scalar leaves the precision of what it is multiplied with alone.
        self.rate = torch.tensor(rate, dtype=torch.float64)

    def forward(self) -> tuple[StepRates, ...]:
        return (dict.fromkeys(self.names, self.rate),) * self.steps


class TensorRates(InnerRates):
    """A learned rate for every named tensor in every step, never negative: rates (steps, names)."""

    def __init__(self, names: Sequence[str], rate: float, steps: int) -> None:
        super().__init__()
        self.names = tuple(names)
        self.rates = nn.Parameter(torch.full((steps, len(self.names)), rate))

    def forward(self) -> tuple[StepRates, ...]:
        clipped = clip(self.rates, 0.0, float("inf"))
        return tuple(dict(zip(self.names, step.unbind(), strict=True)) for step in clipped.unbind())


class ElementRates(InnerRates):
    """A learned rate for every single parameter, the same in every step, clipped to [0, 1]."""

    def __init__(self, parameters: Mapping[str, Tensor], rate: float, steps: int) -> None:
        super().__init__()
        self.names, self.steps = tuple(parameters), steps
        self.rates = nn.ParameterList(torch.full_like(value.detach(), rate) for value in parameters.values())

    def forward(self) -> tuple[StepRates, ...]:
        clipped = {name: clip(rate, 0.0, 1.0) for name, rate in zip(self.names, self.rates, strict=True)}
        return (clipped,) * self.steps


def choose_rates(
    parameters: Mapping[str, Tensor], rate: float, steps: int, learn: bool | Literal["elements"]
) -> InnerRates:
    """Fixed rates, learned ones per tensor and step, or learned ones per element."""
    check_rate(rate, steps)
    if learn == "elements":
        return ElementRates(parameters, rate, steps)
    return TensorRates(tuple(parameters), rate, steps) if learn else FixedRates(tuple(parameters), rate, steps)


def check_rate(rate: float, steps: int) -> None:
    """Refuse what no descent can be made with."""
    if rate < 0 or steps < 0:
        raise FewoneError(f"inner_rate is {rate} and inner_steps {steps}: numbers of at least 0 are needed")


def clip(rates: Tensor, low: float, high: float) -> Tensor:
    """Rates within [low, high]; outside of it the gradient survives where a step against it leads back inside.

    The gradient of a plain clamp is 0 outside, so a rate that left the interval once could never return.
    """
    clipped: Tensor = _Clip.apply(rates, low, high)  # type: ignore[no-untyped-call]
    return clipped


class _Clip(torch.autograd.Function):
    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, rates: Tensor, low: float, high: float) -> Tensor:
        ctx.save_for_backward(rates)
        ctx.low, ctx.high = low, high  # type: ignore[attr-defined]
        return rates.clamp(low, high)

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, *gradients: Tensor) -> tuple[Tensor, None, None]:
        (rates,) = ctx.saved_tensors  # type: ignore[attr-defined]
        (gradient,) = gradients
        leaves = ((rates < ctx.low) & (gradient > 0)) | ((rates > ctx.high) & (gradient < 0))  # type: ignore[attr-defined]
        return gradient.masked_fill(leaves, 0.0), None, None
