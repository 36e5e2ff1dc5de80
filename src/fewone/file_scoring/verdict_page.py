"""Verdicts -> one HTML page with the plots of the most anomalous examples and where the anomaly is."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fewone.detector.aligned import AlignedDetector
from fewone.detector.few_shot_detector import FewShotDetector
from fewone.detector.pictures import takes_any_picture
from fewone.file_scoring.user_files import read_at
from fewone.file_scoring.verdict_rows import Verdict, count_anomalous
from fewone.reading import ReadOptions

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>fewone score</title>
<style>body{{font-family:sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem}}
table{{border-collapse:collapse}}td,th{{padding:.2rem .8rem;text-align:left}}
.bad{{color:#b42318}}img{{max-width:100%}}</style></head><body>
<h1>{anomalous} of {total} anomalous</h1>
<p>Most anomalous first; shaded: where the anomaly is. Below 0 is anomalous.</p>
<img alt="the most anomalous examples, in the order of the table" src="data:image/png;base64,{picture}">
<table><tr><th>decision</th><th>probability</th><th>file</th><th>place</th></tr>
{rows}
</table></body></html>
"""
LARGEST_TABLE = 1000


def render_page(
    detector: FewShotDetector | AlignedDetector,
    verdicts: Sequence[Verdict],
    shape: tuple[int, ...],
    stride: int | None = None,
    options: ReadOptions | None = None,
) -> str:
    """The page, self-contained; the worst window stands for a recording. stride: as the recordings were cut."""
    from fewone.detector.drawing import LARGEST_COUNT  # only on need: matplotlib takes most of a second

    worst = sorted(verdicts, key=lambda verdict: verdict.decision)
    if isinstance(detector, FewShotDetector) and takes_any_picture(shape):
        figure = detector.plot([verdict.file for verdict in worst[:LARGEST_COUNT]])
        return _render(figure, verdicts, worst)
    values = np.stack([_example(verdict, shape, options) for verdict in worst[:LARGEST_COUNT]])
    if isinstance(detector, AlignedDetector):
        step = shape[-1] if stride is None else stride
        figure = detector.plot_windows(values, [_find_place(verdict) // step for verdict in worst[:LARGEST_COUNT]])
    else:
        figure = detector.plot(values)
    return _render(figure, verdicts, worst)


def _render(figure: Figure, verdicts: Sequence[Verdict], worst: Sequence[Verdict]) -> str:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=80)
    return _PAGE.format(
        anomalous=count_anomalous(verdicts),
        total=len(verdicts),
        picture=base64.b64encode(buffer.getvalue()).decode(),
        rows="\n".join(_row(verdict) for verdict in worst[:LARGEST_TABLE]),
    )


def _example(verdict: Verdict, shape: tuple[int, ...], options: ReadOptions | None) -> np.ndarray:
    """The example that a verdict is about (of a recording: its worst window), read again: all of them may be many."""
    return read_at(Path(verdict.file), shape, _find_place(verdict), options)


def _find_place(verdict: Verdict) -> int:
    return verdict.worst if verdict.windows > 1 else verdict.place


def _row(verdict: Verdict) -> str:
    kind = ' class="bad"' if verdict.anomalous else ""
    return (
        f"<tr{kind}><td>{verdict.decision:+.2f}</td><td>{verdict.anomaly_probability:.3f}</td>"
        f"<td>{html.escape(verdict.file)}</td><td>{_find_place(verdict)}</td></tr>"
    )
