"""An exported .onnx file and new files -> the verdicts that the folder gives, by ONNX Runtime, without torch."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fewone.detector.recording_limits import Limits, judge_by_limits
from fewone.documents import DocumentError, from_plain, to_plain
from fewone.errors import FewoneError
from fewone.extras import needed_for
from fewone.file_scoring.user_files import FileExamples
from fewone.file_scoring.verdict_rows import Judged, Verdict, note_missing, tell_recording
from fewone.picture_files import FullScale, to_bytes

KEY = "fewone"
"""Under this name the model's metadata holds the facts, as JSON."""
BLOCK_VALUES = 1 << 17
"""Examples are scored in blocks of about this many values: memory stays flat."""


@dataclass(frozen=True)
class ExportedFacts:
    """What a verdict on files needs beyond the graph.

    shape: of one example; 0 where it is open. limits, own_limits: of recordings, at the rate that was asked for and at
    the learner's own threshold. scale: by which inputs are multiplied. aligned: the graph takes whole runs.
    """

    shape: tuple[int, ...]
    offset: float
    limits: Limits
    own_limits: Limits
    scale: float = 1.0
    sampling_rate: float | None = None
    full_scale: FullScale | None = None
    aligned: bool = False

    def as_text(self) -> str:
        return json.dumps(to_plain(self))


@dataclass(frozen=True)
class RuntimeDetector:
    """A session of ONNX Runtime and its facts."""

    session: Any
    facts: ExportedFacts

    def score_samples(self, values: NDArray[Any]) -> NDArray[np.float64]:
        """Examples (n, *shape) as they are read from files -> how normal each is, (n,)."""
        facts = self.facts
        if facts.full_scale is not None:
            values = np.stack([to_bytes(one, facts.full_scale) for one in values])
        elif values.size and facts.scale < 0.1 and 0 < np.abs(values).max() <= 1:
            white = f"{1 / facts.scale:g}"
            raise FewoneError(f"X: values up to {white} expected, got none above 1; multiply by {white}")
        at_once = max(1, BLOCK_VALUES // max(1, values[0].size))
        blocks = [
            np.ascontiguousarray(values[first : first + at_once], np.float32)
            for first in range(0, len(values), at_once)
        ]
        found = [self.session.run(["score_samples"], {"values": block})[0] for block in blocks]
        return np.concatenate(found).astype(np.float64)

    def judge_blocks(self, blocks: Iterable[FileExamples], each_window: bool = False) -> Judged:
        """What is said of a file that comes block by block, as `verdicts.judge_blocks` says it."""
        scores, places, left_out = [np.zeros(0)], [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
        for block in blocks:
            if len(block.places):
                scores.append(self.score_samples(block.values))
            places.append(block.places)
            left_out.append(block.not_judged)
        verdicts = self._conclude(block, np.concatenate(scores), np.concatenate(places), each_window)
        return note_missing(block, verdicts, np.concatenate(left_out))

    def _conclude(
        self, last: FileExamples, scores: NDArray[np.float64], places: NDArray[np.int64], each_window: bool
    ) -> list[Verdict]:
        file, offset = str(last.file), self.facts.offset
        if last.recording and not each_window and len(scores):
            own = judge_by_limits(self.facts.own_limits, -scores).decision
            probability = float(np.exp(-np.logaddexp(0.0, own)))
            return [tell_recording(file, judge_by_limits(self.facts.limits, -scores), places, probability)]
        probabilities = np.exp(-np.logaddexp(0.0, scores))
        return [
            Verdict(file, place, 1, 0, float(score - offset), float(probability), bool(score < offset))
            for place, score, probability in zip(places.tolist(), scores, probabilities, strict=True)
        ]


def is_exported(path: Path) -> bool:
    return path.suffix.lower() == ".onnx"


def open_exported(path: Path) -> RuntimeDetector:
    """The session, with as many threads as OMP_NUM_THREADS says, if it does."""
    with needed_for(f"{path}: scoring it"):
        import onnxruntime
    if not path.is_file():
        raise FewoneError(f"{path}: no such file; write it with fewone export DETECTOR --onnx {path}")
    options = onnxruntime.SessionOptions()
    threads = os.environ.get("OMP_NUM_THREADS", "")
    options.intra_op_num_threads = int(threads) if threads.isdigit() else 0
    try:
        session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # ONNX Runtime's exceptions have no common class of their own
        raise FewoneError(f"{path}: not an ONNX model that runs here; export it anew with fewone export") from error
    return RuntimeDetector(session, _read_facts(path, session.get_modelmeta().custom_metadata_map.get(KEY)))


def _read_facts(path: Path, text: str | None) -> ExportedFacts:
    if text is None:
        raise FewoneError(
            f"{path}: an ONNX model without the facts that fewone export writes; export a detector's folder anew"
        )
    try:
        facts = from_plain(ExportedFacts, json.loads(text))
    except (DocumentError, ValueError) as error:
        raise FewoneError(f"{path}: facts of another version of fewone; export the detector anew") from error
    if facts.aligned:
        raise FewoneError(f"{path}: takes whole aligned runs; give the folder of the detector to fewone score")
    return facts
