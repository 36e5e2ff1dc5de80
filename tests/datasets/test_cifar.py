import shutil

import numpy as np
import pytest
import torch

from fewone.datasets import DATASETS, load
from fewone.datasets.leaks import find_copies, find_leaks
from fewone.episodes import EvaluationProtocol
from fewone.errors import FewoneError

COUNTS = {"cifar-fs": (64, 16, 20), "fc100": (60, 20, 20)}


@pytest.fixture
def copied(downloads, tmp_path):
    """A copy of the download that a test may change."""
    shutil.copytree(downloads / "cifar-100-binary", tmp_path / "cifar-100-binary")
    return tmp_path


@pytest.mark.parametrize("name", COUNTS)
def test_classes_are_shared_out_as_published_with_all_their_images(name, downloads, options):
    splits = load(name, [downloads], options)
    parts = (splits.train, splits.validation, splits.test)
    assert tuple(map(len, parts)) == COUNTS[name]
    assert len({task.name for part in parts for task in part}) == 100
    assert all(len(task.normal) == 24 for part in parts for task in part)
    assert splits.plan == EvaluationProtocol(20, 300, 300)
    assert not find_leaks(splits)


def test_the_lists_are_those_of_the_publications(downloads, options):
    cifar_fs, fc100 = (load(name, [downloads], options) for name in COUNTS)
    assert {"baby", "bed", "bicycle", "chimpanzee"} <= {task.name for task in cifar_fs.test}
    assert {"baby", "beaver", "bee", "beetle"} <= {task.name for task in fc100.test}
    assert {"bear", "camel", "cattle", "chimpanzee"} <= {task.name for task in fc100.validation}
    # Five classes of each superclass stay together; the tiny download numbers superclasses as fine // 5.
    assert len(fc100.test) % 5 == 0


def test_a_stored_image_is_the_row_of_the_file_and_a_view_of_what_was_read(downloads, options):
    splits = load("cifar-fs", [downloads], options)
    store = splits.train[0].normal.store
    rows = np.frombuffer((downloads / "cifar-100-binary" / "train.bin").read_bytes(), np.uint8).reshape(-1, 3074)
    assert store.values.dtype == torch.uint8
    assert store.values.stride()[0] == 3074
    assert np.array_equal(store.values[17].numpy().reshape(-1), rows[17, 2:])
    assert int(store.classes[17]) == rows[17, 1]
    prepared = splits.preparation(torch.tensor([0, 255], dtype=torch.uint8))
    assert prepared.tolist() == [-2.0, pytest.approx(2.0)]


@pytest.mark.parametrize("name", ["train.bin", "test.bin"])
def test_a_truncated_file_is_named(name, copied, options):
    path = copied / "cifar-100-binary" / name
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(FewoneError, match=rf"{name}: \d+ bytes are not whole rows of 3074; unpack or download"):
        load("cifar-fs", [copied], options)


def test_the_file_of_cifar_10_is_told_apart_by_its_labels(copied, options):
    path = copied / "cifar-100-binary" / "test.bin"
    content = bytearray(path.read_bytes())
    content[5 * 3074 + 1] = 213
    path.write_bytes(content)
    with pytest.raises(FewoneError, match=r"test\.bin: row 5 starts with the labels \d+, 213 where"):
        load("fc100", [copied], options)


def test_a_class_without_images_is_an_error(copied, options):
    for name in ("train.bin", "test.bin"):
        path = copied / "cifar-100-binary" / name
        rows = np.frombuffer(path.read_bytes(), np.uint8).reshape(-1, 3074)
        path.write_bytes(rows[rows[:, 1] != 4].tobytes())
    with pytest.raises(FewoneError, match=r"cifar-100-binary: no image of the class beaver"):
        load("cifar-fs", [copied], options)


def test_a_missing_folder_is_an_error_that_says_where_to_get_it(tmp_path, options):
    with pytest.raises(
        FewoneError, match=r"dataset cifar-fs: train\.bin, test\.bin not found below .*cifar-100-binary"
    ):
        load("cifar-fs", [tmp_path], options)
    with pytest.raises(FewoneError, match=r"elsewhere \(there is no such folder\)"):
        load("cifar-fs", [tmp_path / "elsewhere"], options)
    with pytest.raises(FewoneError, match="set FEWONE_DATA or give --data-dir"):
        load("cifar-fs", [], options)


@pytest.mark.parametrize("name", COUNTS)
def test_the_real_images_are_all_there_and_only_the_published_copies_cross_the_splits(name, require_real, options):
    splits = load(name, require_real(name), options)
    assert all(len(task.normal) == 600 for task in splits.train + splits.validation + splits.test)
    assert not find_leaks(splits)
    assert len(find_copies(splits)) == DATASETS[name].known_copies
