"""By whose way a average was made: by the paper's words, by its authors' program, and with which other settings."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from fewone.datasets import DATASETS
from fewone.errors import FewoneError
from fewone.experiments import default_experiment
from fewone.reporting.seed_averages import SeedAverage
from fewone.results import Training, ValidationPoint
from fewone.training import Validation, find_best

QUERY_NORMED = ("fomaml", "reptile", "oc-fomaml", "oc-reptile")
"""The authors' program norms their queries by the query batch itself in meta-training."""
JUDGED_BALANCED = ("maml", "fomaml", "reptile")
"""The authors' program adapts them on balanced supports at test on MT-MNIST and the series."""

MARKS: dict[str, tuple[str, ...]] = {
    "r": ("learning.learn_rates",),
    "i": ("learning.inner_rate", "learning.inner_steps"),
    "b": ("training.meta_batch",),
    "s": ("training.outer_rate", "training.schedule"),
    "w": ("network.architecture", "network.filters", "network.pooling"),
}
"""Settings that differ from those that the paper or its authors give, by one letter each."""
LEGEND = (
    "r: learned inner rates; i: another inner rate or number of steps; b: another meta-batch; s: another outer rate or"
    " schedule; w: another network; k: trained at another K"
)


def is_valid(average: SeedAverage) -> bool:
    """Whether the training was what its name says.

    FB of before on images learned two classes per task, "this class" and "any other", which contradict each other.
    """
    if not (average.learner.startswith("fb") and _has_classes(average.dataset)):
        return True
    return bool(average.shown_at("learning.batch") == "classes")


def is_current(average: SeedAverage) -> bool:
    """Whether the weights were chosen as they are now.

    Before, FB's and MTL's were chosen by a head that is put on later, Reptile's by K queries: one of each class at K=2.
    """
    if average.learner.startswith(("fb", "mtl")):
        return bool(average.shown_at("training.select") == "last")
    return not average.learner.endswith("reptile") or average.shown_at("training.validation_queries") is not None


def follows_paper(average: SeedAverage) -> bool:
    """Whether nothing of the authors' program that contradicts the paper's words is switched on."""
    return not (
        average.shown_at("learning.query_statistics")
        or average.shown_at("learning.balanced_step") is False
        or average.shown_at("network.norm_place") == "last"
    )


def follows_authors(average: SeedAverage) -> bool:
    """Whether everything in which the authors' program differs from the paper's words is switched on.

    The place of the norm and the pooling of odd maps may be either: the program is followed with both, or with neither.
    Its training examples are as they are, never turned or cropped.
    """
    learner, dataset = average.learner, average.dataset
    if average.shown_at("training.augmentation"):
        return False
    wanted, found = [], []
    if learner in QUERY_NORMED and average.normed:
        wanted.append(True)
        found.append(bool(average.shown_at("learning.query_statistics")))
    if learner == "oc-reptile":
        wanted.append(False)
        found.append(bool(average.shown_at("learning.balanced_step")))
    if learner in JUDGED_BALANCED and dataset.startswith(("mt-mnist", "sts-")):
        wanted.append(True)
        found.append(average.support_cir == 50)
    last = average.shown_at("network.norm_place") == "last" and average.shown_at("network.halving") == "ceil"
    return found == wanted and (bool(wanted) or last)


def mark(average: SeedAverage) -> str:
    """One letter for each kind of setting that is not the paper's."""
    usual = _find_usual(average.dataset, average.learner, average.k)
    if usual is None:
        return ""
    letters = [
        letter
        for letter, paths in MARKS.items()
        if any(_plain(average.shown_at(path)) != _plain(usual.get(path)) for path in paths)
    ]
    return "".join(letters) + ("k" if average.experiment.k != average.k and not _on_trunk(average) else "")


def _on_trunk(average: SeedAverage) -> bool:
    """FB and MTL learn nothing that depends on K."""
    return average.learner.startswith(("fb", "mtl"))


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _has_classes(dataset: str) -> bool:
    """Whether another task's normals are anomalies there, so that FB can learn a softmax over classes."""
    family = dataset.split("/")[0]
    return family in DATASETS and DATASETS[family].exclusive_classes


@cache
def _find_usual(dataset: str, learner: str, k: int) -> dict[str, Any] | None:
    try:
        return default_experiment(dataset, learner, k).flatten()
    except FewoneError:
        # A row of a learner or dataset that no longer exists.
        return None


def describe_choice(trainings: Sequence[Training]) -> str:
    """Which iteration was kept, of how many, over the seeds: "400/600"; "!" where the first validation won."""
    kept = [_find_kept(training) for training in trainings if training.history]
    if not kept:
        return ""
    chosen = sorted({iteration for iteration, _, _ in kept})
    of = max(last for _, last, _ in kept)
    shown = str(chosen[0]) if len(chosen) == 1 else f"{chosen[0]}-{chosen[-1]}"
    return f"{shown}/{of}" + ("!" if any(first for _, _, first in kept) else "")


def _find_kept(training: Training) -> tuple[int, int, bool]:
    """The kept iteration, the last one, and whether the first of several validations won."""
    history = [_as_validation(point) for point in training.history]
    best = find_best(history, training.experiment.training.select)
    assert best is not None
    return best.iteration, history[-1].iteration, len(history) > 1 and best.iteration == history[0].iteration


def _as_validation(point: ValidationPoint) -> Validation:
    return Validation(point.iteration, point.loss, point.accuracy, point.cpu_seconds, point.auroc)
