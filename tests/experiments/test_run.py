"""The spine, end to end on the paper's synthetic series and on the tiny ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from fewone.algorithms import find_algorithm
from fewone.calibration import CalibrationMap, HeldOut, calibrate
from fewone.checkpoints import build_learner, load_learner
from fewone.episodes import Episodes, Task, TaskSplits
from fewone.errors import FewoneError, FewoneWarning
from fewone.experiments import Experiment, build, default_experiment, run
from fewone.experiments.evaluate import evaluate_on_test
from fewone.experiments.train import train
from fewone.learners import LEARNERS
from fewone.results import read_results
from fewone.sampling import EpisodeSampler


def small(learner: str, dataset: str = "sts-sawtooth") -> Experiment:
    experiment = default_experiment(dataset, learner, 2)
    norm = "running" if experiment.algorithm in ("plda", "support-distance", "protonet", "metaoptnet") else "none"
    return replace(
        experiment,
        network=replace(experiment.network, architecture="conv", filters=(4,), norm=norm, front_end="none"),
        learning=find_algorithm(experiment.algorithm).choose(
            **{**vars(experiment.learning), "inner_steps": 1, "batch": "episodes"}
        ),
        training=replace(
            experiment.training, iterations=2, meta_batch=2, query_size=4, validate_every=1, validation_episodes=2
        ),
    )


@pytest.mark.parametrize("learner", [*LEARNERS, *(f"oc-{name}" for name in LEARNERS)])
def test_every_learner_runs_from_data_to_rows_and_comes_back_from_its_folder(
    learner: str, tiny_splits: TaskSplits, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "load", lambda *arguments: tiny_splits)
    results = run.run(small(learner), tmp_path / "run", results=tmp_path / "rows")
    assert len(results.examples.accuracy) == 2
    rows = [row for row in read_results(tmp_path / "rows").rows if row.threshold == "own"]
    assert rows[0].scores.accuracy == pytest.approx(results.examples.accuracy, abs=1e-5)
    assert rows[0].provenance.cpu_seconds > 0
    alarms = read_results(tmp_path / "rows").alarms
    own = small(learner).algorithm in ("plda", "support-distance", "evidence")
    assert [alarm.rate for alarm in alarms] == ([0.1, 0.05, 0.01] if own else [])
    loaded, _ = load_learner(tmp_path / "run")
    again = evaluate_on_test(small(learner), tiny_splits, loaded).results
    assert again.examples == results.examples


def test_a_run_embeds_and_scores_its_test_tasks_once(
    tiny_splits: TaskSplits, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows at two thresholds and false alarms come from the same scores."""
    monkeypatch.setattr(build, "load", lambda *arguments: tiny_splits)
    drawn: list[tuple[str, ...]] = []
    draw = EpisodeSampler.draw_evaluation

    def spy(sampler: EpisodeSampler, tasks: Sequence[Task], *rest: Any) -> Episodes:
        drawn.append(tuple(task.name for task in tasks))
        return draw(sampler, tasks, *rest)

    monkeypatch.setattr(EpisodeSampler, "draw_evaluation", spy)
    run.run(small("plda"), tmp_path / "run", results=tmp_path / "rows")
    test = tuple(task.name for task in tiny_splits.test)
    assert drawn.count(test) == tiny_splits.plan.supports_per_task
    assert len(read_results(tmp_path / "rows").alarms) == 3


def test_the_share_of_normals_in_the_support_is_all_that_oc_changes(tiny_splits: TaskSplits) -> None:
    drawn = []
    for learner in ("maml", "oc-maml"):
        experiment = small(learner)
        built = build_learner(build.describe(experiment, tiny_splits))
        drawn.append(build.make_batches(experiment, tiny_splits, built).draw(1))
    assert [float(batch.support.labels.mean()) for batch in drawn] == [0.5, 0.0]
    assert [float(batch.query.labels.mean()) for batch in drawn] == [0.5, 0.5]


def test_a_share_that_gives_no_whole_number_of_normals_is_said(tiny_splits: TaskSplits) -> None:
    experiment = replace(small("maml"), k=5, normal_share=0.5)
    with pytest.warns(FewoneWarning, match="2.5 normals: rounded to 3 normal and 2 anomalous"):
        sampler = build.make_sampler(experiment, tiny_splits, experiment.normal_share)
    assert sampler.support_size == 5


def test_batches_of_classes_are_refused_where_classes_do_not_exclude_each_other(
    tiny_splits: TaskSplits, tmp_path: Path
) -> None:
    experiment = small("plda")
    experiment = replace(experiment, learning=replace(experiment.learning, batch="classes"))
    with pytest.raises(FewoneError, match=r"set learning\.batch to 'episodes'"):
        train(experiment, tiny_splits, tmp_path)


@pytest.mark.slow
def test_oc_maml_learns_the_sawtooth_in_a_minute(tmp_path: Path) -> None:
    """A small network and few iterations already lift unseen tasks far above chance and above its own beginning."""
    experiment = default_experiment("sts-sawtooth", "oc-maml", 5)
    experiment = replace(
        experiment,
        network=replace(experiment.network, filters=(8, 8)),
        learning=replace(experiment.learning, inner_steps=3, inner_rate=0.05),
        training=replace(
            experiment.training, iterations=150, outer_rate=0.005, query_size=20, validate_every=50, meta_batch=4
        ),
    )
    splits = build.load_splits(experiment)
    untrained = build_learner(build.describe(experiment, splits)).eval()
    before = evaluate_on_test(experiment, splits, untrained).results
    torch.manual_seed(0)
    learner = train(experiment, splits, tmp_path)
    after = evaluate_on_test(experiment, splits, learner, tmp_path).results
    assert after.examples.summarize().accuracy.mean > max(0.75, before.examples.summarize().accuracy.mean + 0.15)


def test_leaving_parts_out_trains_without_them_and_calibrates_on_them(
    tiny_splits: TaskSplits, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = small("plda")
    experiment = replace(given, training=replace(given.training, leave_out=2))
    asked: list[list[HeldOut]] = []

    def spy(held_out: list[HeldOut], *rest: object, **named: object) -> CalibrationMap:
        asked.append(list(held_out))
        return calibrate(held_out, *rest, **named)  # type: ignore[arg-type]

    monkeypatch.setattr("fewone.evaluation.task_calibration.calibrate_held_out", spy)
    train(experiment, tiny_splits, tmp_path / "run")
    ((validation, *parts),) = asked  # once: the parts' own learners need no calibration
    assert validation.tasks == tuple(tiny_splits.validation)
    left = [{task.unit for task in part.tasks} for part in parts]
    assert left[0].isdisjoint(left[1])
    assert left[0] | left[1] == {task.unit for task in tiny_splits.train}
    for number, part in enumerate(parts):
        seen = replace(tiny_splits, train=tuple(task for task in tiny_splits.train if task.unit not in left[number]))
        fewer = replace(given, training=replace(given.training, classes=min(given.training.classes, len(seen.train))))
        alone = train(fewer, seen, tmp_path / f"alone{number}")
        assert all(torch.equal(a, b) for a, b in zip(part.learner.parameters(), alone.parameters(), strict=True))


def test_more_parts_than_training_tasks_are_refused(tiny_splits: TaskSplits, tmp_path: Path) -> None:
    given = small("plda")
    with pytest.raises(FewoneError, match=r"training.leave_out is 999, but .* independent training task"):
        train(replace(given, training=replace(given.training, leave_out=999)), tiny_splits, tmp_path / "run")


def test_a_batch_of_all_classes_shrinks_where_some_are_left_out(tiny_splits: TaskSplits, tmp_path: Path) -> None:
    given = small("plda")
    splits = replace(tiny_splits, classes_exclude_each_other=True)
    experiment = replace(
        given,
        learning=replace(given.learning, batch="classes"),
        training=replace(given.training, leave_out=2, classes=len(splits.train), class_examples=3, smallest_k=None),
    )
    train(experiment, splits, tmp_path / "run")
    assert (tmp_path / "run" / "fold-1" / "model.json").exists()
