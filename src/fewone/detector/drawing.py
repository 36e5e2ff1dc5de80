"""Examples, maps and scores -> a figure. Enters: arrays. Leaves: a matplotlib Figure that belongs to no window.

Knows no learner.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fewone.extras import needed_for

if TYPE_CHECKING:
    from fewone.detector.reasons import Why

with needed_for("a drawing"):
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LARGEST_COUNT = 12
GOOD, BAD = "#1a7f37", "#b42318"
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
        word, colour = ("normal", GOOD) if decision >= 0 else ("anomalous", BAD)
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


def draw_reasons(why: Why) -> Figure:
    """Two panels of bars: how far each statistic lies outside of the normals, and each share of the model's logit."""
    figure = Figure(figsize=(9.0, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    for axes, source, title in (
        (left, "envelope", "beside the normals, in bounds (beyond 1: anomalous)"),
        (right, "model", "shares of the model's logit"),
    ):
        reasons = [reason for reason in why.reasons if reason.source == source][::-1]
        sizes = np.array([reason.size for reason in reasons])
        lengths = np.abs(sizes) if source == "envelope" else sizes
        outside = lengths > 1 if source == "envelope" else lengths > 0
        axes.barh([reason.kind for reason in reasons], lengths, color=np.where(outside, BAD, GOOD))
        axes.set_title(title, fontsize=9)
        axes.tick_params(labelsize=8)
    left.axvline(1.0, color="black", linewidth=0.8, linestyle="--")
    if any(abs(reason.size) > 30 for reason in why.reasons if reason.source == "envelope"):
        left.set_xscale("log")
    word, colour = ("normal", GOOD) if why.decision >= 0 else ("anomalous", BAD)
    figure.suptitle(f"{word}  {why.decision:+.2f}", color=colour, fontsize=10)
    return figure


def draw_faults(faults: Sequence[str], strengths: Sequence[float], found: Array, false_alarms: float) -> Figure:
    """A grid of the shares found (faults, strengths)."""
    figure = Figure(figsize=(6.0, 0.7 + 0.27 * len(faults)), layout="constrained")
    axes = figure.subplots()
    axes.imshow(found, aspect="auto", cmap="RdYlGn", vmin=0, vmax=1)
    for row, shares in enumerate(found):
        for column, share in enumerate(shares):
            axes.text(column, row, f"{100 * share:.0f}", ha="center", va="center", fontsize=7)
    axes.set_yticks(range(len(faults)), list(faults), fontsize=8)
    axes.set_xticks(range(len(strengths)), [f"{strength:g}" for strength in strengths], fontsize=8)
    axes.set_xlabel("strength of the fault", fontsize=8)
    axes.set_title(f"found, in per cent (untouched: {false_alarms:.0%} called anomalous)", fontsize=9)
    return figure


def draw_drift(scores: Array, own: Array, ends: NDArray[np.int64], p_values: Array, since: int | None) -> Figure:
    """Scores over time beside those of the support, and below them the p-values of the blocks."""
    figure = Figure(figsize=(8.0, 4.2), layout="constrained")
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=[2, 1])
    upper.plot(np.arange(-len(own), 0), own, "o", markersize=3, color="grey", label="the support, each by the others")
    colours = np.where(scores < 0, BAD, GOOD)
    upper.scatter(np.arange(len(scores)), scores, s=10, c=colours, label="recent examples")
    upper.axhline(0.0, color="black", linewidth=0.8)
    upper.set_ylabel("decision value", fontsize=8)
    upper.legend(fontsize=7)
    lower.semilogy(ends, np.maximum(p_values, 1e-12), color="black", linewidth=1.0)
    lower.set_ylabel("p-value of a block", fontsize=8)
    lower.set_xlabel("example, in the order of time", fontsize=8)
    if since is not None:
        for axes in (upper, lower):
            axes.axvline(since, color=BAD, linewidth=1.0, linestyle="--")
    return figure
