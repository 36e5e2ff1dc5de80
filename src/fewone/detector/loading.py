"""A name or a folder -> a detector. Enters: a model of the zoo, a trained folder or a saved detector.

Loading reads JSON and safetensors and executes nothing.
"""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fewone.checkpoints import ModelSpec, fill_learner, load_calibration, load_learner
from fewone.detector.aligned import AlignedDetector, is_aligned
from fewone.detector.few_shot_detector import FewShotDetector
from fewone.detector.files import is_detector, read_detector
from fewone.episodes import InputScaling
from fewone.errors import FewoneError
from fewone.learners import MetaLearner
from fewone.zoo import find_model, read_models

TOLERANCE = 1e-3
"""How far, in units of max(1, |score|), a score may be from what it was when it was saved, on another machine."""


def load(
    name: str | Path,
    *,
    learner: MetaLearner | None = None,
    false_alarm_rate: float | None = None,
    sampling_rate: float | None = None,
) -> FewShotDetector | AlignedDetector:
    """A detector: a model of the zoo by name, a trained folder, or whatever `save` wrote (fitted already).

    Parameters
    ----------
    name
        Of a model of the zoo, or a folder made by `fewone train`, `fewone.meta_train` or the `save` of a detector.
    learner
        Where the folder holds the weights of a learner of yours: one that is built as that one was. It is compared by
        its class, arguments, modules and the shapes of its tensors, and stays as it is; a copy gets the weights.
    false_alarm_rate
        The share of normals that may be called anomalous; None: as saved, or the model's own threshold.
    sampling_rate
        Of your series in Hz; refused where the model was trained for another one.

    Returns
    -------
    A `FewShotDetector`, or an `AlignedDetector` where one was saved.

    Raises
    ------
    FewoneError
        Nothing has that name, the folder is not whole, or the learner is another one than was saved.

    Examples
    --------
    >>> import fewone, numpy as np
    >>> normals = np.random.default_rng(0).normal(size=(10, 128))
    >>> fewone.load("series").fit(normals).predict(np.concatenate([normals[:1], normals[:1] + 9.0]))
    array([ 1, -1])
    """
    folder = find_folder(name)
    if not is_aligned(folder):
        return load_detector(folder, learner=learner, false_alarm_rate=false_alarm_rate, sampling_rate=sampling_rate)
    aligned = AlignedDetector.load(folder, learner=learner)
    changes = {"false_alarm_rate": false_alarm_rate, "sampling_rate": sampling_rate}
    return aligned.adapted_anew(**{key: value for key, value in changes.items() if value is not None})


def load_detector(
    name: str | Path,
    *,
    learner: MetaLearner | None = None,
    false_alarm_rate: float | None = None,
    sampling_rate: float | None = None,
) -> FewShotDetector:
    """The same where the folder is known to hold no detector of aligned runs."""
    folder = find_folder(name)
    if is_aligned(folder):
        raise FewoneError(f"{folder}: a detector of aligned runs; load it with fewone.load")
    if not is_detector(folder):
        model = _load_model(folder, learner, false_alarm_rate, sampling_rate)
        model.check_parameters()
        return model
    found = read_detector(folder, learner)
    detector = FewShotDetector(
        found.learner,
        card=found.card,
        scaling=found.scaling,
        calibration=found.calibration,
        false_alarm_rate=found.false_alarm_rate if false_alarm_rate is None else false_alarm_rate,
        sampling_rate=found.sampling_rate if sampling_rate is None else sampling_rate,
    )
    try:
        detector.restore(found.support, found.n_features, found.full_scale)
        detector.score_samples(found.support.values[:1].numpy())
    except (RuntimeError, ValueError, ArithmeticError, LookupError, TypeError) as error:
        # Every hash was right and every tensor had its shape, so someone wrote settings that do not go together.
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise FewoneError(f"{folder}: the saved model does not run ({reason}); take a whole copy") from error
    if found.scores is not None and false_alarm_rate is None:
        _check_scores(detector, -found.scores.numpy(), folder)
    return detector


def _load_model(
    folder: Path, own: MetaLearner | None, false_alarm_rate: float | None, sampling_rate: float | None
) -> FewShotDetector:
    """A trained model that is fitted on nothing yet."""
    card: ModelSpec | None = None
    scaling: InputScaling | None = None
    if own is None:
        learner, card = load_learner(folder)
    else:
        learner, spec = fill_learner(folder, own)
        scaling = spec.preparation
    return FewShotDetector(
        learner,
        card=card,
        scaling=scaling,
        calibration=load_calibration(folder),
        false_alarm_rate=false_alarm_rate,
        sampling_rate=sampling_rate,
    )


def _check_scores(detector: FewShotDetector, saved: NDArray[np.float64], folder: Path) -> None:
    """Refuse a learner whose code says otherwise than that which was saved: no file can show what code does."""
    scores = detector.score_samples(detector.support_.values.numpy())
    if saved.shape != scores.shape or not np.all(np.abs(scores - saved) <= TOLERANCE * np.maximum(1.0, np.abs(saved))):
        raise FewoneError(
            f"{folder}: the learner given scores the saved normals otherwise than the one that was saved; its names and"
            f" shapes are the same, so its code or its arguments differ"
        )


def find_folder(name: str | Path) -> Path:
    """Where a model or detector lies: a name of the zoo comes first, then a folder."""
    model = find_model(name) if isinstance(name, str) else None
    if model is not None:
        return model.folder
    folder = Path(name)
    if folder.is_dir():
        return folder
    names = [model.name for model in read_models()]
    near = get_close_matches(str(name), names, n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    raise FewoneError(f"no model and no folder is called {str(name)!r}; {hint}models: {', '.join(names)}; or a folder")
