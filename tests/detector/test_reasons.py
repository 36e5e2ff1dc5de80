"""`why`: every kind of evidence in words and numbers, of the envelope for every learner, of `evidence` by its kinds."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from matplotlib.figure import Figure

from fewone.detector.few_shot_detector import FewShotDetector

Maker = Callable[..., FewShotDetector]


def test_what_is_outside_comes_first_and_is_said_in_deviations(make_detector: Maker, normals: np.ndarray) -> None:
    detector = make_detector("plda").fit(normals)
    raised, dead, plain = detector.why(np.stack([normals[0] + 40, normals[0] * 0, normals[0]]))
    assert raised.reasons[0].kind in ("level", "highest", "lowest")
    assert raised.reasons[0].size > 1 and raised.outside > 1 and raised.decision < 0
    assert "deviations" in raised.reasons[0].words
    assert "far outside of everything" in str(raised)
    assert "times that of the normals" in next(reason.words for reason in dead.reasons if reason.kind == "spread")
    assert plain.outside < 1
    np.testing.assert_allclose(
        [one.decision for one in (raised, dead, plain)],
        detector.decision_function(np.stack([normals[0] + 40, normals[0] * 0, normals[0]])),
    )


def test_the_shares_of_the_kinds_of_evidence_and_the_threshold_add_up_to_the_logit(
    make_detector: Maker, normals: np.ndarray
) -> None:
    detector = make_detector("evidence").fit(normals)
    first, second = detector.why(normals[:2] + 0.3)
    shares = [sum(reason.size for reason in why.reasons if reason.source == "model") for why in (first, second)]
    # What is left is the same threshold for every example.
    assert shares[0] + first.opinion == pytest.approx(shares[1] + second.opinion, abs=1e-4)
    words = [reason.words for reason in first.reasons if reason.source == "model"]
    assert all("deviations" in one and "times the farthest normal" in one for one in words)


def test_one_normal_and_every_learner_can_be_asked(any_learner: str, make_detector: Maker) -> None:
    waves = np.sin(np.arange(32) / 3 + np.arange(3)[:, None])
    (why,) = make_detector(any_learner).fit(waves[:1]).why(waves[1:2] * 1e6)
    assert why.decision < 0 and why.outside > 1
    assert isinstance(why.plot(), Figure)
