"""The search: the paper's grids, halved by validation tasks, every trial kept, the choice a TOML that tables read."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from fewone.cli import main
from fewone.episodes import TaskSplits
from fewone.experiments import default_experiment, read_experiment, tune
from fewone.experiments.grid import read_grid
from fewone.results import read_results

pytest.importorskip("optuna")


def write_experiment(folder: Path) -> Path:
    experiment = default_experiment("sts-sine", "maml", 2)
    experiment = replace(
        experiment,
        network=replace(experiment.network, filters=(4,)),
        training=replace(
            experiment.training, iterations=3, meta_batch=2, query_size=4, validate_every=1, validation_episodes=2
        ),
    )
    path = folder / "search.toml"
    path.write_text(experiment.to_toml())
    return path


def test_the_grids_are_the_papers() -> None:
    for dataset, rates, steps in (
        ("omniglot", (0.1, 0.05, 0.01), (1, 3, 5)),
        ("mt-mnist/3", (0.1, 0.05, 0.01), (1, 3, 5)),
        ("sts-sine", (0.1, 0.01, 0.001), (1, 3, 5, 10)),
        ("cifar-fs", (0.1, 0.01, 0.001), (1, 3, 5)),
    ):
        space = tune.find_space(dataset)
        assert (space.inner_rate, space.outer_rate, space.inner_steps) == (rates, (0.1, 0.01, 0.001), steps)
        assert space.norm == ("none", "support")


def test_a_search_halves_keeps_its_trials_and_writes_a_choice_that_tables_read(
    tmp_path: Path, tiny_splits: TaskSplits, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tune, "load", lambda *arguments: tiny_splits)
    searched = ["--search", "inner_rate", "inner_steps", "--runs", str(tmp_path / "runs")]
    words = ["tune", str(write_experiment(tmp_path)), *searched, "--results", str(tmp_path / "results")]
    assert main(words) == 0
    trials = read_results(tmp_path / "results").trainings
    tried = {(t.experiment.learning.inner_rate, t.experiment.learning.inner_steps) for t in trials}  # type: ignore[attr-defined]
    assert len(trials) == len(tried) == 12, "every pair of the grid once"
    lengths = [len(trial.history) for trial in trials]
    assert set(lengths) == {1, 3} and lengths.count(1) > lengths.count(3), "most were stopped at the first rung"
    assert {(t.experiment.test_normal_share, t.experiment.normal_share) for t in trials} == {(1.0, 0.5)}
    choice = read_experiment(tmp_path / "chosen" / "sts-sine.maml.K2.toml")
    best = min((t for t in trials if len(t.history) == 3), key=lambda t: min(point.loss for point in t.history))
    assert choice == best.experiment
    grid = tmp_path / "grid.toml"
    grid.write_text('[[experiments]]\ndataset = "sts-sine"\nlearner = "maml"\nk = 2\nchosen = "chosen"\n')
    (experiment,) = read_grid(grid).experiments
    assert experiment.learning == choice.learning
    assert "12" not in capsys.readouterr().out.split("of ")[1].split(" trials")[0]
