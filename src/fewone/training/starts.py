"""A model that a training begins with: a name of the zoo or a folder -> a learner, its spec and its calibration.

With n tasks of a history that calibrate and S = TASKS_OF_START, calibration = n / (n + S) own + S / (n + S) start's.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fewone.calibration import CalibrationMap, mix_calibrations
from fewone.checkpoints import ModelSpec, load_calibration, load_learner
from fewone.detector.loading import find_folder
from fewone.errors import FewoneError
from fewone.learners import MetaLearner
from fewone.learners.evidence import TASKS_OF_START, Evidence, EvidenceSettings


@dataclass(frozen=True)
class Start:
    """Where a training begins: the learner, what it was built by, and its calibration if it has one."""

    name: str
    learner: Evidence
    spec: ModelSpec
    calibration: CalibrationMap | None

    def check(self, shape: tuple[int, ...]) -> None:
        """Refuse inputs of another kind: pictures for a start of series, or sizes that it does not take."""
        fits = len(shape) == len(self.spec.shape) and all(
            own in (0, given) for own, given in zip(self.spec.shape, shape, strict=True)
        )
        if not fits:
            raise FewoneError(
                f"start {self.name}: is for inputs of shape {self.spec.shape} (0: any), the tasks have {tuple(shape)};"
                f" give another start, or none"
            )

    def begin(self, learner: MetaLearner, tasks: int) -> None:
        """Put a learner, in place, where the start ended; it is drawn back there the less, the more tasks there are."""
        if not isinstance(learner, Evidence):
            raise FewoneError(
                f"start {self.name}: begins the learner evidence alone, not {type(learner).__name__}; leave start out"
            )
        learner.start_from(self.learner, tasks)

    def mix(self, own: CalibrationMap, tasks: int) -> CalibrationMap:
        """What so many held-out tasks say of the scores, with what the start knew."""
        if self.calibration is None:
            return own
        return mix_calibrations(own, self.calibration, tasks / (tasks + TASKS_OF_START))


def load_start(name: str | Path) -> Start:
    """The model of this name or folder; only the learner evidence can be begun with.

    >>> load_start("series").learner.names[:3]
    ('own-raw', 'phase', 'elastic-slope')
    """
    folder = find_folder(name)
    learner, spec = load_learner(folder)
    if not isinstance(learner, Evidence):
        raise FewoneError(
            f"start {name}: is a model of the learner {spec.algorithm}, and only one of evidence can be refined; take"
            f" 'series' or 'pictures', or a folder trained with --learner evidence"
        )
    return Start(str(name), learner, spec, load_calibration(folder))


def fill_in(settings: EvidenceSettings, start: Start) -> EvidenceSettings:
    """The settings with the start's kinds of evidence where they name none."""
    return EvidenceSettings(evidence=settings.evidence or start.learner.names, start=settings.start)
