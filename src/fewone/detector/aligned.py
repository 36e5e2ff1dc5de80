"""Runs of one operation of a machine -> one decision per run: a detector for each segment of the operation.

Segment p shows the same part of the operation in every run, so what is normal there is learned there. The verdict on a
run is that on a recording (`recording_verdicts.py`): the mean over its segments against a threshold that was calibrated
for just such means, and the worst segment against one for the worst of so many.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fewone.checkpoints import read_checkpoint, write_checkpoint
from fewone.detector.arrays import as_array
from fewone.detector.drift import LEVEL, Drift, find_drift
from fewone.detector.estimator import Estimator, check_is_fitted
from fewone.detector.fault_report import STRENGTHS, FaultReport, Judge, report_faults
from fewone.detector.few_shot_detector import FewShotDetector
from fewone.detector.files import DETECTOR
from fewone.detector.recording_limits import RecordingVerdict
from fewone.detector.recording_verdicts import judge_recording
from fewone.detector.support_report import SupportReport
from fewone.detector.thresholds import Scores
from fewone.documents import DocumentError, from_plain, to_plain
from fewone.errors import FewoneError, InputError
from fewone.learners import MetaLearner

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ALIGNED = "aligned"
SEGMENT, OLD_SEGMENT = "segment-", "stretch-"
"""The folders of the detectors, today and in version 0.1."""


@dataclass(frozen=True)
class Segments:
    """The hash of the detector of each segment, so that parts of two detectors are never mixed."""

    detectors: tuple[str, ...]


class AlignedDetector(Estimator):
    """One decision per run from aligned segments, (runs, segments, *shape).

    Parameters
    ----------
    detector
        What `fewone.load` gives; it is cloned for each segment and stays as it is. None: one of plain tables, for runs
        (runs, segments, columns), or (runs, segments) with one number each.

    Attributes
    ----------
    segments_
        The fitted detector of each segment.
    offset_
        decision_function = score_samples - offset_.
    n_features_in_
        How many segments a run has.

    Examples
    --------
    >>> import fewone, numpy as np
    >>> runs = np.random.default_rng(0).normal(size=(10, 3, 128))
    >>> fewone.AlignedDetector(fewone.load("series")).fit(runs).predict(runs[:2]).shape
    (2,)
    """

    def __init__(self, detector: FewShotDetector | None = None) -> None:
        self.detector = detector

    def fit(self, X: ArrayLike, y: ArrayLike | None = None) -> Self:  # noqa: N803
        """Adapt to normal runs (runs, segments, *shape); y is ignored, as scikit-learn has it: all runs are normal.

        Parameters
        ----------
        X
            Normal runs (runs, segments, *shape).
        y
            Ignored.

        Returns
        -------
        The detector itself, fitted.

        Raises
        ------
        InputError
            No array of finite numbers (runs, segments, *shape).
        """
        runs = self._read(X, first=True)
        model = self._model()
        self.segments_ = [model.unfitted().fit(runs[:, number]) for number in range(runs.shape[1])]
        return self

    def partial_fit(self, X: ArrayLike, y: ArrayLike | None = None) -> Self:  # noqa: N803
        """Add more normal runs: the same as `fit` on all of them.

        Parameters
        ----------
        X
            Runs (runs, segments, *shape), cut as those of `fit`.
        y
            Ignored.

        Returns
        -------
        The detector itself.
        """
        if not hasattr(self, "segments_"):
            return self.fit(X)
        runs = self._read(X)
        for number, detector in enumerate(self._fitted()):
            detector.partial_fit(runs[:, number])
        return self

    def score_segments(self, X: ArrayLike) -> Scores:  # noqa: N803
        """How normal each segment of each run is, (runs, segments).

        Parameters
        ----------
        X
            Runs (runs, segments, *shape), cut as those of `fit`.

        Returns
        -------
        (runs, segments) the higher, the more normal.
        """
        detectors = self._fitted()
        runs = self._read(X)
        return np.stack([detector.score_samples(runs[:, number]) for number, detector in enumerate(detectors)], axis=1)

    def score_samples(self, X: ArrayLike) -> Scores:  # noqa: N803
        """How normal each run is, (runs,): the mean over its segments, or less where one segment is far worse.

        Parameters
        ----------
        X
            Runs (runs, segments, *shape), cut as those of `fit`.

        Returns
        -------
        (runs,) the higher, the more normal.
        """
        return self.decision_function(X) + self.offset_

    def decision_function(self, X: ArrayLike) -> Scores:  # noqa: N803
        """Above 0 a normal run, below 0 an anomalous one, (runs,): what the mean or the worst segment says.

        Parameters
        ----------
        X
            Runs (runs, segments, *shape), cut as those of `fit`.

        Returns
        -------
        (runs,).
        """
        return np.array([verdict.decision for verdict in self.judge_runs(X)])

    @property
    def offset_(self) -> float:
        """decision_function = score_samples - offset_: for the mean over all segments of a run."""
        detectors = self._fitted()
        return -detectors[0].recording_scorer_.limit_whole(len(detectors))

    def judge_runs(self, X: ArrayLike) -> list[RecordingVerdict]:  # noqa: N803
        """One verdict per run: wrong as a whole, or in one segment.

        Parameters
        ----------
        X
            Runs (runs, segments, *shape), cut as those of `fit`.

        Returns
        -------
        A verdict per run.
        """
        scorer = self._fitted()[0].recording_scorer_
        return [judge_recording(scorer, -scores) for scores in self.score_segments(X)]

    def predict(self, X: ArrayLike) -> NDArray[np.int64]:  # noqa: N803
        """+1 normal, -1 anomalous, one per run.

        Parameters
        ----------
        X
            Runs (runs, segments, *shape), cut as those of `fit`.

        Returns
        -------
        (runs,) of +1 and -1.
        """
        return np.where(self.decision_function(X) >= 0, 1, -1)

    def anomaly_probability(self, X: ArrayLike) -> Scores:  # noqa: N803
        """The probability that a run is anomalous, where normals and anomalies are equally frequent.

        Parameters
        ----------
        X
            Runs (runs, segments, *shape), cut as those of `fit`.

        Returns
        -------
        (runs,) between 0 and 1.
        """
        scorer = self._fitted()[0].own_recording_scorer()
        decisions = [judge_recording(scorer, -scores).decision for scores in self.score_segments(X)]
        return np.exp(-np.logaddexp(0.0, decisions))

    def check_faults(
        self, faults: Sequence[str] | None = None, strengths: Sequence[float] = STRENGTHS, seed: int = 0
    ) -> FaultReport:
        """Which faults anywhere in a run would be found, from which strength on: as `FewShotDetector.check_faults`.

        Parameters
        ----------
        faults
            Names of `fewone.faults.FAULTS`; None: all of them.
        strengths
            1 is a fault that is plain to see beside a run's own deviation.
        seed
            Of the draws of faults.

        Returns
        -------
        The share of faults found, by kind and strength.
        """
        runs = np.stack([segment.support_.normals.numpy() for segment in self._fitted()], axis=1)

        def fit(rows: NDArray[np.int64]) -> Judge:
            fitted = self.unfitted().fit(runs[rows])
            return lambda examples: fitted.decision_function(examples) < 0

        return report_faults(runs, "runs", fit, faults, strengths, seed)

    def drift(self, X: ArrayLike, block: int = 10, level: float = LEVEL) -> Drift:  # noqa: N803
        """Whether recent runs, presumed normal and in the order of time, still score as those fitted on; by means.

        Parameters
        ----------
        X
            Recent runs, in the order of time.
        block
            So many runs in a row are held against those fitted on.
        level
            The probability with which drift is told where there is none.

        Returns
        -------
        Whether there is drift, since when, and how sure that is.
        """
        own = np.mean([report.leave_one_out for report in self.report()], axis=0)
        offset = np.mean([segment.offset_ for segment in self._fitted()])
        return find_drift(own, self.score_segments(X).mean(axis=1) - offset, block, level)

    def report(self) -> tuple[SupportReport, ...]:
        """What the normals of each segment say of themselves; `odd` numbers the runs.

        Returns
        -------
        One report per segment.
        """
        return tuple(detector.report() for detector in self._fitted())

    def plot(self, run: ArrayLike) -> Figure:
        """A figure of all segments of one run (segments, *shape), with their scores and where the anomaly is.

        Parameters
        ----------
        run
            One run (segments, *shape).

        Returns
        -------
        A figure of matplotlib (`fewone[plots]`).
        """
        windows = as_array(run, "run")
        return self.plot_windows(windows, range(len(windows)))

    def plot_windows(self, values: NDArray[Any], segments: range | list[int]) -> Figure:
        """A figure of windows (n, *shape), each judged by the detector of its segment.

        Parameters
        ----------
        values
            Windows (n, *shape).
        segments
            The segment each of them is of.

        Returns
        -------
        A figure of matplotlib.
        """
        from fewone.detector.drawing import LARGEST_COUNT, draw_examples

        detectors = self._fitted()
        chosen = list(segments)[:LARGEST_COUNT]
        pairs = [(detectors[number], values[place : place + 1]) for place, number in enumerate(chosen)]
        maps = np.concatenate([detector.explain(value) for detector, value in pairs])
        decisions = np.concatenate([detector.decision_function(value) for detector, value in pairs])
        return draw_examples(values[: len(chosen)], maps, decisions)

    def save(self, folder: str | Path) -> None:
        """Write a folder of JSON and safetensors with a detector for each segment; `AlignedDetector.load` reads it.

        Parameters
        ----------
        folder
            It is made if needed.
        """
        detectors = self._fitted()
        place = Path(folder)
        for number, detector in enumerate(detectors):
            detector.save(place / f"{SEGMENT}{number}")
        content = Segments(tuple(_hash(place, number) for number in range(len(detectors))))
        write_checkpoint(place, ALIGNED, {}, to_plain(content))

    @classmethod
    def load(cls, folder: str | Path, learner: MetaLearner | None = None) -> AlignedDetector:
        """What `save` wrote; loading executes nothing, and what is not whole is refused with the reason.

        learner: where a learner of yours was saved, one that is built as that one was.

        Parameters
        ----------
        folder
            What `save` wrote, of version 0.1 too.
        learner
            Where a learner of yours was saved: one that is built as that one was.

        Returns
        -------
        The fitted detector.

        Raises
        ------
        FewoneError
            Something of the folder is missing, changed, or of another detector.
        """
        from fewone.detector.loading import load_detector

        place = Path(folder)
        _, document = read_checkpoint(place, ALIGNED)
        try:
            content = from_plain(Segments, document)
        except DocumentError as fault:
            raise FewoneError(
                f"{place / ALIGNED}.json: {fault}; the file is not one that this version wrote"
            ) from fault
        if not content.detectors:
            raise FewoneError(f"{place / ALIGNED}.json: it names no segment; take a whole copy")
        for number, digest in enumerate(content.detectors):
            if _hash(place, number) != digest:
                raise FewoneError(f"{place}: segment-{number} is not what was saved with the others; take a whole copy")
        detectors = [
            load_detector(_find_segment(place, number), learner=learner) for number in range(len(content.detectors))
        ]
        aligned = cls(detectors[0].unfitted())
        aligned.segments_, aligned.n_features_in_ = detectors, len(detectors)
        return aligned

    def adapted_anew(self, **changes: float) -> AlignedDetector:
        """The same runs under other arguments of the detector, such as another false_alarm_rate; none: this one.

        Parameters
        ----------
        changes
            Arguments of `FewShotDetector`.

        Returns
        -------
        Another detector; this one where nothing changes.
        """
        if not changes:
            return self
        other = AlignedDetector(self._model().unfitted().set_params(**changes))
        other.segments_ = [
            segment.unfitted().set_params(**changes).restore(segment.support_, segment.n_features_in_)
            for segment in self._fitted()
        ]
        other.n_features_in_ = self.n_features_in_
        return other

    def __repr__(self) -> str:
        detector = self.segments_[0] if self.__sklearn_is_fitted__() else self.detector
        inside = repr(detector).partition("(")[2].rsplit(", ", 1)
        fitted = f"{len(self.segments_)} segments" if self.__sklearn_is_fitted__() else "not fitted"
        return f"AlignedDetector({inside[0]}, {fitted})" if len(inside) > 1 else f"AlignedDetector({fitted})"

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "segments_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = self.detector is None
        tags.input_tags.three_d_array = True
        return tags

    def _fitted(self) -> list[FewShotDetector]:
        check_is_fitted(self)
        return self.segments_

    def _model(self) -> FewShotDetector:
        """What is cloned for each segment."""
        if self.detector is not None and not isinstance(self.detector, FewShotDetector):
            raise InputError(f"detector: what fewone.load gives is expected, got {type(self.detector).__name__}")
        return FewShotDetector() if self.detector is None else self.detector

    def _read(self, X: ArrayLike, first: bool = False) -> NDArray[Any]:  # noqa: N803
        """(runs, segments, *shape), as many segments as fitted on; first: it is fitted anew."""
        plain = self._model().learner is None
        runs = self._read_table(X, first) if plain else as_array(X)
        if runs.ndim == 2 and plain:
            runs = runs[..., None]
        if runs.ndim < 3 or runs.shape[1] == 0:
            raise InputError(f"X: runs of aligned segments expected, (runs, segments, *shape), got {runs.shape}")
        if not first and runs.shape[1] != len(self.segments_):
            raise InputError(f"X: {len(self.segments_)} segments a run expected, got {runs.shape[1]}: {runs.shape}")
        if first:
            self.n_features_in_ = runs.shape[1]
        return runs

    def _read_table(self, X: ArrayLike, first: bool) -> NDArray[Any]:  # noqa: N803
        """As scikit-learn reads tables, with its words for what is wrong."""
        from sklearn.utils.validation import validate_data

        array: NDArray[Any] = validate_data(self, X, reset=first, dtype=[np.float64, np.float32], allow_nd=True)
        return array


def is_aligned(folder: Path) -> bool:
    """Whether an aligned detector was saved here."""
    return (folder / f"{ALIGNED}.json").exists()


def _find_segment(folder: Path, number: int) -> Path:
    old = folder / f"{OLD_SEGMENT}{number}"
    return old if old.is_dir() else folder / f"{SEGMENT}{number}"


def _hash(folder: Path, number: int) -> str:
    place = _find_segment(folder, number) / f"{DETECTOR}.json"
    try:
        return hashlib.sha256(place.read_bytes()).hexdigest()
    except OSError as error:
        raise FewoneError(f"{place}: cannot be read ({error.strerror}); take a whole copy") from error
