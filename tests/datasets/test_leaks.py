from dataclasses import replace

import pytest
import torch

from fewone.datasets.leaks import Copy, find_copies, find_leaks
from fewone.episodes import EvaluationProtocol, InputScaling, RowPool, Store, Task, TaskSplits, generator_for


@pytest.fixture
def splits():
    """Three tasks of 4 normals and 4 anomalies, one per split, nothing shared."""
    values = torch.randn(24, 1, 8, generator=generator_for(0))
    return assemble(Store(values))


def assemble(store, changed=None):
    rows = [[start, start + 1, start + 2, start + 3] for start in range(0, 24, 4)]
    for pool, row in (changed or {}).items():
        rows[pool][0] = row
    pools = [RowPool(store, torch.tensor(members)) for members in rows]
    tasks = [(Task(str(number), pools[2 * number], pools[2 * number + 1]),) for number in range(3)]
    return TaskSplits("made", *tasks, (1, 8), InputScaling(), EvaluationProtocol(1, 1, 1))


def test_clean_splits_have_no_leak(splits):
    assert find_leaks(splits) == []
    assert find_copies(splits) == []


@pytest.mark.parametrize(("pool", "row", "pair"), [(4, 1, "training and test"), (3, 5, "training and validation")])
def test_an_example_in_two_splits_is_found(splits, pool, row, pair):
    leaking = assemble(splits.train[0].normal.store, {pool: row})
    assert find_leaks(leaking) == [f"1 examples are in both {pair}, the first is row {row}"]


def test_a_test_class_among_the_training_anomalies_is_found(splits):
    classes = torch.arange(24) // 4
    store = replace(splits.train[0].normal.store, classes=classes)
    assert find_leaks(assemble(store)) == []
    classes[5] = 4
    assert find_leaks(assemble(store)) == ["1 classes of test are among the training examples"]


def test_a_recording_in_two_splits_is_found(splits):
    recording = torch.arange(24)
    store = replace(splits.train[0].normal.store, recording=recording)
    assert find_leaks(assemble(store)) == []
    recording[20] = 9
    assert find_leaks(assemble(store)) == ["1 recordings are in both validation and test"]


def test_a_copy_under_another_row_is_found(splits):
    store = splits.train[0].normal.store
    store.values[17] = store.values[6]
    assert find_leaks(splits) == []
    assert find_copies(splits) == [Copy("test", 17, "training", 6)]
