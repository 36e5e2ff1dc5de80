"""FB and MTL: one trunk, whatever stands on it and however it is judged; FB is a softmax over classes on images."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from fewone.checkpoints import build_learner, load_learner
from fewone.datasets import load
from fewone.episodes import ClassBatch, TaskSplits
from fewone.experiments import Experiment, build, default_experiment
from fewone.experiments.sweep import TRUNKS, plan, sweep
from fewone.experiments.train import train
from fewone.experiments.trunks import TRUNK, find_trunk
from fewone.results import read_results
from fewone.training import read_history

FAMILY = [("fb", 10, 1.0), ("fb", 10, 0.5), ("fb", 2, 1.0), ("fb+oc-svm", 10, 1.0), ("fb+iforest", 2, 1.0)]


def small(learner: str, k: int = 2, share: float = 1.0, dataset: str = "sts-sawtooth") -> Experiment:
    experiment = default_experiment(dataset, learner, k)
    return replace(
        experiment,
        test_normal_share=share,
        network=replace(experiment.network, filters=(4,), norm="none"),
        training=replace(
            experiment.training, iterations=3, meta_batch=2, query_size=4, validate_every=2, validation_episodes=2
        ),
    )


@pytest.mark.parametrize("dataset", ["mt-mnist/3", "omniglot", "cifar-fs", "fc100", "miniimagenet"])
@pytest.mark.parametrize("learner", ["fb", "fb+oc-svm", "fb+iforest"])
def test_fb_is_a_softmax_over_classes_wherever_classes_exclude_each_other(
    dataset: str, learner: str, downloads: Path
) -> None:
    """Labels "class i" and "anything but class i" would call one image both 6 and not-3."""
    experiment = default_experiment(dataset, learner)
    splits = load(dataset, (downloads,))
    built = build_learner(build.describe(experiment, splits))
    trunk = getattr(built, "trunk", built)
    assert trunk.classes.out_features == len(splits.train)
    few = replace(experiment, training=replace(experiment.training, class_examples=2))
    batch = build.make_batches(few, splits, built).draw(1)
    assert isinstance(batch, ClassBatch)
    # Capped: a batch holds no more classes than there are, and none twice.
    assert len(set(batch.class_index.tolist())) == len(batch.class_index) == min(16, len(splits.train))


def test_fb_has_two_classes_per_task_where_tasks_have_anomalies_of_their_own() -> None:
    assert default_experiment("sts-sawtooth", "fb").learning.batch == "episodes"


def test_other_learners_have_no_trunk() -> None:
    assert all(find_trunk(small(learner)) is None for learner in ("oc-maml", "oc-svm", "no-support", "iforest"))
    assert find_trunk(small("mtl-all-layers")) == find_trunk(small("mtl+iforest"))


def test_a_sweep_trains_the_trunk_of_a_family_once(
    tiny_splits: TaskSplits, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "load", lambda *arguments: tiny_splits)
    experiments = [small(learner, min(k, 4), share) for learner, k, share in FAMILY]
    jobs = plan(experiments, tmp_path / "runs", tmp_path / "rows")
    assert [outcome.error for outcome in sweep(jobs)] == [""] * len(FAMILY)
    (shared,) = (tmp_path / "runs" / TRUNKS).iterdir()
    own = [load_learner(job.folder)[0] for job in jobs]
    trunks = [getattr(learner, "trunk", learner).embedding.state_dict() for learner in own]
    assert all(torch.equal(trunk[name], trunks[0][name]) for trunk in trunks for name in trunk)
    assert [one.iteration for one in read_history(shared)] == [2, 3]
    reading = read_results(tmp_path / "rows")
    assert len({(row.k, row.normal_share) for row in reading.rows}) == 3
    assert [len(one.history) for one in reading.trainings] == [2] * len(FAMILY), "each run tells of its training"
    assert all(row.provenance.cpu_seconds > 0 for row in reading.rows)


def test_a_run_alone_ends_with_the_bits_of_a_run_that_shares(
    tiny_splits: TaskSplits, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "load", lambda *arguments: tiny_splits)
    experiment = small("mtl+oc-svm")
    shared = train(experiment, tiny_splits, tmp_path / "shared", trunks=tmp_path / "trunks")
    alone = train(experiment, tiny_splits, tmp_path / "alone")
    assert (tmp_path / "alone" / TRUNK).is_dir() and (tmp_path / "shared" / TRUNK).is_dir()
    assert all(torch.equal(a, b) for a, b in zip(shared.parameters(), alone.parameters(), strict=True))
    again = train(experiment, tiny_splits, tmp_path / "alone")
    assert all(torch.equal(a, b) for a, b in zip(again.parameters(), alone.parameters(), strict=True))
