"""Curves -> one SVG drawing. Plain text, no library: a report has a hundred of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

_WIDTH, _HEIGHT = 560, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 44, 10, 8, 34
_LINE = 12
_COLOURS = (
    "#1f77b4",
    "#ff7f0e",
    "#2ca02c",
    "#d62728",
    "#9467bd",
    "#8c564b",
    "#e377c2",
    "#7f7f7f",
    "#bcbd22",
    "#17becf",
)


@dataclass(frozen=True)
class Line:
    """One labelled curve."""

    label: str
    points: tuple[tuple[float, float], ...]


def draw_lines(lines: Sequence[Line], x_label: str, y_label: str) -> str:
    """An SVG element: axes with round numbers, a line each, and below them what each line is.

    >>> drawing = draw_lines([Line("oc-maml", ((1, 70.0), (2, 90.0)))], "K", "accuracy, %")
    >>> drawing.startswith("<svg") and "oc-maml" in drawing
    True
    """
    x_ticks = _find_ticks([x for line in lines for x, _ in line.points])
    y_ticks = _find_ticks([y for line in lines for _, y in line.points])

    def place(x: float, y: float) -> tuple[float, float]:
        across = (x - x_ticks[0]) / (x_ticks[-1] - x_ticks[0])
        up = (y - y_ticks[0]) / (y_ticks[-1] - y_ticks[0])
        return _LEFT + across * (_WIDTH - _LEFT - _RIGHT), _HEIGHT - _BOTTOM - up * (_HEIGHT - _TOP - _BOTTOM)

    parts = []
    for tick in x_ticks:
        x, bottom = place(tick, y_ticks[0])
        parts.append(f'<path d="M{x:.1f} {_TOP}V{bottom:.1f}"/><text x="{x:.1f}" y="{bottom + 12:.1f}">{tick:g}</text>')
    for tick in y_ticks:
        left, y = place(x_ticks[0], tick)
        parts.append(
            f'<path d="M{left:.1f} {y:.1f}H{_WIDTH - _RIGHT}"/>'
            f'<text class="y" x="{left - 4:.1f}" y="{y + 3:.1f}">{tick:g}</text>'
        )
    parts.append(f'<text x="{(_LEFT + _WIDTH) / 2:.0f}" y="{_HEIGHT - 6}">{escape(x_label)}</text>')
    middle = (_HEIGHT - _BOTTOM) / 2
    parts.append(f'<text transform="translate(10 {middle:.0f}) rotate(-90)">{escape(y_label)}</text>')
    for number, line in enumerate(lines):
        parts.append(_draw_line(line, number, [place(x, y) for x, y in line.points]))
    height = _HEIGHT + _LINE * math.ceil(len(lines) / 2)
    return f'<svg class="plot" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}">{"".join(parts)}</svg>'


def _draw_line(line: Line, number: int, places: Sequence[tuple[float, float]]) -> str:
    colour = _COLOURS[number % len(_COLOURS)]
    dashes = ("", ' stroke-dasharray="5 2"', ' stroke-dasharray="1 2"')[number // len(_COLOURS) % 3]
    trace = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    across, down = 8 + number % 2 * _WIDTH // 2, _HEIGHT + 8 + number // 2 * _LINE
    dots = "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2"/>' for x, y in places) if len(places) < 12 else ""
    return (
        f'<g stroke="{colour}" fill="{colour}"><polyline points="{trace}"{dashes}/>{dots}'
        f'<polyline points="{across},{down - 3} {across + 18},{down - 3}"{dashes}/>'
        f'<text class="key" x="{across + 22}" y="{down}">{escape(line.label)}</text></g>'
    )


def _find_ticks(values: Sequence[float], count: int = 5) -> list[float]:
    """Round numbers from below the least to above the greatest value, at least two."""
    low, high = min(values), max(values)
    span = (high - low) or max(abs(high), 1.0)
    raw = span / count
    magnitude = 10.0 ** math.floor(math.log10(raw))
    step = next(magnitude * factor for factor in (1, 2, 5, 10) if magnitude * factor >= raw * 0.999)
    first, last = math.floor(low / step), math.ceil(high / step)
    return [round(number * step, 10) for number in range(first, max(last, first + 1) + 1)]
