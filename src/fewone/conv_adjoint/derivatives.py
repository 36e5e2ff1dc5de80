"""Gradient and Hessian-vector product of the conv classifier's cross-entropy, written out without autograd.

Tasks lead everywhere and each has parameters of its own, packed into a row: (T, P). Inputs are channels last,
(T, n, h, w, c); a series is an image of height 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fewone.conv_adjoint.convolution import Convolution, choose_convolution
from fewone.conv_adjoint.layers import Convolved, Layer, Pieces, Pooled, Rectified
from fewone.conv_adjoint.norm import Moments, Normed
from fewone.conv_adjoint.packing import PackedTensor, ParameterPacking
from fewone.networks.conv import ConvBlock, ConvEmbedding
from fewone.networks.embedding import Classifier
from fewone.networks.norms import Statistics, SupportNorm

LARGEST_MAP = 2**21
"""Values that the largest feature map of a chunk of inputs may have: beyond it memory has to be fetched anew."""


@dataclass(frozen=True)
class PreparedInputs:
    """Inputs in the form that the first convolution takes; size (T, n, h, w)."""

    values: Tensor
    size: tuple[int, ...]


class BodyTape:
    """One forward pass through the blocks: the layers, each with the number of its parameters, and their outputs."""

    def __init__(self, layers: Sequence[tuple[Layer, int]]) -> None:
        self.layers = tuple(layers)
        self.outputs = self.layers[-1][0].outputs

    @property
    def norms(self) -> list[Normed]:
        return [layer for layer, _ in self.layers if isinstance(layer, Normed)]

    @property
    def statistics(self) -> Statistics:
        """Mean and variance of each norm, (T, channels) each."""
        return tuple(value for norm in self.norms for value in norm.statistics)

    def add_statistics_grad_of(self, other: BodyTape) -> None:
        """Add the gradient that another tape, normed by these statistics, has by them."""
        for norm, queried in zip(self.norms, other.norms, strict=True):
            if queried.statistics_grad is not None:
                norm.add_statistics_grad(*queried.statistics_grad)

    def backward(self, outputs: Tensor) -> Pieces:
        """Gradient of the outputs (T, n, h, w, c) -> of the parameters."""
        gradient: Tensor | None = outputs
        pieces: Pieces = []
        for layer, _ in reversed(self.layers):
            assert gradient is not None
            gradient, found = layer.vjp(gradient)
            pieces = found + pieces
        return pieces

    def jvp(self, direction: Pieces) -> Tensor:
        """Tangent of the outputs along tangents of the parameters."""
        rest, moved = list(direction), None
        for layer, number in self.layers:
            moved = layer.jvp(moved, rest[:number])
            rest = rest[number:]
        assert moved is not None
        return moved

    def vjp_tangent(self, outputs: Tensor) -> Pieces:
        """Tangent of `backward`, its argument moving by `outputs`, after `jvp`."""
        gradient: Tensor | None = outputs
        pieces: Pieces = []
        for layer, _ in reversed(self.layers):
            assert gradient is not None
            gradient, found = layer.vjp_tangent(gradient)
            pieces = found + pieces
        return pieces


class Tape:
    """One forward pass through blocks and head: features (T, n, width) and logits (T, n)."""

    def __init__(self, body: BodyTape, weight: Tensor, bias: Tensor) -> None:
        """The head's weight (T, ..., channels) and bias (T, 1)."""
        self.body, self.weight = body, weight.flatten(1)
        self.features = body.outputs.flatten(2)
        self.logits = torch.baddbmm(bias.unsqueeze(2), self.features, self.weight.unsqueeze(2)).squeeze(2)

    def backward(self, logits: Tensor) -> Tensor:
        """Gradient of the logits (T, n) -> of the parameters (T, P)."""
        self.gradient = logits
        features = logits.unsqueeze(2) * self.weight.unsqueeze(1)
        pieces = self.body.backward(features.view(self.body.outputs.shape))
        return join([*pieces, _weigh(logits, self.features), logits.sum(1, keepdim=True)])

    def move(self, direction: Pieces, curvature: Tensor) -> Tensor:
        """Directional derivative (T, P) of `backward`; curvature (T, n): of the loss, by the logits."""
        *rest, weight, bias = direction
        weight = weight.flatten(1)
        features = self.body.jvp(rest).flatten(2)
        logits = torch.baddbmm(bias.unsqueeze(2), self.features, weight.unsqueeze(2))
        logits = torch.baddbmm(logits, features, self.weight.unsqueeze(2)).squeeze(2).mul_(curvature)
        head = [_weigh(logits, self.features) + _weigh(self.gradient, features), logits.sum(1, keepdim=True)]
        moved = logits.unsqueeze(2) * self.weight.unsqueeze(1)
        moved.addcmul_(self.gradient.unsqueeze(2), weight.unsqueeze(1))
        return join([*self.body.vjp_tangent(moved.view(self.body.outputs.shape)), *head])


def join(pieces: Pieces) -> Tensor:
    """One tensor (T, ...) per parameter -> rows (T, P)."""
    return torch.cat([piece.flatten(1) for piece in pieces], dim=1)


def _weigh(weights: Tensor, features: Tensor) -> Tensor:
    """Sum of features (T, n, width) weighted by (T, n) -> (T, width)."""
    return torch.bmm(weights.unsqueeze(1), features).squeeze(1)


class ConvDerivatives:
    """The chain of a conv classifier, ready to be run for any number of tasks. Keeps no parameters."""

    def __init__(self, classifier: Classifier) -> None:
        embedding = classifier.embedding
        assert isinstance(embedding, ConvEmbedding)
        self.blocks = [_Block.of(block) for block in embedding.blocks if isinstance(block, ConvBlock)]
        self.packing = ParameterPacking(_describe(classifier))
        self.has_norms = any(block.norm_place is not None for block in self.blocks)

    @staticmethod
    def can_differentiate(classifier: Classifier) -> bool:
        """Whether this very network is written out here; subclasses and other options are not."""
        embedding = classifier.embedding
        if type(classifier) is not Classifier or type(embedding) is not ConvEmbedding:
            return False
        if type(classifier.head) is not nn.Linear:
            return False
        blocks = [block for block in embedding.blocks if isinstance(block, ConvBlock)]
        return embedding.pooling == "flatten" and all(
            block.weight.shape[2] % 2 == 1 and (block.norm is None or type(block.norm) is SupportNorm)
            for block in blocks
        )

    def largest_map(self, inputs: Tensor) -> int:
        """How many values the largest feature map of inputs (T, n, c, *space) has."""
        size = inputs.numel() // inputs.shape[2]
        shrink: int = 2 ** (inputs.dim() - 3)
        sizes: list[int] = [size * block.filters // shrink**number for number, block in enumerate(self.blocks)]
        return max(sizes)

    def chunks(self, inputs: Tensor) -> list[slice]:
        """Inputs (T, n, ...) cut along n, so that no feature map grows beyond LARGEST_MAP."""
        count = inputs.shape[1]
        pieces = min(count, -(-self.largest_map(inputs) // LARGEST_MAP))
        size = -(-count // pieces)
        return [slice(start, start + size) for start in range(0, count, size)]

    def prepare(self, inputs: Tensor) -> PreparedInputs:
        """Inputs (T, n, c, *space), channels first, once for all tapes over them."""
        if inputs.dim() == 4:
            inputs = inputs.unsqueeze(3)
        values = inputs.permute(0, 1, 3, 4, 2).contiguous()
        size = tuple(values.shape[:4])
        return PreparedInputs(self.blocks[0].convolution(size).prepare(values), size)

    def run(self, rows: Tensor, inputs: PreparedInputs, given: Statistics | None = None) -> Tape:
        """Forward with parameters (T, P); given: statistics of another batch."""
        *pieces, weight, bias = self.packing.split(rows)
        return Tape(self.run_body(pieces, inputs, given), weight, bias)

    def run_body(self, pieces: Pieces, inputs: PreparedInputs, given: Statistics | None = None) -> BodyTape:
        """Forward through the blocks, with one tensor for each of their parameters."""
        layers: list[tuple[Layer, int]] = []
        prepared, size = inputs.values, inputs.size
        for number, block in enumerate(self.blocks):
            if number:
                size = tuple(layers[-1][0].outputs.shape[:4])
                prepared = block.convolution(size).prepare(layers[-1][0].outputs)
            convolution = block.convolution(size)
            statistics = (given[2 * number], given[2 * number + 1]) if given else None
            block.append_layers(
                layers, Convolved(convolution, prepared, size, pieces[0], number == 0), pieces, statistics
            )
            pieces = pieces[block.parameters :]
        return BodyTape(layers)


@dataclass(frozen=True)
class _Block:
    """The sizes of one block, and how its layers follow each other."""

    channels: int
    filters: int
    kernel: tuple[int, int]
    norm_place: str | None
    epsilon: float
    halving: str

    @staticmethod
    def of(block: ConvBlock) -> _Block:
        filters, channels, *kernel = block.weight.shape
        norm = block.norm if isinstance(block.norm, SupportNorm) else None
        return _Block(
            channels,
            filters,
            (kernel[0], kernel[1]) if len(kernel) == 2 else (1, kernel[0]),
            None if norm is None else block.norm_place,
            0.0 if norm is None else norm.epsilon,
            block.halving,
        )

    @property
    def parameters(self) -> int:
        return {None: 2, "before-relu": 3, "last": 4}[self.norm_place]

    def convolution(self, size: tuple[int, ...]) -> Convolution:
        return choose_convolution(self.channels, self.filters, self.kernel, size)

    def append_layers(
        self, layers: list[tuple[Layer, int]], convolved: Convolved, pieces: Pieces, given: Moments | None
    ) -> None:
        """The layers of this block, each with the number of its parameters."""
        layers.append((convolved, 1))
        if self.norm_place == "before-relu":
            normed = Normed(convolved.outputs, pieces[1], pieces[2], self.epsilon, pool=self.halving, given=given)
            layers.extend([(normed, 2), (Rectified(normed.outputs, []), 0)])
            return
        pooled = Pooled(convolved.outputs, self.halving == "ceil")
        rectified = Rectified(pooled.outputs, [pieces[1]])
        layers.extend([(pooled, 0), (rectified, 1)])
        if self.norm_place == "last":
            # The norm works in place, the ReLU's outputs are still needed.
            values = rectified.outputs.clone()
            layers.append((Normed(values, pieces[2], pieces[3], self.epsilon, pool=None, given=given), 2))


def _describe(classifier: Classifier) -> list[PackedTensor]:
    """Every parameter of the classifier: convolutions and the head become channels last."""
    described = []
    filters = 0
    for name, value in classifier.named_parameters():
        shape = tuple(value.shape)
        if name == "head.weight":
            described.append(PackedTensor(name, shape, (filters, shape[1] // filters), (1, 0)))
        elif value.dim() == 3:
            described.append(PackedTensor(name, shape, (shape[0], shape[1], 1, shape[2]), (0, 2, 3, 1)))
        elif value.dim() == 4:
            described.append(PackedTensor(name, shape, shape, (0, 2, 3, 1)))
        else:
            described.append(PackedTensor(name, shape, shape, (0,)))
        if value.dim() >= 3:
            filters = shape[0]
    return described


def logit_gradient(logits: Tensor, labels: Tensor, weights: Tensor) -> Tensor:
    """Derivative of the weighted cross-entropy by the logits, free of cancellation: labels are 0 or 1."""
    sign = 1 - 2 * labels
    return torch.sigmoid(logits * sign).mul_(sign).mul_(weights)


def logit_curvature(logits: Tensor, weights: Tensor) -> Tensor:
    """Second derivative of the weighted cross-entropy by the logits."""
    return torch.sigmoid(logits).mul_(torch.sigmoid(-logits)).mul_(weights)
