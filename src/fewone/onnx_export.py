"""A fitted detector -> one .onnx file: preparation, standardisation, score and threshold, for any number of examples.

Needs the extra `onnx`; what it writes needs only ONNX Runtime.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from fewone.detector.adaptation import adapt_together
from fewone.detector.aligned import AlignedDetector
from fewone.detector.envelope import Envelope, Guarded, choose_share
from fewone.detector.estimator import check_is_fitted
from fewone.detector.few_shot_detector import FewShotDetector
from fewone.errors import FewoneError
from fewone.extras import needed_for
from fewone.file_scoring.exported import KEY, ExportedFacts
from fewone.files import atomic_write

INPUT, OUTPUTS, RECORDING = "values", ("score_samples", "decision_function", "label"), "recording"
TOLERANCE = 1e-5
TIES, EXACT = 1e-3, 0.75
"""A share EXACT of the scores agrees to TOLERANCE and all to TIES: evidence that counts which of two patterns fits
better falls in a tie as single precision rounds. Half a rounding of its inputs moves one window of `series` in a
thousand that far."""


class ExportedDetector(nn.Module):
    """values (n, *shape), channels first, as they would be given to the detector -> its three answers, (n,) each."""

    def __init__(self, detector: FewShotDetector) -> None:
        super().__init__()
        self.guarded = detector.guarded_
        self.offset = float(detector.offset_)

    def forward(self, values: Tensor) -> tuple[Tensor, ...]:
        scores = -self.guarded(values)
        decisions = scores - self.offset
        return scores, decisions, torch.where(decisions >= 0, 1, -1)


class ExportedRecording(nn.Module):
    """The same, and of all examples as the windows of one recording in the order of time: whole and event, (2,)."""

    def __init__(self, detector: FewShotDetector) -> None:
        super().__init__()
        self.windows = ExportedDetector(detector)
        self.recording_scorer = detector.recording_scorer_

    def forward(self, values: Tensor) -> tuple[Tensor, ...]:
        scores, decisions, labels = self.windows(values)
        return scores, decisions, labels, self.recording_scorer(-scores).to(scores.dtype)


class ExportedAligned(nn.Module):
    """values (runs, segments, *shape) -> the same three answers for each run, (runs,)."""

    def __init__(self, detector: AlignedDetector, normals: Tensor) -> None:
        """normals (K, segments, *shape)."""
        super().__init__()
        learner, preparation = detector.segments_[0].prepare_learner(normals.shape[2])
        together = normals.transpose(0, 1)
        anchors = [float(segment.guarded_.anchors) for segment in detector.segments_]
        envelope = Envelope(together, choose_share(detector.segments_[0].false_alarm_rate))
        adapted, unit = adapt_together(learner, preparation, together), detector.segments_[0].guarded_.unit
        self.guarded = Guarded(adapted, envelope, anchors, unit, together=True)
        self.recording_scorer = detector.segments_[0].recording_scorer_
        self.offset = detector.offset_

    def forward(self, values: Tensor) -> tuple[Tensor, ...]:
        logits = self.guarded(values)
        decisions = self.recording_scorer(logits).amin(-1).to(logits.dtype)
        return decisions + self.offset, decisions, torch.where(decisions >= 0, 1, -1)


def export_onnx(detector: FewShotDetector | AlignedDetector, path: str | Path, recording: bool = False) -> float:
    """Write the file and run it: returns the largest difference of a score s, at most 1e-5 * max(1, |s|).

    Parameters
    ----------
    detector
        A fitted one.
    path
        Of the .onnx file.
    recording
        All examples of a call are the windows of one recording, and a fourth output `recording` has the two parts of
        its verdict, the mean's and the worst window's; anomalous where one of them is below 0.

    Returns
    -------
    The largest difference of a score.

    Raises
    ------
    FewoneError
        ONNX Runtime does not run the file or differs by more; nothing is written then.

    Examples
    --------
    >>> import tempfile, numpy as np, onnxscript, fewone
    >>> detector = fewone.FewShotDetector().fit(np.random.default_rng(0).normal(size=(20, 3)))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     fewone.export_onnx(detector, f"{folder}/detector.onnx") < 1e-5
    True
    """
    path = Path(path)
    with needed_for("the export", "onnx"):
        import onnxruntime
        import onnxscript  # noqa: F401
    if isinstance(detector, AlignedDetector):
        if recording:
            raise FewoneError("a detector of aligned runs judges whole runs already; export it without recording")
        support = torch.stack([segment.support_.values for segment in detector.segments_], dim=1)
        module: nn.Module = ExportedAligned(detector, support)
    else:
        check_is_fitted(detector)
        support = detector.support_.values
        module = ExportedRecording(detector) if recording else ExportedDetector(detector)
    pictures = isinstance(detector, FewShotDetector) and hasattr(detector, "full_scale_")
    values = _example_pictures(support) if pictures else _example(support)
    data = _convert(module.eval(), values, [*OUTPUTS, RECORDING] if recording else [*OUTPUTS], _find_facts(detector))
    try:
        session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
        differences = _compare(detector, session, values.numpy())
    except Exception as error:  # ONNX Runtime's exceptions have no common class of their own
        reason = str(error).splitlines()[0]
        raise FewoneError(f"{path}: not written: ONNX Runtime does not run it ({reason})") from error
    difference = float(differences.max())
    if not _is_the_same(differences):
        raise FewoneError(f"{path}: not written: its scores differ by {difference:.1e} from the detector's")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(path, data)
    except OSError as error:
        raise FewoneError(f"{path}: cannot be written ({error.strerror}); give another place") from error
    return difference


def _example(support: Tensor) -> Tensor:
    """The support and as many examples around it, at least three: sizes 0 and 1 would be taken for constants."""
    generator = torch.Generator().manual_seed(0)
    around = support + support.std() * torch.randn(support.shape, generator=generator, dtype=support.dtype)
    both = torch.cat([support, around])
    return both if len(both) > 2 else both.repeat(2, *(1,) * (both.dim() - 1))


def _example_pictures(support: Tensor) -> Tensor:
    """Two of the support's pictures and two with a stain, in whole numbers: all patches of many fill the memory."""
    both = torch.cat([support[:2], support[-1:]])
    stained = both.clone()
    stained[..., 60:90, 60:90] = 255.0 - stained[..., 60:90, 60:90]
    return torch.cat([both, stained])[1:]


def _find_facts(detector: FewShotDetector | AlignedDetector) -> ExportedFacts | None:
    """What `fewone score` needs of the file; a detector without a card takes no files."""
    first = detector.segments_[0] if isinstance(detector, AlignedDetector) else detector
    if first.card is None:
        return None
    card = first.card
    return ExportedFacts(
        tuple(first.support_.values.shape[1:]) if len(card.shape) == 2 else card.shape,
        float(first.offset_),
        first.limits(),
        first.own_limits(),
        card.preparation.scale,
        first.sampling_rate or card.sampling_rate,
        getattr(first, "full_scale_", None),
        isinstance(detector, AlignedDetector),
    )


def _convert(module: nn.Module, values: Tensor, outputs: list[str], facts: ExportedFacts | None) -> bytes:
    try:
        with torch.no_grad(), _quiet():
            program = torch.onnx.export(
                module,
                (values,),
                dynamo=True,
                dynamic_shapes=({0: torch.export.Dim("examples", min=1)},),
                input_names=[INPUT],
                output_names=outputs,
                verbose=False,
            )
    except torch.onnx.OnnxExporterError as error:
        reason = str(error).strip().splitlines()[0]
        raise FewoneError(f"this learner's scorer has no ONNX form ({reason}); export another learner") from error
    assert program is not None
    model = program.model_proto
    if facts is not None:
        model.metadata_props.add(key=KEY, value=facts.as_text())
    return bytes(model.SerializeToString())


def _compare(detector: FewShotDetector | AlignedDetector, session: object, values: np.ndarray) -> np.ndarray:
    """The differences of scores in units of max(1, |score|), all at once and one example by itself."""
    pictures = hasattr(detector, "full_scale_")
    expected = detector.score_samples(values.astype(np.uint8) if pictures else values)
    at_once = session.run([OUTPUTS[0]], {INPUT: values})[0]  # type: ignore[attr-defined]
    one = session.run([OUTPUTS[0]], {INPUT: values[:1]})[0]  # type: ignore[attr-defined]
    found = np.concatenate([at_once, one]) - np.concatenate([expected, expected[:1]])
    relative: np.ndarray = np.abs(found) / np.maximum(1.0, np.abs(np.append(expected, expected[0])))
    return relative


def _is_the_same(differences: np.ndarray) -> bool:
    """Not where a number is missing: every comparison with it is false."""
    return bool(np.quantile(differences, EXACT) <= TOLERANCE and differences.max() <= TIES)


@contextmanager
def _quiet() -> Iterator[None]:
    """The exporter warns of what does not concern its user: torchvision's operators, its own deprecated calls."""
    disabled = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)
