"""`fewone.meta_train`: what the command has, for any learner object."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import fewone
from fewone.detector.few_shot_detector import FewShotDetector
from fewone.episodes import Examples
from fewone.learners import Maml, MetaLearner, ProtoNet, Scorer
from fewone.training import Progress, read_history

SAMPLER = fewone.EpisodeSampler(support_size=3, query_size=4, standardize=True)
SETTINGS = fewone.TrainingSettings(
    iterations=6, meta_batch=2, validate_every=2, validation_episodes=12, outer_rate=0.01, checkpoint_seconds=0.0
)


def make_tasks(first: int, last: int) -> list[fewone.Task]:
    random = np.random.default_rng(0)
    return [
        fewone.Task.from_arrays(str(n), n + random.normal(size=(12, 4)), n + 3 + random.normal(size=(6, 4)))
        for n in range(first, last)
    ]


def make_learner(seed: int = 0, inner_steps: int = 1) -> Maml:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return Maml(nn.Sequential(nn.Linear(4, 6), nn.ReLU()), inner_rate=0.1, inner_steps=inner_steps)


def train(
    folder: Path, learner: MetaLearner | None = None, settings: fewone.TrainingSettings = SETTINGS, **further: object
) -> FewShotDetector:
    learner = make_learner() if learner is None else learner
    return fewone.meta_train(
        learner,
        make_tasks(0, 6),
        make_tasks(6, 18),
        SAMPLER,
        settings,
        folder,
        **further,  # type: ignore[arg-type]
    )


def hashes(folder: Path) -> list[str]:
    names = ("model", "state", "fold-0/model", "fold-1/model")
    found = [str(json.loads((folder / f"{name}.json").read_bytes())["weights"]["sha256"]) for name in names]
    return [*found, json.dumps(json.loads((folder / "calibration.json").read_bytes())["content"])]


def test_the_folds_of_a_run_that_version_0_1_began_are_found_under_their_old_names(tmp_path: Path) -> None:
    settings = replace(SETTINGS, leave_out=2)
    train(tmp_path, settings=settings)
    found = hashes(tmp_path)
    for number in range(2):
        (tmp_path / f"fold-{number}").rename(tmp_path / f"without-{number}")
    (tmp_path / "calibration.json").unlink()
    train(tmp_path, settings=settings)
    assert not list(tmp_path.glob("fold-*")), "each fold goes on where it was begun"
    for number in range(2):
        (tmp_path / f"without-{number}").rename(tmp_path / f"fold-{number}")
    assert hashes(tmp_path) == found


def test_it_validates_keeps_the_best_calibrates_and_loads(tmp_path: Path) -> None:
    seen: list[Progress] = []
    learner = make_learner()
    detector = train(tmp_path, learner, watch=seen.append)
    assert [progress.iteration for progress in seen] == [1, 2, 3, 4, 5, 6]
    assert [point.iteration for point in read_history(tmp_path)] == [2, 4, 6]
    assert detector.calibration is not None
    assert detector.learner is learner
    normals = make_tasks(30, 31)[0].normal.store.values[:3]
    same = fewone.load(tmp_path, learner=make_learner(9))
    np.testing.assert_array_equal(
        same.fit(normals).score_samples(normals), detector.fit(normals).score_samples(normals)
    )


def test_killed_at_any_moment_and_begun_again_it_ends_with_the_same_bits(tmp_path: Path) -> None:
    settings = replace(SETTINGS, leave_out=2)
    train(tmp_path / "whole", settings=settings)

    def killed_after(count: int) -> bool:
        """In a process of its own; going on, by a learner with other first weights: the folder has those that count."""
        first = make_learner(count if (tmp_path / "parts").exists() else 0)
        child = os.fork()
        if child == 0:
            left = [count]

            def watch(progress: Progress) -> None:
                left[0] -= 1
                if left[0] == 0:
                    os.kill(os.getpid(), signal.SIGKILL)

            train(tmp_path / "parts", first, settings, watch=watch)
            os._exit(0)
        return os.WIFSIGNALED(os.waitpid(child, 0)[1])

    assert all(killed_after(count) for count in (1, 3, 4, 5))
    train(tmp_path / "parts", make_learner(99), settings)
    assert hashes(tmp_path / "parts") == hashes(tmp_path / "whole")


def test_a_folder_of_another_training_is_refused_in_one_line(tmp_path: Path) -> None:
    train(tmp_path, calibrated=False)
    for learner, settings, words in (
        (make_learner(), replace(SETTINGS, outer_rate=0.5), "its training.outer_rate is 0.01"),
        (make_learner(inner_steps=2), SETTINGS, "its arguments is .*inner_steps=1"),
        (ProtoNet(nn.Linear(4, 6)), SETTINGS, "weights hold .* which this network lacks"),
    ):
        with pytest.raises(fewone.FewoneError, match=words) as found:
            train(tmp_path, learner, settings)
        assert "\n" not in str(found.value)


def test_what_cannot_be_trained_is_refused_before_the_first_step(tmp_path: Path) -> None:
    tasks, validation = make_tasks(0, 3), make_tasks(3, 5)
    bare = fewone.Task.from_arrays("bare", np.zeros((9, 4)))
    wide = fewone.Task.from_arrays("wide", np.zeros((9, 5)), np.zeros((9, 5)))
    for training, judged, words in (
        (tasks, [], "no validation task"),
        (tasks, tasks, "'0' is among the training and the validation tasks"),
        (tasks, [bare], "task bare: it has no anomalies to validate by"),
        (tasks, [wide], "task wide: its examples are"),
        ([*tasks, bare], validation, "task bare: 2 anomalous examples wanted"),
        ([*tasks, wide], validation, "task wide: its examples are"),
    ):
        with pytest.raises(fewone.InputError, match=words):
            fewone.meta_train(make_learner(), training, judged, SAMPLER, SETTINGS, tmp_path / "x")
    with pytest.raises(fewone.InputError, match="query_size is 10 in the settings, 4 in the sampler"):
        train(tmp_path / "x", settings=fewone.TrainingSettings(query_size=10))
    with pytest.raises(fewone.InputError, match=r"settings\.iterations is 0: at least 1"):
        train(tmp_path / "x", settings=fewone.TrainingSettings(iterations=0))
    with pytest.raises(fewone.InputError, match=r"Maml\(module\) is expected, got Linear"):
        train(tmp_path / "x", nn.Linear(4, 2))  # type: ignore[arg-type]
    assert not (tmp_path / "x").exists()


class Farthest(Scorer):
    def __init__(self, middle: torch.Tensor) -> None:
        super().__init__()
        self.register_buffer("middle", middle)
        self.middle: torch.Tensor

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return (inputs - self.middle).norm(dim=-1) - 4.0


class FromTheMiddle(MetaLearner):
    """A learner of one's own, with nothing to train."""

    def adapt(self, support: Examples) -> Farthest:
        return Farthest(support.inputs.mean(1, keepdim=True))

    def accumulate_gradient(self, batch: object) -> torch.Tensor:
        raise AssertionError("there is no gradient")


def test_a_learner_without_parameters_is_calibrated_and_saved_all_the_same(tmp_path: Path) -> None:
    for _ in range(2):
        detector = train(tmp_path / "run", FromTheMiddle())
    assert detector.calibration is not None
    normals, bad = np.zeros((3, 4)) + np.eye(4)[:3], np.full((2, 4), 9.0)
    detector.fit(normals).save(tmp_path / "saved")
    same = fewone.load(tmp_path / "saved", learner=FromTheMiddle())
    assert same.predict(bad).tolist() == [-1, -1]
