"""Embedding every example once gives the scores that embedding it again for every episode gives."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import pytest
import torch
from torch import Tensor

from fewone.calibration import Calibrated, CalibrationMap, CalibrationPoint
from fewone.episodes import EvaluationProtocol, InputScaling, RowPool, Store, Task
from fewone.evaluation.embedded import EmbeddedOnce, EmbeddedPool, embed_once
from fewone.evaluation.protocol import evaluate, score_episodes, score_twice
from fewone.evaluation.task_calibration import calibrate_over_tasks
from fewone.learners import LEARNERS, MetaLearner
from fewone.networks import NetworkSettings
from fewone.sampling import EpisodeSampler

SHAPE = (3, 8, 8)
PREPARATION = InputScaling(1 / 255, -0.5)
PLAN = EvaluationProtocol(3, 5, 5)
MAP = CalibrationMap((CalibrationPoint(2, 1.5, 0.1, 0.5, 0.0), CalibrationPoint(4, 1.2, 0.2, 0.3, 0.1)))


@pytest.fixture
def tasks() -> list[Task]:
    """Four classes of twelve byte images each; rows 48 to 59 belong to no task."""
    generator = torch.Generator().manual_seed(0)
    store = Store(torch.randint(0, 256, (60, *SHAPE), generator=generator, dtype=torch.uint8))
    classes = [torch.arange(12 * number, 12 * number + 12) for number in range(4)]
    return [
        Task(
            f"class {number}",
            RowPool(store, own),
            RowPool(store, torch.cat([rows for other, rows in enumerate(classes) if other != number])),
        )
        for number, own in enumerate(classes)
    ]


def build(name: str, norm: Literal["none", "support", "running"] = "running") -> MetaLearner:
    torch.manual_seed(0)
    norm = "none" if name == "maml" else norm
    learning = LEARNERS[name].choose(inner_steps=1, flip_views=name == "plda", dimensions=8)
    return LEARNERS[name](learning, NetworkSettings(filters=(4, 4), norm=norm), SHAPE).eval()


@pytest.mark.parametrize("name", ["plda", "protonet", "metaoptnet"])
@pytest.mark.parametrize("k", [1, 2, 4])
def test_embedded_tasks_get_the_scores_of_the_images(k: int, name: str, tasks: list[Task]) -> None:
    learner, sampler = build(name), EpisodeSampler(k, 4, preparation=PREPARATION)
    judged = embed_once(learner, tasks, PREPARATION)
    assert judged.learner is not learner
    plain = score_episodes(Calibrated(learner, MAP), tasks, PLAN, sampler, 0)
    moved = replace(sampler, preparation=judged.preparation)
    embedded = score_episodes(Calibrated(judged.learner, MAP), judged.tasks, PLAN, moved, 0)
    for one, other in zip(plain, embedded, strict=True):
        torch.testing.assert_close(other.logits, one.logits, rtol=1e-4, atol=1e-5)
        assert torch.equal(other.labels, one.labels)


def test_every_example_of_the_tasks_is_embedded_once(tasks: list[Task], monkeypatch: pytest.MonkeyPatch) -> None:
    learner, seen = build("plda"), []
    embed = type(learner).embed

    def count(self: MetaLearner, inputs: Tensor) -> Tensor:
        seen.append(inputs.shape[1])
        return embed(self, inputs)

    monkeypatch.setattr(type(learner), "embed", count)
    judged = embed_once(learner, tasks[:2], PREPARATION)
    sampler = EpisodeSampler(4, 4)
    evaluate(judged.learner, judged.tasks, PLAN, sampler, 0)
    assert sum(seen) == 48


@pytest.mark.parametrize(("size", "once"), [(12, True), (1000, False)])
def test_calibration_embeds_beforehand_only_where_it_draws_more_examples_than_there_are(
    size: int, once: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tasks of a large store would have thousands embedded for the few hundred that are drawn; the map is the same."""
    generator = torch.Generator().manual_seed(0)
    store = Store(torch.randint(0, 256, (2 * size, *SHAPE), generator=generator, dtype=torch.uint8))
    first, second = (RowPool(store, torch.arange(size) + start) for start in (0, size))
    validation = [Task("one", first, second), Task("other", second, first)]
    learner, sampler = build("plda"), EpisodeSampler(2, 4, preparation=PREPARATION)
    asked: list[bool] = []

    def spy(learner: MetaLearner, tasks: list[Task], preparation: InputScaling) -> EmbeddedOnce:
        asked.append(True)
        return embed_once(learner, tasks, preparation)

    monkeypatch.setattr("fewone.evaluation.task_calibration.embed_once", spy)
    found = calibrate_over_tasks(learner, [], validation, sampler, seed=0).calibration.at(2)
    assert asked == [True] * once
    monkeypatch.setattr("fewone.evaluation.task_calibration.count_examples", lambda tasks: 10**6 if once else 0)
    other = calibrate_over_tasks(learner, [], validation, sampler, seed=0).calibration.at(2)
    assert len(asked) == 1
    assert found.threshold == pytest.approx(other.threshold, rel=1e-3, abs=1e-4)
    assert found.slope == pytest.approx(other.slope, rel=1e-3)


def test_what_depends_on_the_support_is_not_embedded_beforehand(tasks: list[Task]) -> None:
    for learner, preparation in (
        (build("plda"), InputScaling(standardize=True)),
        (build("maml"), PREPARATION),
        (build("protonet", "support"), PREPARATION),
        (build("metaoptnet", "support"), PREPARATION),
    ):
        judged = embed_once(learner, tasks, preparation)
        assert judged.learner is learner
        assert judged.tasks == tuple(tasks)
        assert judged.preparation == preparation


def test_pools_that_are_no_lists_of_rows_draw_as_before(tasks: list[Task]) -> None:
    pool = EmbeddedPool(tasks[0].normal, Store(torch.zeros(60, 4)))
    drawn = [one.draw(5, torch.Generator().manual_seed(3)) for one in (pool, tasks[0].normal)]
    assert torch.equal(*drawn)
    assert len(pool) == 12
    assert torch.equal(pool.rows(), tasks[0].normal.rows())


@pytest.mark.parametrize("name", ["plda", "maml", "protonet"])
def test_one_scoring_gives_both_results(name: str, tasks: list[Task]) -> None:
    learner, sampler = build(name), EpisodeSampler(4, 4, preparation=PREPARATION)
    calibrated = Calibrated(learner, MAP)
    both = score_twice(calibrated, tasks, PLAN, sampler, 0).summarize()
    for found, alone in zip(both, (learner, calibrated), strict=True):
        assert found.examples == evaluate(alone, tasks, PLAN, sampler, 0).examples
        assert found.cpu_seconds > 0
