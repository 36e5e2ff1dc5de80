"""Shards fix the bits: however many workers share them, every learner ends with the same gradients and buffers."""

from __future__ import annotations

import copy
import threading

import pytest
import torch

from fewone.episodes import ClassBatch, Episodes, Examples
from fewone.errors import FewoneError
from fewone.learners import LEARNERS
from fewone.networks import NetworkSettings
from fewone.training.shards import accumulate_in_shards, split_batch
from fewone.workers import ALONE

SHAPE = (1, 32)


class Meeting:
    """Workers that are threads of this process: an exchange for each of them."""

    def __init__(self, size):
        self.size, self.results, self.barrier, self.turn = size, {}, threading.Barrier(size), threading.Lock()

    def worker(self, rank):
        return Worker(self, rank)


class Worker:
    def __init__(self, meeting, rank):
        self.meeting, self.rank, self.size = meeting, rank, meeting.size

    def share_out(self, count, work):
        for number in range(self.rank, count, self.size):
            # One at a time: torch's own random stream, which a shard seeds, is the process's.
            with self.meeting.turn:
                self.meeting.results[number] = work(number)
        self.meeting.barrier.wait()
        found = [self.meeting.results[number].clone() for number in range(count)]
        self.meeting.barrier.wait()
        return found


def make_batch(learner):
    generator = torch.Generator().manual_seed(3)
    if learner.batch == "classes":
        return ClassBatch(torch.randn(8, 6, *SHAPE, generator=generator), torch.arange(8))
    support = Examples.normals(torch.randn(8, 5, *SHAPE, generator=generator))
    labels = torch.tensor([0.0, 0, 0, 1, 1, 1]).repeat(8, 1)
    query = Examples.of(torch.randn(8, 6, *SHAPE, generator=generator) + labels[..., None, None], labels)
    rows = torch.zeros(8, 6, dtype=torch.int64)
    return Episodes((None,) * 8, support, query, rows[:, :5], rows, torch.arange(8))


def make_learner(name):
    torch.manual_seed(0)
    norm = "running" if name in ("protonet", "metaoptnet", "plda", "support-distance") else "support"
    settings = LEARNERS[name].choose(inner_steps=2, inner_rate=0.05, dimensions=4, random_kernels=8)
    return LEARNERS[name](settings, NetworkSettings(filters=(4, 4), kernel=3, norm=norm), SHAPE)


def outcome(learner, exchange, shards=4):
    loss = accumulate_in_shards(learner, make_batch(learner), shards, seed=1, iteration=5, exchange=exchange)
    gradients = [None if p.grad is None else p.grad.clone() for p in learner.parameters()]
    return [loss.clone(), *gradients, *(buffer.clone() for buffer in learner.buffers())]


def in_threads(learner, size):
    meeting, found = Meeting(size), {}

    def run(rank):
        found[rank] = outcome(copy.deepcopy(learner), meeting.worker(rank))

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return [found[rank] for rank in range(size)]


def same_bits(one, other):
    return all(
        (a is None and b is None) or (a is not None and b is not None and torch.equal(a, b))
        for a, b in zip(one, other, strict=True)
    )


@pytest.mark.parametrize("name", LEARNERS)
def test_one_two_and_four_workers_give_every_learner_the_same_bits(name):
    learner = make_learner(name)
    alone = outcome(copy.deepcopy(learner), ALONE)
    assert any(value is not None and bool(value.abs().sum() > 0) for value in alone[1:])
    for size in (2, 4):
        for found in in_threads(learner, size):
            assert same_bits(found, alone)


@pytest.mark.parametrize("name", ["maml", "fomaml", "reptile", "anil", "metasgd", "evidence"])
def test_shards_give_the_gradient_of_the_whole_batch_where_tasks_do_not_meet(name):
    learner = make_learner(name)
    whole, sharded = copy.deepcopy(learner), copy.deepcopy(learner)
    loss = whole.accumulate_gradient(make_batch(learner))
    found = outcome(sharded, ALONE, shards=3)
    assert float(found[0]) == pytest.approx(float(loss), rel=1e-5)
    for expected, got in zip((p.grad for p in whole.parameters()), found[1:], strict=False):
        if expected is not None:
            torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-6)


def test_running_averages_become_the_mean_of_the_shards_and_counters_count_once():
    learner = make_learner("support-distance")
    before = {name: value.clone() for name, value in learner.named_buffers()}
    outcome(learner, ALONE)
    after = dict(learner.named_buffers())
    assert int(after["deviation.seen"]) == int(before["deviation.seen"]) + 1
    assert not torch.equal(after["deviation.variance"], before["deviation.variance"])


def test_every_task_is_in_one_shard_and_sizes_differ_by_one_at_most():
    batch = make_batch(make_learner("maml"))
    parts = split_batch(batch, 3)
    assert torch.cat([part.task_index for part in parts]).tolist() == list(range(8))
    assert {len(part) for part in parts} == {2, 3}


def test_more_shards_than_tasks_are_refused_in_one_line():
    with pytest.raises(FewoneError, match=r"training\.shards is 9, but a batch of 8 tasks can be cut into 8"):
        split_batch(make_batch(make_learner("maml")), 9)
