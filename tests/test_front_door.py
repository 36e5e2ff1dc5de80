"""An nn.Module and arrays in, a detector and files out: what the front door gives, and what it refuses in one line."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

import fewone
from fewone.detector.few_shot_detector import FewShotDetector
from fewone.episodes import Examples, generator_for
from fewone.learners import Anil, Maml, MetaLearner, MetaOptNet, MetaSgd, Plda, ProtoNet, Reptile

LENGTH = 12


def make_arrays(number: int, level: float = 50.0) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Waves of one machine far from 0, and the same upside down."""
    random = np.random.default_rng(number)
    wave = np.sin(np.arange(LENGTH) + number)
    normal = level + wave + 0.1 * random.normal(size=(30, 1, LENGTH))
    return normal, level - wave + 0.1 * random.normal(size=(14, 1, LENGTH))


def make_tasks(count: int = 12) -> list[fewone.Task]:
    return [fewone.Task.from_arrays(f"machine {number}", *make_arrays(number)) for number in range(count)]


def make_module(activation: type[nn.Module] = nn.ReLU, width: int = 8) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Flatten(), nn.Linear(LENGTH, width), activation())


SAMPLER = fewone.EpisodeSampler(support_size=5, query_size=8, standardize=True)
MAKERS: dict[str, Callable[[nn.Module], MetaLearner]] = {
    "maml": lambda module: Maml(module, inner_rate=0.1, inner_steps=2),
    "fomaml": lambda module: Maml(module, inner_rate=0.1, inner_steps=2, first_order=True),
    "anil": lambda module: Anil(module, inner_rate=0.1, inner_steps=2),
    "metasgd": lambda module: MetaSgd(module, inner_rate=0.1, inner_steps=2),
    "reptile": lambda module: Reptile(module, inner_rate=0.1, inner_steps=2),
    "protonet": ProtoNet,
    "metaoptnet": MetaOptNet,
    "plda": lambda module: Plda(module, dimensions=4),
}


def train(learner: MetaLearner, steps: int = 3) -> MetaLearner:
    optimizer = torch.optim.Adam(learner.parameters(), 1e-2)
    for episodes in SAMPLER.stream(make_tasks(), meta_batch=4, steps=steps, seed=0):
        optimizer.zero_grad()
        learner.accumulate_gradient(episodes)
        optimizer.step()
    return learner


@pytest.mark.parametrize("name", MAKERS)
def test_any_module_under_any_learner_trains_adapts_saves_and_loads_to_the_bit(name: str, tmp_path: Path) -> None:
    learner = train(MAKERS[name](make_module()))
    normal, anomalous = make_arrays(99)
    detector = FewShotDetector(learner, scaling=SAMPLER.scaling).fit(normal[:5])
    detector.save(tmp_path)
    same = fewone.load(tmp_path, learner=MAKERS[name](make_module()))
    assert isinstance(same, FewShotDetector)
    np.testing.assert_array_equal(same.score_samples(anomalous), detector.score_samples(anomalous))
    assert sorted({path.suffix for path in tmp_path.rglob("*") if path.is_file()}) == [".json", ".safetensors"]


def test_the_story_of_fifteen_lines_finds_anomalies_on_a_machine_never_seen() -> None:
    learner = train(Maml(make_module(width=16), inner_rate=0.1, inner_steps=5), steps=80)
    calibration = fewone.calibrate(learner, make_tasks(30)[12:], SAMPLER)
    normal, anomalous = make_arrays(77)
    detector = FewShotDetector(learner, scaling=SAMPLER.scaling, calibration=calibration).fit(normal[:5])
    assert (detector.predict(normal[5:]) == 1).mean() > 0.9
    assert (detector.predict(anomalous) == -1).mean() > 0.9


def test_the_detector_standardises_as_the_training_did() -> None:
    learner, (normal, anomalous) = train(Maml(make_module(), inner_steps=2)), make_arrays(77)
    moved = FewShotDetector(learner, scaling=SAMPLER.scaling).fit(3 * normal[:5] + 7)
    detector = FewShotDetector(learner, scaling=SAMPLER.scaling).fit(normal[:5])
    np.testing.assert_allclose(
        moved.score_samples(3 * anomalous + 7), detector.score_samples(anomalous), rtol=1e-3, atol=1e-3
    )
    plain = FewShotDetector(learner, scaling=fewone.InputScaling()).fit(normal[:5])
    assert np.abs(plain.score_samples(anomalous) - detector.score_samples(anomalous)).max() > 0.1


def test_a_stream_is_fixed_by_seed_and_number_alone() -> None:
    tasks = make_tasks(4)
    *_, last = SAMPLER.stream(tasks, meta_batch=2, steps=3, seed=5)
    again = SAMPLER.draw(tasks, 2, generator_for(5, "train", 3))
    assert torch.equal(last.support.inputs, again.support.inputs)
    assert len(list(SAMPLER.stream(tasks, meta_batch=2, steps=3, seed=5))) == 3


@pytest.mark.parametrize("shape", [(9,), (2, 9), (1, 4, 5), (3, 4, 5)])
def test_tables_series_and_pictures_of_any_container_become_tasks_unchanged(shape: tuple[int, ...]) -> None:
    values = np.random.default_rng(0).integers(0, 9, size=(6, *shape))
    given = (values, values.tolist(), torch.from_numpy(values), values.astype(np.uint8), values.astype(np.float64))
    for examples in given:
        task = fewone.Task.from_arrays("a", examples, examples[:2])
        stored = task.normal.store.values
        assert task.shape == shape
        np.testing.assert_array_equal(stored[task.normal.rows()].numpy(), values)
        np.testing.assert_array_equal(stored[task.anomalous.rows()].numpy(), values[:2])
    assert fewone.Task.from_arrays("a", values.astype(np.uint8)).normal.store.values.dtype == torch.uint8
    assert len(fewone.Task.from_arrays("a", values).anomalous) == 0


def test_loading_leaves_the_given_learner_and_its_module_as_they_are(tmp_path: Path) -> None:
    FewShotDetector(train(MAKERS["maml"](make_module())), scaling=SAMPLER.scaling).fit(make_arrays(1)[0][:5]).save(
        tmp_path
    )
    given = MAKERS["maml"](make_module())
    before = {name: value.clone() for name, value in given.state_dict().items()}
    fewone.load(tmp_path, learner=given)
    assert all(torch.equal(value, before[name]) for name, value in given.state_dict().items())


class Tripled(nn.Module):
    """The same names, shapes and classes as its neighbour, but other code."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.flatten, self.linear, self.factor = nn.Flatten(), nn.Linear(LENGTH, 4), factor

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        features: torch.Tensor = torch.relu(self.factor * self.linear(self.flatten(inputs)))
        return features


@pytest.mark.parametrize(
    ("saved", "given", "words"),
    [
        (Maml(make_module()), Maml(make_module(width=9)), r"'classifier\.embedding\.module\.1\.bias' is \(8,\)"),
        (Maml(make_module()), Anil(make_module()), "Maml was saved, the learner given is Anil"),
        (Maml(make_module()), Maml(make_module(), inner_steps=7), "inner_steps=5, .* was saved, .* inner_steps=7"),
        (Maml(make_module()), Maml(make_module(nn.Tanh)), "module.2: ReLU' where the one given has .*module.2: Tanh'"),
        (Maml(Tripled(1.0)), Maml(Tripled(3.0)), "its code or its arguments differ"),
        (Maml(make_module()), None, r"a learner of your own: build it as it was and give it"),
        (Maml(make_module()), make_module(), r"a learner such as fewone\.learners\.Maml is expected, got Sequential"),
    ],
)
def test_load_refuses_a_learner_that_is_not_the_saved_one(
    saved: MetaLearner, given: MetaLearner | None, words: str, tmp_path: Path
) -> None:
    FewShotDetector(saved, scaling=SAMPLER.scaling).fit(make_arrays(1)[0][:5]).save(tmp_path)
    refuse(words, lambda: fewone.load(tmp_path, learner=given))


def test_a_model_of_the_library_wants_no_learner(tmp_path: Path) -> None:
    refuse("built from the file: leave learner= out", lambda: fewone.load("series", learner=ProtoNet(make_module())))
    fewone.FewShotDetector().fit(np.eye(3)).save(tmp_path)
    refuse("saved without a learner", lambda: fewone.load(tmp_path, learner=ProtoNet(make_module())))


def refuse(words: str, call: Callable[[], object]) -> None:
    """The call ends in one line that holds these words."""
    with pytest.raises(fewone.FewoneError) as found:
        call()
    assert "\n" not in str(found.value)
    assert re.search(words, str(found.value)), str(found.value)


def test_a_learner_without_scaling_is_refused_never_silently_fed_other_inputs() -> None:
    learner, normal = Maml(make_module()), make_arrays(0)[0]
    refuse("neither card nor scaling is given", lambda: FewShotDetector(learner).fit(normal))
    refuse("without a learner", lambda: FewShotDetector(scaling=SAMPLER.scaling).fit(normal))
    wrong: object = True
    refuse(
        r"scaling: sampler\.scaling is expected, got bool",
        lambda: FewShotDetector(learner, scaling=wrong).fit(normal),  # type: ignore[arg-type]
    )
    module: object = make_module()
    refuse("wrap your module", lambda: FewShotDetector(module, scaling=SAMPLER.scaling).fit(normal))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("module", "words"),
    [
        (nn.Sequential(nn.Conv1d(1, 4, 3)), r"cannot be read off its last layer \(it is Conv1d\); say it: features=N"),
        (nn.Sequential(nn.Linear(LENGTH, 4)), r"gives \(5, 1, 4\) for inputs .*\(n, features\) or \(n,\) is needed"),
        (nn.Sequential(nn.Flatten(0), nn.Linear(5 * LENGTH, 4)), r"the module gives \(4,\) for inputs"),
        (nn.Sequential(nn.Flatten(), nn.Linear(LENGTH, 4), nn.Dropout()), "Dropout .* is in training mode"),
        (nn.Sequential(nn.Flatten(), nn.BatchNorm1d(LENGTH), nn.Linear(LENGTH, 4)), "BatchNorm1d .* training mode"),
    ],
)
def test_a_module_that_cannot_serve_is_refused(module: nn.Module, words: str) -> None:
    support = Examples.normals(torch.zeros(1, 5, 1, LENGTH))
    refuse(words, lambda: Maml(module).adapt(support))


def test_what_cannot_be_trained_on_is_refused_before_the_first_step() -> None:
    normal, anomalous = make_arrays(0)
    short = fewone.Task.from_arrays("short", normal[..., :5], anomalous[..., :5])
    bare = fewone.Task.from_arrays("bare", normal)
    tasks = make_tasks(2)
    refuse("task short: its examples are .1, 5., those of task machine 0 .1, 12.", lambda: stream([*tasks, short]))
    refuse("task bare: 4 anomalous examples wanted .* labelled anomalies", lambda: stream([*tasks, bare]))
    refuse("two tasks are called 'machine 0'", lambda: stream([*tasks, tasks[0]]))
    refuse("there is no task", lambda: stream([]))
    refuse("task bare: it has no anomalies", lambda: fewone.calibrate(ProtoNet(make_module()), [bare], SAMPLER))
    alone = make_tasks(1)
    refuse(f"{alone[0].name} alone does not say", lambda: fewone.calibrate(ProtoNet(make_module()), alone, SAMPLER))
    refuse("both given", lambda: fewone.EpisodeSampler(5, 8, 1.0, SAMPLER.scaling, standardize=True))


def stream(tasks: list[fewone.Task]) -> object:
    return SAMPLER.stream(tasks, meta_batch=2, steps=1, seed=0)


@pytest.mark.parametrize(
    ("normal", "anomalous", "words"),
    [
        (np.full((3, 4), np.nan), None, "task a: normal: 3 of 3 examples hold NaN or infinity"),
        (np.zeros((3, 4)), np.full((2, 4), np.inf), "task a: anomalous: 2 of 2 examples hold NaN"),
        (np.zeros((3, 4)), np.zeros(3), r"task a: anomalous: examples \(n, \.\.\.\) are expected, got \(3,\)"),
        (np.zeros((3, 4)), np.zeros((3, 5)), r"normal examples are \(n, 4\), anomalous ones \(n, 5\)"),
        (np.zeros((0, 4)), None, "at least one example is needed"),
        (np.full((3, 4), 1e39), None, "too large for single precision"),
        ([["a", "b"]], None, "numbers are expected"),
        ([[1.0], [1.0, 2.0]], None, "all examples must have one shape"),
        ("normals.csv", None, "an array of examples is expected, got str"),
    ],
)
def test_what_is_no_task_is_refused(normal: object, anomalous: object, words: str) -> None:
    refuse(words, lambda: fewone.Task.from_arrays("a", normal, anomalous))


def test_labels_of_the_wrong_kind_are_refused_and_whole_numbers_count() -> None:
    inputs = torch.zeros(4, LENGTH)
    refuse("labels: 0 .normal. and 1 .anomalous. are expected, got -1", lambda: label(inputs, [1, 1, -1, 1]))
    refuse("labels: one for each example of inputs", lambda: label(inputs, [0, 0, 1]))
    refuse("labels: 0 .* got nan", lambda: label(inputs, [0.0, 0.0, 0.0, float("nan")]))
    for labels in ([0, 0, 0, 1], [0.0, 0.0, 0.0, 1.0], [False, False, False, True]):
        assert float(label(inputs, labels).weights.sum()) == 1.0
    normal = make_arrays(0)[0][:4]
    detector = FewShotDetector(ProtoNet(make_module()), scaling=SAMPLER.scaling)
    refuse(r"y: \+1 .normal. and -1 .known anomaly. expected", lambda: detector.fit(normal, [-1, 0, 1, 1]))


def label(inputs: torch.Tensor, labels: list[int] | list[float] | list[bool]) -> Examples:
    return Examples.of(inputs, torch.tensor(labels))


def test_inputs_that_do_not_fit_the_network_or_the_fit_are_told() -> None:
    normal = make_arrays(0)[0]
    detector = FewShotDetector(Maml(make_module()), scaling=SAMPLER.scaling)
    refuse(r"network does not take examples of shape \(30, 1, 5\)", lambda: detector.fit(normal[..., :5]))
    detector.fit(normal)
    refuse(r"X: \(n, 1, 12\) expected, as it was fitted on, got \(30, 12\)", lambda: detector.predict(normal[:, 0]))
    refuse("hold NaN or infinity", lambda: detector.predict(np.full((2, 1, LENGTH), np.nan)))
    refuse(r"one example: give X\[None\]", lambda: FewShotDetector(**detector.get_params()).fit(normal[0, 0]))


def test_a_module_that_is_switched_to_training_afterwards_is_refused_when_it_is_used() -> None:
    module = nn.Sequential(nn.Flatten(), nn.Linear(LENGTH, 4), nn.BatchNorm1d(4)).eval()
    learner, support = Maml(module), Examples.normals(torch.randn(1, 5, 1, LENGTH))
    before = {name: value.clone() for name, value in learner.state_dict().items()}
    learner.train()
    learner.adapt(support)
    assert all(torch.equal(value, before[name]) for name, value in learner.state_dict().items())
    module.train()
    refuse("BatchNorm1d .* is in training mode", lambda: learner.adapt(support))


def test_aligned_runs_over_a_learner_of_ones_own_are_saved_and_loaded(tmp_path: Path) -> None:
    runs = np.stack([make_arrays(number)[0] for number in range(3)], axis=1)
    learner = train(MAKERS["protonet"](make_module()))
    aligned = fewone.AlignedDetector(FewShotDetector(learner, scaling=SAMPLER.scaling)).fit(runs[:5])
    aligned.save(tmp_path)
    same = fewone.load(tmp_path, learner=MAKERS["protonet"](make_module()))
    assert isinstance(same, fewone.AlignedDetector)
    np.testing.assert_array_equal(same.decision_function(runs), aligned.decision_function(runs))


def test_a_detector_over_any_module_explains_reports_streams_and_exports(tmp_path: Path) -> None:
    normal, anomalous = make_arrays(7)
    detector = FewShotDetector(train(MAKERS["maml"](make_module())), scaling=SAMPLER.scaling).fit(normal[:5])
    assert detector.explain(anomalous).shape == anomalous.shape
    assert detector.report().support_size == 5
    assert detector.score_series(anomalous[:4].reshape(-1)).steps.shape == (4 * LENGTH,)
    assert fewone.export_onnx(detector, tmp_path / "out.onnx") < 1e-5
