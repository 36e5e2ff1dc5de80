"""The layer of a support norm, alone or with the max pool that follows it.

With a pool only the selected values go on and gradients come back for them alone. A norm keeps the order of values
(a falling channel is turned over first), so the pool can go first and all but the statistics is done on the selected.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fewone.conv_adjoint.layers import Layer, Pieces, max_pool

Moments = tuple[Tensor, Tensor]
"""Mean and biased variance, or the gradient of a loss by them: (T, c) each."""


class Normed(Layer):
    """values (T, n, h, w, c), overwritten; gamma, beta (T, c). given: the statistics to use instead of the values' own.

    pool: a max pool follows, which drops the last place of an odd size ("floor") or keeps it ("ceil").

    statistics: those used. statistics_grad: where they were given, `vjp` leaves the gradient by them here; the layer
    whose they are adds it (`add_statistics_grad`) before its own `vjp`. jvp and vjp_tangent are for own statistics.
    """

    def __init__(
        self, values: Tensor, gamma: Tensor, beta: Tensor, epsilon: float, pool: str | None, given: Moments | None
    ) -> None:
        self.inside = values.shape
        falling = gamma < 0
        self.sign = torch.ones_like(gamma).masked_fill_(falling, -1.0).unsqueeze(1) if falling.any() else None
        self.scale = gamma.abs().unsqueeze(1)
        dense = self._turn(values.flatten(1, 3))
        self.centred = dense if given is None else None
        mean, variance = _centre(dense) if given is None else (given[0].unsqueeze(1), given[1].unsqueeze(1))
        self.statistics = given if given is not None else (self._turned(mean).squeeze(1), variance.squeeze(1))
        selected: Tensor = values
        self.index: Tensor | None = None
        if pool is not None:
            selected, self.index = max_pool(values, pool == "ceil")
        self.outside = selected.shape
        normed = selected.flatten(1, 3)
        self.inverse = torch.rsqrt(variance + epsilon)
        self.normed = (normed if given is None else normed - self._turned(mean)) * self.inverse
        self.outputs = torch.addcmul(beta.unsqueeze(1), self.normed, self.scale).view(self.outside)
        self.added_statistics_grad: Moments | None = None
        self.statistics_grad: Moments | None = None

    def add_statistics_grad(self, mean: Tensor, variance: Tensor) -> None:
        """Add the gradient (T, c) that another batch, normed by these statistics, has by them."""
        mean, variance = self._turned(mean.unsqueeze(1)), variance.unsqueeze(1)
        before = self.added_statistics_grad
        self.added_statistics_grad = (mean, variance) if before is None else (before[0] + mean, before[1] + variance)

    def vjp(self, gradient: Tensor) -> tuple[Tensor | None, Pieces]:
        self.gradient = gradient.reshape(self.normed.shape)
        self.shift_sum = _total(self.gradient)
        self.scale_sum = _total(self.gradient * self.normed)
        factor = self.scale * self.inverse
        direct = self.gradient * factor
        pieces = self._pieces(self.scale_sum, self.shift_sum)
        if self.centred is None:
            mean, variance = -factor * self.shift_sum, -0.5 * factor * self.inverse * self.scale_sum
            self.statistics_grad = self._turned(mean).squeeze(1), variance.squeeze(1)
            return self._finish(None, direct), pieces
        constant, linear = -factor * self.shift_sum, -factor * self.inverse * self.scale_sum
        if self.added_statistics_grad is not None:
            constant, linear = constant + self.added_statistics_grad[0], linear + 2 * self.added_statistics_grad[1]
        count = self.centred.shape[1]
        return self._finish(torch.addcmul(constant / count, self.centred, linear / count), direct), pieces

    def jvp(self, inputs: Tensor | None, direction: Pieces) -> Tensor:
        assert inputs is not None and self.centred is not None
        gamma, beta = direction
        self.moved = self._turn(inputs.flatten(1, 3))
        self.moved_scale = self._turned(gamma.unsqueeze(1))
        self.mean = self.moved.mean(1, keepdim=True)
        self.correlation = (self.centred * self.moved).mean(1, keepdim=True) * self.inverse
        selected = self.moved
        if self.index is not None:
            selected = self.moved.view(-1).index_select(0, self.index).view(self.normed.shape)
        normed = torch.addcmul(selected - self.mean, self.normed, self.correlation, value=-1)
        self.moved_normed = normed.mul_(self.inverse)
        outputs = torch.addcmul(beta.unsqueeze(1), self.normed, self.moved_scale)
        return outputs.addcmul_(self.moved_normed, self.scale).view(self.outside)

    def vjp_tangent(self, gradient: Tensor) -> tuple[Tensor | None, Pieces]:
        assert self.centred is not None
        count, inverse = self.centred.shape[1], self.inverse
        moved = gradient.reshape(self.normed.shape)
        shift = _total(moved)
        scale = _total((moved * self.normed).addcmul_(self.gradient, self.moved_normed))
        factor = self.scale * inverse
        moved_factor = self.moved_scale * inverse - factor * inverse * self.correlation
        direct = (self.gradient * moved_factor).addcmul_(moved, factor)
        # The statistics' part of the gradient is an affine map of the centred values; this is how that map moves.
        along = -factor * inverse * self.scale_sum / count
        constant = -(moved_factor * self.shift_sum + factor * shift) / count - along * self.mean
        linear = -(moved_factor * self.scale_sum + factor * scale) * inverse / count
        linear = linear - along * inverse * self.correlation
        values = self.moved.mul_(along).addcmul_(self.centred, linear).add_(constant)
        return self._finish(values, direct), self._pieces(scale, shift)

    def _turn(self, values: Tensor) -> Tensor:
        """Falling channels turned over, in place."""
        return values if self.sign is None else values.mul_(self.sign)

    def _turned(self, moments: Tensor) -> Tensor:
        return moments if self.sign is None else moments * self.sign

    def _finish(self, values: Tensor | None, selected: Tensor) -> Tensor:
        """Gradient of all values, of which the selected have more."""
        if self.index is None:
            values = selected if values is None else values.add_(selected)
        elif values is None:
            values = selected.new_zeros(self.inside).flatten(1, 3)
            values.view(-1).scatter_(0, self.index, selected.view(-1))
        else:
            values.view(-1).index_add_(0, self.index, selected.view(-1))
        return self._turn(values).view(self.inside)

    def _pieces(self, scale: Tensor, shift: Tensor) -> Pieces:
        return [self._turned(scale).squeeze(1), shift.squeeze(1)]


def _centre(values: Tensor) -> Moments:
    """Take the mean out of the values (T, N, c), in place -> their statistics, (T, 1, c) each."""
    mean = values.mean(1, keepdim=True)
    values.sub_(mean)
    return mean, (values * values).mean(1, keepdim=True)


def _total(values: Tensor) -> Tensor:
    """(T, N, c) -> (T, 1, c)."""
    return values.sum(1, keepdim=True)
