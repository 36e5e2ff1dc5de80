"""The zoo: a folder with a card is a model, found by name, told in errors, listed by the verb."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import fewone.zoo_making as zoo_making_module
from fewone.calibration import CalibrationMap, CalibrationPoint, NormalQuantiles
from fewone.calibration.calibrated import LEVELS
from fewone.checkpoints import ModelSpec, build_learner, save_calibration, save_learner
from fewone.cli import main
from fewone.detector.loading import load
from fewone.episodes import InputScaling
from fewone.errors import FewoneError, InputError
from fewone.experiment import Experiment
from fewone.experiments import default_experiment
from fewone.learners import PldaSettings
from fewone.networks import NetworkSettings
from fewone.results import Level, Row, Threshold, Training, UnitScores, ValidationPoint, find_provenance, write_records
from fewone.training import Validation
from fewone.zoo import cards, find_model, fitting_models, read_models
from fewone.zoo_making import main as zoo_making
from fewone.zoo_making import make_model

DESCRIPTION = """
name = "tiny"
title = "Windows of 16 steps"
data = "made up"
licence = "CC0"
sampling_rate = 2000.0
intended_use = "tests"
limits = "everything else"
"""
CALIBRATION = CalibrationMap(
    (CalibrationPoint(5, 2.0, 0.1, 0.3, -0.2, (NormalQuantiles(1, tuple(np.linspace(-1, 1, len(LEVELS)).tolist())),)),)
)


EXPERIMENT = replace(default_experiment("sts-sine", "plda", 5), further_k=(2,))


def make_row(k: int, level: Level, threshold: Threshold = "calibrated", accuracy: float = 0.9) -> Row:
    units = tuple(accuracy + change for change in (-0.02, 0.0, 0.02))
    scores = UnitScores(("a", "b", "c"), 3, units, *(6 * ((0.95, 0.96, 0.97),)))
    provenance = replace(find_provenance("data", 1.0, 1.0), commit="none")
    return Row(EXPERIMENT, provenance, k, 1.0, "test", level, threshold, scores)


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """Rows of two K and levels, among rows of others that must not be taken."""
    rows = [make_row(k, level) for k in (5, 2) for level in ("example", "run")]
    rows[0] = make_row(5, "example", accuracy=0.91)
    others = [
        make_row(5, "example", "own", 0.1),
        replace(make_row(5, "example", accuracy=0.2), split="validation"),
        replace(rows[0], experiment=replace(EXPERIMENT, seed=1)),
        replace(rows[0], provenance=replace(rows[0].provenance, fingerprint="other data")),
        replace(rows[0], experiment=replace(EXPERIMENT, dataset="sts-sawtooth")),
        # Trained with another K, not only judged with it.
        replace(rows[0], experiment=replace(EXPERIMENT, k=2, further_k=())),
    ]
    write_records(tmp_path / "rows", *rows, *others)
    return tmp_path / "rows"


@pytest.fixture
def trained(tmp_path: Path) -> Path:
    card = ModelSpec(
        "plda",
        PldaSettings(dimensions=4, batch="classes"),
        NetworkSettings(filters=(2,)),
        (1, 16),
        InputScaling(standardize=True),
        support_size=5,
        seed=0,
        dataset="made",
        fingerprint="data",
        experiment=EXPERIMENT,
        training_classes=9,
    )
    save_learner(tmp_path / "trained", build_learner(card), card)
    save_calibration(tmp_path / "trained", CALIBRATION)
    (tmp_path / "trained" / "log.jsonl").write_text("{}")
    (tmp_path / "card.toml").write_text(DESCRIPTION)
    return tmp_path / "trained"


@pytest.fixture
def zoo(trained: Path, results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A zoo of one model, in the place of the package's own."""
    home = tmp_path / "zoo"
    make_model(trained, tmp_path / "card.toml", [results], home)
    for function in (cards.read_models, cards.find_model, cards.fitting_models):
        monkeypatch.setattr(function, "__defaults__", (*(function.__defaults__ or ())[:-1], home))
    return home


def test_a_model_is_its_weights_its_calibration_and_its_card(zoo: Path) -> None:
    (model,) = read_models(zoo)
    assert model.name == "tiny"
    assert model.card.learner == "plda"
    assert Experiment.read(model.card.experiment) == EXPERIMENT
    assert model.card.seeds == (0,)
    kinds = {".json": 3, ".safetensors": 2}
    assert {kind: len(list(model.folder.glob(f"*{kind}"))) for kind in kinds} == kinds
    assert len(list(model.folder.iterdir())) == 5
    assert model.size == sum(file.stat().st_size for file in model.folder.iterdir())


def test_a_model_is_loaded_by_its_name_with_calibration_and_sampling_rate(zoo: Path) -> None:
    normals = np.random.default_rng(0).normal(size=(5, 16))
    detector = load("tiny", false_alarm_rate=0.1).fit(normals)
    assert detector.calibration == CALIBRATION
    assert detector.offset_ != 0
    with pytest.raises(InputError, match="2000 Hz, yours have 500 Hz"):
        load("tiny", sampling_rate=500.0).fit(normals)


def test_an_error_of_shape_names_the_models_that_would_fit(zoo: Path) -> None:
    assert fitting_models((16,), 2000.0, zoo) == ["tiny"]
    assert fitting_models((1, 16), None, zoo) == ["tiny"]
    assert fitting_models((16,), 100.0, zoo) == []
    assert fitting_models((17,), None, zoo) == []
    with pytest.raises(InputError, match=r"got \(3, 12\); no model of the zoo takes such examples.*fewone train"):
        load("tiny").fit(np.zeros((3, 12)))
    assert "models that take such examples: tiny" in cards.advise((16,))
    assert "with channels before time steps: tiny" in cards.advise((16, 1))
    assert "taken as one example: models that take such examples: tiny" in cards.advise_on_array((16,))
    with pytest.raises(InputError, match=r"2000 Hz, yours have 100 Hz: .*; no model of the zoo .* at 100 Hz; to train"):
        load("tiny", sampling_rate=100.0).fit(np.zeros((3, 16)))


def test_an_unknown_name_tells_the_models_there_are(zoo: Path) -> None:
    assert find_model("tinny", zoo) is None
    with pytest.raises(FewoneError, match="'tinny'; did you mean 'tiny'\\? models: tiny"):
        load("tinny")


def test_the_verb_lists_models_and_shows_a_card(zoo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models"]) == 0
    assert "tiny" in capsys.readouterr().out
    assert main(["models", "tiny"]) == 0
    shown = capsys.readouterr().out
    for words in (
        "Windows of 16 steps",
        "CC0",
        "2000 Hz",
        "K = 5",
        "91.0 [86.0, 96.0]",
        "calibrated",
        "everything else",
    ):
        assert words in shown
    assert main(["models", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["shape"] == [1, 16]
    assert main(["models", "tinny"]) == 2
    assert "did you mean 'tiny'" in capsys.readouterr().err


def test_every_shipped_model_loads_and_the_zoo_stays_small() -> None:
    models = read_models()
    for model in models:
        detector = load(model.name)
        assert detector.card is not None
        assert detector.card.shape == model.card.shape
        assert detector.calibration is not None
    assert sum(model.size for model in models) < 8e6


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("name = ", "nom = "), "name: one word"),
        (("licence = ", "license = "), "did you mean 'licence'"),
        (("title", "seeds = [0]\ntitle"), "seeds: is taken from the model"),
        (("title", "= title"), "not TOML"),
    ],
)
def test_a_wrong_description_makes_no_model(
    trained: Path,
    results: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    change: tuple[str, str],
    words: str,
) -> None:
    (tmp_path / "card.toml").write_text(DESCRIPTION.replace(*change, 1))
    words_given = [
        str(trained),
        str(tmp_path / "card.toml"),
        "--results",
        str(results),
        "--home",
        str(tmp_path / "zoo"),
    ]
    assert zoo_making(words_given) == 2
    assert words in capsys.readouterr().err
    assert not (tmp_path / "zoo").exists()


def test_a_model_without_calibration_is_not_taken_in(trained: Path, results: Path, tmp_path: Path) -> None:
    (trained / "calibration.json").unlink()
    with pytest.raises(FewoneError, match="never calibrated"):
        make_model(trained, tmp_path / "card.toml", [results], tmp_path / "zoo")


def test_the_accuracies_are_those_of_the_rows_of_this_very_training(zoo: Path) -> None:
    found = read_models(zoo)[0].card.accuracy
    assert [(one.support_size, one.level, one.tasks) for one in found] == [
        (2, "example", 3),
        (2, "run", 3),
        (5, "example", 3),
        (5, "run", 3),
    ]
    assert [one.balanced_accuracy for one in found] == [90.0, 90.0, 91.0, 90.0]
    expected = make_row(5, "example", accuracy=0.91).summary.accuracy
    assert expected.low is not None
    assert found[2].low == round(100 * expected.low, 1)
    assert found[2].auroc == 96.0


def test_further_rows_of_the_training_join_the_card(trained: Path, results: Path, tmp_path: Path) -> None:
    more = tmp_path / "more"
    judged = replace(EXPERIMENT, further_k=(20,))
    write_records(more, replace(make_row(20, "example", accuracy=0.97), experiment=judged))
    model = make_model(trained, tmp_path / "card.toml", [results, more], tmp_path / "zoo")
    assert [one.support_size for one in cards.read_card(model).accuracy] == [2, 2, 5, 5, 20]


def test_a_missing_row_is_named(trained: Path, tmp_path: Path) -> None:
    rows = tmp_path / "few"
    write_records(rows, make_row(5, "example"), make_row(2, "example", "own"))
    with pytest.raises(FewoneError, match="no test row of plda on sts-sine, K = 2, seed 0, each example, calibrated"):
        make_model(trained, tmp_path / "card.toml", [rows], tmp_path / "zoo")
    assert not (tmp_path / "zoo").exists()


def test_rows_of_another_training_with_the_same_settings_are_refused(
    trained: Path, results: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zoo_making_module, "read_history", lambda folder: [Validation(100, 0.5, 0.9, 1.0)])
    provenance = make_row(5, "example").provenance
    write_records(results, Training(EXPERIMENT, provenance, (ValidationPoint(100, 1.0, 0.4, 0.9),)))
    with pytest.raises(FewoneError, match="are of another training"):
        make_model(trained, tmp_path / "card.toml", [results], tmp_path / "zoo")
    write_records(results, Training(EXPERIMENT, provenance, (ValidationPoint(100, 2.0, 0.500004, 0.9),)))
    make_model(trained, tmp_path / "card.toml", [results], tmp_path / "zoo")


def test_what_only_the_training_needs_is_not_shipped_and_the_scores_are_the_same(zoo: Path, trained: Path) -> None:
    normals = np.random.default_rng(0).normal(size=(5, 16))
    whole, shipped = load(trained), load("tiny")
    assert whole.learner is not None
    assert shipped.learner is not None
    assert {*whole.learner.state_dict()} - {*shipped.learner.state_dict()} == {"classifier.weight", "classifier.bias"}
    np.testing.assert_array_equal(
        whole.fit(normals).score_samples(normals), shipped.fit(normals).score_samples(normals)
    )
