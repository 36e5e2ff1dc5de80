"""What a library call leaves alone in the process that makes it, and what a command does to its own."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from pathlib import Path

import matplotlib
import numpy as np
import pytest
import torch

import fewone
from fewone.demo import Demonstration, _draw_task, make_experiment
from fewone.episodes import TaskSplits, generator_for
from fewone.experiments.defaults import default_experiment
from fewone.experiments.train import train
from fewone.learners import LEARNERS
from fewone.networks import NetworkSettings
from fewone.reporting.curves import Line, _draw
from fewone.sampling import EpisodeSampler
from fewone.training.process import own_process


@pytest.fixture
def changed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the process-wide settings that were touched."""
    found: list[str] = []

    class Library:
        def mallopt(self, option: int, value: int) -> int:
            found.append("mallopt")
            return 1

    monkeypatch.setattr(ctypes, "CDLL", lambda name: Library())
    monkeypatch.setattr(torch, "set_num_threads", lambda number: found.append("threads"))
    return found


def test_training_adapting_and_predicting_touch_no_setting_of_the_process(
    changed: list[str], tiny_splits: TaskSplits, tmp_path: Path
) -> None:
    sampler = EpisodeSampler(4, 8, 1.0, tiny_splits.preparation)
    episodes = sampler.draw(tiny_splits.train, 6, generator_for(0))
    for name in ("maml", "anil", "reptile"):
        learner = LEARNERS[name](LEARNERS[name].choose(), NetworkSettings(filters=(4,)), tiny_splits.shape)
        learner.accumulate_gradient(episodes)
        learner.adapt(episodes.support)(episodes.query.inputs)
    normals = np.random.default_rng(0).normal(size=(9, 3))
    fewone.FewShotDetector().fit(normals).predict(normals)
    experiment = default_experiment("sts-sine", "oc-maml", 4)
    training = replace(experiment.training, iterations=2, validation_episodes=2, query_size=8, threads=2)
    train(replace(experiment, training=training), tiny_splits, tmp_path, calibrated=False)
    assert changed == []


def test_drawing_leaves_the_backend_of_matplotlib_alone(
    tiny_splits: TaskSplits, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(matplotlib, "use", lambda backend: pytest.fail(f"switched to {backend}"))
    matplotlib.rcParams["backend"] = "svg"
    assert "<svg" in _draw("title", "K", [Line("one", ((1.0, 50.0), (2.0, 60.0)))]).svg
    episodes = EpisodeSampler(6, 16, 1.0, tiny_splits.preparation).draw(tiny_splits.train, 1, generator_for(0))
    shown = Demonstration(make_experiment(1), (), episodes, episodes.query.labels - 0.5)
    assert "<svg" in _draw_task(shown, 0)
    assert matplotlib.get_backend() == "svg"


def test_the_training_command_takes_its_process_for_itself(changed: list[str]) -> None:
    own_process(2)
    own_process(1)
    assert changed == ["threads", "mallopt", "mallopt"] * 2
