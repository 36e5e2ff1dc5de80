import io
import os
import shutil
import zipfile
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

from fewone.datasets import load
from fewone.datasets.leaks import find_copies, find_leaks
from fewone.episodes import EvaluationProtocol
from fewone.errors import FewoneError, FewoneWarning
from fewone.sampling import EpisodeSampler


@pytest.fixture
def copied(downloads, tmp_path):
    """A copy of the download that a test may change."""
    shutil.copytree(downloads / "omniglot", tmp_path / "omniglot")
    return tmp_path


def test_characters_are_shared_out_officially_with_80_for_validation(downloads, options):
    splits = load("omniglot", [downloads], options)
    assert (len(splits.train), len(splits.validation), len(splits.test)) == (10, 80, 12)
    assert splits.test[0].name == "Alphabet_of_0/character01"
    assert splits.plan == EvaluationProtocol(5, 10, 10)
    assert all(len(task.normal) == 4 for task in splits.train + splits.validation + splits.test)
    assert not find_leaks(splits)


def test_black_ink_on_white_becomes_1_on_0_in_28_by_28(copied, options):
    page = np.full((105, 105), 255, np.uint8)
    page[:, :15] = 0
    with zipfile.ZipFile(copied / "omniglot" / "images_evaluation.zip", "w") as archive:
        buffer = io.BytesIO()
        Image.fromarray(page).convert("1").save(buffer, "PNG")
        archive.writestr("images_evaluation/A/character01/0001_01.png", buffer.getvalue())
    splits = load("omniglot", [copied], options)
    drawing = splits.preparation(splits.test[0].normal.store.values[splits.test[0].normal.rows()])[0]
    assert drawing.shape == (1, 28, 28)
    assert torch.allclose(drawing[0, :, :4], torch.ones(28, 4))
    assert torch.equal(drawing[0, :, 4:], torch.zeros(28, 24))


def test_the_cache_gives_the_same_dataset_and_is_read_instead_of_the_archives(copied, options, monkeypatch):
    first = load("omniglot", [copied], options)
    assert len(list(options.cache_dir.iterdir())) == 1
    monkeypatch.setattr("fewone.datasets.omniglot._read_archives", lambda archives: pytest.fail("decoded again"))
    second = load("omniglot", [copied], options)
    assert first.fingerprint == second.fingerprint
    assert torch.equal(first.train[0].normal.store.values, second.train[0].normal.store.values)
    assert [task.name for task in first.validation] == [task.name for task in second.validation]


def test_a_changed_archive_is_decoded_anew(copied, options):
    first = load("omniglot", [copied], options)
    archive = copied / "omniglot" / "images_evaluation.zip"
    with zipfile.ZipFile(archive, "a") as file:
        member = file.namelist()[-1]
        file.writestr("images_evaluation/Z/character01/0001_01.png", file.read(member))
    assert len(load("omniglot", [copied], options).test) == len(first.test) + 1


def test_a_damaged_cache_file_is_decoded_anew(copied, options):
    first = load("omniglot", [copied], options)
    (cached,) = options.cache_dir.iterdir()
    for content in (b"", b"junk", cached.read_bytes()[:-5000]):
        cached.write_bytes(content)
        assert load("omniglot", [copied], options).fingerprint == first.fingerprint
    assert [path.name for path in options.cache_dir.iterdir()] == [cached.name]


def test_a_cache_that_cannot_be_written_is_said_and_not_fatal(downloads, tmp_path, options):
    blocked = tmp_path / "a file"
    blocked.write_text("not a folder")
    for cache_dir in (blocked, blocked / "below"):
        with pytest.warns(FewoneWarning, match=r"a file.*cannot be written .* FEWONE_CACHE"):
            splits = load("omniglot", [downloads], replace(options, cache_dir=cache_dir))
        assert len(splits.test) == 12
    assert blocked.read_text() == "not a folder"


def test_a_full_disk_leaves_no_half_written_cache(downloads, options, monkeypatch):
    def fail(*arguments, **options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("fewone.datasets.image_cache.save_file", fail)
    with pytest.warns(FewoneWarning, match="No space left on device"):
        load("omniglot", [downloads], options)
    assert list(options.cache_dir.iterdir()) == []


def test_a_truncated_archive_is_named_and_leaves_no_cache(copied, options):
    archive = copied / "omniglot" / "images_background.zip"
    archive.write_bytes(archive.read_bytes()[:-2000])
    with pytest.raises(FewoneError, match=r"images_background\.zip: not a whole zip archive .*; download it again"):
        load("omniglot", [copied], options)
    assert not options.cache_dir.exists()


def test_damage_inside_an_archive_is_named(copied, options):
    archive = copied / "omniglot" / "images_background.zip"
    content = bytearray(archive.read_bytes())
    start = content.index(b"IDAT")
    content[start + 10 : start + 40] = os.urandom(30)
    archive.write_bytes(content)
    with pytest.raises(FewoneError, match=r"images_background\.zip: not a whole zip archive \(Bad CRC-32"):
        load("omniglot", [copied], options)


@pytest.mark.parametrize(
    ("content", "reason"),
    [(b"no image", "not a whole PNG or JPEG"), (None, "64 x 64 pixels where 105 x 105 are expected; resize or remove")],
)
def test_a_drawing_of_another_kind_or_size_is_named_inside_its_archive(copied, options, content, reason):
    if content is None:
        buffer = io.BytesIO()
        Image.new("1", (64, 64)).save(buffer, "PNG")
        content = buffer.getvalue()
    with zipfile.ZipFile(copied / "omniglot" / "images_evaluation.zip", "w") as archive:
        archive.writestr("images_evaluation/A/character01/0001_01.png", content)
    with pytest.raises(FewoneError, match=rf"images_evaluation\.zip: images_evaluation/A/.*0001_01\.png: {reason}"):
        load("omniglot", [copied], options)


def test_an_archive_of_something_else_is_refused(copied, options):
    with zipfile.ZipFile(copied / "omniglot" / "images_evaluation.zip", "w") as archive:
        archive.writestr("holiday/one.png", b"x")
    with pytest.raises(FewoneError, match=r"holds no images_evaluation/ALPHABET/CHARACTER/\*\.png"):
        load("omniglot", [copied], options)


def test_too_few_background_characters_are_refused(copied, options):
    shutil.copy(copied / "omniglot" / "images_evaluation.zip", evaluation := copied / "evaluation.zip")
    with (
        zipfile.ZipFile(evaluation) as source,
        zipfile.ZipFile(copied / "omniglot" / "images_background.zip", "w") as archive,
    ):
        for name in source.namelist():
            archive.writestr(name.replace("evaluation", "background"), source.read(name))
    with pytest.raises(FewoneError, match=r"images_background\.zip: 12 characters where more than the 80"):
        load("omniglot", [copied], options)


def test_the_real_characters_are_all_there_do_not_leak_and_fill_the_protocol(require_real, private_cache, options):
    splits = load("omniglot", require_real("omniglot"), replace(options, cache_dir=private_cache))
    assert (len(splits.train), len(splits.validation), len(splits.test)) == (884, 80, 659)
    assert all(len(task.normal) == 20 for task in splits.train + splits.validation + splits.test)
    assert len({task.name.split("/")[0] for task in splits.test}) == 20
    assert len({task.name.split("/")[0] for task in splits.train + splits.validation}) == 30
    assert not find_leaks(splits)
    assert not find_copies(splits)
    episodes = EpisodeSampler(10, 20, preparation=splits.preparation).draw_evaluation(splits.test, splits.plan, 4, 0)
    assert episodes.query.inputs.shape == (659, 20, 1, 28, 28)
    assert 0.02 < episodes.query.inputs.mean() < 0.2
