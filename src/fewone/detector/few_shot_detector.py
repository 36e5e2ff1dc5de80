"""K normals -> a scikit-learn outlier detector, over any learner.

Inside, higher is more anomalous and 0 is the threshold; outside, positive is normal.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, overload

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from fewone.calibration import Adapting, Calibrated, CalibrationMap
from fewone.checkpoints import ModelSpec
from fewone.detector.adaptation import Adapted, Support, adapt_to, leave_one_out, plain_learner
from fewone.detector.arrays import arrange, as_array, as_labels, check_magnitude, check_range
from fewone.detector.drift import LEVEL, Drift, find_drift
from fewone.detector.envelope import (
    TAIL_POWER,
    Envelope,
    Guarded,
    choose_share,
    find_distances_left_out,
    guard,
)
from fewone.detector.estimator import Estimator, check_is_fitted
from fewone.detector.explanation import explain
from fewone.detector.fault_report import STRENGTHS, FaultReport, Judge, report_faults
from fewone.detector.files import SavedDetector, write_detector
from fewone.detector.one_example import OneExample
from fewone.detector.pictures import Seen, enlarge_maps, look_at, takes_any_picture
from fewone.detector.reasons import Why, find_reasons
from fewone.detector.recording_limits import Limits, RecordingVerdict
from fewone.detector.recording_verdicts import RecordingScorer, find_limits, judge_recording
from fewone.detector.recordings import SeriesScores, join_scores, score_steps, stream_windows
from fewone.detector.support_report import SupportReport, find_faults, report_support
from fewone.detector.thresholds import Scores, find_tail_scale, find_threshold, split_groups
from fewone.episodes import NORMAL, InputScaling
from fewone.errors import InputError, say_count
from fewone.learners import MetaLearner
from fewone.picture_files import FullScale
from fewone.zoo import advise, advise_on_array

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BLOCK_VALUES = 1 << 17
"""Examples are scored in blocks of about this many values: memory stays flat and a block stays in the cache."""

ONE_PICTURE = (
    "warning: one picture gives an order from usual to strange; where normal ends nobody knows: add more normals"
)

_NUMBERS = ("false_alarm_rate", "sampling_rate")


class FewShotDetector(Estimator):
    """An anomaly detector for a new machine or class from a few normal examples.

    Parameters
    ----------
    learner
        A meta-trained learner; None takes plain tables (n, columns) with the Bayesian head on the columns.
    card
        What the learner was trained for: the shape of its inputs and how they are prepared; `fewone.load` gives it.
    scaling
        In place of the card, for a learner of yours: how its inputs were prepared in training, such as
        `sampler.scaling`. X (n, *shape) is then handed to it in the axes that you give. One of both must be there.
    calibration
        What held-out tasks say of the learner's scores; makes them log-odds and false_alarm_rate possible with few
        normals.
    false_alarm_rate
        The share of normals that may be called anomalous; None keeps the learner's own threshold.
    sampling_rate
        Of your series in Hz; refused where the model was trained for another one.

    Attributes
    ----------
    offset_
        decision_function = score_samples - offset_.
    support_size_
        K, the number of normals fitted on.
    n_features_in_
        The size of the second axis of X in `fit`.
    full_scale_
        For pictures of every size: what white was among the normals.

    Examples
    --------
    >>> import numpy as np
    >>> from fewone import FewShotDetector
    >>> normals = np.random.default_rng(0).normal(size=(20, 3))
    >>> FewShotDetector().fit(normals).predict([[0.0, 0.0, 0.0], [9.0, -9.0, 9.0]])
    array([ 1, -1])
    """

    def __init__(
        self,
        learner: MetaLearner | None = None,
        *,
        card: ModelSpec | None = None,
        scaling: InputScaling | None = None,
        calibration: CalibrationMap | None = None,
        false_alarm_rate: float | None = None,
        sampling_rate: float | None = None,
    ) -> None:
        self.learner = learner
        self.card = card
        self.scaling = scaling
        self.calibration = calibration
        self.false_alarm_rate = false_alarm_rate
        self.sampling_rate = sampling_rate

    def fit(self, X: ArrayLike, y: ArrayLike | None = None) -> Self:  # noqa: N803
        """Adapt to the normals X; y marks a few known anomalies with -1 (and normals with +1).

        A model for pictures of every size also takes lists: of arrays of mixed sizes, or of names of files.

        Parameters
        ----------
        X
            (n, ...) normal examples: tables (n, columns), windows (n, length) or (n, channels, length), pictures.
        y
            (n,) +1 for normals, -1 for known anomalies; None: all are normal.

        Returns
        -------
        The detector itself, fitted.

        Raises
        ------
        InputError
            What is no array of finite numbers, or of another shape than the model takes.
        """
        self.check_parameters()
        return self._adapt(self._read_support(X, y, first=True))

    def partial_fit(self, X: ArrayLike, y: ArrayLike | None = None) -> Self:  # noqa: N803
        """Add more normals: the same as `fit` on all of them.

        Parameters
        ----------
        X
            More normal examples, laid out as those of `fit`.
        y
            As for `fit`.

        Returns
        -------
        The detector itself.
        """
        if not hasattr(self, "support_"):
            return self.fit(X, y)
        self.check_parameters()
        return self._adapt(self.support_.joined(self._read_support(X, y, first=False)))

    def score_samples(self, X: ArrayLike) -> Scores:  # noqa: N803
        """How normal each example is, (n,): minus the anomaly logit.

        Parameters
        ----------
        X
            New examples, laid out as those of `fit`.

        Returns
        -------
        (n,) the higher, the more normal.

        Raises
        ------
        InputError
            Examples of another shape than those of `fit`, or not finite.
        """
        check_is_fitted(self)
        return -self._logits(self._read(X, first=False))

    def decision_function(self, X: ArrayLike, groups: ArrayLike | None = None) -> Scores:  # noqa: N803
        """Above 0 normal, below 0 anomalous, (n,).

        groups (n,) says which recording each example belongs to: one value per recording, in order of appearance, the
        smaller of what its mean and what its worst example say (`judge_recordings` gives both).

        Parameters
        ----------
        X
            New examples, laid out as those of `fit`.
        groups
            (n,) which recording each example belongs to; None: every example for itself.

        Returns
        -------
        (n,), or one value per recording.
        """
        if groups is None:
            return self.score_samples(X) - self.offset_
        return np.array([verdict.decision for verdict in self.judge_recordings(X, groups)])

    def judge_recordings(self, X: ArrayLike, groups: ArrayLike) -> list[RecordingVerdict]:  # noqa: N803
        """One verdict per recording, in order of appearance: wrong as a whole, or an event in one of its examples.

        Parameters
        ----------
        X
            New examples, laid out as those of `fit`.
        groups
            (n,) which recording each example of X belongs to; the examples of one stand in the order of time.

        Returns
        -------
        A verdict per recording, in order of appearance.

        Examples
        --------
        >>> import numpy as np
        >>> from fewone import FewShotDetector
        >>> random = np.random.default_rng(0)
        >>> detector = FewShotDetector().fit(random.normal(size=(20, 3)))
        >>> windows = random.normal(size=(46, 3))
        >>> windows[14] += 40.0
        >>> for verdict in detector.judge_recordings(windows, np.repeat([0, 1], 23)):
        ...     print(verdict.cause, verdict.worst if verdict.decision < 0 else "")
        whole recording and event 14
        normal
        """
        logits = -self.score_samples(X)
        return [judge_recording(self.recording_scorer_, logits[rows]) for rows in split_groups(groups, len(logits))]

    def predict(self, X: ArrayLike, groups: ArrayLike | None = None) -> NDArray[np.int64]:  # noqa: N803
        """+1 normal, -1 anomalous; one per example or, with groups, one per recording in order of appearance.

        Parameters
        ----------
        X
            New examples, laid out as those of `fit`.
        groups
            (n,) which recording each example belongs to; None: every example for itself.

        Returns
        -------
        (n,) of +1 and -1, or one per recording.
        """
        return np.where(self.decision_function(X, groups) >= 0, 1, -1)

    def anomaly_probability(self, X: ArrayLike, groups: ArrayLike | None = None) -> Scores:  # noqa: N803
        """The probability of being anomalous, in [0, 1], where normals and anomalies are equally frequent.

        It does not move with false_alarm_rate: 0.5 is the learner's own threshold.

        Parameters
        ----------
        X
            New examples, laid out as those of `fit`.
        groups
            (n,) which recording each example belongs to; None: every example for itself.

        Returns
        -------
        (n,), or one per recording.
        """
        scores = self.score_samples(X)
        if groups is not None:
            scorer = self.own_recording_scorer()
            parts = split_groups(groups, len(scores))
            scores = np.array([judge_recording(scorer, -scores[rows]).decision for rows in parts])
        return np.exp(-np.logaddexp(0.0, scores))

    @overload
    def score_series(self, series: Iterator[ArrayLike], stride: int | None = None) -> Iterator[SeriesScores]: ...

    @overload
    def score_series(self, series: ArrayLike, stride: int | None = None) -> SeriesScores: ...

    def score_series(
        self, series: ArrayLike | Iterator[ArrayLike], stride: int | None = None
    ) -> SeriesScores | Iterator[SeriesScores]:
        """Score a long recording (length,) or (length, channels) window by window, one every `stride` (the window).

        An iterator of chunks of rows gives an iterator of pieces: memory does not grow with the recording.

        Parameters
        ----------
        series
            (length,) or (length, channels), or an iterator of chunks of its rows.
        stride
            Steps from one window to the next; None: the window's length.

        Returns
        -------
        Scores of windows and steps; of an iterator, one piece after the other.

        Raises
        ------
        InputError
            The detector takes no series, or the recording is shorter than a window.
        """
        check_is_fitted(self)
        shape = tuple(self.support_.values.shape[1:])
        if len(shape) != 2:
            raise InputError(f"score_series takes series; this detector takes inputs of shape {shape}")
        window = shape[-1]
        chunks = series if isinstance(series, Iterator) else iter([np.asarray(series)])
        blocks = stream_windows(chunks, window, stride)
        pieces = score_steps(blocks, self._decide_windows)
        return pieces if isinstance(series, Iterator) else join_scores(pieces)

    def decide(self, scores: SeriesScores) -> float:
        """One decision value for a whole recording from its `score_series`: above 0 normal, below 0 anomalous.

        Parameters
        ----------
        scores
            What `score_series` gave.

        Returns
        -------
        Above 0 normal, below 0 anomalous.
        """
        return self.judge_series(scores).decision

    def judge_series(self, scores: SeriesScores) -> RecordingVerdict:
        """The same with its parts: `whole` and `event`, and the number of the worst window, which begins at
        `scores.starts[verdict.worst]`.

        Parameters
        ----------
        scores
            What `score_series` gave.

        Returns
        -------
        The verdict on the recording.
        """
        check_is_fitted(self)
        return judge_recording(self.recording_scorer_, -(scores.windows + self.offset_))

    def explain(self, X: ArrayLike) -> Scores | list[Scores]:  # noqa: N803
        """Where the anomaly is: a map of the shape of X; the higher, the more that place makes an example anomalous.

        Of pictures of every size: (n, height, width), or a list of maps where the sizes differ.

        Parameters
        ----------
        X
            New examples, laid out as those of `fit`.

        Returns
        -------
        An array of the shape of X, or a list of maps.
        """
        check_is_fitted(self)
        if self._takes_any_picture():
            seen = look_at(X)
            return enlarge_maps(self._locate(seen.as_values(self.full_scale_)), seen.sizes)
        given = np.shape(X)
        values = self._read(X, first=False).to(self.support_.values.dtype)
        maps = explain(self.guarded_, values, self.support_.normals).double().numpy()
        if maps.shape != given and maps.ndim == len(given):
            return np.ascontiguousarray(np.moveaxis(maps, 1, -1))
        return maps.reshape(given)

    def plot(self, X: ArrayLike) -> Figure:  # noqa: N803
        """A figure of the examples with their scores and where the anomaly is (at most 12 of them).

        Parameters
        ----------
        X
            New examples, laid out as those of `fit`.

        Returns
        -------
        A figure of matplotlib (`fewone[plots]`).
        """
        from fewone.detector.drawing import LARGEST_COUNT, draw_examples

        check_is_fitted(self)
        if self._takes_any_picture():
            shown = look_at(X[:LARGEST_COUNT])  # type: ignore[index]
            values = shown.as_values(self.full_scale_)
            located = self._locate(values).unsqueeze(1)
            return draw_examples(
                values.numpy(), located.numpy(), -self._logits(values) - self.offset_, sizes=shown.sizes
            )
        values = self._read(X, first=False)[:LARGEST_COUNT].to(self.support_.values.dtype)
        maps = explain(self.guarded_, values, self.support_.normals)
        return draw_examples(values.numpy(), maps.numpy(), -self._logits(values) - self.offset_)

    def report(self) -> SupportReport:
        """What the support says of itself: examples that look odd beside the others, warnings.

        Returns
        -------
        The support's leave-one-out scores, the numbers of odd examples, and warnings in words.
        """
        check_is_fitted(self)
        anomalies = len(self.support_) - self.support_size_
        distances = find_distances_left_out(self.support_.normals, choose_share(self.false_alarm_rate))
        logits = guard(
            torch.from_numpy(self._leave_one_out()),
            distances.double(),
            torch.tensor(self._anchor()),
            self._guard_unit(),
        )
        scores: Scores = -logits.numpy()
        found = report_support(
            self.support_size_,
            anomalies,
            scores,
            self.offset_,
            self.calibration,
            self.false_alarm_rate,
            find_faults(self.support_.normals.numpy()),
        )
        if self._takes_any_picture() and self.support_size_ == 1:
            return replace(found, warnings=(*found.warnings, ONE_PICTURE))
        return found

    def why(self, X: ArrayLike) -> list[Why]:  # noqa: N803
        """Why each example is called what it is called: every kind of evidence's share, in words and numbers.

        Parameters
        ----------
        X
            New examples, laid out as those of `fit`.

        Returns
        -------
        One `Why` per example.

        Examples
        --------
        >>> import numpy as np
        >>> from fewone import FewShotDetector
        >>> normals = np.random.default_rng(0).normal(size=(20, 3))
        >>> (why,) = FewShotDetector().fit(normals).why([[0.0, 90.0, 0.0]])
        >>> why.reasons[0].kind, why.outside > 1
        ('level', True)
        """
        check_is_fitted(self)
        values = self._read(X, first=False).to(self.support_.values.dtype)
        decisions = -self._logits(values) - self.offset_
        with torch.inference_mode():
            distances = self.guarded_.find_distances(values).double()
            opinions = -self.adapted_(values).double() - self.offset_
        reasons = find_reasons(self.adapted_, self.guarded_.envelope, values)
        numbers = zip(decisions.tolist(), distances.tolist(), opinions.tolist(), reasons, strict=True)
        return [Why(decision, distance, opinion, found) for decision, distance, opinion, found in numbers]

    def check_faults(
        self, faults: Sequence[str] | None = None, strengths: Sequence[float] = STRENGTHS, seed: int = 0
    ) -> FaultReport:
        """Which faults would be found, from which strength on: injected into the detector's own normals, each of them
        judged by a detector that was fitted on the others.

        Parameters
        ----------
        seed
            Of the draws of faults.
        faults
            Names of `fewone.faults.FAULTS` (of pictures: of PICTURE_FAULTS); None: all of them.
        strengths
            1 is a fault that is plain to see beside an example's own deviation.

        Returns
        -------
        The share of faults found, by kind and strength.

        Examples
        --------
        >>> import fewone, numpy as np
        >>> random = np.random.default_rng(0)
        >>> waves = np.sin(np.arange(128) / 4 + random.uniform(0, 6, (10, 1))) + 0.1 * random.normal(size=(10, 128))
        >>> report = fewone.load("series").fit(waves).check_faults(["offset", "noise"], [1, 100])
        >>> report.found[:, -1].tolist(), report.blind
        ([1.0, 1.0], ())
        """
        check_is_fitted(self)
        values = self.support_.normals.numpy()
        data: Literal["table", "series", "pictures"] = "series" if values.ndim == 3 else "pictures"

        def fit(rows: NDArray[np.int64]) -> Judge:
            chosen = self.support_.values[self.support_.labels == NORMAL][torch.from_numpy(rows)]
            support, scale = Support(chosen, torch.zeros(len(chosen))), getattr(self, "full_scale_", None)
            fitted = self.unfitted().restore(support, self.n_features_in_, scale)
            return lambda examples: fitted._logits(torch.from_numpy(examples)) > -fitted.offset_

        return report_faults(values, "table" if values.ndim == 2 else data, fit, faults, strengths, seed)

    def drift(self, X: ArrayLike, block: int = 10, level: float = LEVEL) -> Drift:  # noqa: N803
        """Whether recent examples, presumed normal and in the order of time, still score as the support does.

        Parameters
        ----------
        X
            Recent examples, in the order of time.
        block
            So many examples in a row are held against the support's own leave-one-out scores.
        level
            The probability with which drift is told where there is none.

        Returns
        -------
        Whether there is drift, since when, and how sure that is.

        Examples
        --------
        >>> import numpy as np
        >>> from fewone import FewShotDetector
        >>> random = np.random.default_rng(0)
        >>> detector = FewShotDetector().fit(random.normal(size=(20, 3)))
        >>> detector.drift(random.normal(size=(40, 3))).drifted
        False
        >>> detector.drift(random.normal(size=(40, 3)) + np.linspace(0, 4, 40)[:, None]).drifted
        True
        """
        scores = self.decision_function(X)
        return find_drift(self.report().leave_one_out, scores, block, level)

    def restore(self, support: Support, n_features: int, full_scale: FullScale | None = None) -> Self:
        """As `fit`, on a support that was read before.

        Parameters
        ----------
        support
            What `support_` of another detector holds.
        n_features
            What `n_features_in_` of it is.
        full_scale
            Of its pictures, where it has any.

        Returns
        -------
        The detector itself, fitted.
        """
        self.check_parameters()
        if full_scale is not None:
            self.full_scale_ = full_scale
        self.n_features_in_ = n_features
        return self._adapt(support)

    def save(self, folder: str | Path) -> None:
        """Write the fitted detector into a folder of JSON and safetensors that `fewone.load` reads.

        Of a learner of your own the weights are kept, not the code: `fewone.load(folder, learner=...)` wants one that
        is built as this one was.

        Parameters
        ----------
        folder
            It is made if needed.

        Raises
        ------
        FewoneError
            The folder cannot be written.
        """
        check_is_fitted(self)
        write_detector(
            Path(folder),
            SavedDetector(
                self.learner,
                self.card,
                self.calibration,
                self.support_,
                self.n_features_in_,
                self.false_alarm_rate,
                self.sampling_rate,
                self.scaling,
                torch.from_numpy(self._logits(self.support_.values)) if self.scaling is not None else None,
                getattr(self, "full_scale_", None),
            ),
        )

    def __repr__(self) -> str:
        parts = []
        if self.card is not None:
            shape = "any shape" if 0 in self.card.shape else "x".join(map(str, self.card.shape))
            parts.append(f"{self.card.algorithm} for {shape}")
        if self.card is None and self.learner is not None:
            parts.append(type(self.learner).__name__)
        parts += [f"{name}={getattr(self, name):g}" for name in _NUMBERS if getattr(self, name) is not None]
        fitted = f"fitted on {say_count(self.support_size_, 'normal')}" if hasattr(self, "support_") else "not fitted"
        return f"{type(self).__name__}({', '.join([*parts, fitted])})"

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "guarded_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = self.card is None or len(self.card.shape) == 2
        tags.input_tags.three_d_array = self.card is not None
        return tags

    def check_parameters(self) -> None:
        """Refuse what does not go together; the constructor itself refuses nothing, as scikit-learn wants it.

        Raises
        ------
        InputError
            A value that is not allowed, or two that contradict each other.
        """
        for name in _NUMBERS:
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, Real)):
                raise InputError(f"{name} is {value!r}: a number or None is expected, got {type(value).__name__}")
        self._check_learner()
        rate = self.false_alarm_rate
        if rate is not None and not 0.0 < rate < 1.0:
            raise InputError(f"false_alarm_rate is {rate}: a share between 0 and 1 is expected, such as 0.05")
        if self.sampling_rate is not None and not self.sampling_rate > 0.0:
            raise InputError(f"sampling_rate is {self.sampling_rate}: a number of Hz above 0 is expected")
        if self.card is None or None in (self.sampling_rate, self.card.sampling_rate):
            return
        if self.sampling_rate != self.card.sampling_rate:
            trained = f"{self.card.sampling_rate:g} Hz"
            raise InputError(
                f"the model was trained on series of {trained}, yours have {self.sampling_rate:g} Hz: resample them to"
                f" {trained}; {advise(self.card.shape, self.sampling_rate)}"
            )

    def _check_learner(self) -> None:
        """A learner goes with what says how its inputs were made; without a learner there is nothing to say."""
        if self.learner is None:
            if self.scaling is not None:
                raise InputError("scaling is given without a learner: plain tables are standardised by their normals")
            return
        learner: object = self.learner
        if not isinstance(learner, MetaLearner):
            kind = type(learner).__name__
            raise InputError(f"learner: one such as fewone.learners.Maml is expected, got {kind}; wrap your module")
        if (self.card is None) == (self.scaling is None):
            given = "both card and scaling are" if self.card is not None else "neither card nor scaling is"
            raise InputError(
                f"{given} given: a learner must get its inputs as in training; give scaling=sampler.scaling"
                f" (fewone.InputScaling() for inputs as they are)"
            )
        scaling: object = self.scaling
        if scaling is not None and not isinstance(scaling, InputScaling):
            raise InputError(f"scaling: sampler.scaling is expected, got {type(scaling).__name__}")

    def _adapt(self, support: Support) -> Self:
        learner, preparation = self.prepare_learner(support.values.shape[1])
        self.support_ = support
        self.support_size_ = len(support.normals)
        self.adapted_: Adapted = self._adapt_learner(learner, preparation, support)
        self.offset_ = -find_threshold(self.false_alarm_rate, self.calibration, self.support_size_, self._leave_one_out)
        envelope = Envelope(support.normals.unsqueeze(0), choose_share(self.false_alarm_rate))
        self.guarded_ = Guarded(self.adapted_, envelope, [self._anchor()], self._guard_unit()).eval()
        self.one_example_ = OneExample(self.guarded_, support.normals)
        self.recording_scorer_ = RecordingScorer(self._find_limits(-self.offset_, self.false_alarm_rate)).eval()
        return self

    def _adapt_learner(self, learner: Adapting, preparation: InputScaling, support: Support) -> Adapted:
        try:
            return adapt_to(learner, preparation, support)
        except RuntimeError as error:
            # torch's own words for inputs that do not fit into a network of the user's own.
            if self.scaling is None:
                raise
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            shape = tuple(support.values.shape)
            raise InputError(f"X: the learner's network does not take examples of shape {shape} ({reason})") from error

    def _anchor(self) -> float:
        """The logit at which everything is anomalous: the highest threshold there is."""
        return max(0.0, -self.offset_)

    def _guard_unit(self) -> float:
        """Outside the envelope a logit is as rare among normals as the learner's own of that height."""
        return TAIL_POWER * find_tail_scale(self.calibration, self.support_size_)

    def _find_limits(self, threshold: float, rate: float | None) -> Limits:
        scale = find_tail_scale(self.calibration, self.support_size_)
        return find_limits(threshold, rate, self.calibration, self.support_size_, scale)

    def own_recording_scorer(self) -> RecordingScorer:
        """Of recordings at the learner's own threshold, whatever rate is asked for.

        Returns
        -------
        A module: logits of windows -> the two parts of a verdict.
        """
        return RecordingScorer(self.own_limits()).eval()

    def limits(self) -> Limits:
        """Of recordings at the rate that is asked for.

        Returns
        -------
        Thresholds of the mean and of the worst window, by the number of windows.
        """
        return self._find_limits(-self.offset_, self.false_alarm_rate)

    def own_limits(self) -> Limits:
        """Of recordings at the learner's own threshold.

        Returns
        -------
        Thresholds of the mean and of the worst window, by the number of windows.
        """
        return self._find_limits(0.0, None)

    def prepare_learner(self, width: int) -> tuple[Adapting, InputScaling]:
        """A learner of our own in scoring mode, and how values become its inputs; width: of a plain table.

        Parameters
        ----------
        width
            Columns of a plain table; not asked where there is a learner.

        Returns
        -------
        A copy of the learner, calibrated where it is, and its scaling.
        """
        if self.learner is None:
            return plain_learner(width), InputScaling(standardize=True)
        preparation = self.card.preparation if self.card is not None else self.scaling
        assert preparation is not None
        learner = copy.deepcopy(self.learner).eval()
        return learner if self.calibration is None else Calibrated(learner, self.calibration), preparation

    def _leave_one_out(self) -> Scores:
        """The logit of each normal when the others are the support, (K,)."""
        learner, preparation = self.prepare_learner(self.support_.values.shape[1])
        return leave_one_out(learner, preparation, self.support_).double().numpy()

    def _logits(self, values: Tensor) -> Scores:
        """values (n, *shape) -> (n,), block by block."""
        dtype = self.support_.values.dtype
        if len(values) == 1:
            with torch.inference_mode():
                return np.array([self.one_example_(values.to(dtype)).item()])
        at_once = max(1, BLOCK_VALUES // max(1, values[:1].numel()))
        logits = np.empty(len(values))
        with torch.inference_mode():
            for first in range(0, len(values), at_once):
                block = values[first : first + at_once].to(dtype)
                logits[first : first + at_once] = self.guarded_(block).double().numpy()
        return logits

    def _decide_windows(self, values: NDArray[Any]) -> Scores:
        """windows (m, channels, length) -> decision values (m,); copies block by block, not the whole view."""
        scores = np.empty(len(values))
        at_once = max(1, BLOCK_VALUES // values[0].size)
        for first in range(0, len(values), at_once):
            scores[first : first + at_once] = self.decision_function(values[first : first + at_once])
        return scores

    def _read_support(self, X: ArrayLike, y: ArrayLike | None, first: bool) -> Support:  # noqa: N803
        values = self._read(X, first).to(self._dtype())
        if not len(values):
            raise InputError("X: at least one normal example is needed, got none")
        check_magnitude(values)
        labels = as_labels(y, len(values))
        if y is not None and labels is None:
            warnings.warn("y is ignored: known anomalies are marked with -1 and normals with +1", stacklevel=3)
        marks = torch.zeros(len(values)) if labels is None else torch.from_numpy(labels)
        return Support(values, marks.to(values.dtype))

    def _dtype(self) -> torch.dtype:
        """What the learner computes in: models in single precision, plain tables in double."""
        if self.learner is None:
            return torch.float64
        numbers: list[Tensor] = [*self.learner.parameters()] or [*self.learner.buffers()]
        found = {value.dtype for value in numbers if value.is_floating_point()}
        return torch.float64 if found == {torch.float64} else torch.float32

    def _read(self, X: ArrayLike, first: bool) -> Tensor:  # noqa: N803
        """What the user gave -> values (n, *shape). first: remember the width, as scikit-learn does."""
        if self.learner is None:
            from sklearn.utils.validation import validate_data

            array = validate_data(self, X, reset=first, dtype=[np.float64, np.float32], allow_nd=True)
            return torch.from_numpy(np.require(array, requirements=["C", "W"]))
        if self._takes_any_picture():
            return self._read_pictures(look_at(X), first)
        array = as_array(X)
        if self.card is None:
            return self._read_as_given(array, first)
        shape = self.card.shape if first else tuple(self.support_.values.shape[1:])
        try:
            values = arrange(array, shape)
        except InputError as error:
            if shape != self.card.shape:
                raise InputError(f"{error}: examples like those it was fitted on; fit it anew for others") from None
            raise InputError(f"{error}; {advise_on_array(array.shape, self.sampling_rate)}") from None
        check_range(array, self.card.preparation.scale)
        if first:
            self.n_features_in_ = array.shape[1]
        return values

    def _read_as_given(self, array: NDArray[Any], first: bool) -> Tensor:
        """For a learner of the user's own: every axis behind the examples is the network's."""
        if array.ndim < 2:
            raise InputError(f"X: examples (n, ...) are expected, got {array.shape}; one example: give X[None]")
        fitted = array.shape[1:] if first else tuple(self.support_.values.shape[1:])
        if array.shape[1:] != fitted:
            wanted = ", ".join(map(str, ("n", *fitted)))
            raise InputError(f"X: ({wanted}) expected, as it was fitted on, got {array.shape}")
        if first:
            self.n_features_in_ = array.shape[1]
        return torch.from_numpy(np.require(array, requirements=["C", "W"]))

    def _takes_any_picture(self) -> bool:
        return self.card is not None and takes_any_picture(self.card.shape)

    def _read_pictures(self, seen: Seen, first: bool) -> Tensor:
        if first and seen.planes:
            self.full_scale_ = seen.find_full_scale()
            self.n_features_in_ = seen.planes[0].shape[0]
        return seen.as_values(self.full_scale_) if seen.planes else torch.zeros(0, 3, 1, 1)

    def _locate(self, values: Tensor) -> Tensor:
        """Pictures (n, 3, side, side) -> maps (n, side, side), one at a time."""
        if not self.adapted_.locates:
            return explain(self.guarded_, values.to(self.support_.values.dtype), self.support_.normals).mean(1)
        with torch.inference_mode():
            maps = [self.adapted_.locate(one.to(self.support_.values.dtype)) for one in torch.split(values, 1)]
        return torch.cat(maps) if maps else values[:, 0]
