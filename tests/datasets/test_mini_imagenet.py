import csv
import shutil

import pytest
import torch
from PIL import Image

from fewone.datasets import load
from fewone.datasets.leaks import find_leaks
from fewone.episodes import EvaluationProtocol
from fewone.errors import FewoneError


@pytest.fixture
def folders(downloads, tmp_path):
    """The layout train|val|test/CLASS/*.jpg, to be changed by a test."""
    shutil.copytree(downloads / "miniimagenet", tmp_path / "miniimagenet")
    return tmp_path


@pytest.fixture
def tables(downloads, tmp_path):
    """The same photographs as one folder of images with Ravi & Larochelle's three tables."""
    root = tmp_path / "mini-imagenet"
    (root / "images").mkdir(parents=True)
    for split in ("train", "val", "test"):
        rows = []
        for path in sorted((downloads / "miniimagenet" / split).glob("*/*.jpg")):
            name = f"{split}{len(rows):04d}.jpg"
            shutil.copy(path, root / "images" / name)
            rows.append((name, path.parent.name))
        with (root / f"{split}.csv").open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([("filename", "label"), *rows[::-1]])
    return tmp_path


def test_both_public_layouts_give_the_same_dataset(folders, tables, options):
    assert tables == folders
    one = load("miniimagenet", [folders], options)
    shutil.rmtree(folders / "miniimagenet")
    other = load("miniimagenet", [tables], options)
    for splits in (one, other):
        assert (len(splits.train), len(splits.validation), len(splits.test)) == (4, 3, 3)
        assert splits.shape == (3, 84, 84)
        assert splits.plan == EvaluationProtocol(20, 300, 300)
        assert not find_leaks(splits)
    assert one.train[0].name == "n0train 0 ü"
    assert one.fingerprint == other.fingerprint
    assert torch.equal(one.train[0].normal.store.values, other.train[0].normal.store.values)


def test_images_may_lie_beside_the_tables(tables, options):
    root = tables / "mini-imagenet"
    for path in list((root / "images").iterdir()):
        path.rename(root / path.name)
    (root / "images").rmdir()
    assert len(load("miniimagenet", [tables], options).train) == 4


def test_a_stored_photograph_is_what_the_file_shows(folders, options):
    path = next(iter(sorted((folders / "miniimagenet" / "train").glob("*/*.jpg"))))
    Image.new("RGB", (84, 84), (250, 10, 100)).save(path)
    splits = load("miniimagenet", [folders], options)
    values = splits.train[0].normal.store.values[int(splits.train[0].normal.rows()[0])]
    assert values.dtype == torch.uint8
    assert torch.allclose(values.float().mean((1, 2)), torch.tensor([250.0, 10.0, 100.0]), atol=2)


def test_the_second_load_reads_the_cache_and_a_replaced_photograph_is_noticed(folders, options, monkeypatch):
    first = load("miniimagenet", [folders], options)
    with monkeypatch.context() as patch:
        patch.setattr("fewone.datasets.mini_imagenet._decode", lambda photographs: pytest.fail("decoded again"))
        assert load("miniimagenet", [folders], options).fingerprint == first.fingerprint
    path = next((folders / "miniimagenet" / "test").glob("*/*.jpg"))
    Image.new("RGB", (84, 84)).save(path)
    assert load("miniimagenet", [folders], options).fingerprint != first.fingerprint


def test_a_photograph_of_another_size_is_named(folders, options):
    path = next((folders / "miniimagenet" / "val").glob("*/*.jpg"))
    Image.new("RGB", (100, 84)).save(path)
    with pytest.raises(FewoneError, match=r"miniimagenet/val/.*\.jpg: 100 x 84 pixels where 84 x 84 are expected"):
        load("miniimagenet", [folders], options)
    assert not options.cache_dir.exists()


@pytest.mark.parametrize("keep", [0, 10, 700])
def test_a_truncated_photograph_is_named(folders, options, keep):
    path = next((folders / "miniimagenet" / "val").glob("*/*.jpg"))
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(FewoneError, match=r"miniimagenet/val/.*\.jpg: not a whole PNG or JPEG image \(.*\); replace"):
        load("miniimagenet", [folders], options)


def test_a_missing_split_or_an_empty_class_is_an_error(folders, options):
    empty = folders / "miniimagenet" / "val" / "nothing here"
    empty.mkdir()
    with pytest.raises(FewoneError, match=r"nothing here: a class without a \.jpg or \.png"):
        load("miniimagenet", [folders], options)
    shutil.rmtree(folders / "miniimagenet" / "val")
    (folders / "miniimagenet" / "val").mkdir()
    with pytest.raises(FewoneError, match=r"no photograph for the split val; it wants val\.csv or val/CLASS"):
        load("miniimagenet", [folders], options)


def test_links_that_lead_back_are_not_followed(folders, options):
    root = folders / "miniimagenet"
    members = next((root / "train").iterdir())
    (members / "up").symlink_to(root, target_is_directory=True)
    assert len(load("miniimagenet", [folders], options).train) == 4
    (members / "loop.jpg").symlink_to("loop.jpg")
    with pytest.raises(FewoneError, match=r"loop\.jpg: cannot be read"):
        load("miniimagenet", [folders], options)
    (members / "loop.jpg").unlink()
    (root / "train" / "loop").symlink_to(root / "train", target_is_directory=True)
    with pytest.raises(FewoneError, match=r"train/loop: a class without"):
        load("miniimagenet", [folders], options)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"name,class\na.jpg,b\n", "the first line is not filename,label"),
        (b"filename,label\na.jpg\n", "line 2 has 1 fields"),
        (b"filename,label\n../../secret.jpg,b\n", "line 2 names '../../secret.jpg', which is not a plain file name"),
        (b"\xff\xfe\x00", "not a CSV file"),
        (b"filename,label\nabsent.jpg,b\n", r"absent\.jpg: cannot be read \(No such file"),
    ],
)
def test_a_wrong_table_is_named_with_its_line(tables, options, content, reason):
    (tables / "mini-imagenet" / "val.csv").write_bytes(content)
    with pytest.raises(FewoneError, match=reason):
        load("miniimagenet", [tables], options)
