"""Kinds of evidence: features of queries and normals -> squared distances. One kind, one function and one line here.

Know no support, no weight and no threshold: what a distance means is for `fewone.learners.evidence`.
"""

from __future__ import annotations

from collections.abc import Callable

from fewone.learners.evidence_kinds.kind import EvidenceKind, Features, View
from fewone.learners.evidence_kinds.pictures import PICTURE_KINDS, PICTURE_VIEWS
from fewone.learners.evidence_kinds.projection import Projected, compare_directions, compare_directions_in_units
from fewone.learners.evidence_kinds.series import SERIES_KINDS, SERIES_VIEWS, compare_first
from fewone.learners.evidence_kinds.vibration import VIBRATION_KINDS, VIBRATION_VIEWS

VIEWS: dict[str, Callable[[], View]] = {
    **SERIES_VIEWS,
    **PICTURE_VIEWS,
    **VIBRATION_VIEWS,
    "projected": Projected,
    "directions": lambda: Projected(in_units=True),
}
"""Builders of the views, by name; a view takes inputs of every shape that its kinds are for."""

KINDS: dict[str, EvidenceKind] = {
    **SERIES_KINDS,
    **PICTURE_KINDS,
    **VIBRATION_KINDS,
    "learned": EvidenceKind("what other tasks taught to tell apart", "projected", compare_first),
    "own-learned": EvidenceKind(
        *("what other tasks taught to tell apart, as the normals vary", "directions", compare_directions),
        in_units=compare_directions_in_units,
    ),
}
"""All kinds of evidence, by name."""

__all__ = ["KINDS", "VIEWS", "EvidenceKind", "Features", "View"]
