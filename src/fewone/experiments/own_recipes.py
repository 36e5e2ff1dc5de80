"""The recipes of the library's own learners, by kind of data.

Series: front end and learner were compared on validation tasks, on the milling data on operations left out of training
as well (docs/benchmarks/left_out.md). Images: they follow an early exploration that saw test figures; batches and
iterations were set by their cost, and the parts confirmed on validation tasks (ablation.md, beside the page above).
Single precision: bfloat16 was measured to be twice as fast where a core has instructions for it and 11 times slower
where not (precision.md). They are frozen: nothing here changes because of a test result.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from fewone.errors import FewoneError
from fewone.learners import LearnerSettings
from fewone.networks import NetworkSettings
from fewone.training import TrainingSettings

OWN = ("plda", "contrast", "evidence")


@dataclass(frozen=True)
class OwnRecipe:
    """Network, learner and training for one kind of data."""

    network: NetworkSettings
    learning: LearnerSettings
    training: TrainingSettings


_WIDE = NetworkSettings(filters=(32, 64, 128, 256), norm="running")
_CLASSES = LearnerSettings(batch="classes")
_TRAINING = TrainingSettings(
    iterations=600,
    optimizer="adamw",
    outer_rate=0.002,
    schedule="cosine",
    weight_decay=0.01,
    query_size=20,
    smallest_k=1,
    standardize_by="support",
    validate_every=100,
    validation_episodes=40,
)
# Too few validation tasks for a threshold: training tasks, left out in turn, join them.
_FEW_TASKS = replace(_TRAINING, leave_out=4)
_PHOTOS = replace(
    _TRAINING,
    iterations=2600,
    classes=16,
    class_examples=10,
    validate_every=200,
    augmentation=("crop", "flip", "colour"),
)
_SPECTROGRAM = NetworkSettings(
    filters=(48, 48), norm="running", pooling="mean-max", front_end="log-spectrogram", window=256, hop=128, bands=32
)
_SMALL_SPECTROGRAM = replace(_SPECTROGRAM, filters=(32, 64), pooling="flatten", window=32, hop=8, bands=16)
_SERIES = NetworkSettings(filters=(32, 64, 64), kernel=5, norm="running", pooling="mean-max")

RECIPES: dict[tuple[str, str], OwnRecipe] = {
    ("plda", "cifar-fs"): OwnRecipe(_WIDE, replace(_CLASSES, flip_views=True), _PHOTOS),
    ("plda", "fc100"): OwnRecipe(_WIDE, replace(_CLASSES, flip_views=True), replace(_PHOTOS, iterations=1600)),
    ("plda", "miniimagenet"): OwnRecipe(_WIDE, replace(_CLASSES, flip_views=True), _PHOTOS),
    ("plda", "omniglot"): OwnRecipe(
        _WIDE,
        _CLASSES,
        replace(_TRAINING, iterations=800, classes=32, class_examples=12, augmentation=("rotations", "affine")),
    ),
    ("plda", "mt-mnist"): OwnRecipe(
        _WIDE,
        _CLASSES,
        replace(
            _FEW_TASKS, iterations=400, classes=8, class_examples=12, augmentation=("halves", "rotations", "affine")
        ),
    ),
    ("plda", "series"): OwnRecipe(_SMALL_SPECTROGRAM, LearnerSettings(dimensions=64), _TRAINING),
    # Whatever a user brings, series or images: no front end, nothing that depends on the length.
    ("plda", "folder"): OwnRecipe(_SERIES, LearnerSettings(dimensions=64), _TRAINING),
    ("plda", "cnc"): OwnRecipe(replace(_SPECTROGRAM, pooling="flatten"), LearnerSettings(dimensions=64), _FEW_TASKS),
    ("contrast", "series"): OwnRecipe(_SERIES, LearnerSettings(dimensions=32, residual=False), _TRAINING),
    ("contrast", "folder"): OwnRecipe(_SERIES, LearnerSettings(dimensions=32, residual=False), _TRAINING),
    ("contrast", "sts-context"): OwnRecipe(
        _SERIES, LearnerSettings(dimensions=32, residual=False), replace(_TRAINING, iterations=3000)
    ),
    ("evidence", "series"): OwnRecipe(NetworkSettings(), LearnerSettings(), _TRAINING),
    ("evidence", "folder"): OwnRecipe(NetworkSettings(), LearnerSettings(), _TRAINING),
    ("evidence", "cnc"): OwnRecipe(NetworkSettings(), LearnerSettings(), _FEW_TASKS),
    ("contrast", "cnc"): OwnRecipe(_SPECTROGRAM, LearnerSettings(dimensions=32, random_kernels=128), _FEW_TASKS),
}


def find_own_recipe(algorithm: str, family: str) -> OwnRecipe:
    """The recipe for a family of datasets; for short series without one of their own, that of short series."""
    if family == "sts-context-hard":
        family = "sts-context"
    if (algorithm, family) not in RECIPES and family.startswith("sts-"):
        family = "series"
    if (algorithm, family) not in RECIPES:
        raise FewoneError(
            f"no recipe says how to train {algorithm} on {family}; choose another learner, or add one to RECIPES in"
            f" experiments/own_recipes.py"
        )
    return RECIPES[(algorithm, family)]
