"""What earlier versions called otherwise is read: in rows, folders, cards, grids and on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fewone.checkpoints import load_calibration, load_learner
from fewone.cli import main
from fewone.experiment import Experiment
from fewone.experiments import default_experiment
from fewone.experiments.grid import matches, read_grid
from fewone.experiments.sweep import plan
from fewone.learners import LEARNERS, SupportDistance
from fewone.old_names import LEARNERS as OLD_LEARNERS
from fewone.old_names import rename_learner
from fewone.results import read_results
from fewone.zoo import find_model
from fewone.zoo.cards import HOME

ROWS = Path(__file__).parents[1] / "results" / "own"


@pytest.mark.parametrize("old", OLD_LEARNERS)
def test_an_old_name_is_no_learners_name_today_and_leads_to_one(old: str) -> None:
    assert old not in LEARNERS and rename_learner(old) in LEARNERS
    assert rename_learner(f"oc-{old}") == f"oc-{rename_learner(old)}"


def test_an_experiment_by_an_old_name_is_the_same_experiment() -> None:
    today = default_experiment("sts-smooth", "support-distance")
    assert default_experiment("sts-smooth", "contrast") == today
    old = Experiment.read(today.to_plain() | {"learner": "contrast"})
    assert old == today and old.key() == today.key() and old.identify() == today.identify()


def test_committed_rows_with_the_old_name_are_read_by_the_new_one_and_their_jobs_are_done() -> None:
    file = min(ROWS.glob("sts-smooth.contrast.K10.seed0.*.json"))
    assert json.loads(file.read_text())["experiment"]["learner"] == "contrast"
    rows = read_results(file).rows
    assert {row.experiment.learner for row in rows} == {"support-distance"}
    assert not plan([rows[0].experiment], Path("runs"), file)


def test_a_grid_and_its_filter_may_use_the_old_name(tmp_path: Path) -> None:
    grid = tmp_path / "grid.toml"
    grid.write_text('[[experiments]]\ndataset = "sts-smooth"\nlearner = ["contrast", "plda"]\n')
    one, other = read_grid(grid).experiments
    assert (one.learner, other.learner) == ("support-distance", "plda")
    for name in ("contrast", "support-distance"):
        assert [matches(each, (f"learner={name}",)) for each in (one, other)] == [True, False]


def test_a_model_folder_and_a_card_with_the_old_name_are_read() -> None:
    folder = HOME / "periodic"
    assert json.loads((folder / "model.json").read_text())["content"]["algorithm"] == "contrast"
    learner, spec = load_learner(folder)
    assert isinstance(learner, SupportDistance) and spec.algorithm == "support-distance"
    assert (model := find_model("periodic")) is not None and model.card.learner == "support-distance"


def test_a_calibration_with_the_old_keys_is_read() -> None:
    folder = HOME / "periodic"
    (first, *_) = json.loads((folder / "calibration.json").read_text())["content"]["knots"]
    calibration = load_calibration(folder)
    assert calibration is not None
    found = calibration.points[0]
    assert (found.support_weight, found.reference) == (first["follow"], first["typical"])
    assert found.mean_quantiles[0].quantiles == tuple(first["tails"][0]["quantiles"])


def test_the_command_takes_the_old_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["train", "--dataset", "sts-sawtooth", "--learner", "contrast", "--training.iterations", "1"]
    words += ["--training.validate-every", "1", "--training.validation-episodes", "2", "--network.filters", "2"]
    assert main([*words, "--out", str(tmp_path / "run")]) == 0
    assert load_learner(tmp_path / "run")[1].algorithm == "support-distance"
    assert "contrast" not in capsys.readouterr().out
