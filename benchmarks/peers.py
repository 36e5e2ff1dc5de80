"""The same meta-iteration in other libraries, each written as its users write it: conv, (norm), ReLU, pool.

Every peer returns a function that makes one meta-iteration, and one that gives its meta-gradient in our layout.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fewone.episodes import Episodes

Gradient = dict[str, Tensor]
OUTER_RATE = 0.001
INNER_RATE = 0.01
INNER_STEPS = 5
EPSILON = 1e-3


@dataclass(frozen=True)
class Workload:
    """One row of the benchmark: the input, the network, and the sizes of a meta-batch."""

    name: str
    shape: tuple[int, ...]
    filters: tuple[int, ...]
    kernel: int
    support: int
    query: int
    tasks: int


@dataclass(frozen=True)
class Peer:
    """iterate: a whole meta-iteration with the outer step; differentiate: the meta-gradient by our names."""

    iterate: Callable[[], None]
    differentiate: Callable[[], Gradient]


class TravellingNorm(nn.Module):
    """Batch norm whose statistics are kept from one batch (mode "keep") and used for the next (mode "use")."""

    mode = "batch"

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.gamma, self.beta = nn.Parameter(torch.ones(channels)), nn.Parameter(torch.zeros(channels))

    def forward(self, inputs: Tensor) -> Tensor:
        if TravellingNorm.mode == "batch":
            return F.batch_norm(inputs, None, None, self.gamma, self.beta, training=True, eps=EPSILON)
        shape = (1, -1) + (1,) * (inputs.dim() - 2)
        if TravellingNorm.mode == "keep":
            axes = (0, *range(2, inputs.dim()))
            self.variance, self.mean = torch.var_mean(inputs, axes, correction=0)
        scale = self.gamma * torch.rsqrt(self.variance + EPSILON)
        return inputs * scale.view(shape) + (self.beta - self.mean * scale).view(shape)


def build_network(work: Workload, norm: bool) -> nn.Sequential:
    """The network as a user of torch writes it."""
    dimensions = len(work.shape) - 1
    convolution, pool = (nn.Conv1d, nn.MaxPool1d) if dimensions == 1 else (nn.Conv2d, nn.MaxPool2d)
    layers: list[nn.Module] = []
    for before, after in pairwise((work.shape[0], *work.filters)):
        layers.append(convolution(before, after, work.kernel, padding=work.kernel // 2, bias=not norm))
        if norm:
            layers.append(TravellingNorm(after))
        layers += [nn.ReLU(), pool(2)]
    size = work.filters[-1]
    for side in work.shape[1:]:
        size *= side >> len(work.filters)
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(size, 1))


def load(network: nn.Sequential, names: list[str], values: dict[str, Tensor]) -> None:
    """Give the network our parameters: both list theirs layer by layer, head last."""
    with torch.no_grad():
        for parameter, name in zip(network.parameters(), names, strict=True):
            parameter.copy_(values[name])


def loss_of(logits: Tensor, labels: Tensor) -> Tensor:
    return F.binary_cross_entropy_with_logits(logits.squeeze(-1), labels)


def transfer_loss(forward: Callable[[Tensor], Tensor], episodes: Episodes, task: int, norm: bool) -> Tensor:
    """Loss of one task's query, normed by the statistics of its support."""
    if norm:
        TravellingNorm.mode = "keep"
        forward(episodes.support.inputs[task])
        TravellingNorm.mode = "use"
    logits = forward(episodes.query.inputs[task])
    TravellingNorm.mode = "batch"
    return loss_of(logits, episodes.query.labels[task]) / len(episodes)


class TorchPeer:
    """What the torch libraries share: the network, Adam outside, a loop over tasks."""

    def __init__(self, work: Workload, norm: bool, start: Gradient, episodes: Episodes) -> None:
        self.norm, self.names, self.episodes = norm, list(start), episodes
        self.network = build_network(work, norm).to(episodes.support.inputs.dtype)
        load(self.network, self.names, start)
        self.optimizer = torch.optim.Adam(self.network.parameters(), OUTER_RATE)

    def peer(self, accumulate: Callable[[], None]) -> Peer:
        def iterate() -> None:
            self.optimizer.zero_grad()
            accumulate()
            self.optimizer.step()

        def differentiate() -> Gradient:
            self.optimizer.zero_grad()
            accumulate()
            parameters = zip(self.names, self.network.parameters(), strict=True)
            return {name: value.grad.clone() for name, value in parameters if value.grad is not None}

        return Peer(iterate, differentiate)


def build_plain(work: Workload, norm: bool, start: Gradient, episodes: Episodes) -> Peer:
    """functional_call and autograd.grad(create_graph=True)."""
    shared = TorchPeer(work, norm, start, episodes)
    network = shared.network

    def accumulate() -> None:
        for task in range(len(episodes)):
            values: Gradient = dict(network.named_parameters())
            for _ in range(INNER_STEPS):
                logits = torch.func.functional_call(network, values, (episodes.support.inputs[task],))
                loss = loss_of(logits, episodes.support.labels[task])
                slopes = torch.autograd.grad(loss, list(values.values()), create_graph=True)
                values = {
                    name: value - INNER_RATE * slope
                    for (name, value), slope in zip(values.items(), slopes, strict=True)
                }
            adapted = partial(torch.func.functional_call, network, values)
            transfer_loss(adapted, episodes, task, norm).backward()  # type: ignore[no-untyped-call]

    return shared.peer(accumulate)


def build_higher(work: Workload, norm: bool, start: Gradient, episodes: Episodes) -> Peer:
    """higher 0.2: innerloop_ctx around torch's own SGD."""
    import higher

    shared = TorchPeer(work, norm, start, episodes)
    network = shared.network
    inner = torch.optim.SGD(network.parameters(), INNER_RATE)

    def accumulate() -> None:
        for task in range(len(episodes)):
            with higher.innerloop_ctx(network, inner, copy_initial_weights=False) as (adapted, optimizer):
                for _ in range(INNER_STEPS):
                    optimizer.step(loss_of(adapted(episodes.support.inputs[task]), episodes.support.labels[task]))
                transfer_loss(adapted, episodes, task, norm).backward()  # type: ignore[no-untyped-call]

    return shared.peer(accumulate)


def build_torchopt(work: Workload, norm: bool, start: Gradient, episodes: Episodes) -> Peer:
    """torchopt's MetaSGD, the network's state put back after each task."""
    import torchopt

    shared = TorchPeer(work, norm, start, episodes)
    network = shared.network
    inner = torchopt.MetaSGD(network, INNER_RATE)

    def accumulate() -> None:
        states = [torchopt.extract_state_dict(part, by="reference") for part in (network, inner)]
        for task in range(len(episodes)):
            for _ in range(INNER_STEPS):
                inner.step(loss_of(network(episodes.support.inputs[task]), episodes.support.labels[task]))
            transfer_loss(network, episodes, task, norm).backward()  # type: ignore[no-untyped-call]
            for part, state in zip((network, inner), states, strict=True):
                torchopt.recover_state_dict(part, state)

    return shared.peer(accumulate)
