"""Names that files and command lines of earlier versions have -> today's. Read everywhere, written nowhere."""

from __future__ import annotations

from typing import Any

LEARNERS = {"contrast": "support-distance"}
"""`contrast` was no contrastive learning: it scores distances to the support's normals."""

CLASSES = {"Contrast": "SupportDistance"}
"""The same for the classes that a folder of `fewone.meta_train` names."""

CALIBRATION = {
    "knots": "points",
    "follow": "support_weight",
    "typical": "reference",
    "tails": "mean_quantiles",
    "peaks": "largest_quantiles",
}
"""Keys of `calibration.json`."""


def rename_calibration(plain: Any) -> Any:
    """A calibration as its file has it, with today's keys.

    >>> rename_calibration({"knots": [{"k": 5, "follow": 0.5}]})
    {'points': [{'k': 5, 'support_weight': 0.5}]}
    """
    if isinstance(plain, dict):
        return {CALIBRATION.get(key, key): rename_calibration(value) for key, value in plain.items()}
    return [rename_calibration(value) for value in plain] if isinstance(plain, list) else plain


def rename_learner(learner: str) -> str:
    """Today's name of a learner, with `oc-` in front or without.

    >>> rename_learner("contrast"), rename_learner("oc-contrast"), rename_learner("maml")
    ('support-distance', 'oc-support-distance', 'maml')
    """
    prefix = "oc-" if learner.startswith("oc-") else ""
    bare = learner.removeprefix("oc-")
    return f"{prefix}{LEARNERS[bare]}" if bare in LEARNERS else learner
