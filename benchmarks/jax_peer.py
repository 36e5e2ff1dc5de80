"""The same meta-iteration in JAX: jit, lax.map over tasks, lax.scan over the inner steps.

Convolutions as patches times a matrix or as lax.conv: which is faster depends on the workload, both are run.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from jax import lax

from fewone.episodes import Episodes
from peers import EPSILON, INNER_RATE, INNER_STEPS, OUTER_RATE, Gradient, Peer, Workload

Arrays = dict[str, Any]


def convolve_patches(values: Any, weight: Any) -> Any:
    """values (n, h, w, c), weight (kh, kw, c, f): neighbourhoods side by side, then one matrix product."""
    high, wide, channels, filters = weight.shape
    height, width = values.shape[1:3]
    padded = jnp.pad(values, ((0, 0), (high // 2,) * 2, (wide // 2,) * 2, (0, 0)))
    rows = [padded[:, i : i + height, j : j + width] for i in range(high) for j in range(wide)]
    return jnp.concatenate(rows, axis=3) @ weight.reshape(high * wide * channels, filters)


def convolve_directly(values: Any, weight: Any) -> Any:
    return lax.conv_general_dilated(values, weight, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def pool(values: Any) -> Any:
    """Max over windows of 2, in each direction longer than 1."""
    number, height, width, channels = values.shape
    window = 1 if height == 1 else 2
    height, width = height // window, width // 2
    cut = values[:, : height * window, : width * 2]
    return cut.reshape(number, height, window, width, 2, channels).max(axis=(2, 4))


def forward(convolve: Any, layers: int, norm: bool, parameters: Arrays, inputs: Any, kept: Any) -> tuple[Any, Any]:
    """Logits (n,), and the statistics used."""
    values, found = inputs, []
    for layer in range(layers):
        values = convolve(values, parameters[f"weight{layer}"])
        if norm:
            mean, variance = (values.mean((0, 1, 2)), values.var((0, 1, 2))) if kept is None else kept[layer]
            found.append((mean, variance))
            values = (values - mean) * lax.rsqrt(variance + EPSILON) * parameters[f"gamma{layer}"]
            values = values + parameters[f"beta{layer}"]
        else:
            values = values + parameters[f"bias{layer}"]
        values = pool(jax.nn.relu(values))
    features = values.reshape(len(values), -1)
    return features @ parameters["head"] + parameters["offset"], found


def loss_of(logits: Any, labels: Any) -> Any:
    return (jax.nn.softplus(logits) - labels * logits).mean()


def build_jax(convolve: Any, work: Workload, norm: bool, start: Gradient, episodes: Episodes) -> Peer:
    run = partial(forward, convolve, len(work.filters), norm)

    def task_loss(parameters: Arrays, task: Any) -> Any:
        support, support_labels, query, query_labels = task

        def step(values: Arrays, _: Any) -> tuple[Arrays, None]:
            slopes = jax.grad(lambda these: loss_of(run(these, support, None)[0], support_labels))(values)
            return jax.tree.map(lambda value, slope: value - INNER_RATE * slope, values, slopes), None

        adapted, _ = lax.scan(step, parameters, None, length=INNER_STEPS)
        kept = run(adapted, support, None)[1] if norm else None
        return loss_of(run(adapted, query, kept)[0], query_labels)

    def gradient(parameters: Arrays, data: Any) -> Arrays:
        slopes = lax.map(lambda task: jax.grad(task_loss)(parameters, task), data)
        mean: Arrays = jax.tree.map(lambda value: value.mean(0), slopes)
        return mean

    def update(parameters: Arrays, state: Any, data: Any) -> Any:
        count, first, second = state
        slopes = gradient(parameters, data)
        count = count + 1
        first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, first, slopes)
        second = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, second, slopes)
        moved = jax.tree.map(
            lambda p, m, v: p - OUTER_RATE * (m / (1 - 0.9**count)) / (jnp.sqrt(v / (1 - 0.999**count)) + 1e-8),
            parameters,
            first,
            second,
        )
        return moved, (count, first, second)

    data, parameters = to_arrays(episodes), to_jax(start, work, norm)
    zeros = jax.tree.map(jnp.zeros_like, parameters)
    compiled = jax.jit(update)
    box = {"parameters": parameters, "state": (jnp.zeros(()), zeros, zeros)}

    def iterate() -> None:
        box["parameters"], box["state"] = jax.block_until_ready(compiled(box["parameters"], box["state"], data))

    def differentiate() -> Gradient:
        # The first moment after one step of Adam is a tenth of the gradient: no second compilation.
        _, (_, first, _) = compiled(parameters, (jnp.zeros(()), zeros, zeros), data)
        return to_torch(jax.tree.map(lambda value: value * 10, first), work, norm, start)

    return Peer(iterate, differentiate)


def to_arrays(episodes: Episodes) -> tuple[Any, ...]:
    """Inputs channels last, a series with height 1."""

    def turn(inputs: torch.Tensor) -> Any:
        if inputs.dim() == 4:
            inputs = inputs.unsqueeze(3)
        return jnp.asarray(np.ascontiguousarray(inputs.permute(0, 1, 3, 4, 2).numpy()))

    return (
        turn(episodes.support.inputs),
        jnp.asarray(episodes.support.labels.numpy()),
        turn(episodes.query.inputs),
        jnp.asarray(episodes.query.labels.numpy()),
    )


def piece_names(work: Workload, norm: bool) -> list[str]:
    """Our parameters' order, in the names used here."""
    kinds = ("weight", "gamma", "beta") if norm else ("weight", "bias")
    return [f"{kind}{layer}" for layer in range(len(work.filters)) for kind in kinds] + ["head", "offset"]


def to_jax(values: Gradient, work: Workload, norm: bool) -> Arrays:
    found = {}
    for name, value in zip(piece_names(work, norm), values.values(), strict=True):
        if name.startswith("weight"):
            value = value.unsqueeze(2) if value.dim() == 3 else value
            value = value.permute(2, 3, 1, 0)
        elif name == "head":
            value = value.view(work.filters[-1], -1).t().reshape(-1)
        elif name == "offset":
            value = value.view(())
        found[name] = jnp.asarray(np.array(value.detach().contiguous()))
    return found


def to_torch(values: Arrays, work: Workload, norm: bool, like: Gradient) -> Gradient:
    found = {}
    for ours, name in zip(like, piece_names(work, norm), strict=True):
        value = torch.from_numpy(np.array(values[name]))
        if name.startswith("weight"):
            value = value.permute(3, 2, 0, 1)
        elif name == "head":
            value = value.view(-1, work.filters[-1]).t()
        found[ours] = value.reshape(like[ours].shape)
    return found
