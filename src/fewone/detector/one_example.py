"""One example at a time, as a service or a controller asks: (1, *shape) -> its logit.

A single example costs a few hundred small operations, and most of the time passes between them, in Python. Whoever asks
often is served by a recording of the same operations, which runs without Python and has worked out beforehand whatever
depends on the support alone. It is taken only where it gives the same bits, and only of code that is this package's:
nobody knows on what another's `forward` makes its way depend.
"""

from __future__ import annotations

import threading
import warnings
from typing import Any

import torch
from torch import Tensor, nn

RECORD_AFTER = 100
"""A recording takes about as long as so many examples gain by it: who asks less often has none."""

LARGEST = 1 << 14
"""Examples of more values cost more than what lies between the operations."""

TRIED = 8
"""So many normals are scored both ways, and so many far from everything, before a recording is trusted."""

_recording = threading.Lock()


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
        if self.calls == RECORD_AFTER and fits and _recording.acquire(blocking=False):
            try:
                self.recorded = record(self.module, self.normals)
            finally:
                _recording.release()
        plain: Tensor = self.module(values)
        return plain

    def __getstate__(self) -> dict[str, Any]:
        """For copies: a recording cannot be pickled, and another process makes its own."""
        return self.__dict__ | {"calls": 0, "recorded": None}


def record(module: nn.Module, normals: Tensor) -> Any:
    """The operations of a module on one example of the kind of the normals; None where the module itself must run."""
    if normals[:1].numel() > LARGEST or not all(_is_ours(part) for part in module.modules()):
        return None
    tried = normals[:TRIED]
    tried = torch.cat([tried, 1e3 * tried, torch.zeros_like(tried[:1]), tried.flip(-1)])
    try:
        with warnings.catch_warnings(), torch.inference_mode():
            warnings.simplefilter("ignore")  # sizes that are fixed in a recording: they are, by its use
            recorded = torch.jit.freeze(torch.jit.trace(module, (tried[:1].clone(),), check_trace=False).eval())  # type: ignore[no-untyped-call]
            same = all(torch.equal(recorded(one), module(one)) for one in torch.split(tried, 1))
    except Exception:  # of whatever kind: there is another way to the same scores
        return None
    return recorded if same else None


def _is_ours(part: nn.Module) -> bool:
    return type(part).__module__.split(".")[0] in ("fewone", "torch")
