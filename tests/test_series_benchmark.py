"""benchmarks/series.py: a method that joins later is judged on the same datasets and leaves the other rows alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import fewone.series_making as making
from fewone.datasets.ucr import SeriesDataset


@pytest.fixture(scope="module")
def series(import_program: Callable[[str], ModuleType]) -> ModuleType:
    return import_program("series")


def make_dataset(name: str) -> SeriesDataset:
    random = np.random.default_rng(0)
    classes = np.repeat([0, 1], 14)
    values = random.normal(size=(28, 32)) + 3.0 * classes[:, None] * np.sin(np.arange(32))
    return SeriesDataset(name, values.astype(np.float32), classes)


def test_a_later_method_replaces_its_own_rows_of_that_size_and_no_other(series: ModuleType) -> None:
    judged = [one for _, one in series.run_classical(make_dataset("Wafer"), ["OC-SVM"], (5,))]
    assert {one.form for one in judged} == {"classes", "faults"}
    other = {"split_seed": 0, "method": "LOF", "form": "classes", "k": 5, "threshold": "own", "datasets": {}}
    stale, larger = {**other, "method": "OC-SVM"}, {**other, "method": "OC-SVM", "k": 10}
    rows = series.add_method([other, stale, larger], "OC-SVM", judged, [{"Wafer"}, set(), {"Wafer"}])
    assert rows[:2] == [other, larger]
    assert {row["split_seed"] for row in rows[2:]} == {0, 2}
    assert all(list(row["datasets"]) == ["Wafer"] and row["k"] == 5 for row in rows[2:])


def test_a_split_tests_the_datasets_of_its_seed(series: ModuleType) -> None:
    datasets = [make_dataset(name) for name in ("Wafer", "Trace", "Plane", "Car", "Fish", "Rock")]
    tested = series.find_tested(datasets)
    assert len(tested) == len(series.SEEDS)
    for seed, names in zip(series.SEEDS, tested, strict=True):
        parts = series.split_families([one.name for one in datasets], seed)
        assert names == {name for name in parts if parts[name] == "test"}


def test_choices_see_the_families_that_test_in_no_split_each_taught_by_the_others(
    series: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("Wafer", "Trace", "Plane", "Car", "Fish", "Rock", "Crop", "Fungi", "Chinatown", "Mallat", "Yoga", "Worms")
    datasets = [make_dataset(name) for name in names]
    untested = set(names) - set().union(*series.find_tested(datasets))
    assert len(untested) > 2
    taught: list[set[str]] = []

    def learn(scatters: Sequence[Any], episodes: Sequence[Any], kinds: Sequence[str]) -> Any:
        assert {one.dataset for one in episodes} == {one.dataset for one in scatters}
        taught.append({one.dataset for one in scatters})
        return plain(scatters, episodes, kinds)

    plain = series.learn
    monkeypatch.setattr(series, "learn", learn)
    monkeypatch.setattr(making, "STEPS", 2)
    rows = series.judge_untested(datasets, ("raw",))
    assert sorted(map(sorted, taught)) == sorted(sorted(untested - {name}) for name in untested)
    assert {name for row in rows for name in row["datasets"]} == untested
