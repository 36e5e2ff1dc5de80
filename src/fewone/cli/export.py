"""fewone export: a fitted detector -> one .onnx file that ONNX Runtime runs without fewone or torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from fewone.cli.options import parse_options
from fewone.cli.score import load_fitted
from fewone.detector.aligned import AlignedDetector
from fewone.onnx_export import export_onnx


@dataclass(frozen=True)
class Arguments:
    """Export a detector with its preparation, score and threshold. Exit code 0: written and checked; 2: a mistake."""

    detector: Annotated[Path, tyro.conf.Positional]
    """A folder made by fewone fit."""
    onnx: Path
    """The file to write."""
    recording: bool = False
    """Also judge all windows of a call as one recording (output `recording`: as a whole, and its worst window)."""


def main(arguments: list[str]) -> int:
    """Export, and run what was written against the detector."""
    chosen = parse_options(Arguments, arguments, "fewone export")
    detector, shape = load_fitted(chosen.detector)
    difference = export_onnx(detector, chosen.onnx, chosen.recording)
    size = chosen.onnx.stat().st_size
    shape = (len(detector.segments_), *shape) if isinstance(detector, AlignedDetector) else shape
    print(f"{chosen.onnx}: {size / 1e3:.0f} kB, takes values (n, {', '.join(map(str, shape))}) float32;")
    print(f"ONNX Runtime gives the detector's scores to {difference:.1e}")
    return 0
