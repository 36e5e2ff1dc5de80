import gzip
import shutil

import numpy as np
import pytest
import torch

from fewone.datasets import DATASETS, load
from fewone.datasets.leaks import find_copies, find_leaks, gather_rows
from fewone.episodes import EvaluationProtocol
from fewone.errors import FewoneError

DIGITS = DATASETS["mt-mnist"].variants


def digits_of(task):
    classes = task.normal.store.classes
    return set(classes[task.normal.rows()].tolist()), set(classes[task.anomalous.rows()].tolist())


@pytest.mark.parametrize("digit", DIGITS)
def test_pools_follow_the_paper(digit, downloads, options):
    splits = load(f"mt-mnist/{digit}", [downloads], options)
    seen = set(range(10)) - {int(digit), 9}
    assert {task.name for task in splits.train} == {str(number) for number in seen}
    for task in splits.train:
        assert digits_of(task) == ({int(task.name)}, seen - {int(task.name)})
    assert digits_of(splits.validation[0]) == ({9}, seen)
    assert digits_of(splits.test[0]) == ({int(digit)}, set(range(10)) - {int(digit)})
    # Of the tiny download, rows below 300 are training images, the first half of the test images ends at 400.
    assert gather_rows(splits.train).max() < 300
    assert splits.validation[0].normal.rows().max() < 300
    assert splits.validation[0].anomalous.rows().min() >= 400
    assert 300 <= splits.test[0].anomalous.rows().min() <= splits.test[0].anomalous.rows().max() < 400
    assert len(splits.test[0].normal) == 50
    assert not find_leaks(splits)


def test_it_carries_the_protocol_and_prepares_ink_as_1(downloads, options):
    splits = load("mt-mnist/0", [downloads], options)
    assert splits.plan == EvaluationProtocol(20, 2000, 2000)
    assert splits.shape == (1, 28, 28)
    assert splits.classes_exclude_each_other
    values = splits.train[0].normal.store.values
    assert values.dtype == torch.uint8
    assert splits.preparation(torch.tensor([0, 255], dtype=torch.uint8)).tolist() == [0.0, pytest.approx(1.0)]
    assert splits.fingerprint != load("mt-mnist/1", [downloads], options).fingerprint


@pytest.mark.parametrize("digit", ["0", "8"])
def test_the_real_digits_are_all_there_and_do_not_leak(digit, require_real, options):
    splits = load(f"mt-mnist/{digit}", require_real("mt-mnist"), options)
    assert len(splits.train[0].normal.store.values) == 70_000
    assert len(splits.test[0].normal) >= 2000 + 10
    assert len(splits.validation[0].anomalous) >= 2000
    assert len(splits.test[0].anomalous) >= 2000
    assert not find_leaks(splits)
    assert not find_copies(splits)
    # A drawn stroke is bright on a dark ground.
    assert 0.05 < splits.preparation(splits.train[0].normal.store.values[:100]).mean() < 0.25


@pytest.fixture
def broken(downloads, tmp_path):
    """A copy of the download to break, and the file to break."""
    shutil.copytree(downloads / "mnist", tmp_path / "mnist")
    return tmp_path, tmp_path / "mnist" / "train-images-idx3-ubyte.gz"


def test_a_truncated_gzip_file_is_named(broken, options):
    folder, path = broken
    path.write_bytes(path.read_bytes()[:-500])
    with pytest.raises(FewoneError, match=r"train-images-idx3-ubyte\.gz: not a whole gzip file .*download it again"):
        load("mt-mnist/0", [folder], options)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"<html>404</html>", "not a whole gzip file"),
        (gzip.compress(b""), "starts with nothing where"),
        (gzip.compress(b"\x00\x00\x0d\x03" + bytes(12)), "starts with 00 00 0d 03 where .* magic number"),
        (
            gzip.compress(b"\x00\x00\x08\x03" + bytes([0, 0, 0, 9] * 3) + bytes(100)),
            "100 bytes after the head .* 9 x 9",
        ),
    ],
    ids=["not gzip", "empty", "other magic number", "too short"],
)
def test_wrong_content_is_named_with_the_reason(broken, options, content, reason):
    folder, path = broken
    path.write_bytes(content)
    with pytest.raises(FewoneError, match=rf"train-images-idx3-ubyte\.gz: {reason}.*; download it again"):
        load("mt-mnist/0", [folder], options)


def test_images_of_another_size_are_refused(broken, options):
    folder, path = broken
    path.write_bytes(gzip.compress(b"\x00\x00\x08\x03" + np.array([2, 32, 32], ">i4").tobytes() + bytes(2048)))
    with pytest.raises(FewoneError, match=r"images of shape \(32, 32\) where MNIST has 28 x 28"):
        load("mt-mnist/0", [folder], options)


def test_labels_that_do_not_fit_the_images_are_refused(broken, options):
    folder, _ = broken
    labels = folder / "mnist" / "train-labels-idx1-ubyte.gz"
    labels.write_bytes(gzip.compress(b"\x00\x00\x08\x01\x00\x00\x00\x03\x01\x02\x03"))
    with pytest.raises(FewoneError, match=r"train-labels.*shape \(3,\) for 300 images"):
        load("mt-mnist/0", [folder], options)
    labels.write_bytes(gzip.compress(b"\x00\x00\x08\x01\x00\x00\x01\x2c" + bytes([10] * 300)))
    with pytest.raises(FewoneError, match="label 10 where MNIST has digits 0 to 9"):
        load("mt-mnist/0", [folder], options)


def test_a_folder_in_place_of_a_file_is_an_error_of_one_line(broken, options):
    folder, path = broken
    path.unlink()
    path.mkdir()
    with pytest.raises(FewoneError, match="cannot be read") as error:
        load("mt-mnist/0", [folder], options)
    assert "\n" not in str(error.value)


def test_torchvision_keeps_its_downloads_elsewhere_and_they_are_found(downloads, tmp_path, options):
    shutil.copytree(downloads / "mnist", tmp_path / "MNIST" / "raw")
    assert load("mt-mnist/4", [tmp_path], options).test[0].name == "4"
