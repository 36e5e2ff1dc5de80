"""A training that begins with a model: where it ends, what it refuses, what it says of its scores."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import fewone
from fewone.calibration import CalibrationMap, CalibrationPoint, NormalQuantiles, mix_calibrations
from fewone.checkpoints import load_calibration, load_learner
from fewone.cli.train import main, parse
from fewone.errors import FewoneError
from fewone.learners import Evidence, ProtoNet
from fewone.learners.evidence import TASKS_OF_START
from fewone.training.starts import load_start

SHORT = (
    "--training.iterations",
    "2",
    "--training.validate-every",
    "1",
    "--training.validation-episodes",
    "2",
    "--k",
    "5",
)


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four tasks of noisy waves, the last ten of each at another frequency."""
    folder, random = tmp_path_factory.mktemp("history"), np.random.default_rng(0)
    for task in range(4):
        phase = random.uniform(0, 6, (20, 1))
        cycles = np.where(np.arange(20) < 10, 3 + task, 5 + task)[:, None]
        series = np.sin(phase + cycles * np.linspace(0, 6.28, 32)) + 0.1 * random.normal(size=(20, 32))
        np.savez(folder / f"press-{task}.npz", normal=series[:10], anomalous=series[10:])
    return folder


def test_a_training_begins_at_its_start_and_takes_its_evidence_and_shape(history: Path, tmp_path: Path) -> None:
    arguments = ["--dataset", f"folder:{history}", "--start", "series", *SHORT, "--training.outer-rate", "1e-9"]
    assert main([*arguments, "--out", str(tmp_path / "refined")]) == 0
    learner, spec = load_learner(tmp_path / "refined")
    start = load_start("series")
    assert isinstance(learner, Evidence)
    assert learner.names == start.learner.names
    assert spec.shape == (0, 0)
    for name, value in start.learner.state_dict().items():
        assert torch.allclose(learner.state_dict()[name], value, atol=1e-6), name
    # One validation task against those of the start: its calibration stays near.
    own, theirs = load_calibration(tmp_path / "refined"), start.calibration
    assert own is not None
    assert theirs is not None
    assert own != theirs
    assert {point.k for point in theirs.points} <= {point.k for point in own.points}
    detector = fewone.load(tmp_path / "refined")
    normals = np.random.default_rng(0).normal(size=(5, 48))
    assert np.isfinite(detector.fit(normals).decision_function(normals)).all()


def test_the_same_command_again_finds_the_run_finished(
    history: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--dataset", f"folder:{history}", "--start", "series", *SHORT, "--out", str(tmp_path / "run")]
    main(arguments)
    main(arguments)
    assert "nothing was done" in capsys.readouterr().out
    with pytest.raises(FewoneError, match="start"):
        main([word for word in arguments if word not in ("--start", "series")])


def test_a_folder_is_a_start_too(history: Path, tmp_path: Path) -> None:
    arguments = ["--dataset", f"folder:{history}", *SHORT]
    main([*arguments, "--learning.evidence", "raw", "level", "--out", str(tmp_path / "first")])
    main([*arguments, "--start", str(tmp_path / "first"), "--out", str(tmp_path / "second")])
    assert load_learner(tmp_path / "second")[0].names == ("raw", "level")  # type: ignore[comparison-overlap]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--start", "serries"), "did you mean 'series'"),
        (("--start", "periodic"), "only one of evidence can be refined"),
        (("--start", "series", "--learner", "plda"), "plda cannot begin with a model"),
        (("--start", "pictures"), "is for inputs of shape"),
        (("--start", "series", "--learning.evidence", "raw"), "leave learning.evidence to the start"),
    ],
)
def test_what_cannot_be_a_start_is_told_in_one_line(
    history: Path, tmp_path: Path, words: tuple[str, ...], told: str
) -> None:
    with pytest.raises(FewoneError, match=told) as caught:
        main(["--dataset", f"folder:{history}", *words, *SHORT, "--out", str(tmp_path / "run")])
    assert "\n" not in str(caught.value)


def test_a_start_alone_chooses_the_learner_that_it_refines() -> None:
    assert parse(["--dataset", "ucr", "--start", "series", "--out", "run"]).experiment.learner == "evidence"


def test_few_tasks_stay_nearer_to_the_start_than_many() -> None:
    start, moved = load_start("series").learner, []
    for tasks in (1, 100):
        learner = Evidence(start.names)
        learner.start_from(start, tasks)
        with torch.no_grad():
            learner.log_weight += 0.1
        moved.append(float(learner.shrink().detach()))
    assert moved[0] == pytest.approx(100 * moved[1])
    assert moved[1] > 0


def test_meta_train_begins_with_a_start(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    tasks = [
        fewone.Task.from_arrays(str(n), random.normal(size=(9, 1, 32)), 4 + random.normal(size=(9, 1, 32)))
        for n in range(4)
    ]
    sampler = fewone.EpisodeSampler(support_size=5, query_size=4, standardize=True)
    settings = fewone.TrainingSettings(iterations=1, validate_every=1, validation_episodes=1, outer_rate=1e-9)
    start = load_start("series")
    learner = Evidence(start.learner.names)
    fewone.meta_train(learner, tasks[:2], tasks[2:], sampler, settings, tmp_path / "run", start="series")
    assert torch.allclose(learner.prior_centre, start.learner.prior_centre, atol=1e-6)
    with pytest.raises(FewoneError, match="begins the learner evidence alone"):
        other = ProtoNet(torch.nn.Linear(32, 8))
        fewone.meta_train(other, tasks[:2], tasks[2:], sampler, settings, tmp_path / "other", start="series")


def test_calibrations_are_mixed_by_how_many_tasks_each_saw() -> None:
    point = CalibrationPoint(
        5, 1.0, 2.0, 0.0, 0.0, (NormalQuantiles(1, (1.0,) * 7),), (NormalQuantiles(2, (3.0,) * 7),)
    )
    own = CalibrationMap((point,))
    theirs = CalibrationMap(
        (
            replace(point, threshold=0.0, mean_quantiles=(NormalQuantiles(1, (0.0,) * 7),), largest_quantiles=()),
            replace(point, k=10),
        )
    )
    mixed = mix_calibrations(own, theirs, 0.25)
    assert [point.k for point in mixed.points] == [5, 10]
    assert mixed.at(5).threshold == pytest.approx(0.5)
    assert mixed.at(5).mean_quantiles[0].quantiles[0] == pytest.approx(0.25)
    assert mixed.at(5).largest_quantiles == point.largest_quantiles  # the start has none: they stay
    start = replace(load_start("series"), calibration=theirs)
    share = 30 / (30 + TASKS_OF_START)
    assert start.mix(own, 30).at(5).threshold == pytest.approx(2.0 * share)
