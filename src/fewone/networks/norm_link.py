"""The link of a support norm, alone or with the max pool that follows it.

With a pool only the selected values go on and gradients come back for them alone. A norm keeps the order of values
(a falling channel is turned over first), so the pool can go first and all but the statistics is done on the selected.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fewone.networks.chain_links import Link, Pieces, max_pool

Moments = tuple[Tensor, Tensor]
"""Mean and biased variance, or the gradient of a loss by them: (T, 1, c) each."""


class Normed(Link):
    """values (T, n, h, w, c), eaten; gamma, beta (T, c). given: the statistics to use instead of the values' own.

    wanted: the gradient that other batches, normed by these statistics, have by them; collected before `backward`.
    granted, set by `backward` where statistics were given: that gradient, to be handed to the statistics' owner.
    push and pull are for the values' own statistics.
    """

    def __init__(
        self, values: Tensor, gamma: Tensor, beta: Tensor, epsilon: float, pool: bool, given: Moments | None
    ) -> None:
        self.inside = values.shape
        falling = gamma < 0
        self.sign = torch.where(falling, -1.0, 1.0).to(gamma.dtype).unsqueeze(1) if falling.any() else None
        self.scale = gamma.abs().unsqueeze(1)
        dense = self._turn(values.flatten(1, 3))
        self.statistics = given if given is not None else _centre(dense)
        self.centred = dense if given is None else None
        selected: Tensor = values
        self.index: Tensor | None = None
        if pool:
            selected, self.index = max_pool(values)
        self.outside = selected.shape
        normed = selected.flatten(1, 3)
        mean, variance = self.statistics
        self.inverse = torch.rsqrt(variance + epsilon)
        self.normed = (normed if given is None else normed - mean) * self.inverse
        self.outputs = torch.addcmul(beta.unsqueeze(1), self.normed, self.scale).view(self.outside)
        self.wanted: Moments | None = None
        self.granted: Moments | None = None

    def want(self, moments: Moments | None) -> None:
        """Add to what other batches want of these statistics."""
        if moments is not None:
            mean, variance = self.wanted if self.wanted is not None else (0.0, 0.0)
            self.wanted = moments[0] + mean, moments[1] + variance

    def true_statistics(self) -> Moments:
        """Mean and variance (T, c) of the values as they came, a falling channel turned back."""
        mean, variance = self.statistics
        return (mean if self.sign is None else mean * self.sign).squeeze(1), variance.squeeze(1)

    def backward(self, gradient: Tensor) -> tuple[Tensor | None, Pieces]:
        self.gradient = gradient.reshape(self.normed.shape)
        self.shift_sum = _total(self.gradient)
        self.scale_sum = _total(self.gradient * self.normed)
        factor = self.scale * self.inverse
        direct = self.gradient * factor
        pieces = self._pieces(self.scale_sum, self.shift_sum)
        if self.centred is None:
            self.granted = -factor * self.shift_sum, -0.5 * factor * self.inverse * self.scale_sum
            return self._finish(None, direct), pieces
        constant, linear = -factor * self.shift_sum, -factor * self.inverse * self.scale_sum
        if self.wanted is not None:
            constant, linear = constant + self.wanted[0], linear + 2 * self.wanted[1]
        count = self.centred.shape[1]
        return self._finish(torch.addcmul(constant / count, self.centred, linear / count), direct), pieces

    def push(self, inputs: Tensor | None, direction: Pieces) -> Tensor:
        assert inputs is not None and self.centred is not None
        gamma, beta = direction
        self.moved = self._turn(inputs.flatten(1, 3))
        self.moved_scale = gamma.unsqueeze(1) if self.sign is None else gamma.unsqueeze(1) * self.sign
        self.mean = self.moved.mean(1, keepdim=True)
        self.correlation = (self.centred * self.moved).mean(1, keepdim=True) * self.inverse
        selected = self.moved
        if self.index is not None:
            selected = self.moved.view(-1).index_select(0, self.index).view(self.normed.shape)
        normed = torch.addcmul(selected - self.mean, self.normed, self.correlation, value=-1)
        self.moved_normed = normed.mul_(self.inverse)
        outputs = torch.addcmul(beta.unsqueeze(1), self.normed, self.moved_scale)
        return outputs.addcmul_(self.moved_normed, self.scale).view(self.outside)

    def pull(self, gradient: Tensor) -> tuple[Tensor | None, Pieces]:
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
        return values if self.sign is None else values.mul_(self.sign)

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
        gamma = scale if self.sign is None else scale * self.sign
        return [gamma.squeeze(1), shift.squeeze(1)]


def _centre(values: Tensor) -> Moments:
    """Take the mean out of the values (T, N, c), in place -> their statistics."""
    mean = values.mean(1, keepdim=True)
    values.sub_(mean)
    return mean, (values * values).mean(1, keepdim=True)


def _total(values: Tensor) -> Tensor:
    """(T, N, c) -> (T, 1, c)."""
    return values.sum(1, keepdim=True)
