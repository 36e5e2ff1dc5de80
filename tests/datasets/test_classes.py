import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fewone.datasets.classes import ClassRows, OtherClasses, fingerprint_classes, group_rows, make_class_tasks
from fewone.episodes import Store, generator_for

SIZES = st.lists(st.integers(1, 12), min_size=2, max_size=8)


def make_store(sizes):
    labels = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    labels = labels[torch.randperm(len(labels), generator=generator_for("labels"))]
    return Store(torch.zeros(len(labels), 1), classes=labels), group_rows(labels, len(sizes))


@given(sizes=SIZES, own=st.integers(0, 7), part=st.floats(0, 1), seed=st.integers(0, 9))
def test_a_draw_holds_different_rows_of_other_classes_and_as_many_as_asked(sizes, own, part, seed):
    store, rows = make_store(sizes)
    own %= len(sizes)
    pool = OtherClasses(store, ClassRows(rows), own)
    count = round(part * len(pool))
    drawn = pool.draw(count, generator_for(seed))
    assert len(drawn) == count == len(set(drawn.tolist()))
    assert own not in store.classes[drawn].tolist()
    assert set(drawn.tolist()) <= set(pool.rows().tolist())
    assert torch.equal(drawn, pool.draw(count, generator_for(seed)))


def test_every_class_is_drawn_alike_whatever_its_size():
    store, rows = make_store([1000, 10, 50, 7])
    pool = OtherClasses(store, ClassRows(rows), own=3)
    drawn = torch.cat([pool.draw(1, generator_for(number)) for number in range(1500)])
    shares = torch.bincount(store.classes[drawn], minlength=4) / len(drawn)
    # Three classes: the standard deviation of a share of 1500 draws is 1.2 %.
    assert shares[3] == 0
    assert torch.allclose(shares[:3], torch.full((3,), 1 / 3), atol=0.05)


def test_rows_of_a_class_are_drawn_alike():
    store, rows = make_store([10, 3])
    pool = OtherClasses(store, ClassRows(rows), own=1)
    drawn = torch.cat([pool.draw(3, generator_for(number)) for number in range(1000)])
    shares = torch.bincount(drawn, minlength=13)[rows[0]] / len(drawn)
    assert torch.allclose(shares, torch.full((10,), 0.1), atol=0.03)


def test_an_exhausted_class_leaves_its_share_to_the_others():
    store, rows = make_store([2, 40, 5])
    drawn = OtherClasses(store, ClassRows(rows), own=2).draw(42, generator_for(0))
    assert sorted(drawn.tolist()) == sorted(torch.cat(rows[:2]).tolist())


def test_the_order_of_a_draw_is_random_so_that_its_start_is_no_single_class():
    store, rows = make_store([30] * 6)
    pool = OtherClasses(store, ClassRows(rows), own=0)
    first = {int(store.classes[pool.draw(60, generator_for(number))[0]]) for number in range(40)}
    assert first == {1, 2, 3, 4, 5}


def test_more_than_there_are_is_refused():
    store, rows = make_store([2, 3])
    with pytest.raises(ValueError, match="4 rows wanted of 3"):
        OtherClasses(store, ClassRows(rows), own=0).draw(4, generator_for(0))


def test_tasks_are_views_of_one_store_and_one_list_of_classes():
    store, rows = make_store([5, 6, 7])
    tasks = make_class_tasks(store, {f"class {number}": members for number, members in enumerate(rows)})
    assert [task.name for task in tasks] == ["class 0", "class 1", "class 2"]
    assert all(task.normal.store is store and task.anomalous.store is store for task in tasks)
    assert len({id(task.anomalous.classes) for task in tasks}) == 1
    assert tasks[1].normal.index.data_ptr() == rows[1].data_ptr()
    assert [(len(task.normal), len(task.anomalous)) for task in tasks] == [(5, 13), (6, 12), (7, 11)]


def test_the_fingerprint_moves_with_any_byte_and_with_the_tasks():
    content = torch.arange(20_001).to(torch.uint8)
    store, rows = make_store([5, 6])
    splits = [make_class_tasks(store, {"a": rows[0], "b": rows[1]})]
    original = fingerprint_classes(content, splits)
    assert original == fingerprint_classes(content.clone(), splits)
    for place in (0, 8191, 8192, 20_000):
        changed = content.clone()
        changed[place] += 1
        assert fingerprint_classes(changed, splits) != original
    assert fingerprint_classes(content, [make_class_tasks(store, {"b": rows[0], "a": rows[1]})]) != original
