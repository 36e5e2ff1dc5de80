"""One file and one line each: a dataset, a network and a learner that the package has never heard of, end to end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from fewone.checkpoints import load_learner
from fewone.cli import main
from fewone.datasets import DATASETS, Dataset, Recipe, Request
from fewone.documents import DocumentError, NotNegative
from fewone.episodes import (
    ClassBatch,
    Episodes,
    EvaluationProtocol,
    Examples,
    InputScaling,
    RowPool,
    Store,
    Task,
    TaskSplits,
)
from fewone.experiments import default_experiment, parse_experiment
from fewone.experiments.run import run
from fewone.learners import LEARNERS, Algorithm, DataFacts, LearnerSettings, MetaLearner, Scorer, query_loss
from fewone.networks import NETWORKS, Embedding, NetworkSettings, Statistics, build_embedding
from fewone.results import read_results

# The dataset's file.


def load_toy(request: Request) -> TaskSplits:
    """Points around a centre of each task's own; anomalies lie elsewhere."""
    generator = torch.Generator().manual_seed(request.options.seed)

    def make_task(number: int) -> Task:
        values = torch.randn(60, 1, 6, generator=generator) + 4 * torch.randn(1, 1, 6, generator=generator)
        values[40:] += 6
        store = Store(values)
        return Task(f"toy-{number}", RowPool(store, torch.arange(40)), RowPool(store, torch.arange(40, 60)))

    train, validation, test = (tuple(map(make_task, part)) for part in (range(6), range(6, 8), range(8, 11)))
    plan = EvaluationProtocol(2, 10, 10)
    return TaskSplits("toy", train, validation, test, (1, 6), InputScaling(), plan, fingerprint="toy")


TOY = Dataset(load_toy, (1, 6), (6, 2, 3), Recipe((4,), 3, "none", 0.1, 2, 10, 3), "series")

# The network's file.


class Square(Embedding):
    """Inputs and their squares."""

    takes_statistics = False

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.width = 2 * shape[0] * shape[1]

    def forward(self, inputs: Tensor, statistics: Statistics | None = None) -> tuple[Tensor, Statistics]:
        flat = inputs.flatten(1)
        return torch.cat([flat, flat.square()], 1), ()


def build_square(settings: NetworkSettings, shape: tuple[int, ...]) -> Embedding:
    return Square(shape)


# The learner's file.


@dataclass(frozen=True)
class CentreSettings(LearnerSettings):
    """radius: the distance to the centre at which the logit begins with 0."""

    radius: NotNegative = 2.0


class CentreScorer(Scorer):
    def __init__(self, embedding: Embedding, centres: Tensor, radius: Tensor) -> None:
        super().__init__()
        self.embedding, self.centres, self.radius = embedding, centres, radius

    def forward(self, inputs: Tensor) -> Tensor:
        features, _ = self.embedding(inputs.flatten(0, 1))
        distance = (features.unflatten(0, inputs.shape[:2]) - self.centres).square().mean(-1).sqrt()
        return distance - self.radius


class Centre(MetaLearner):
    """The distance to the mean of the normals; how far is too far is learned."""

    def __init__(self, embedding: Embedding, radius: float) -> None:
        super().__init__()
        self.embedding = embedding
        self.radius = nn.Parameter(torch.tensor(radius))

    def adapt(self, support: Examples) -> CentreScorer:
        features, _ = self.embedding(support.inputs.flatten(0, 1))
        centres = features.unflatten(0, support.labels.shape).mean(1, keepdim=True)
        return CentreScorer(self.embedding, centres.detach(), self.radius.detach().clone())

    def accumulate_gradient(self, batch: Episodes | ClassBatch) -> Tensor:
        episodes = self.expect_episodes(batch)
        scorer = self.adapt(episodes.support)
        loss = query_loss(scorer(episodes.query.inputs) + self.radius.detach() - self.radius, episodes.query)
        loss.backward()
        return loss.detach()


def build_centre(settings: CentreSettings, network: NetworkSettings, facts: DataFacts) -> Centre:
    return Centre(build_embedding(network, facts.shape), settings.radius)


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """One line each."""
    monkeypatch.setitem(DATASETS, "toy", TOY)
    monkeypatch.setitem(NETWORKS, "square", build_square)
    monkeypatch.setitem(LEARNERS, "centre", Algorithm(CentreSettings, build_centre))
    yield


def test_all_three_train_leave_rows_and_load(tmp_path: Path) -> None:
    experiment = default_experiment("toy", "centre", k=5)
    assert experiment.learning == CentreSettings()
    assert (experiment.training.query_size, experiment.training.iterations) == (10, 3)
    experiment = replace(experiment, network=NetworkSettings(architecture="square"))
    results = run(experiment, tmp_path / "run", results=tmp_path / "rows")
    assert results.examples.summarize().auroc.mean > 0.9
    learner, spec = load_learner(tmp_path / "run")
    assert isinstance(learner, Centre) and isinstance(learner.embedding, Square)
    assert spec.experiment == experiment
    found = read_results(tmp_path / "rows")
    assert {row.experiment for row in found.rows} == {experiment} and len(found.trainings) == 1


def test_the_command_line_has_the_learners_own_options_and_their_limits(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["train", "--dataset", "toy", "--learner", "centre", "--out", str(tmp_path / "run")]
    assert main([*words, "--learning.radius", "3.5", "--training.iterations", "2"]) == 0
    spec = load_learner(tmp_path / "run")[1]
    assert spec.learning == CentreSettings(3.5)
    assert main([*words, "--learning.radius", "-1"]) == 2
    assert "learning.radius: a number of at least 0 is needed, got -1.0" in capsys.readouterr().err
    with pytest.raises(DocumentError, match=r"learning\.nu: there is no such key|learning\.radios"):
        parse_experiment({"dataset": "toy", "learner": "centre", "learning": {"radios": 3}})


def test_the_librarys_learners_run_on_the_dataset_and_with_the_network(tmp_path: Path) -> None:
    for learner in ("oc-maml", "oc-protonet", "knn"):
        experiment = replace(default_experiment("toy", learner, k=3), network=NetworkSettings(architecture="square"))
        run(experiment, tmp_path / learner, results=tmp_path / "rows")
    assert {row.experiment.learner for row in read_results(tmp_path / "rows").rows} == {"oc-maml", "oc-protonet", "knn"}
    assert default_experiment("toy", "plda").network.front_end == "log-spectrogram"


def test_rows_of_a_learner_that_is_not_registered_any_more_are_still_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(default_experiment("toy", "centre", k=5), tmp_path / "run", results=tmp_path / "rows")
    monkeypatch.delitem(LEARNERS, "centre")
    monkeypatch.delitem(DATASETS, "toy")
    found = read_results(tmp_path / "rows")
    assert {row.experiment.learner for row in found.rows} == {"centre"}
    assert found.rows[0].experiment.to_plain()["learning"] == {"radius": 2.0}
