"""What more than one test file needs: tiny downloads in the public layouts, and the real ones where present."""

from __future__ import annotations

import gzip
import io
import os
import sys
import zipfile
from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from hypothesis import settings
from PIL import Image

from fewone.datasets import DATASETS, LoadOptions, load
from fewone.datasets.sources import default_data_dirs
from fewone.episodes import EvaluationProtocol, InputScaling, RowPool, Store, Task, TaskSplits

# A loaded machine is no reason to fail, and the same examples are tried every time.
settings.register_profile("steady", deadline=None, derandomize=True)
settings.load_profile("steady")
# As the commands do: the tests share the cores, and the same number of threads gives the same bits.
torch.set_num_threads(1)


@pytest.fixture(scope="session", autouse=True)
def private_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tests never read or write the user's own cache."""
    os.environ["FEWONE_CACHE"] = str(folder := tmp_path_factory.mktemp("cache"))
    return folder


@pytest.fixture
def options(tmp_path: Path) -> LoadOptions:
    """Load options with a cache folder of the test's own."""
    return LoadOptions(cache_dir=tmp_path / "cache")


@pytest.fixture(scope="session")
def require_real() -> Callable[[str], tuple[Path, ...]]:
    """The data folders, if the real dataset of this family lies there; else the test is skipped with the reason."""

    def require(family: str) -> tuple[Path, ...]:
        source = DATASETS[family].source
        if source is not None and source.find(default_data_dirs()) is None:
            pytest.skip(f"{family} is not in the folders of FEWONE_DATA")
        return default_data_dirs()

    return require


@pytest.fixture(scope="module")
def import_program() -> Iterator[Callable[[str], ModuleType]]:
    """Imports a program of benchmarks/ as it is when it runs, beside the others there."""
    folder = str(Path(__file__).parents[1] / "benchmarks")
    sys.path.insert(0, folder)
    try:
        yield import_module
    finally:
        sys.path.remove(folder)


@pytest.fixture(scope="session")
def downloads(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder with a tiny version of every public image set (a name with a space and beyond ASCII)."""
    folder = tmp_path_factory.mktemp("data") / "my dätä"
    random = np.random.default_rng(0)
    write_mnist(folder / "mnist", random)
    write_omniglot(folder / "omniglot", random)
    write_cifar(folder / "cifar-100-binary", random)
    write_mini_imagenet_folders(folder / "miniimagenet", random)
    return folder


@pytest.fixture(scope="session")
def load_generated() -> Callable[[str], TaskSplits]:
    """Loads a dataset that is generated, once for all tests: nobody may change it."""
    return cache(load)


def write_idx(path: Path, array: np.ndarray) -> None:
    head = bytes([0, 0, 8, array.ndim]) + b"".join(size.to_bytes(4, "big") for size in array.shape)
    path.write_bytes(gzip.compress(head + array.tobytes(), 1))


def write_mnist(folder: Path, random: np.random.Generator, size: int = 28) -> None:
    folder.mkdir(parents=True)
    for part, per_digit in (("train", 30), ("t10k", 20)):
        digits = random.permutation(np.repeat(np.arange(10, dtype=np.uint8), per_digit))
        images = random.integers(0, 256, (len(digits), size, size), dtype=np.uint8)
        write_idx(folder / f"{part}-images-idx3-ubyte.gz", images)
        write_idx(folder / f"{part}-labels-idx1-ubyte.gz", digits)


def encode(array: np.ndarray, kind: str) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(array).save(buffer, kind)
    return buffer.getvalue()


def write_omniglot(folder: Path, random: np.random.Generator, size: int = 105) -> None:
    folder.mkdir(parents=True)
    for part, characters in (("images_background", 90), ("images_evaluation", 12)):
        with zipfile.ZipFile(folder / f"{part}.zip", "w") as archive:
            archive.writestr(f"{part}/", "")
            archive.writestr(f"__MACOSX/{part}/._junk.png", "junk")
            for number in range(characters):
                for drawing in range(4):
                    paper = random.random((size, size)) > 0.1
                    character = f"{part}/Alphabet_of_{number // 10}/character{number % 10 + 1:02d}"
                    archive.writestr(f"{character}/{number:04d}_{drawing:02d}.png", encode(paper, "PNG"))


def write_cifar(folder: Path, random: np.random.Generator) -> None:
    folder.mkdir(parents=True)
    for name, per_class in (("train.bin", 20), ("test.bin", 4)):
        fine = random.permutation(np.repeat(np.arange(100, dtype=np.uint8), per_class))
        rows = random.integers(0, 256, (len(fine), 3074), dtype=np.uint8)
        rows[:, 0], rows[:, 1] = fine // 5, fine
        (folder / name).write_bytes(rows.tobytes())


def write_mini_imagenet_folders(folder: Path, random: np.random.Generator, size: int = 84) -> None:
    for split, classes in (("train", 4), ("val", 3), ("test", 3)):
        for number in range(classes):
            members = folder / split / f"n0{split} {number} ü"
            members.mkdir(parents=True)
            for photograph in range(6):
                pixels = random.integers(0, 256, (size, size, 3), dtype=np.uint8)
                (members / f"{photograph}.jpg").write_bytes(encode(pixels, "JPEG"))


@pytest.fixture(scope="session")
def tiny_splits() -> TaskSplits:
    """Series of 16 samples, 6 training, 2 validation and 2 test tasks: anomalies carry a step. Learned in seconds."""
    generator = torch.Generator().manual_seed(7)
    values = torch.randn(10, 2, 20, 1, 16, generator=generator)
    values[:, 1, :, :, 8:] += 3.0
    store = Store(values.flatten(0, 2))
    rows = torch.arange(400).view(10, 2, 20)
    tasks = [
        Task(f"task {number}", RowPool(store, rows[number, 0]), RowPool(store, rows[number, 1])) for number in range(10)
    ]
    return TaskSplits(
        "tiny",
        tuple(tasks[:6]),
        tuple(tasks[6:8]),
        tuple(tasks[8:]),
        (1, 16),
        InputScaling(standardize=True),
        EvaluationProtocol(2, 5, 5),
        fingerprint="f1",
    )
