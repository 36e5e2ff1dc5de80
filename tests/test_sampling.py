from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fewone.datasets import DATASETS, load
from fewone.datasets.leaks import gather_rows
from fewone.episodes import EvaluationProtocol, InputScaling, Moments, RowPool, Store, Task, generator_for
from fewone.errors import FewoneError
from fewone.sampling import ClassSampler, EpisodeSampler, count_normals, describe_rounding


def make_tasks(count=3, normals=40, anomalies=30, fixed_split=False, recordings=None, shape=(1, 8)):
    """Tasks over one store; normals first. recordings: windows per recording, or None."""
    per_task = normals + anomalies
    values = torch.randn(count * per_task, *shape, generator=generator_for("values"))
    recording = None if recordings is None else torch.arange(len(values)) // recordings
    store = Store(values, recording)
    starts = [number * per_task for number in range(count)]
    return [
        Task(
            f"task {start}",
            RowPool(store, torch.arange(start, start + normals)),
            RowPool(store, torch.arange(start + normals, start + per_task)),
            fixed_split,
        )
        for start in starts
    ]


@dataclass(frozen=True)
class Case:
    tasks: list[Task]
    sampler: EpisodeSampler
    normals: int
    anomalies: int


@st.composite
def cases(draw):
    normals, anomalies = draw(st.integers(1, 40)), draw(st.integers(1, 40))
    tasks = make_tasks(draw(st.integers(1, 4)), normals, anomalies, draw(st.booleans()))
    support, share = draw(st.integers(1, 12)), draw(st.sampled_from([0.5, 0.6, 0.75, 0.9, 1.0]))
    sampler = EpisodeSampler(support, 2 * draw(st.integers(1, 12)), share)
    return Case(tasks, sampler, normals, anomalies)


def is_possible(case):
    support_normals = count_normals(case.sampler.support_size, case.sampler.normal_share)
    support_anomalies = case.sampler.support_size - support_normals
    half = case.sampler.query_size // 2
    if case.tasks[0].fixed_split:
        judged = case.anomalies if support_anomalies == 0 else case.anomalies - case.anomalies // 2
        return (
            support_normals <= case.normals // 2
            and half <= case.normals - case.normals // 2
            and support_anomalies <= case.anomalies // 2
            and half <= judged
        )
    return support_normals + half <= case.normals and support_anomalies + half <= case.anomalies


@given(case=cases(), count=st.integers(1, 6), seed=st.integers(0, 5))
def test_every_possible_batch_is_disjoint_balanced_complete_and_repeatable(case, count, seed):
    if not is_possible(case):
        with pytest.raises(FewoneError, match=r"^task task \d+: \d+ (normal|anomalous) examples wanted .* available; "):
            case.sampler.draw(case.tasks, count, generator_for(seed))
        return
    batch = case.sampler.draw(case.tasks, count, generator_for(seed))
    sampler = case.sampler
    assert batch.support.inputs.shape == (count, sampler.support_size, 1, 8)
    assert batch.query.inputs.shape == (count, sampler.query_size, 1, 8)
    assert len({task.name for task in batch.tasks}) == min(count, len(case.tasks))
    for position, task in enumerate(batch.tasks):
        support, query = batch.support_rows[position].tolist(), batch.query_rows[position].tolist()
        assert len(set(support) | set(query)) == sampler.support_size + sampler.query_size
        own = {0.0: set(task.normal.rows().tolist()), 1.0: set(task.anomalous.rows().tolist())}
        for part, rows in ((batch.support, support), (batch.query, query)):
            labels = part.labels[position].tolist()
            assert all(row in own[label] for row, label in zip(rows, labels, strict=True))
            assert torch.equal(part.inputs[position], task.normal.store.values[rows])
        assert (batch.support.labels[position] == 0).sum() == count_normals(sampler.support_size, sampler.normal_share)
        assert batch.query.labels[position].sum() * 2 == sampler.query_size
    assert torch.allclose(batch.query.weights.sum(1), torch.ones(count))
    again = sampler.draw(case.tasks, count, generator_for(seed))
    assert torch.equal(batch.support_rows, again.support_rows)
    assert torch.equal(batch.query_rows, again.query_rows)
    assert torch.equal(batch.query.inputs, again.query.inputs)


@given(
    windows=st.integers(1, 7),
    support=st.integers(1, 10),
    share=st.sampled_from([0.5, 0.8, 1.0]),
    seed=st.integers(0, 20),
    offset=st.integers(0, 6),
)
def test_no_recording_stands_in_support_and_query_at_once(windows, support, share, seed, offset):
    tasks = make_tasks(2, 60, 60, recordings=windows)
    # Shifted, a recording may cross from the normals to the anomalies of a task.
    store = replace(tasks[0].normal.store, recording=(torch.arange(240) + offset) // windows)
    tasks = [
        replace(task, normal=RowPool(store, task.normal.index), anomalous=RowPool(store, task.anomalous.index))
        for task in tasks
    ]
    batch = EpisodeSampler(support, 10, share).draw(tasks, 2, generator_for(seed))
    for position in range(2):
        sides = [set(store.recording[rows[position]].tolist()) for rows in (batch.support_rows, batch.query_rows)]
        assert not sides[0] & sides[1]
        labels = batch.support.labels[position]
        # As few recordings as can hold so many windows (one more where a recording is cut by a pool's edge).
        for label in (0, 1):
            recordings = store.recording[batch.support_rows[position][labels == label]].unique()
            assert len(recordings) <= -(-int((labels == label).sum()) // windows) + 2


def test_recordings_that_leave_nothing_to_ask_about_are_an_error():
    tasks = make_tasks(1, 10, 10, recordings=10)
    with pytest.raises(FewoneError, match=r"task 0: 1 normal examples wanted for the query .* 0 available"):
        EpisodeSampler(2, 2).draw(tasks, 1, generator_for(0))


def test_a_balanced_support_takes_from_the_adaptation_half_and_asks_from_the_other():
    tasks = make_tasks(2, 20, 20, fixed_split=True)
    for seed in range(20):
        batch = EpisodeSampler(10, 20, 0.5).draw(tasks, 2, generator_for(seed))
        for position, task in enumerate(batch.tasks):
            first = int(task.name.split()[1])
            assert {(row - first) // 10 for row in batch.support_rows[position].tolist()} == {0, 2}
            assert {(row - first) // 10 for row in batch.query_rows[position].tolist()} == {1, 3}


def test_one_class_training_moves_the_anomalies_of_the_adaptation_half_to_the_query():
    task = make_tasks(1, 20, 20, fixed_split=True)[0]
    seen = {
        row
        for seed in range(60)
        for row in EpisodeSampler(10, 20).draw([task], 1, generator_for(seed)).query_rows[0].tolist()
    }
    assert seen == set(range(10, 40))
    whole = EpisodeSampler(10, 10).draw_evaluation([task], EvaluationProtocol(1, None, None), 0, 0)
    assert set(whole.query_rows[0].tolist()) == set(range(10, 20)) | set(range(30, 40))


@pytest.mark.parametrize(("anomalies", "expected"), [(30, 16), (8, 16), (5, 10), (2, 4)])
def test_few_anomalies_give_the_largest_balanced_query_they_allow(anomalies, expected):
    tasks = make_tasks(2, 40, anomalies)
    batch = EpisodeSampler(10, 16, smallest_query=4).draw(tasks, 2, generator_for(0))
    assert (batch.query.weights > 0).sum(1).tolist() == [expected, expected]
    assert batch.query.labels.sum(1).tolist() == [expected / 2] * 2


def test_few_normals_shrink_the_query_too_and_too_few_of_either_are_an_error():
    batch = EpisodeSampler(10, 16, smallest_query=4).draw(make_tasks(1, 13, 40), 1, generator_for(0))
    assert (batch.query.weights > 0).sum() == 6
    with pytest.raises(FewoneError, match=r"2 anomalous examples wanted .* 1 available"):
        EpisodeSampler(10, 16, smallest_query=4).draw(make_tasks(1, 40, 1), 1, generator_for(0))
    with pytest.raises(FewoneError, match=r"2 normal examples wanted .* 1 available"):
        EpisodeSampler(10, 16, smallest_query=4).draw(make_tasks(1, 11, 40), 1, generator_for(0))


def test_queries_of_different_size_batch_together_by_weights():
    small, large = make_tasks(1, 40, 3)[0], make_tasks(1, 40, 30)[0]
    batch = EpisodeSampler(10, 16, smallest_query=4).draw([small, large], 2, generator_for(0))
    sizes = {task.normal.store.values.shape[0]: position for position, task in enumerate(batch.tasks)}
    weights = batch.query.weights[sizes[43]]
    assert batch.query.inputs.shape == (2, 16, 1, 8)
    assert (weights > 0).sum() == 6
    assert torch.allclose(weights.sum(), torch.tensor(1.0))
    assert torch.isfinite(batch.query.inputs).all()


def test_a_task_of_normals_only_is_refused_with_the_reason():
    with pytest.raises(FewoneError, match=r"task 0: .*anomalous.* 0 available; .*normals only.*detector"):
        EpisodeSampler(5, 10).draw(make_tasks(1, 40, 0), 1, generator_for(0))
    with pytest.raises(FewoneError, match="normals only"):
        EpisodeSampler(5, 10).draw_evaluation(make_tasks(1, 40, 0), EvaluationProtocol(1, None, None), 0, 0)


def test_the_error_names_task_class_wanted_and_available():
    with pytest.raises(FewoneError) as error:
        EpisodeSampler(10, 50).draw(make_tasks(1, 30, 40), 1, generator_for(0))
    assert str(error.value) == (
        "task task 0: 25 normal examples wanted for the query beside 10 in the support, 20 available;"
        " ask for fewer or add examples"
    )


@pytest.mark.parametrize(
    ("share", "size", "normals"), [(0.9, 10, 9), (0.5, 10, 5), (1.0, 2, 2), (0.5, 5, 3), (0.75, 10, 8), (0.5, 1, 1)]
)
def test_a_share_is_rounded_to_whole_examples_and_said(share, size, normals):
    assert count_normals(size, share) == normals
    said = describe_rounding(size, share)
    if normals == share * size:
        assert said is None
    else:
        assert said is not None
        assert f"rounded to {normals} normal and {size - normals} anomalous" in said


@pytest.mark.parametrize(
    ("support", "query", "share", "word"),
    [(0, 10, 1.0, "support_size"), (5, 9, 1.0, "query_size"), (5, 0, 1.0, "query_size"), (5, 10, 0.4, "normal_share")],
)
def test_senseless_sizes_are_refused(support, query, share, word):
    with pytest.raises(FewoneError, match=word):
        EpisodeSampler(support, query, share)


def test_no_tasks_or_no_episodes_are_refused():
    for tasks, count in (([], 1), (make_tasks(), 0)):
        with pytest.raises(FewoneError, match="a batch of"):
            EpisodeSampler(2, 2).draw(tasks, count, generator_for(0))


def test_training_tasks_are_standardised_by_all_normals_and_new_tasks_by_their_support():
    tasks = make_tasks(2, 40, 30, shape=(2, 16))
    sampler = EpisodeSampler(2, 10, preparation=InputScaling(standardize=True))
    values = tasks[0].normal.store.values
    training = sampler.draw(tasks, 2, generator_for(0))
    for position, task in enumerate(training.tasks):
        by_all = Moments.of(values[task.normal.rows()])
        assert torch.allclose(training.query.inputs[position], by_all.apply(values[training.query_rows[position]]))
    by_support = replace(sampler, standardize_by="support").draw(tasks, 2, generator_for(0))
    evaluated = sampler.draw_evaluation(tasks, EvaluationProtocol(1, 5, 5), 0, 0)
    for batch in (by_support, evaluated):
        for position in range(2):
            support, query = (values[rows[position]] for rows in (batch.support_rows, batch.query_rows))
            assert torch.allclose(batch.query.inputs[position], Moments.of(support).apply(query), atol=1e-6)
            assert torch.allclose(batch.support.inputs[position], Moments.of(support).apply(support), atol=1e-6)


def test_anomalies_of_the_support_take_no_part_in_standardisation():
    tasks = make_tasks(1, 40, 30)
    store = tasks[0].normal.store
    store.values[40:] += 1000.0
    sampler = EpisodeSampler(4, 10, 0.5, InputScaling(standardize=True), standardize_by="support")
    batch = sampler.draw(tasks, 1, generator_for(0))
    normals = batch.support.inputs[0][batch.support.labels[0] == 0]
    assert torch.allclose(normals.mean(), torch.tensor(0.0), atol=1e-5)
    assert batch.support.inputs[0][batch.support.labels[0] == 1].min() > 100


def test_an_evaluation_does_not_depend_on_the_batching_or_on_other_tasks():
    tasks, plan = make_tasks(3), EvaluationProtocol(2, 10, 10)
    sampler = EpisodeSampler(5, 10)
    together = sampler.draw_evaluation(tasks, plan, 1, seed=3)
    alone = sampler.draw_evaluation(tasks[2:], plan, 1, seed=3)
    assert torch.equal(together.query_rows[2:], alone.query_rows)
    assert torch.equal(together.support_rows[2:], alone.support_rows)
    assert not torch.equal(together.support_rows, sampler.draw_evaluation(tasks, plan, 0, seed=3).support_rows)
    assert not torch.equal(together.support_rows, sampler.draw_evaluation(tasks, plan, 1, seed=4).support_rows)


def test_a_smaller_support_is_the_start_of_a_larger_one():
    tasks, plan = make_tasks(2), EvaluationProtocol(1, 5, 5)
    small, large = (EpisodeSampler(size, 10).draw_evaluation(tasks, plan, 0, 0) for size in (2, 10))
    assert torch.equal(small.support_rows, large.support_rows[:, :2])


def test_tasks_of_one_cluster_draw_the_same_positions():
    tasks = [replace(task, cluster="one operation") for task in make_tasks(3)]
    rows = EpisodeSampler(5, 10).draw_evaluation(tasks, EvaluationProtocol(1, None, None), 0, 0).support_rows
    starts = torch.tensor([int(task.name.split()[1]) for task in tasks])
    assert torch.equal(rows - starts[:, None], rows[:1].expand(3, -1))


def test_batches_are_the_same_whatever_the_number_of_workers():
    tasks, sampler = make_tasks(), EpisodeSampler(5, 10, 0.8)

    def draw(number):
        return sampler.draw(tasks, 2, generator_for(7, "train", number)).query_rows

    with ThreadPoolExecutor(4) as workers:
        parallel = list(workers.map(draw, reversed(range(12))))[::-1]
    assert all(torch.equal(one, other) for one, other in zip(parallel, map(draw, range(12)), strict=True))


def test_a_batch_of_classes_holds_normals_of_different_tasks():
    tasks = make_tasks(5)
    batch = ClassSampler(3, 6).draw(tasks, generator_for(0))
    assert batch.inputs.shape == (3, 6, 1, 8)
    assert len(set(batch.class_index.tolist())) == 3
    for inputs, number in zip(batch.inputs, batch.class_index.tolist(), strict=True):
        normals = tasks[number].normal.store.values[tasks[number].normal.rows()]
        assert all(any(torch.equal(one, normal) for normal in normals) for one in inputs)
    with pytest.raises(FewoneError, match="6 classes wanted, 5"):
        ClassSampler(6, 6).draw(tasks, generator_for(0))
    with pytest.raises(FewoneError, match="41 normal examples wanted"):
        ClassSampler(2, 41).draw(tasks, generator_for(0))


@pytest.mark.parametrize("family", [name for name in DATASETS if name != "folder"])
def test_no_example_of_a_test_task_is_ever_seen_in_training(family, downloads, options, load_generated, require_real):
    dataset = DATASETS[family]
    if dataset.source is None:
        splits = load_generated(family)
    else:
        folders = [downloads] if dataset.source.find([downloads]) else require_real(family)
        splits = load(f"{family}/{dataset.variants[0]}" if dataset.variants else family, folders, options)
    sampler = EpisodeSampler(2, 4, preparation=splits.preparation, smallest_query=splits.smallest_query)
    seen: set[int] = set()
    for number in range(30):
        batch = sampler.draw(splits.train, 8, generator_for(number))
        seen |= set(batch.support_rows.flatten().tolist()) | set(batch.query_rows.flatten().tolist())
        assert batch.query.inputs.shape[2:] == splits.shape
    held_out = set(gather_rows(splits.test).tolist()) | set(gather_rows(splits.validation).tolist())
    assert seen
    assert not seen & held_out
