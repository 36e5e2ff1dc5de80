"""What people bring -> tensors. Enters: numpy, torch, pandas, lists. Leaves: values (n, *shape), channels first.

Never resizes, resamples or fills: what does not fit is refused, with what was expected and what was got.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fewone.arrays import Values
from fewone.arrays import as_array as as_array
from fewone.errors import InputError
from fewone.zoo import fill_shape
from fewone.zoo.cards import LEAST_FREE


def arrange(array: Values, shape: tuple[int, ...], name: str = "X") -> Tensor:
    """Examples as people lay them out -> (n, *shape), channels first.

    shape (channels, length) takes (n, channels, length) and, for one channel, (n, length); shape (channels, height,
    width) takes (n, height, width, channels), (n, channels, height, width) and, for one channel, (n, height, width).
    Where the shape holds 0, any number of channels or any length from 16 is taken.
    """
    filled = fill_shape(array.shape[1:], shape)
    if filled is None:
        raise InputError(f"{name}: {_expected(shape)} expected, got {array.shape}{_advice(array.shape, shape)}")
    if array.shape[1:] != filled:
        array = np.moveaxis(array, -1, 1) if array.ndim == 1 + len(filled) else array[:, None]
    return torch.from_numpy(np.require(array, requirements=["C", "W"]))


def check_range(array: Values, scale: float, name: str = "X") -> None:
    """Refuse pictures in 0..1 for a model of pictures in 0..255 (scale 1/255), to which all of them look black."""
    if array.size and scale < 0.1 and 0 < np.abs(array).max() <= 1:
        raise InputError(f"{name}: values up to {1 / scale:g} expected, got none above 1; multiply by {1 / scale:g}")


def as_labels(y: object, count: int) -> NDArray[np.float64] | None:
    """y of `count` examples: 1 for known anomalies (y = -1), 0 for normals (y = +1); None where y tells nothing."""
    if y is None:
        return None
    labels = np.asarray(y)
    if labels.shape != (count,):
        raise InputError(f"y: one label per example expected, shape ({count},), got {labels.shape}")
    if labels.dtype.kind in "USb":
        raise InputError(f"y: numbers are expected, +1 (normal) and -1 (known anomaly), got {labels.dtype}")
    found = set(np.unique(labels).tolist())
    if not found <= {1, -1}:
        if -1 in found:
            raise InputError(f"y: +1 (normal) and -1 (known anomaly) expected, got {sorted(found)[:5]}")
        return None
    if found == {-1}:
        raise InputError(f"y: all {count} examples are known anomalies (-1); at least one normal (+1) is needed")
    anomalous: NDArray[np.float64] = (labels == -1).astype(np.float64)
    return anomalous


def _expected(shape: tuple[int, ...]) -> str:
    channels, *space = shape
    if shape == (0, 0):
        return f"(n, length) or (n, channels, length) with a length of at least {LEAST_FREE}"
    if 0 in space:
        return f"(n, height, width, {channels or 'channels'}) with sides of at least {LEAST_FREE}"
    inside = ", ".join(map(str, space))
    if len(space) == 2:
        return f"(n, {inside})" if channels == 1 else f"(n, {inside}, {channels})"
    return f"(n, {inside})" if channels == 1 else f"(n, {channels}, {inside})"


def _advice(got: tuple[int, ...], shape: tuple[int, ...]) -> str:
    """What to do about a shape that is nearly right."""
    channels, *space = shape
    if 0 in shape:
        return _advice_on_free(got, shape)
    if got == shape or (channels == 1 and got == tuple(space)):
        return "; this is one example: give X[None]"
    if len(space) == 1 and got[1:] == (space[0], channels):
        return "; channels come before time steps: give X.transpose(0, 2, 1)"
    if len(space) == 1 and len(got) <= 2 and got[0] > 4 * space[0]:
        return "; for a long recording use fewone.windows or score_series"
    return ""


def _advice_on_free(got: tuple[int, ...], shape: tuple[int, ...]) -> str:
    if len(got) == 1 and len(shape) == 2:
        return "; for a long recording use fewone.windows or score_series"
    if len(shape) == 2 and len(got) == 3 and got[1] >= LEAST_FREE > got[2]:
        return "; channels come before time steps: give X.transpose(0, 2, 1)"
    return ""


def check_magnitude(values: Tensor) -> None:
    """Refuse normals in units whose squares do not fit into their precision: nothing could be compared with them."""
    limits = torch.finfo(values.dtype)
    largest = float(values.abs().max()) if values.numel() else 0.0
    most, least = 0.1 * limits.max**0.5, 10.0 * limits.tiny**0.5
    if largest > most or 0.0 < largest < least:
        raise InputError(
            f"X: the largest value is {largest:.2g}, and normals between {least:.0e} and {most:.0e} can be compared in"
            f" {str(values.dtype).removeprefix('torch.')}; give them in other units"
        )
