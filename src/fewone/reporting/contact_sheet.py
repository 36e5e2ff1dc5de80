"""TaskSplits -> one page that shows normals and anomalies of each task. Needs no other file and no network."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from fewone.episodes import Pool, Task, TaskSplits, generator_for
from fewone.extras import needed_for

with needed_for("a page of examples"):
    from jinja2 import Environment

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{{ name }}</title>
<style>
body { font: 14px sans-serif; margin: 2em; } h3 { margin: 1em 0 .2em; font-weight: 600; }
.row { display: flex; align-items: center; gap: .5em; margin: .2em 0; } .row b { width: 6em; font-weight: 400; }
img { image-rendering: pixelated; height: {{ height }}px; }
.anomalous { outline: 2px solid #c33; } .normal { outline: 2px solid #383; }
svg { background: #fafafa; width: 128px; height: 64px; }
</style></head><body>
<h1>{{ name }}</h1>
<p>Examples of each task, drawn at random: green is normal, red is anomalous.</p>
{% for split in splits %}<h2>{{ split.name }}: {{ split.shown|length }} of {{ split.count }} tasks</h2>
{% for task in split.shown %}<h3>{{ task.name }}</h3>
<div class="row"><b>normal</b>{{ task.normal|safe }}</div>
<div class="row"><b>anomalous</b>{{ task.anomalous|safe }}</div>
{% endfor %}{% endfor %}</body></html>
"""
_COLOURS = ("#1f4e79", "#b8621b", "#3b7d3b", "#7d3b6e")
_POINTS = 256


@dataclass(frozen=True)
class _ShownTask:
    name: str
    normal: str
    anomalous: str


@dataclass(frozen=True)
class _ShownSplit:
    name: str
    count: int
    shown: list[_ShownTask]


def render_contact_sheet(splits: TaskSplits, tasks: int, examples: int, seed: int) -> str:
    """A self-contained HTML page: at most `tasks` tasks of each split, at most `examples` of each class."""
    parts = (("training", splits.train), ("validation", splits.validation), ("test", splits.test))
    shown = [
        _ShownSplit(name, len(members), [_show_task(task, examples, seed) for task in members[:tasks]])
        for name, members in parts
    ]
    height = max(48, splits.shape[-1])
    page = Environment(autoescape=True).from_string(_PAGE)
    return page.render(name=splits.name, splits=shown, height=height)


def _show_task(task: Task, examples: int, seed: int) -> _ShownTask:
    generator = generator_for(seed, "show", task.name)
    return _ShownTask(
        task.name,
        _show_pool(task.normal, "normal", examples, generator),
        _show_pool(task.anomalous, "anomalous", examples, generator),
    )


def _show_pool(pool: Pool, label: str, examples: int, generator: torch.Generator) -> str:
    rows = pool.draw(min(examples, len(pool)), generator)
    values = pool.store.values.index_select(0, rows)
    if not len(values):
        return "none"
    draw = _draw_image if values.dim() == 4 else _draw_series
    return "".join(draw(value, label) for value in values)


def _draw_image(value: Tensor, label: str) -> str:
    """One image (1 or 3, height, width), bytes or numbers of any range, as an inline PNG."""
    pixels = value if value.dtype == torch.uint8 else _stretch(value)
    array = pixels.permute(1, 2, 0).numpy()
    buffer = io.BytesIO()
    Image.fromarray(array[:, :, 0] if array.shape[2] == 1 else array).save(buffer, "PNG")
    content = base64.b64encode(buffer.getvalue()).decode()
    return f'<img class="{label}" alt="{label}" src="data:image/png;base64,{content}">'


def _stretch(value: Tensor) -> Tensor:
    low, high = float(value.min()), float(value.max())
    return ((value - low) * (255.0 / (high - low or 1.0))).to(torch.uint8)


def _draw_series(value: Tensor, label: str) -> str:
    """One window (channels, length) as an inline drawing, one line per channel, all on one scale."""
    series = value.to(torch.float64).numpy()
    low, high = float(series.min()), float(series.max())
    scaled = 0.95 - 0.9 * (series - low) / (high - low or 1.0)
    lines = "".join(
        f'<polyline fill="none" stroke="{_COLOURS[number % len(_COLOURS)]}" stroke-width="1"'
        f' vector-effect="non-scaling-stroke" points="{_trace(channel)}"/>'
        for number, channel in enumerate(scaled)
    )
    return f'<svg class="{label}" viewBox="0 0 1 1" preserveAspectRatio="none"><title>{label}</title>{lines}</svg>'


def _trace(channel: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> str:
    """The points of a line; a long channel keeps the lowest and highest value of each piece, so no peak is lost."""
    pieces: Sequence[np.ndarray[tuple[int, ...], np.dtype[np.float64]]] = np.array_split(
        channel, min(len(channel), _POINTS)
    )
    heights = [
        height for piece in pieces for height in ((piece[0],) if len(piece) == 1 else (piece.min(), piece.max()))
    ]
    last = max(len(heights) - 1, 1)
    return " ".join(f"{number / last:.4f},{height:.3f}" for number, height in enumerate(heights))
