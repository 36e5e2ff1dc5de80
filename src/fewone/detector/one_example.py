"""One example at a time, as a service or a controller asks: (1, *shape) -> its logit.

A single example costs a few hundred small operations, and most of the time passes between them, in Python. Whoever asks
often is served by a recording of the same operations, which runs without Python and has worked out beforehand whatever
depends on the support alone. It is taken only where it gives the same bits, and only of code that is this package's:
nobody knows on what another's `forward` makes its way depend.
"""

from __future__ import annotations

import math
import threading
import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

RECORD_AFTER = 100
"""A recording takes about as long as so many examples gain by it: who asks less often has none."""

LARGEST = 1 << 14
"""Examples of more values cost more than what lies between the operations."""

FEW = 8
"""So many series at most are convolved one after the other."""

TRIED = 8
"""So many normals are scored both ways, and so many far from everything, before a recording is trusted."""

RECORDING = threading.Lock()
"""Held while a recording is made: one at a time."""


class OneExample:
    """A module (n, *shape) -> logits (n,), for n = 1; call it in inference mode."""

    def __init__(self, module: nn.Module, normals: Tensor) -> None:
        """normals (K, *shape): what it was fitted on."""
        self.module = module
        self.normals = normals
        self.calls = 0
        self.recorded: Any = None

    def __call__(self, values: Tensor) -> Tensor:
        """values (1, *shape) -> logits (1,)."""
        fits = values.shape[1:] == self.normals.shape[1:] and values.dtype == self.normals.dtype
        if self.recorded is not None and fits:
            found: Tensor = self.recorded(values)
            return found
        self.calls += 1
        # One recording at a time; whoever comes meanwhile goes the plain way.
        if self.calls == RECORD_AFTER and fits and RECORDING.acquire(blocking=False):
            try:
                self.recorded = record(self.module, torch.split(near_and_far(self.normals[:TRIED]), 1))
            finally:
                RECORDING.release()
        plain: Tensor = self.module(values)
        return plain

    def __getstate__(self) -> dict[str, Any]:
        """For copies: a recording cannot be pickled, and another process makes its own."""
        return self.__dict__ | {"calls": 0, "recorded": None}


def record(module: nn.Module, tried: Sequence[Tensor], one_by_one: bool = False) -> Any:
    """The operations of a module on inputs of one shape, (n, *shape) each; None where the module itself must run.

    That is where a recording gives other bits than the module does for one of those that are tried. one_by_one: see
    `ShorterWays`.
    """
    if tried[0][:1].numel() > LARGEST or not all(_is_ours(part) for part in module.modules()):
        return None
    try:
        with warnings.catch_warnings(), torch.inference_mode():
            warnings.simplefilter("ignore")  # sizes that are fixed in a recording: they are, by its use
            with ShorterWays(one_by_one):
                traced = torch.jit.trace(module, (tried[0].clone(),), check_trace=False).eval()  # type: ignore[no-untyped-call]
            recorded = torch.jit.freeze(traced)
            same = all(torch.equal(recorded(one), module(one)) for one in tried)
    except Exception:  # of whatever kind: there is another way to the same scores
        return None
    return recorded if same else None


def near_and_far(normals: Tensor) -> Tensor:
    """Inputs that a recording is tried on: the normals themselves, and others far from everything."""
    return torch.cat([normals, 1e3 * normals, torch.zeros_like(normals[:1]), normals.flip(-1)])


class ShorterWays(TorchFunctionMode):
    """While a recording is made: the same operations in the form that a single example passes fastest, to the bit.

    A number beside a tensor is turned into a tensor at every call, unless it is one, with an axis, from the beginning;
    a mean is a sum and such a number. A size is asked of its tensor at every call, though it never changes. Weights of
    a convolution are laid out as its inputs are at every call, unless they are so already.

    one_by_one: a few series are convolved one after the other, as a single one is. To arrange them for all at once
    takes longer, but it may give other bits.
    """

    def __init__(self, one_by_one: bool = False) -> None:
        super().__init__()
        self.one_by_one = one_by_one

    def __torch_function__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        """What torch asks for each operation."""
        name, options = getattr(func, "__name__", ""), kwargs or {}
        if name in _ARITHMETIC and len(args) == 2 and not options and _is_scaled(*args):
            return func(args[0], _as_constant(args[1], args[0]))
        if name == "mean" and args[0].is_floating_point():
            return _find_mean(*args, **options)
        if name == "where" and len(args) == 3 and _is_scaled(*args[1:]):
            return func(args[0], args[1], _as_constant(args[2], args[1]))
        if name == "conv2d":
            weight = args[1].contiguous(memory_format=torch.channels_last)
            return func(args[0], weight, *args[2:], **options)
        if name == "conv1d" and self.one_by_one and _are_few(args[0]):
            return _convolve_few(*args, **options)
        found = func(*args, **options)
        return torch.Size(int(size) for size in found) if isinstance(found, torch.Size) else found


_ARITHMETIC = frozenset(
    f"{before}{name}{after}"
    for before, after in (("", ""), ("__", "__"), ("__r", "__"))
    for name in ("add", "sub", "mul", "div", "truediv", "lt", "gt")
)


def _is_scaled(value: Any, number: Any) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point() and type(number) in (int, float)


def _as_constant(number: float, beside: Tensor) -> Tensor:
    """A number as a tensor of the kind of the one that it stands beside."""
    return torch.full((1,) * beside.dim(), float(number), dtype=beside.dtype)


def _are_few(inputs: Tensor) -> bool:
    return inputs.dim() == 3 and 1 < len(inputs) <= FEW and inputs.dtype == torch.float32


def _convolve_few(
    inputs: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    """What torch does for one series, for each of a few."""
    if isinstance(padding, str) or groups != 1:
        return torch.conv1d(inputs, weight, bias, stride, padding, dilation, groups)
    steps, edges, gaps = ([first, _only(value)] for first, value in ((1, stride), (0, padding), (1, dilation)))
    kernel = [1, weight.shape[-1]]
    found: Tensor = torch.ops.aten.slow_conv_dilated2d(
        inputs.unsqueeze(2), weight.unsqueeze(2), kernel, bias, steps, edges, gaps
    )
    return found.squeeze(2)


def _only(value: Any) -> int:
    return int(value[0] if isinstance(value, tuple | list) else value)


def _find_mean(values: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    axes = range(values.dim()) if dim is None else (dim,) if isinstance(dim, int) else dim
    total = values.sum(tuple(axes), keepdim=keepdim)
    return total / _as_constant(math.prod(int(values.shape[axis]) for axis in axes), total)


def _is_ours(part: nn.Module) -> bool:
    return type(part).__module__.split(".")[0] in ("fewone", "torch")
