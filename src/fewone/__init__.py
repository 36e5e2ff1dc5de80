"""fewone: an anomaly detector for a new machine or class from a few normal examples, by meta-learning."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fewone.detector.aligned import AlignedDetector as AlignedDetector
    from fewone.detector.few_shot_detector import FewShotDetector as FewShotDetector
    from fewone.detector.loading import load as load
    from fewone.detector.recordings import windows as windows

__version__ = "0.1.0"
__all__ = ["AlignedDetector", "FewShotDetector", "__version__", "load", "windows"]

# Loaded when first used: torch and scikit-learn take seconds, and `import fewone` must not.
_HOMES = {
    "AlignedDetector": "fewone.detector.aligned",
    "FewShotDetector": "fewone.detector.few_shot_detector",
    "load": "fewone.detector.loading",
    "windows": "fewone.detector.recordings",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'fewone' has no attribute {name!r}; there are {', '.join(__all__)}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
