"""A name or a folder -> a detector. Enters: a model of the zoo, a trained folder or a saved detector.

Loading reads JSON and safetensors and executes nothing.
"""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path

from fewone.checkpoints import load_calibration, load_learner
from fewone.detector.aligned import is_aligned
from fewone.detector.few_shot_detector import FewShotDetector
from fewone.detector.files import is_detector, read_detector
from fewone.errors import FewoneError
from fewone.zoo import find_model, read_models


def load(
    name: str | Path, *, false_alarm_rate: float | None = None, sampling_rate: float | None = None
) -> FewShotDetector:
    """A detector: a model of the zoo by name, a folder made by `fewone train`, or one made by `save` (fitted already).

    Parameters
    ----------
    false_alarm_rate : the share of normals that may be called anomalous; None: as saved, or the model's own threshold.
    sampling_rate : of your series in Hz; refused where the model was trained for another one.
    """
    folder = find_folder(name)
    if is_aligned(folder):
        raise FewoneError(f"{folder}: a detector of aligned runs; load it with fewone.AlignedDetector.load")
    if not is_detector(folder):
        learner, card = load_learner(folder)
        model = FewShotDetector(
            learner,
            card=card,
            calibration=load_calibration(folder),
            false_alarm_rate=false_alarm_rate,
            sampling_rate=sampling_rate,
        )
        model.check_parameters()
        return model
    found = read_detector(folder)
    detector = FewShotDetector(
        found.learner,
        card=found.card,
        calibration=found.calibration,
        false_alarm_rate=found.false_alarm_rate if false_alarm_rate is None else false_alarm_rate,
        sampling_rate=found.sampling_rate if sampling_rate is None else sampling_rate,
    )
    try:
        detector.restore(found.support, found.n_features)
        detector.score_samples(found.support.values[:1].numpy())
    except (RuntimeError, ValueError, ArithmeticError, LookupError, TypeError) as error:
        # Every hash was right and every tensor had its shape, so someone wrote settings that do not go together.
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise FewoneError(f"{folder}: the saved model does not run ({reason}); take a whole copy") from error
    return detector


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
