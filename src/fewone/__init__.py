"""fewone: an anomaly detector for a new machine or class from a few normal examples, by meta-learning.

>>> import fewone, numpy as np
>>> normals = np.random.default_rng(0).normal(size=(10, 128))
>>> fewone.load("series").fit(normals).predict(normals[:2])
array([1, 1])
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fewone.detector.aligned import AlignedDetector as AlignedDetector
    from fewone.detector.few_shot_detector import FewShotDetector as FewShotDetector
    from fewone.detector.loading import load as load
    from fewone.detector.recordings import windows as windows
    from fewone.episodes import InputScaling as InputScaling
    from fewone.episodes import Task as Task
    from fewone.errors import FewoneError as FewoneError
    from fewone.errors import InputError as InputError
    from fewone.evaluation.task_calibration import calibrate as calibrate
    from fewone.onnx_export import export_onnx as export_onnx
    from fewone.reading import read_recording as read_recording
    from fewone.reading import regular as regular
    from fewone.sampling import EpisodeSampler as EpisodeSampler
    from fewone.training.meta_training import meta_train as meta_train
    from fewone.training.settings import TrainingSettings as TrainingSettings

__version__ = "0.2.0"

# Loaded when first used: torch and scikit-learn take seconds, and `import fewone` must not.
_HOMES = {
    "AlignedDetector": "fewone.detector.aligned",
    "EpisodeSampler": "fewone.sampling",
    "FewShotDetector": "fewone.detector.few_shot_detector",
    "FewoneError": "fewone.errors",
    "InputError": "fewone.errors",
    "InputScaling": "fewone.episodes",
    "Task": "fewone.episodes",
    "TrainingSettings": "fewone.training.settings",
    "calibrate": "fewone.evaluation.task_calibration",
    "export_onnx": "fewone.onnx_export",
    "load": "fewone.detector.loading",
    "meta_train": "fewone.training.meta_training",
    "read_recording": "fewone.reading",
    "regular": "fewone.reading",
    "windows": "fewone.detector.recordings",
}

__all__ = [
    "AlignedDetector",
    "EpisodeSampler",
    "FewShotDetector",
    "FewoneError",
    "InputError",
    "InputScaling",
    "Task",
    "TrainingSettings",
    "__version__",
    "calibrate",
    "export_onnx",
    "load",
    "meta_train",
    "read_recording",
    "regular",
    "windows",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'fewone' has no attribute {name!r}; there are {', '.join(__all__)}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
