"""The archive's two layouts read alike, families stay together, faults never meet the series they were made of."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from fewone.datasets import LoadOptions, load
from fewone.datasets.leaks import find_leaks
from fewone.datasets.ucr import (
    FAMILIES,
    SeriesDataset,
    fill_gaps,
    find_family,
    make_tasks,
    read_datasets,
    resample,
    split_families,
)
from fewone.episodes import EvaluationProtocol, InputScaling
from fewone.errors import FewoneError
from fewone.faults import FAULTS
from fewone.sampling import EpisodeSampler

MEMBERS = ("CricketX", "CricketY", "FordA", "FordB", "Fish", "Crop", "Wafer", "Trace", "Plane", "Car")


def make_dataset(name: str, length: int = 40, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng([seed, *name.encode()])
    return random.normal(size=(30, length)).astype(np.float32), np.repeat([1, 2, 7], 10)


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    (tmp_path / "ucr").mkdir()
    for number, name in enumerate(MEMBERS):
        values, labels = make_dataset(name, 30 + number)
        np.savez(tmp_path / "ucr" / f"{name}.npz", values=values, labels=labels)
    return tmp_path


def test_the_published_tables_read_as_the_archive_does(tmp_path: Path) -> None:
    values, labels = make_dataset("Plane")
    np.savez(tmp_path / "Plane.npz", values=values, labels=labels)
    (tmp_path / "tables" / "Plane").mkdir(parents=True)
    for part, rows in (("TRAIN", slice(0, 13)), ("TEST", slice(13, None))):
        table = np.column_stack([labels[rows], values[rows]])
        np.savetxt(tmp_path / "tables" / "Plane" / f"Plane_{part}.tsv", table, delimiter="\t")
    (archive,), (table,) = read_datasets(tmp_path), read_datasets(tmp_path / "tables")
    np.testing.assert_allclose(table.values, archive.values, rtol=1e-6)
    np.testing.assert_array_equal(table.classes, archive.classes)
    assert archive.classes.max() == 2


def test_short_series_are_stretched_and_gaps_bridged() -> None:
    values = np.array([[0, 1, 2, np.nan, np.nan], [0, np.nan, 2, 3, 4], [5, 6, 7, 8, 9]], np.float32)
    np.testing.assert_allclose(fill_gaps(values), [[0, 0.5, 1, 1.5, 2], [0, 1, 2, 3, 4], [5, 6, 7, 8, 9]])


def test_resampling_keeps_a_line_a_line() -> None:
    line = np.linspace(0, 1, 60, dtype=np.float32)[None]
    assert np.allclose(np.diff(resample(line, 20))[0, 1:-1], 3 / 59, atol=1e-5)
    assert (np.diff(resample(line, 128)) >= -1e-6).all()


@pytest.mark.parametrize("seed", range(5))
def test_a_family_is_never_on_two_sides(seed: int) -> None:
    parts = split_families([name for members in FAMILIES.values() for name in members] + ["Wafer", "Trace"], seed)
    for members in FAMILIES.values():
        assert len({parts[name] for name in members}) == 1
    assert set(parts.values()) == {"train", "validation", "test"}
    assert split_families(list(parts), seed + 1) != parts


def test_no_dataset_is_in_two_families() -> None:
    names = [name for members in FAMILIES.values() for name in members]
    assert len(names) == len(set(names))
    assert find_family("Wafer") == "Wafer"


def test_the_loader_has_one_shape_and_no_leak(archive: Path) -> None:
    for name in ("ucr", "ucr/faults"):
        splits = load(name, [archive], LoadOptions(seed=1, window=32))
        tasks = (*splits.train, *splits.validation, *splits.test)
        assert len(tasks) == 3 * len(MEMBERS)
        assert splits.shape == (1, 32)
        assert tasks[0].normal.store.values.shape[1:] == (1, 32)
        assert find_leaks(splits) == []
        assert {len(task.normal) for task in tasks} == {10}
        assert {len(task.anomalous) for task in tasks} == {20 if name == "ucr" else 30}


def test_a_task_keeps_the_length_of_its_dataset() -> None:
    values, labels = make_dataset("Plane", 77)
    (task, *_) = make_tasks(SeriesDataset("Plane", values, labels // 3))
    assert task.normal.store.values.shape == (30, 1, 77)
    assert task.cluster == "Plane"


def test_a_faulty_series_is_never_judged_beside_its_own_original() -> None:
    values, labels = make_dataset("Plane", 64)
    tasks = make_tasks(SeriesDataset("Plane", values, labels // 3), tuple(FAULTS))
    sampler = EpisodeSampler(5, 2, preparation=InputScaling(standardize=True))
    episodes = sampler.draw_evaluation(tasks[:1], EvaluationProtocol(1, None, None), 0, 0)
    support, query = episodes.support_rows[0] % 30, episodes.query_rows[0] % 30
    assert not torch.isin(query, support).any()
    faulty = episodes.query_rows[0][episodes.query.labels[0] == 1]
    assert (faulty >= 30).all()
    changed = tasks[0].normal.store.values[faulty] - tasks[0].normal.store.values[faulty % 30]
    assert (changed.abs().amax(-1) > 0).float().mean() > 0.9


def test_a_broken_file_is_an_error_that_names_it(tmp_path: Path) -> None:
    np.savez(tmp_path / "Plane.npz", values=np.zeros((3, 20)), labels=np.zeros(4))
    with pytest.raises(FewoneError, match=r"Plane\.npz"):
        read_datasets(tmp_path)
