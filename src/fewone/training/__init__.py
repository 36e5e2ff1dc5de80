"""Learner x tasks -> trained learner. Enters: a learner, tasks, a sampler. Leaves: progress, and the best weights.

Draws no progress bar: it yields, the caller draws, logs and stops.
"""

from fewone.training.batches import Batches, Transform
from fewone.training.loop import train_steps
from fewone.training.run_folder import RunFolder, compare_versions, read_cost, read_history
from fewone.training.settings import Cost, Progress, Select, TrainingSettings, Validation
from fewone.training.state import find_best
from fewone.training.validation import Validator

__all__ = [
    "Batches",
    "Cost",
    "Progress",
    "RunFolder",
    "Select",
    "TrainingSettings",
    "Transform",
    "Validation",
    "Validator",
    "compare_versions",
    "find_best",
    "read_cost",
    "read_history",
    "train_steps",
]
