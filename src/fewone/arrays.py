"""What people bring -> a float array. Enters: numpy, torch, pandas, lists. Leaves: finite numbers, (n, ...).

Knows no shape, no task, no model.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fewone.errors import InputError

Values = NDArray[Any]


def as_array(values: object, name: str = "X") -> Values:
    """Numbers of any kind and container -> a float array with an axis of examples; float64 stays, all else float32."""
    array = _read(values, name)
    if array.dtype.kind == "c":
        raise InputError(f"{name}: Complex data not supported, got {array.dtype}")
    if array.dtype.kind == "O":
        array = _from_objects(array, name)
    if array.dtype.kind not in "fiub":
        raise InputError(f"{name}: numbers are expected, got values of type {array.dtype}")
    if array.ndim == 0:
        raise InputError(f"{name}: an array of examples is expected, got the single number {array}")
    floats = array.astype(np.float64 if array.dtype == np.float64 else np.float32, copy=False)
    finite = _finite(floats)
    if not finite.all():
        raise InputError(
            f"{name}: {int((~finite).sum())} of {len(floats)} examples hold NaN or infinity, the first is example"
            f" {int(np.argmin(finite))}; leave them out or fill them"
        )
    return floats


def _read(values: object, name: str) -> Values:
    if isinstance(values, torch.Tensor):
        detached = values.detach().cpu()
        return (detached.float() if detached.dtype == torch.bfloat16 else detached).numpy()
    if isinstance(values, (str, bytes, dict)) or values is None:
        raise InputError(f"{name}: an array of examples is expected, got {type(values).__name__}")
    try:
        return np.asarray(values)
    except ValueError as error:
        shapes = sorted({np.shape(one) for one in values})[:4] if isinstance(values, (list, tuple)) else error
        raise InputError(f"{name}: all examples must have one shape, got {shapes}") from error


def _finite(floats: Values) -> NDArray[np.bool_]:
    """Which examples hold only finite numbers, (n,); block by block, so that memory stays flat."""
    axes = tuple(range(1, floats.ndim))
    at_once = max(1, (1 << 20) // max(1, floats[:1].size))
    blocks = [np.isfinite(floats[first : first + at_once]).all(axis=axes) for first in range(0, len(floats), at_once)]
    return np.concatenate([np.ones(0, bool), *blocks])


def _from_objects(array: Values, name: str) -> Values:
    try:
        return array.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name}: numbers are expected, {error}") from error
