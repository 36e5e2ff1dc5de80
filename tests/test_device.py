"""Gradients on another device: one way there and back, and nothing of the processor among the tensors of the device."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor

from fewone.cli import main
from fewone.episodes import ClassBatch, Episodes, Examples
from fewone.learners import LEARNERS, MetaLearner
from fewone.networks import NetworkSettings
from fewone.training.batches import Batch
from fewone.training.device import PROCESSOR, accumulate_on, move

SHAPE = (1, 32)
RUNNING = ("protonet", "metaoptnet", "plda", "support-distance")


def make_learner(name: str) -> MetaLearner:
    torch.manual_seed(0)
    settings = LEARNERS[name].choose(inner_steps=2, inner_rate=0.05, dimensions=4, random_kernels=8)
    network = NetworkSettings(filters=(4, 4), kernel=3, norm="running" if name in RUNNING else "support")
    return LEARNERS[name](settings, network, SHAPE)


def make_batch(learner: MetaLearner) -> Batch:
    generator = torch.Generator().manual_seed(3)
    if learner.batch == "classes":
        return ClassBatch(torch.randn(8, 6, *SHAPE, generator=generator), torch.arange(8))
    support = Examples.normals(torch.randn(4, 5, *SHAPE, generator=generator))
    labels = torch.tensor([0.0, 0, 0, 1, 1, 1]).repeat(4, 1)
    query = Examples.of(torch.randn(4, 6, *SHAPE, generator=generator) + labels[..., None, None], labels)
    rows = torch.zeros(4, 6, dtype=torch.int64)
    return Episodes((None,) * 4, support, query, rows[:, :5], rows, torch.arange(4))


@pytest.mark.parametrize("name", list(LEARNERS))
def test_there_and_back_every_learner_has_the_same_loss_gradients_and_buffers(name: str) -> None:
    here = make_learner(name)
    there, batch = copy.deepcopy(here), make_batch(here)
    assert torch.equal(accumulate_on(PROCESSOR, there, batch), here.accumulate_gradient(batch))
    for one, other in zip(here.parameters(), there.parameters(), strict=True):
        assert (one.grad is None) == (other.grad is None)
        assert one.grad is None or torch.equal(one.grad, other.grad)
    assert all(torch.equal(one, other) for one, other in zip(here.buffers(), there.buffers(), strict=True))


# The way of the two others depends on numbers: which examples count, and whether a program can be solved.
@pytest.mark.parametrize("name", [name for name in LEARNERS if name not in ("support-distance", "metaoptnet")])
def test_on_a_device_without_numbers_no_learner_meets_a_tensor_of_the_processor(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    learner = make_learner(name)
    far, batch = copy.deepcopy(learner).to("meta"), move(make_batch(learner), torch.device("meta"))
    # Questions whose answer is a number are answered for a device that has none.
    for question, answer in (("__bool__", True), ("item", 1.0), ("__float__", 1.0), ("__int__", 1)):
        monkeypatch.setattr(Tensor, question, lambda tensor, answer=answer: answer)
    assert far.accumulate_gradient(batch).device.type == "meta"
    assert {parameter.grad.device.type for parameter in far.parameters() if parameter.grad is not None} == {"meta"}


def test_a_gpu_that_is_not_there_is_one_line_before_any_data_is_read(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert main(["train", "--dataset", "folder:nowhere", "--learner", "plda", "--out", "x", "--device", "cuda"]) == 2
    error = capsys.readouterr().err
    assert "--device cuda" in error and "finds no GPU here; take --device cpu" in error and error.count("\n") == 1
