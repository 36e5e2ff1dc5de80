"""f(x; p) of a conv embedding as one autograd function, its vector-Jacobian product (df/dp)^T v written out: once
differentiable, which is all that ANIL's outer gradient needs of it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from fewone.conv_adjoint.derivatives import ConvDerivatives
from fewone.networks.embedding import Classifier
from fewone.networks.norms import Statistics


def embed_tasks(
    classifier: Classifier, network: ConvDerivatives, inputs: Tensor, statistics: Statistics | None
) -> tuple[Tensor, Statistics]:
    """Features (T, n, width) of inputs (T, n, *shape), and statistics (T, channels) each: given, or each task's own."""
    parameters = dict(classifier.named_parameters())
    weights = [parameters[tensor.name] for tensor in network.packing.body]
    given = () if statistics is None else statistics
    features, *found = _Features.apply(network, inputs, len(given), *given, *weights)  # type: ignore[no-untyped-call]
    return features, given if given else tuple(found)


class _Features(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, network: ConvDerivatives, inputs: Tensor, number: int, *rest: Tensor) -> tuple[Tensor, ...]:
        given, weights = rest[:number], rest[number:]
        ctx.network, ctx.given, ctx.shape = network, number, inputs.shape
        if not network.has_norms:
            # Without statistics of their own the tasks are one batch.
            inputs = inputs.flatten(0, 1).unsqueeze(0)
        pieces = [
            tensor.fold(weight).contiguous().expand(len(inputs), *tensor.packed_shape)
            for tensor, weight in zip(network.packing.body, weights, strict=True)
        ]
        alone = bool(given) or not network.has_norms
        ctx.cuts = network.chunks(inputs) if alone else [slice(None)]
        ctx.tapes = [network.run_body(pieces, network.prepare(inputs[:, cut]), given or None) for cut in ctx.cuts]
        outputs = torch.cat([tape.outputs for tape in ctx.tapes], dim=1)
        ctx.outputs = outputs.shape
        features = outputs.permute(0, 1, 4, 2, 3).reshape(*ctx.shape[:2], -1)
        return features, *(() if given else ctx.tapes[0].statistics)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, features: Tensor, *statistics: Tensor) -> tuple[Tensor | None, ...]:
        tasks, count, height, width, channels = ctx.outputs
        outputs = features.reshape(tasks, count, channels, height, width).permute(0, 1, 3, 4, 2).contiguous()
        for norm, mean, variance in zip(ctx.tapes[0].norms, statistics[::2], statistics[1::2], strict=False):
            norm.add_statistics_grad(mean, variance)
        found = [tape.backward(outputs[:, cut].contiguous()) for tape, cut in zip(ctx.tapes, ctx.cuts, strict=True)]
        weights = [
            tensor.unfold(torch.stack(column).sum((0, 1)).unsqueeze(0))[0]
            for tensor, column in zip(ctx.network.packing.body, zip(*found, strict=True), strict=True)
        ]
        by_tape = [[value for norm in tape.norms for value in norm.statistics_grad] for tape in ctx.tapes if ctx.given]
        given = [torch.stack(column).sum(0) for column in zip(*by_tape, strict=True)]
        ctx.tapes = None
        return None, None, None, *given, *weights
