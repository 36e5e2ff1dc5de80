"""Examples, maps and scores -> a figure. Enters: arrays. Leaves: a matplotlib Figure that belongs to no window.

Knows no learner.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

LARGEST_COUNT = 12
Array = NDArray[np.floating]


def draw_examples(
    values: Array, maps: Array, decisions: Array, sizes: Sequence[tuple[int, int]] | None = None
) -> Figure:
    """One panel per example: values and maps (n, *shape), channels first; decisions (n,), below 0 = anomalous.

    sizes: (height, width) of the pictures as they were given, where values show them squeezed.
    """
    columns = min(3, len(values))
    rows = -(-len(values) // columns)
    figure = Figure(figsize=(4.2 * columns, 2.6 * rows), layout="constrained")
    grid = list(figure.subplots(rows, columns, squeeze=False).flat)
    for axes in grid:
        axes.set_axis_off()
    for number, (axes, value, relevance, decision) in enumerate(zip(grid, values, maps, decisions, strict=False)):
        axes.set_axis_on()
        # What is normal has its weakest places too; shading them would cry wolf.
        shown = relevance if decision < 0 else np.zeros_like(relevance)
        (_draw_picture if value.ndim == 3 else _draw_series)(axes, value, shown)
        word, colour = ("normal", "#1a7f37") if decision >= 0 else ("anomalous", "#b42318")
        if sizes is not None:
            _stretch(axes, value, sizes[number])
        axes.set_title(f"{word}  {decision:+.2f}", color=colour, fontsize=10)
    return figure


def _draw_series(axes: Axes, value: Array, relevance: Array) -> None:
    """Lines for the channels, shaded where the anomaly is."""
    channels = np.atleast_2d(value) if value.ndim == 2 else value[None]
    strength = relevance.max(axis=0) if value.ndim == 2 else relevance
    steps = np.arange(channels.shape[-1])
    for channel in channels:
        axes.plot(steps, channel, linewidth=0.8)
    low, high = axes.get_ylim()
    extent = (-0.5, len(steps) - 0.5, low, high)
    axes.imshow(
        _scaled(strength)[None], aspect="auto", cmap="Reds", alpha=0.55, extent=extent, vmin=0, vmax=1, zorder=0
    )
    axes.set_ylim(low, high)


def _draw_picture(axes: Axes, value: Array, relevance: Array) -> None:
    """The picture, in colour where it has three of them, the map over it: what is normal stays clear."""
    if len(value) == 3:
        white = 255.0 if value.max() > 1 else 1.0
        axes.imshow(np.moveaxis(np.clip(value / white, 0, 1), 0, -1))
    else:
        axes.imshow(value.mean(axis=0), cmap="gray")
    strength = _scaled(relevance.max(axis=0))
    axes.imshow(strength, cmap="Reds", alpha=0.7 * strength, vmin=0, vmax=1)
    axes.set_xticks([])
    axes.set_yticks([])


def _stretch(axes: Axes, value: Array, size: tuple[int, int]) -> None:
    """Show a picture with the proportions that it had."""
    axes.set_aspect((size[0] / value.shape[-2]) / (size[1] / value.shape[-1]))


def _scaled(relevance: Array) -> Array:
    """0 to 1; a map of nothing stays nothing."""
    highest = relevance.max()
    return relevance / highest if highest > 0 else relevance
