"""Settings and thresholds from other tasks: the best option is found, the calibrated threshold helps."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

from fewone.baselines import BASELINES
from fewone.baselines.shallow import Method, RawFeatures, ShallowLearner
from fewone.episodes import Episodes, EvaluationProtocol, RowPool, Store, Task, generator_for
from fewone.errors import FewoneError
from fewone.evaluation import evaluate
from fewone.evaluation.hyperparameters import select_hyperparameter
from fewone.evaluation.task_calibration import calibrate_over_tasks
from fewone.evaluation.validation_plan import plan_validation, spread
from fewone.networks import NetworkSettings
from fewone.sampling import EpisodeSampler
from fewone.training.observation import observe_batches


class Threshold(nn.Module):
    def __init__(self, centre: Tensor, radius: float) -> None:
        super().__init__()
        self.centre, self.radius = centre, radius

    def forward(self, features: Tensor) -> Tensor:
        return (features - self.centre).norm(dim=-1) - self.radius


class Ball(Method):
    """A radius to be chosen."""

    options = (0.1, 3.0, 50.0)

    def __init__(self) -> None:
        super().__init__()
        self.radius = 0.1
        self.tried: list[float] = []

    def choose(self, option: float) -> None:
        self.tried.append(option)
        self.radius = option

    def fit(self, normals: Tensor) -> Threshold:
        return Threshold(normals.mean(0), self.radius)


def make_tasks(count: int, first: int = 0) -> list[Task]:
    generator = torch.Generator().manual_seed(first)
    store = Store(torch.randn(count * 60, 1, 4, generator=generator))
    tasks = []
    for number in range(count):
        rows = torch.arange(number * 60, (number + 1) * 60)
        store.values[rows] += 10 * number
        store.values[rows[30:]] += 2.5
        tasks.append(Task(f"task-{first + number}", RowPool(store, rows[:30]), RowPool(store, rows[30:])))
    return tasks


SAMPLER = EpisodeSampler(5, 10)


def test_the_option_that_is_best_on_validation_tasks_is_chosen() -> None:
    method = Ball()
    assert select_hyperparameter(ShallowLearner(RawFeatures(), method), make_tasks(4), SAMPLER, seed=0) == 3.0
    assert method.radius == 3.0 and set(method.tried) == {0.1, 3.0, 50.0}


def test_a_learner_without_a_hyperparameter_is_left_alone_and_no_task_is_an_error() -> None:
    knn = BASELINES["knn"](BASELINES["knn"].choose(), NetworkSettings(), (1, 4))
    assert select_hyperparameter(knn, make_tasks(2), SAMPLER, seed=0) is None
    control = BASELINES["no-support"](BASELINES["no-support"].choose(), NetworkSettings(filters=(2,)), (1, 4))
    assert select_hyperparameter(control, make_tasks(2), SAMPLER, seed=0) is None
    with pytest.raises(FewoneError, match="no validation task"):
        select_hyperparameter(ShallowLearner(RawFeatures(), Ball()), [], SAMPLER, seed=0)


def test_the_svms_gamma_is_one_of_the_papers_and_kept_in_the_learner() -> None:
    learner = BASELINES["oc-svm"](BASELINES["oc-svm"].choose(), NetworkSettings(), (1, 4))
    gamma = select_hyperparameter(learner, make_tasks(3), SAMPLER, seed=0, episodes=6)
    assert gamma in [2.0**power for power in range(-10, 0)]
    assert learner.state_dict()["method.gamma"].item() == gamma


@pytest.mark.parametrize("name", ["oc-svm", "knn", "mahalanobis"])
def test_a_threshold_calibrated_over_other_tasks_beats_the_methods_own(name: str) -> None:
    learner = BASELINES[name](BASELINES[name].choose(), NetworkSettings(), (1, 4))
    test, plan = make_tasks(4, first=100), EvaluationProtocol(3, 20, 20)
    calibrated = calibrate_over_tasks(learner, make_tasks(6), make_tasks(2, first=50), SAMPLER, seed=0)
    own = evaluate(learner, test, plan, SAMPLER, seed=0).examples.summarize()
    better = evaluate(calibrated, test, plan, SAMPLER, seed=0).examples.summarize()
    assert better.accuracy.mean > own.accuracy.mean
    assert better.accuracy.mean > 0.85
    assert better.loss.mean < own.loss.mean


def test_training_tasks_join_the_calibration_only_where_nothing_was_trained() -> None:
    class Recording(Ball):
        def __init__(self) -> None:
            super().__init__()
            self.seen: set[int] = set()

        def fit(self, normals: Tensor) -> Threshold:
            self.seen.add(round(float(normals.mean()) / 10))
            return super().fit(normals)

    training, validation = make_tasks(6), make_tasks(2, first=50)
    untrained = Recording()
    calibrate_over_tasks(ShallowLearner(RawFeatures(), untrained), training, validation, SAMPLER, seed=0)
    assert untrained.seen == set(range(6))
    trained = Recording()
    learner = ShallowLearner(RawFeatures(), trained)
    learner.register_parameter("learned", nn.Parameter(torch.zeros(1)))
    assert learner.is_trained
    calibrate_over_tasks(learner, training, validation, SAMPLER, seed=0)
    assert trained.seen == {0, 1}


def test_only_learners_that_observe_are_shown_batches() -> None:
    def refuse() -> Iterator[Episodes]:
        raise AssertionError("a batch was drawn for a learner that observes nothing")
        yield

    control = BASELINES["no-support"](BASELINES["no-support"].choose(), NetworkSettings(filters=(2,)), (1, 4))
    observe_batches(control, refuse())
    rocket = BASELINES["rocket-nn"](BASELINES["rocket-nn"].choose(), NetworkSettings(kernels=8), (1, 32))
    series = [Task("t", *(RowPool(Store(torch.randn(20, 1, 32)), torch.arange(20)) for _ in range(2)))]
    observe_batches(rocket, [SAMPLER.draw(series, 1, generator_for(0))])
    assert rocket.state_dict()["features.tasks"].item() == 1
    assert not rocket.is_trained


def test_the_plan_fits_the_smallest_task_and_spreading_is_even() -> None:
    tasks = make_tasks(3)
    assert plan_validation(tasks, SAMPLER, sets=2) == EvaluationProtocol(2, 25, 30)
    balanced = EpisodeSampler(6, 10, normal_share=0.5)
    assert plan_validation(tasks, balanced, sets=1, queries=29) == EvaluationProtocol(1, 27, 27)
    halves = [Task("h", tasks[0].normal, tasks[0].anomalous, fixed_split=True)]
    assert plan_validation(halves, SAMPLER, sets=1) == EvaluationProtocol(1, 15, 15)
    assert [task.name for task in spread(make_tasks(10), 3)] == ["task-0", "task-3", "task-6"]
