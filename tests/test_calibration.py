"""The map recovers units, follows the support, withstands an odd task, and keeps its false-alarm promise."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from fewone.calibration import (
    Calibrated,
    CalibrationMap,
    CalibrationPoint,
    HeldOut,
    NormalQuantiles,
    Scored,
    calibrate,
    fit_point,
    score_leaving_one_out,
)
from fewone.calibration.calibrated import LEVELS, LeavingOneOut
from fewone.calibration.quantiles import find_quantiles
from fewone.documents import from_plain, to_plain
from fewone.episodes import Examples, RowPool, Store, Task
from fewone.errors import FewoneError
from fewone.learners import LEARNERS, Scorer
from fewone.networks import NetworkSettings
from fewone.sampling import EpisodeSampler


class ValueScorer(Scorer):
    """The first number of an input, in odd units."""

    def __init__(self, scale: float, shift: float) -> None:
        super().__init__()
        self.scale, self.shift = scale, shift

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs[..., 0] * self.scale + self.shift


@dataclass(frozen=True)
class ValueLearner:
    """Ignores its support: all that can be learned over tasks is the unit of its scores."""

    scale: float = 1.0
    shift: float = 0.0

    def adapt(self, support: Examples) -> Scorer:
        return ValueScorer(self.scale, self.shift)


def make_task(name: str, normal: Tensor, anomalous: Tensor, recordings: Tensor | None = None) -> Task:
    store = Store(torch.cat([normal, anomalous]).float().unsqueeze(-1), recordings)
    size = len(normal)
    return Task(name, RowPool(store, torch.arange(size)), RowPool(store, torch.arange(size, len(store.values))))


def gaussian_tasks(
    count: int, gap: float = 3.0, wander: float = 0.0, size: int = 80, seed: int = 0
) -> tuple[Task, ...]:
    """Normals around `start`, anomalies `gap` above; start itself wanders from task to task."""
    generator = torch.Generator().manual_seed(seed)
    tasks = []
    for number in range(count):
        start = wander * torch.randn((), generator=generator)
        normal = start + torch.randn(size, generator=generator)
        anomalous = start + gap + torch.randn(size, generator=generator)
        tasks.append(make_task(f"task{number}-{seed}", normal, anomalous))
    return tuple(tasks)


SAMPLER = EpisodeSampler(support_size=5, query_size=2)


@pytest.mark.parametrize(("scale", "shift"), [(1.0, -1.5), (1.0, 40.0), (0.01, 3.0), (500.0, -9.0)])
def test_any_unit_of_scores_becomes_log_odds(scale: float, shift: float) -> None:
    learner = ValueLearner(scale, shift)
    found = calibrate([HeldOut(learner, gaussian_tasks(12))], SAMPLER, sizes=(5,))
    queries = torch.tensor([[[0.5], [1.5], [2.5]]])
    logits = Calibrated(learner, found).adapt(Examples.normals(torch.zeros(1, 5, 1)))(queries)
    # Two unit normals 3 apart: the true log-odds are 3 (x - 1.5).
    assert logits[0, 1].abs() < 0.5
    assert logits[0, 2] - logits[0, 0] == pytest.approx(6.0, rel=0.35)


def test_the_map_is_monotone() -> None:
    found = calibrate([HeldOut(ValueLearner(-1.0), gaussian_tasks(4))], SAMPLER, sizes=(2,))
    assert found.points[0].slope > 0, "even where the learner is worse than chance its order is kept"


def test_the_threshold_follows_the_supports_own_scores() -> None:
    """Where tasks wander, leave-one-out scores tell by how much; with one example there is nothing to follow."""
    learner = ValueLearner()
    found = calibrate([HeldOut(learner, gaussian_tasks(20, wander=4.0))], SAMPLER, sizes=(1, 5, 20))
    assert found.points[0].support_weight == 0.0
    assert found.points[2].support_weight > 0.8
    steady = calibrate([HeldOut(learner, gaussian_tasks(20, wander=0.0))], SAMPLER, sizes=(5,))
    assert abs(steady.points[0].support_weight) < 0.25
    errors = {}
    for k in (1, 20):
        wrong = []
        for task in gaussian_tasks(10, wander=4.0, seed=5):
            values = task.normal.store.values
            scorer = Calibrated(learner, found).adapt(Examples.normals(values[None, :k]))
            wrong.append(
                (scorer(values[None, k:80]) > 0).float().mean() + (scorer(values[None, 80:]) < 0).float().mean()
            )
        errors[k] = float(torch.stack(wrong).mean()) / 2
    assert errors[20] < 0.15 < errors[1]


def test_the_threshold_follows_even_where_anomalies_are_so_far_off_that_the_loss_does_not_care() -> None:
    """For false alarms it matters where the normals of each task are: rates then differ less from task to task."""
    learner, sampler = ValueLearner(), EpisodeSampler(support_size=20, query_size=2)
    found = calibrate([HeldOut(learner, gaussian_tasks(20, gap=30.0, wander=1.0))], sampler, sizes=(20,))
    assert 0.7 < found.points[0].support_weight < 0.97
    rates = []
    for task in gaussian_tasks(60, gap=30.0, wander=1.0, size=200, seed=4):
        values = task.normal.store.values
        logits = Calibrated(learner, found).adapt(Examples.normals(values[None, :20]))(values[None, 20:200])
        rates.append((logits > found.threshold(20, 0.1)).float().mean())
    assert float(torch.stack(rates).std()) < 0.065, "it is 0.09 where the threshold hardly follows"


def test_one_odd_task_among_many_hardly_moves_the_map() -> None:
    tasks = gaussian_tasks(9)
    odd = make_task("odd", torch.randn(80, generator=torch.Generator().manual_seed(1)) + 30, torch.full((80,), -20.0))
    clean = calibrate([HeldOut(ValueLearner(), tasks)], SAMPLER, sizes=(5,)).points[0]
    spoiled = calibrate([HeldOut(ValueLearner(), (*tasks, odd))], SAMPLER, sizes=(5,)).points[0]
    assert abs(spoiled.threshold - clean.threshold) < 0.35
    assert spoiled.slope > 0.4 * clean.slope


def test_a_single_task_moves_the_threshold_only_part_of_the_way() -> None:
    shifted = ValueLearner(shift=-1.5 + 2.0)
    one = calibrate([HeldOut(shifted, gaussian_tasks(1))], SAMPLER, sizes=(5,)).points[0].threshold
    many = calibrate([HeldOut(shifted, gaussian_tasks(30))], SAMPLER, sizes=(5,)).points[0].threshold
    assert 0.3 < one < many < 2.2


def test_asked_false_alarm_rates_are_kept_on_other_tasks() -> None:
    learner = ValueLearner()
    known = gaussian_tasks(80, wander=0.3, size=120)
    found = calibrate([HeldOut(learner, known)], SAMPLER, sizes=(5,), supports_per_task=2, queries=100)
    alarms: dict[float, list[Tensor]] = {0.1: [], 0.05: [], 0.01: []}
    for task in gaussian_tasks(300, wander=0.3, size=400, seed=9):
        values = task.normal.store.values[:400]
        logits = Calibrated(learner, found).adapt(Examples.normals(values[None, :5]))(values[None, 5:])
        for rate, shares in alarms.items():
            shares.append((logits > found.threshold(5, rate)).float().mean())
    for rate, factor in ((0.1, 1.2), (0.05, 1.2), (0.01, 1.5)):
        realised = float(torch.stack(alarms[rate]).mean())
        assert rate / factor < realised < factor * rate


@pytest.mark.parametrize("count", [3, 5, 10, 30])
@pytest.mark.parametrize(("wander", "stretch"), [(0.0, 0.0), (0.5, 0.2)])
def test_however_few_tasks_there_are_the_rate_realised_by_new_tasks_is_on_average_the_asked_one(
    count: int, wander: float, stretch: float
) -> None:
    """Tasks are Gaussians of random place and width, so what a new one realises is known without drawing from it."""
    generator = torch.Generator().manual_seed(3)
    places = wander * torch.randn(3000, generator=generator)
    widths = (stretch * torch.randn(3000, generator=generator)).exp()
    realised = []
    for _ in range(200):
        units = [
            wander * torch.randn((), generator=generator)
            + (stretch * torch.randn((), generator=generator)).exp() * torch.randn(60, generator=generator)
            for _ in range(count)
        ]
        limits = torch.tensor(find_quantiles(units, LEVELS))
        scaled = (limits[:, None] - places) / widths
        realised.append(torch.special.ndtr(-scaled).mean(-1))
    mean = torch.stack(realised).mean(0)
    for level in (0.9, 0.95):
        assert (1 - level) / 1.2 < float(mean[LEVELS.index(level)]) < 1.2 * (1 - level)
    assert float(mean[LEVELS.index(0.99)]) < (0.02 if count < 5 else 0.015)
    assert bool((mean.diff() < 0).all()), "a lower rate has a higher threshold"


def test_a_single_task_gives_its_own_quantiles() -> None:
    values = torch.arange(1.0, 101.0)
    assert find_quantiles([values], (0.5, 0.9, 0.99)) == (50.0, 90.0, 99.0)


def test_groups_have_tighter_tails_and_recordings_stay_together() -> None:
    generator = torch.Generator().manual_seed(0)
    own = torch.randn(40, 1, generator=generator).expand(40, 3).reshape(-1)  # three windows of a recording agree
    alike = own + 0.01 * torch.randn(120, generator=generator)
    free = torch.randn(120, generator=generator)
    recordings = torch.cat([torch.arange(40).repeat_interleave(3), torch.arange(40, 160)])
    spreads = []
    for values, marks in ((alike, recordings), (free, None)):
        task = make_task(
            "one", values, values + 3, None if marks is None else torch.cat([marks[:120], 99 + marks[:120]])
        )
        point = calibrate([HeldOut(ValueLearner(), (task,))], SAMPLER, sizes=(5,)).points[0]
        assert [one.group for one in point.mean_quantiles][:3] == [1, 2, 3]
        single, grouped = point.mean_quantiles[0].quantiles, point.mean_quantiles[2].quantiles
        spreads.append((grouped[3] - grouped[0]) / (single[3] - single[0]))
    assert spreads[0] > 0.9, "windows of one recording say the same thing three times"
    assert spreads[1] < 0.75


def test_points_are_interpolated_over_log_k() -> None:
    tail = (NormalQuantiles(1, (0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0)),)
    other = (NormalQuantiles(1, (2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0)),)
    low, high = CalibrationPoint(1, 1.0, 0.0, 0.0, 0.0, tail), CalibrationPoint(4, 3.0, 2.0, 1.0, -1.0, other)
    found = CalibrationMap((low, high))
    between = (NormalQuantiles(1, (1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0)),)
    assert found.at(2) == CalibrationPoint(2, 2.0, 1.0, 0.5, -0.5, between)
    assert found.at(100).slope == 3.0
    assert found.threshold(1, 0.1) == pytest.approx(2.0)
    assert found.threshold(2, 0.05) == pytest.approx(4.0)
    assert found.threshold(1, 0.001) > 6.0
    assert found.threshold(1, 0.5, group=7) == pytest.approx(0.0)


def test_leave_one_out_judges_every_normal_by_the_others() -> None:
    class CentreLearner:
        def adapt(self, support: Examples) -> Scorer:
            centre = support.inputs.mean((1, 2))

            class CentreScorer(Scorer):
                def forward(self, inputs: Tensor) -> Tensor:
                    return inputs[..., 0] - centre[:, None]

            return CentreScorer()

    inputs = torch.tensor([[[1.0], [2.0], [6.0]]])
    torch.testing.assert_close(
        score_leaving_one_out(CentreLearner(), Examples.normals(inputs)), torch.tensor([-3.0, -1.5, 4.5])
    )
    assert len(score_leaving_one_out(CentreLearner(), Examples.normals(inputs[:, :1]))) == 0
    mixed = Examples.of(inputs, torch.tensor([[0.0, 0.0, 1.0]]))
    assert len(score_leaving_one_out(CentreLearner(), mixed)) == 2, "known anomalies are never left out"


@pytest.mark.parametrize(
    ("name", "residual"), [("plda", True), ("support-distance", True), ("support-distance", False)]
)
def test_the_short_way_of_leaving_one_out_is_the_long_way(name: str, residual: bool) -> None:
    torch.manual_seed(0)
    network = NetworkSettings(filters=(4, 4), norm="running")
    learner = LEARNERS[name](LEARNERS[name].choose(dimensions=3, residual=residual), network, (1, 16)).double().eval()
    inputs = torch.randn(1, 5, 1, 16, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    support = Examples.of(inputs, torch.tensor([[0.0, 0.0, 1.0, 0.0, 0.0]], dtype=torch.float64))

    class LongWay:
        def adapt(self, support: Examples) -> Scorer:
            return learner.adapt(support)

    assert isinstance(learner, LeavingOneOut)
    assert not isinstance(LongWay(), LeavingOneOut)
    torch.testing.assert_close(score_leaving_one_out(learner, support), score_leaving_one_out(LongWay(), support))


def test_the_map_survives_json() -> None:
    found = calibrate([HeldOut(ValueLearner(), gaussian_tasks(3))], SAMPLER, sizes=(1, 2))
    assert from_plain(CalibrationMap, json.loads(json.dumps(to_plain(found)))) == found


def test_supports_of_different_sizes_and_with_anomalies_are_calibrated_by_their_normals() -> None:
    points = (CalibrationPoint(1, 1.0, 0.0, 0.0, 0.0), CalibrationPoint(2, 1.0, 5.0, 0.0, 0.0))
    support = Examples.of(torch.zeros(2, 2, 1), torch.tensor([[0.0, 0.0], [0.0, 1.0]]))
    logits = Calibrated(ValueLearner(), CalibrationMap(points)).adapt(support)(torch.zeros(2, 1, 1))
    assert logits.flatten().tolist() == [-5.0, 0.0]


@pytest.mark.parametrize("apart", [1.0, 30.0])
def test_a_threshold_at_a_share_of_the_normals_lies_there_wherever_the_anomalies_are(apart: float) -> None:
    draw = torch.Generator().manual_seed(0)
    labels = torch.cat([torch.zeros(200), torch.ones(200)])
    scored = [
        Scored(str(number), 0, torch.randn(400, generator=draw).double() + apart * labels, labels, None, math.nan)
        for number in range(30)
    ]
    point = fit_point(5, scored, alarms=0.2)
    assert point.threshold == pytest.approx(0.842, abs=0.1)
    assert point.mean_quantiles[0].quantiles[LEVELS.index(0.8)] == pytest.approx(0.0, abs=1e-9)


def test_mistakes_are_told() -> None:
    with pytest.raises(FewoneError, match="no held-out task"):
        calibrate([], SAMPLER)
    with pytest.raises(FewoneError, match="too few normals"):
        calibrate([HeldOut(ValueLearner(), gaussian_tasks(2, size=3))], SAMPLER, sizes=(5,))
    with pytest.raises(FewoneError, match="between 0 and 1"):
        CalibrationMap((CalibrationPoint(1, 1.0, 0.0, 0.0, 0.0),)).threshold(1, math.inf)
    with pytest.raises(FewoneError, match="no point"):
        CalibrationMap(()).at(1)


def test_a_logit_far_above_all_normals_has_a_rate_that_can_be_asked_for() -> None:
    tight = NormalQuantiles(1, tuple(1e-6 * number for number in range(7)))
    calibration = CalibrationMap((CalibrationPoint(5, 1.0, 0.0, 0.0, 0.0, (tight,)),))
    rate = calibration.find_rate(5, 50.0)
    assert 0 < rate < 1e-300
    assert calibration.peak_threshold(5, rate, 10) >= 0.0
