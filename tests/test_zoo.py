"""The zoo: a folder with a card is a model, found by name, told in errors, listed by the verb."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from fewone.calibration import CalibrationMap, Knot, Tail
from fewone.calibration.calibrated import LEVELS
from fewone.checkpoints import ModelCard, build_learner, save_calibration, save_learner
from fewone.cli import main
from fewone.detector.loading import load
from fewone.episodes import Preparation
from fewone.errors import FewoneError, InputError
from fewone.learners import LearnerSettings
from fewone.networks import NetworkSettings
from fewone.zoo import cards, find_model, fitting_models, read_models
from fewone.zoo_making import main as zoo_making
from fewone.zoo_making import make_model

DESCRIPTION = """
name = "tiny"
title = "Windows of 16 steps"
data = "made up"
licence = "CC0"
seeds = [0, 1]
sampling_rate = 2000.0
intended_use = "tests"
limits = "everything else"
[[accuracy]]
support_size = 10
balanced_accuracy = 91.5
low = 90.0
high = 93.0
"""
CALIBRATION = CalibrationMap(
    (Knot(5, 2.0, 0.1, 0.3, -0.2, (Tail(1, tuple(np.linspace(-1, 1, len(LEVELS)).tolist())),)),)
)


@pytest.fixture
def trained(tmp_path: Path) -> Path:
    card = ModelCard(
        "plda",
        LearnerSettings(dimensions=4),
        NetworkSettings(filters=(2,)),
        (1, 16),
        Preparation(standardize=True),
        support_size=5,
        seed=0,
        dataset="made",
        fingerprint="",
        experiment='{"k": 5}',
    )
    save_learner(tmp_path / "trained", build_learner(card), card)
    save_calibration(tmp_path / "trained", CALIBRATION)
    (tmp_path / "trained" / "log.jsonl").write_text("{}")
    (tmp_path / "card.toml").write_text(DESCRIPTION)
    return tmp_path / "trained"


@pytest.fixture
def zoo(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A zoo of one model, in the place of the package's own."""
    home = tmp_path / "zoo"
    make_model(trained, tmp_path / "card.toml", home)
    for function in (cards.read_models, cards.find_model, cards.fitting_models):
        monkeypatch.setattr(function, "__defaults__", (*(function.__defaults__ or ())[:-1], home))
    return home


def test_a_model_is_its_weights_its_calibration_and_its_card(zoo: Path) -> None:
    (model,) = read_models(zoo)
    assert model.name == "tiny"
    assert model.card.learner == "plda"
    assert model.card.experiment == '{"k": 5}'
    assert model.card.accuracy[0].low == 90.0
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


def test_an_unknown_name_tells_the_models_there_are(zoo: Path) -> None:
    assert find_model("tinny", zoo) is None
    with pytest.raises(FewoneError, match="'tinny'; models: tiny"):
        load("tinny")


def test_the_verb_lists_models_and_shows_a_card(zoo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models"]) == 0
    assert "tiny" in capsys.readouterr().out
    assert main(["models", "tiny"]) == 0
    shown = capsys.readouterr().out
    for words in ("Windows of 16 steps", "CC0", "2000 Hz", "K = 10", "91.5 % [90.0, 93.0]", "everything else"):
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
        (("low = 90.0", "low = 'x'"), "low: a number is needed"),
        (("title", "= title"), "not TOML"),
    ],
)
def test_a_wrong_description_makes_no_model(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], change: tuple[str, str], words: str
) -> None:
    (tmp_path / "card.toml").write_text(DESCRIPTION.replace(*change, 1))
    assert zoo_making([str(trained), str(tmp_path / "card.toml"), "--home", str(tmp_path / "zoo")]) == 2
    assert words in capsys.readouterr().err
    assert not (tmp_path / "zoo").exists()


def test_a_model_without_calibration_is_not_taken_in(trained: Path, tmp_path: Path) -> None:
    (trained / "calibration.json").unlink()
    with pytest.raises(FewoneError, match="never calibrated"):
        make_model(trained, tmp_path / "card.toml", tmp_path / "zoo")
