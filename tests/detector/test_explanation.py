"""Where the anomaly is: a map of the shape of the input for every learner, with its peak in the injected burst."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from fewone.checkpoints import build_learner
from fewone.datasets.synthetic_series import generate_task
from fewone.detector.few_shot_detector import FewShotDetector
from fewone.learners import PldaSettings
from fewone.networks import NetworkSettings

Maker = Callable[..., FewShotDetector]


def test_every_learner_gets_a_map_of_the_shape_of_its_input(
    any_learner: str, make_detector: Maker, normals: np.ndarray
) -> None:
    detector = make_detector(any_learner).fit(normals)
    maps = detector.explain(normals[:2])
    assert maps.shape == (2, 32)
    assert np.isfinite(maps).all()
    assert (maps >= 0).all()
    assert detector.explain(normals[:0]).shape == (0, 32)


@pytest.mark.parametrize(
    ("shape", "given"),
    [((3, 16), (4, 3, 16)), ((1, 8, 8), (4, 8, 8)), ((3, 8, 8), (4, 8, 8, 3)), ((3, 8, 8), (4, 3, 8, 8))],
)
def test_the_map_has_the_layout_that_was_given(
    make_detector: Maker, shape: tuple[int, ...], given: tuple[int, ...]
) -> None:
    values = np.random.default_rng(0).normal(size=given)
    detector = make_detector("plda", shape).fit(values)
    assert detector.explain(values[:2]).shape == (2, *given[1:])


def test_the_map_of_a_table_points_at_the_column() -> None:
    detector = FewShotDetector().fit(np.random.default_rng(0).normal(size=(30, 5)))
    odd = np.zeros((1, 5))
    odd[0, 3] = 9.0
    assert detector.explain(odd).argmax() == 3


def test_the_map_of_a_picture_points_at_the_blot(make_detector: Maker) -> None:
    card = make_detector("plda", (1, 16, 16)).card
    assert card is not None
    # The Bayesian head on the pixels themselves: it needs no training to tell a blot from noise.
    card = replace(card, learning=PldaSettings(dimensions=0), network=NetworkSettings(architecture="identity"))
    learner = build_learner(card)
    state = learner.state_dict()
    state["within_logit"][:] = -3.0
    state["last_norm.running_variance"][:] = 20.0
    learner.load_state_dict(state)
    random = np.random.default_rng(0)
    detector = FewShotDetector(learner, card=card).fit(random.normal(size=(10, 16, 16)))
    for _ in range(10):
        odd = random.normal(size=(1, 16, 16))
        row, column = random.integers(0, 12, 2)
        odd[0, row : row + 4, column : column + 4] += 6.0
        assert detector.predict(odd) == -1
        peak = np.unravel_index(detector.explain(odd)[0].argmax(), (16, 16))
        assert row <= peak[0] < row + 4
        assert column <= peak[1] < column + 4


def test_the_peak_lies_in_the_injected_burst(trained: Callable[[], FewShotDetector]) -> None:
    detector, inside = trained(), []
    for generator in np.random.default_rng(7).spawn(5):
        task = generate_task("sine", generator, 60)
        detector.fit(task.normal[:10])
        detected = np.flatnonzero(detector.predict(task.anomalous) < 0)[:15]
        peaks = detector.explain(task.anomalous[detected]).argmax(axis=1)
        inside.extend(task.injected[detected, peaks])
    assert len(inside) >= 40
    assert np.mean(inside) >= 0.8


@pytest.mark.parametrize(("shape", "given"), [((2, 16), (14, 2, 16)), ((3, 8, 8), (2, 8, 8, 3))])
def test_plots_are_drawn_without_a_window(make_detector: Maker, shape: tuple[int, ...], given: tuple[int, ...]) -> None:
    values = np.random.default_rng(0).normal(size=given)
    figure = make_detector("plda", shape).fit(values).plot(values)
    drawn = [axes for axes in figure.axes if axes.get_title()]
    assert len(drawn) == min(12, given[0])
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=40)
    assert buffer.getvalue().startswith(b"\x89PNG")
