"""Values as the page draws them: few enough points for a small plot, with the peaks kept."""

from __future__ import annotations

import base64
import io
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

POINTS = 120
PIXELS = 64


def thumbnail(value: NDArray[Any]) -> dict[str, Any]:
    """One example (channels, length) or (channels, height, width), small."""
    if value.ndim == 3:
        return {"picture": encode_picture(value, PIXELS)}
    series = value if value.ndim == 2 else value[None]
    return {"series": [np.round(shorten(channel.astype(float), POINTS), 4).tolist() for channel in series[:4]]}


def shorten(series: NDArray[np.float64], points: int) -> NDArray[np.float64]:
    """At most `points` values: of each stretch the least and the largest."""
    if len(series) <= points:
        return series
    edges = np.linspace(0, len(series), points // 2 + 1).astype(int)
    pairs = [(series[a:b].min(), series[a:b].max()) for a, b in pairwise(edges.tolist())]
    return np.array(pairs).ravel()


def encode_picture(value: NDArray[Any], largest: int | None = None) -> str:
    """A picture (channels, height, width) of values 0..255 as PNG in base64."""
    from PIL import Image

    pixels = np.clip(np.nan_to_num(value), 0, 255).astype(np.uint8)
    pixels = pixels[0] if len(pixels) != 3 else pixels.transpose(1, 2, 0)
    image = Image.fromarray(pixels)
    if largest is not None and max(image.size) > largest:
        image.thumbnail((largest, largest))
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return base64.b64encode(buffer.getvalue()).decode()
