"""The outer loop: it keeps the best, goes on to the same bits after any interruption, and stops where it must."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fewone.checkpoints import ModelSpec, build_learner, load_learner, read_checkpoint, write_checkpoint
from fewone.episodes import ClassBatch, Episodes, Examples, InputScaling, TaskSplits
from fewone.errors import FewoneError
from fewone.learners import MamlSettings, MetaLearner, MetaSgdSettings, PldaSettings, Scorer
from fewone.networks import NetworkSettings
from fewone.sampling import ClassSampler, EpisodeSampler
from fewone.training import (
    Batches,
    Progress,
    RunFolder,
    Select,
    TrainingSettings,
    Validator,
    find_best,
    read_cost,
    read_history,
    train_steps,
)
from fewone.training.state import outer_rate

SETTINGS = TrainingSettings(iterations=12, validate_every=5, validation_episodes=4, meta_batch=2, query_size=4)
CARD = ModelSpec(
    algorithm="maml",
    learning=MamlSettings(inner_steps=1, inner_rate=0.1),
    network=NetworkSettings(filters=(4,)),
    shape=(1, 16),
    preparation=InputScaling(standardize=True),
    support_size=2,
    seed=1,
    dataset="tiny",
    fingerprint="f1",
    experiment=None,
)


class Drifting(MetaLearner):
    """Its only weight moves by a constant gradient; the loss falls and then rises again as it goes."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(()))
        self.fails_at: int | None = None
        self.seen = 0

    def adapt(self, support: Examples) -> Scorer:
        return Scaled(self.weight.detach().clone())

    def accumulate_gradient(self, batch: Episodes | ClassBatch) -> Tensor:
        self.seen += 1
        self.weight.grad = torch.tensor(-1.0)
        return torch.tensor(float("nan") if self.seen == self.fails_at else 1.0)


class Scaled(Scorer):
    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.weight = weight

    def forward(self, inputs: Tensor) -> Tensor:
        return self.weight * (inputs[..., 8:].mean((-1, -2)) - 1.5 - 1.0 * torch.sin(100 * inputs[..., 0].sum(-1)))


def sampler_for(splits: TaskSplits) -> EpisodeSampler:
    return EpisodeSampler(2, 4, 1.0, splits.preparation)


def train(
    splits: TaskSplits,
    learner: MetaLearner,
    settings: TrainingSettings = SETTINGS,
    folder: RunFolder | None = None,
    batches: Batches | None = None,
) -> list[Progress]:
    drawn = batches or Batches(splits.train, sampler_for(splits), settings.meta_batch, seed=0)
    validator = Validator(splits.validation, sampler_for(splits), settings.validation_episodes, seed=0)
    return list(train_steps(learner, drawn, validator, settings, folder))


def open_folder(folder: Path, settings: TrainingSettings = SETTINGS, card: ModelSpec = CARD) -> RunFolder:
    return RunFolder(folder, card, {"training": {"iterations": settings.iterations, "schedule": "constant"}}, 0.0)


def weights(learner: nn.Module) -> list[Tensor]:
    return [tensor.clone() for tensor in learner.state_dict().values()]


def equal(first: list[Tensor], second: list[Tensor]) -> bool:
    return len(first) == len(second) and all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_the_weights_of_the_lowest_validation_loss_are_kept_not_the_last(
    tiny_splits: TaskSplits, tmp_path: Path
) -> None:
    settings = replace(SETTINGS, iterations=60, validate_every=3, optimizer="sgd", outer_rate=0.01)
    learner = Drifting()
    with open_folder(tmp_path, settings) as folder:
        progress = train(tiny_splits, learner, settings, folder)
    history = [step.validation for step in progress if step.validation is not None]
    best = min(history, key=lambda validation: validation.loss)
    assert 3 < best.iteration < 60, "the test needs a loss that falls and rises again"
    once = Drifting()
    train(tiny_splits, once, replace(settings, iterations=best.iteration))
    assert torch.equal(learner.weight, once.weight)
    tensors, _ = read_checkpoint(tmp_path, "model")
    assert torch.equal(tensors["weight"], learner.weight)
    state, _ = read_checkpoint(tmp_path, "state")
    assert state["learner.weight"] > learner.weight, "the state goes on from the last weights"


@pytest.mark.parametrize("select", ["loss", "accuracy", "auroc", "last"])
def test_the_weights_are_kept_by_what_is_asked_for(select: Select, tiny_splits: TaskSplits, tmp_path: Path) -> None:
    settings = replace(SETTINGS, iterations=60, validate_every=3, optimizer="sgd", outer_rate=0.01, select=select)
    learner = Drifting()
    with open_folder(tmp_path, settings) as folder:
        train(tiny_splits, learner, settings, folder)
    history = read_history(tmp_path)
    values = {
        "loss": [one.loss for one in history],
        "accuracy": [-one.accuracy for one in history],
        "auroc": [-(one.auroc or 0) for one in history],
        "last": [-one.iteration for one in history],
    }[select]
    chosen = history[values.index(min(values))]
    assert find_best(history, select) == chosen
    once = Drifting()
    train(tiny_splits, once, replace(settings, iterations=chosen.iteration, select="last"))
    assert torch.equal(learner.weight, once.weight)


def test_every_learner_is_validated_on_the_same_number_of_queries(tiny_splits: TaskSplits) -> None:
    few, many = EpisodeSampler(2, 2, 1.0, tiny_splits.preparation), EpisodeSampler(2, 8, 1.0, tiny_splits.preparation)
    drawn = [Validator(tiny_splits.validation, sampler, 4, 0, queries=6)._batches for sampler in (few, many)]
    assert all(torch.equal(a.query.inputs, b.query.inputs) for a, b in zip(*drawn, strict=True))
    assert drawn[0][0].query.labels.shape[1] == 6
    assert Validator(tiny_splits.validation, few, 4, 0)._batches[0].query.labels.shape[1] == 2


def test_validation_comes_every_so_often_and_at_the_end(tiny_splits: TaskSplits) -> None:
    progress = train(tiny_splits, build_learner(CARD))
    assert [step.iteration for step in progress] == list(range(1, 13))
    assert [step.iteration for step in progress if step.validation] == [5, 10, 12]
    assert [step.ended for step in progress if step.ended] == ["all 12 iterations are done"]


def test_training_lowers_the_validation_loss_and_moves_every_parameter(tiny_splits: TaskSplits) -> None:
    settings = replace(SETTINGS, iterations=60, validate_every=20, outer_rate=0.01)
    learner = build_learner(CARD)
    before = weights(learner)
    validator = Validator(tiny_splits.validation, sampler_for(tiny_splits), 4, seed=0)
    loss, _, _ = validator.validate(learner)
    train(tiny_splits, learner, settings)
    after, accuracy, auroc = validator.validate(learner)
    assert after < loss - 0.1
    assert accuracy > 0.8 and auroc > 0.9
    assert not any(torch.equal(a, b) for a, b in zip(before, weights(learner), strict=True))


def test_patience_ends_a_run_that_gets_no_better(tiny_splits: TaskSplits) -> None:
    settings = replace(SETTINGS, iterations=500, validate_every=3, optimizer="sgd", outer_rate=0.01, patience=4)
    progress = train(tiny_splits, Drifting(), settings)
    history = [step.validation for step in progress if step.validation is not None]
    best = min(history, key=lambda validation: validation.loss)
    assert progress[-1].iteration == best.iteration + 4 * 3 < 500
    assert f"no better one than iteration {best.iteration}" in progress[-1].ended


def test_cpu_minutes_end_a_run_cleanly(tiny_splits: TaskSplits) -> None:
    progress = train(tiny_splits, build_learner(CARD), replace(SETTINGS, iterations=10**6, minutes=0.3 / 60))
    assert 0 < progress[-1].iteration < 10**6
    assert progress[-1].validation is not None
    assert "0.005 CPU minutes are spent" in progress[-1].ended


def test_the_cosine_schedule_goes_by_iterations() -> None:
    settings = TrainingSettings(iterations=100, schedule="cosine", outer_rate=0.2)
    rates = [outer_rate(settings, iteration) for iteration in (0, 50, 100)]
    assert rates == pytest.approx([0.2, 0.1, 0.0], abs=1e-12)
    assert outer_rate(replace(settings, schedule="constant"), 70) == 0.2


def test_a_batch_is_fixed_by_its_number_alone(tiny_splits: TaskSplits) -> None:
    batches = Batches(tiny_splits.train, sampler_for(tiny_splits), 2, seed=3, smallest_k=1)
    stream = batches.follow(1)
    followed = [next(stream) for _ in range(6)]
    stream.close()
    sizes = set()
    for number, batch in enumerate(followed, start=1):
        again = batches.draw(number)
        assert isinstance(batch, Episodes)
        assert isinstance(again, Episodes)
        assert torch.equal(batch.query.inputs, again.query.inputs)
        sizes.add(batch.support.labels.shape[1])
    assert sizes == {1, 2}


def test_clipping_bounds_the_gradient(tiny_splits: TaskSplits) -> None:
    settings = replace(SETTINGS, iterations=1, optimizer="sgd", outer_rate=1.0, clip=0.001, validate_every=1)
    learner = build_learner(CARD)
    before = torch.cat([p.detach().flatten() for p in learner.parameters()])
    progress = train(tiny_splits, learner, settings)
    moved = torch.cat([p.detach().flatten() for p in learner.parameters()]) - before
    # One step of SGD with Nesterov momentum 0.9 goes 1.9 times as far as the gradient.
    assert float(moved.norm()) == pytest.approx(0.0019, rel=1e-3)
    assert progress[0].gradient_norm > 0.001


INTERRUPTED = {
    "adam": (CARD, SETTINGS),
    "adamw with weight decay, clipped": (
        CARD,
        replace(SETTINGS, optimizer="adamw", weight_decay=0.1, clip=0.5, outer_rate=0.01),
    ),
    "sgd, cosine": (CARD, replace(SETTINGS, optimizer="sgd", schedule="cosine")),
    "batch norm from the support": (replace(CARD, network=NetworkSettings(filters=(4,), norm="support")), SETTINGS),
    "running averages": (
        replace(CARD, algorithm="plda", learning=PldaSettings(), network=NetworkSettings(filters=(4,), norm="running")),
        SETTINGS,
    ),
    "learned rates": (replace(CARD, algorithm="metasgd", learning=MetaSgdSettings(0.1, 1)), SETTINGS),
}


@pytest.mark.parametrize("name", INTERRUPTED)
def test_an_interrupted_run_ends_with_the_same_bits(name: str, tiny_splits: TaskSplits, tmp_path: Path) -> None:
    card, settings = INTERRUPTED[name]
    experiment = {"training": {"schedule": settings.schedule}}
    whole = build_learner(card)
    with RunFolder(tmp_path / "whole", card, experiment, 0.0) as folder:
        train(tiny_splits, whole, settings, folder)
    for stop in (1, 4, 5, 11):
        with RunFolder(tmp_path / "parts", card, experiment, 0.0) as folder:
            learner = build_learner(card)
            batches = Batches(tiny_splits.train, sampler_for(tiny_splits), settings.meta_batch, seed=0)
            validator = Validator(tiny_splits.validation, sampler_for(tiny_splits), 4, seed=0)
            for progress in train_steps(learner, batches, validator, settings, folder):
                if progress.iteration == stop:
                    break
    torch.manual_seed(stop)
    with RunFolder(tmp_path / "parts", card, experiment, 0.0) as folder:
        learner = build_learner(card)
        progresses = train(tiny_splits, learner, settings, folder)
    assert [step.iteration for step in progresses] == [12]
    assert equal(weights(learner), weights(whole))
    hashes = [
        json.loads((tmp_path / part / f"{bundle}.json").read_bytes())["weights"]["sha256"]
        for part in ("whole", "parts")
        for bundle in ("model", "state")
    ]
    assert hashes[:2] == hashes[2:], "optimizer and best weights too"
    first, second = (read_history(tmp_path / part) for part in ("whole", "parts"))
    assert [(v.iteration, v.loss, v.accuracy) for v in first] == [(v.iteration, v.loss, v.accuracy) for v in second]


def test_what_a_layer_draws_is_fixed_by_the_iteration_and_spares_the_global_generator(tiny_splits: TaskSplits) -> None:
    class Noisy(Drifting):
        def accumulate_gradient(self, batch: Episodes | ClassBatch) -> Tensor:
            self.weight.grad = torch.rand(())
            return torch.tensor(1.0)

    torch.manual_seed(1)
    before = torch.get_rng_state()
    first, second = Noisy(), Noisy()
    train(tiny_splits, first)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    train(tiny_splits, second)
    assert torch.equal(first.weight, second.weight)


def test_a_finished_run_does_nothing_and_more_iterations_go_on(tiny_splits: TaskSplits, tmp_path: Path) -> None:
    learner = build_learner(CARD)
    with open_folder(tmp_path) as folder:
        train(tiny_splits, learner, SETTINGS, folder)
    before = {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    again = build_learner(CARD)
    with open_folder(tmp_path) as folder:
        assert train(tiny_splits, again, SETTINGS, folder) == []
    assert equal(weights(again), weights(learner))
    assert {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == before
    longer = replace(SETTINGS, iterations=14)
    with open_folder(tmp_path, longer) as folder:
        assert [step.iteration for step in train(tiny_splits, again, longer, folder)] == [13, 14]
    cost = read_cost(tmp_path)
    assert cost is not None
    assert cost.cpu_seconds > 0


def test_a_loss_that_is_not_a_number_stops_the_run_says_where_and_keeps_the_last_good_state(
    tiny_splits: TaskSplits, tmp_path: Path
) -> None:
    learner = Drifting()
    learner.fails_at = 8
    with open_folder(tmp_path) as folder, pytest.raises(FewoneError) as caught:
        folder.seconds = 1e9
        train(tiny_splits, learner, replace(SETTINGS, optimizer="sgd"), folder)
    assert "iteration 8: the loss is not a finite number, on task " in str(caught.value)
    tensors, document = read_checkpoint(tmp_path, "state")
    assert document["iteration"] == 7
    assert [item["iteration"] for item in document["history"]] == [5]
    assert all(bool(torch.isfinite(tensor).all()) for tensor in tensors.values())


def test_a_gap_in_the_data_is_blamed_on_its_task_and_the_running_averages_stay_good(
    tiny_splits: TaskSplits, tmp_path: Path
) -> None:
    card = replace(
        CARD, algorithm="plda", learning=PldaSettings(), network=NetworkSettings(filters=(4,), norm="running")
    )
    batches = Batches(tiny_splits.train, sampler_for(tiny_splits), 2, seed=0)
    culprit: list[str] = []

    def tear(batch: Episodes | ClassBatch, generator: torch.Generator) -> Episodes | ClassBatch:
        assert isinstance(batch, Episodes)
        if batch.tasks[1].name == "task 3":
            culprit.append(batch.tasks[1].name)
            batch.query.inputs[1, 0, 0, 5] = float("nan")
        return batch

    with open_folder(tmp_path, card=card) as folder, pytest.raises(FewoneError) as caught:
        train(
            tiny_splits, build_learner(card), replace(SETTINGS, iterations=60), folder, replace(batches, transform=tear)
        )
    assert culprit
    assert "is not a finite number, on task 3; the state after iteration" in str(caught.value)
    tensors, _ = read_checkpoint(tmp_path, "state")
    assert all(bool(torch.isfinite(tensor).all()) for tensor in tensors.values())


def test_a_full_disk_ends_the_run_with_its_last_checkpoint_whole(
    tiny_splits: TaskSplits, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = build_learner(CARD)
    train(tiny_splits, whole)
    calls, replace_file = [], Path.replace

    def fill(path: Path, target: Path) -> Path:
        calls.append(target)
        if len(calls) > 17:
            raise OSError(errno.ENOSPC, "No space left on device")
        return replace_file(path, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", fill)
        with open_folder(tmp_path) as folder, pytest.raises(FewoneError, match="No space left on device"):
            train(tiny_splits, build_learner(CARD), SETTINGS, folder)
    _, document = read_checkpoint(tmp_path, "state")
    assert document["iteration"] == 7
    load_learner(tmp_path)
    learner = build_learner(CARD)
    with open_folder(tmp_path) as folder:
        assert train(tiny_splits, learner, SETTINGS, folder)[0].iteration == 8
    assert equal(weights(learner), weights(whole))


def test_a_folder_that_cannot_be_written_is_an_error_before_training(
    tiny_splits: TaskSplits, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FewoneError, match=r"cannot write there.*give a folder"):
        open_folder(tmp_path / "file" / "run").__enter__()

    def refuse(*arguments: object) -> int:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr("os.open", refuse)
    with pytest.raises(FewoneError, match="Read-only file system"):
        open_folder(tmp_path / "run").__enter__()


def test_two_processes_cannot_train_into_one_folder(tmp_path: Path) -> None:
    with open_folder(tmp_path), pytest.raises(FewoneError, match="another process is training"):
        open_folder(tmp_path).__enter__()
    with open_folder(tmp_path):
        pass


def change_document(change: Callable[[dict[str, Any]], None]) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        tensors, content = read_checkpoint(folder, "state")
        change(content)
        write_checkpoint(folder, "state", tensors, content)

    return apply


def change_tensors(change: Callable[[dict[str, Tensor]], None]) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        tensors, content = read_checkpoint(folder, "state")
        change(tensors)
        write_checkpoint(folder, "state", tensors, content)

    return apply


def cut(folder: Path) -> None:
    path = next(folder.glob("state.*.safetensors"))
    path.write_bytes(path.read_bytes()[:100])


@pytest.mark.parametrize(
    ("harm", "reason"),
    [
        (change_document(lambda d: d.update(fingerprint="f2")), "the run began on other data"),
        (change_document(lambda d: d.update(experiment={"k": 3})), "another experiment is in this folder: its k is 3"),
        (change_document(lambda d: d.pop("experiment")), "no experiment"),
        (change_document(lambda d: d.pop("iteration")), "not a training state"),
        (change_document(lambda d: d.update(history=[{"loss": "low"}])), "not a training state"),
        (change_document(lambda d: d.update(iteration=-4)), "not a training state"),
        (change_tensors(lambda t: t.pop("learner.classifier.head.bias")), "the weights lack"),
        (change_tensors(lambda t: t.update(extra=torch.ones(2))), "the weights hold 'extra'"),
        (change_tensors(lambda t: t.update({"optimizer.0.exp_avg": torch.ones(2)})), "optimizer.0.exp_avg"),
        (change_tensors(lambda t: t.update({"optimizer.99.exp_avg": torch.ones(2)})), "optimizer.99.exp_avg"),
        (change_tensors(lambda t: t.pop("optimizer.0.exp_avg")), "optimizer"),
        (cut, "it is cut or foreign"),
        (lambda folder: (folder / "state.json").write_text("{}"), "not a checkpoint of fewone"),
        (lambda folder: (folder / "state.json").unlink(), "a model without its training state"),
    ],
)
def test_a_corrupt_or_foreign_state_is_refused_and_left_alone(
    harm: Callable[[Path], object], reason: str, tiny_splits: TaskSplits, tmp_path: Path
) -> None:
    with open_folder(tmp_path) as folder:
        train(tiny_splits, build_learner(CARD), replace(SETTINGS, iterations=5), folder)
    harm(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with open_folder(tmp_path) as folder, pytest.raises(FewoneError) as caught:
        train(tiny_splits, build_learner(CARD), SETTINGS, folder)
    assert reason in str(caught.value)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_batches_of_classes_train_the_learners_that_take_them(tiny_splits: TaskSplits) -> None:
    card = replace(
        CARD,
        algorithm="plda",
        learning=PldaSettings(batch="classes", dimensions=4),
        network=NetworkSettings(filters=(4,), norm="running"),
    )
    learner = build_learner(card)
    before = weights(learner)
    batches = Batches(tiny_splits.train, ClassSampler(4, 6, tiny_splits.preparation), 2, seed=0)
    progress = train(tiny_splits, learner, SETTINGS, batches=batches)
    assert progress[-1].ended
    assert not equal(before, weights(learner))


def test_validation_counts_both_classes_alike_and_needs_tasks(tiny_splits: TaskSplits) -> None:
    class Normal(Drifting):
        def adapt(self, support: Examples) -> Scorer:
            return Scaled(torch.tensor(0.0))

    _, accuracy, auroc = Validator(tiny_splits.validation, sampler_for(tiny_splits), 6, seed=0).validate(Normal())
    assert accuracy == auroc == pytest.approx(0.5)
    with pytest.raises(FewoneError, match="no validation task"):
        Validator((), sampler_for(tiny_splits), 6, seed=0)
