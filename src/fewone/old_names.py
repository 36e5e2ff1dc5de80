"""Names that files and command lines of earlier versions have -> today's. Read everywhere, written nowhere."""

from __future__ import annotations

LEARNERS = {"contrast": "support-distance"}
"""`contrast` was no contrastive learning: it scores distances to the support's normals."""

CLASSES = {"Contrast": "SupportDistance"}
"""The same for the classes that a folder of `fewone.meta_train` names."""


def rename_learner(learner: str) -> str:
    """Today's name of a learner, with `oc-` in front or without.

    >>> rename_learner("contrast"), rename_learner("oc-contrast"), rename_learner("maml")
    ('support-distance', 'oc-support-distance', 'maml')
    """
    prefix = "oc-" if learner.startswith("oc-") else ""
    bare = learner.removeprefix("oc-")
    return f"{prefix}{LEARNERS[bare]}" if bare in LEARNERS else learner
