"""The recipes of the library's own learners, by kind of data.

Series: front end and learner were compared on validation tasks, on the milling data on operations left out of training
as well (docs/benchmarks/left_out.md). Images: they follow an early exploration that saw test figures; batches and
iterations were set by their cost, and the parts confirmed on validation tasks (ablation.md, beside the page above).
Single precision: bfloat16 was measured to be twice as fast where a core has instructions for it and 11 times slower
where not (precision.md). They are frozen: nothing here changes because of a test result.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from fewone.datasets import DATASETS
from fewone.errors import FewoneError
from fewone.experiment import TrainingSettings
from fewone.learners import EvidenceSettings, LearnerSettings, PldaSettings, SupportDistanceSettings
from fewone.networks import NetworkSettings
from fewone.networks.efficientnet_lite import FROZEN


@dataclass(frozen=True)
class OwnRecipe:
    """Network, learner and training for one kind of data."""

    network: NetworkSettings
    learning: LearnerSettings
    training: TrainingSettings


_WIDE = NetworkSettings(filters=(32, 64, 128, 256), norm="running")
_CLASSES = PldaSettings(batch="classes")
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
_RAW = SupportDistanceSettings(dimensions=32, residual=False)
_KERNELS = SupportDistanceSettings(dimensions=32, random_kernels=128)

_FROZEN = NetworkSettings(architecture=FROZEN, norm="running")
_HEAD = replace(_TRAINING, iterations=300, validate_every=50)

PICTURE_FOLDER = "folder of pictures"
"""The kind of data of a user's folder that holds picture files."""

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
    ("plda", "series"): OwnRecipe(_SMALL_SPECTROGRAM, PldaSettings(dimensions=64), _TRAINING),
    # Images without a recipe of their own, and whatever a user brings: no front end, nothing that depends on the size.
    ("plda", "images"): OwnRecipe(_SERIES, PldaSettings(dimensions=64), _TRAINING),
    ("plda", "folder"): OwnRecipe(_SERIES, PldaSettings(dimensions=64), _TRAINING),
    # Pictures of every size through a frozen network: a head is all that is trained.
    ("plda", PICTURE_FOLDER): OwnRecipe(_FROZEN, PldaSettings(), _HEAD),
    ("plda", "cnc"): OwnRecipe(replace(_SPECTROGRAM, pooling="flatten"), PldaSettings(dimensions=64), _FEW_TASKS),
    ("support-distance", "series"): OwnRecipe(_SERIES, _RAW, _TRAINING),
    ("support-distance", "folder"): OwnRecipe(_SERIES, _RAW, _TRAINING),
    ("support-distance", "sts-context"): OwnRecipe(_SERIES, _RAW, replace(_TRAINING, iterations=3000)),
    ("evidence", "series"): OwnRecipe(NetworkSettings(), EvidenceSettings(), _TRAINING),
    ("evidence", "ucr"): OwnRecipe(NetworkSettings(), EvidenceSettings(), _TRAINING),
    ("evidence", "folder"): OwnRecipe(NetworkSettings(), EvidenceSettings(), _TRAINING),
    ("evidence", "cnc"): OwnRecipe(NetworkSettings(), EvidenceSettings(), _FEW_TASKS),
    ("support-distance", "cnc"): OwnRecipe(_SPECTROGRAM, _KERNELS, _FEW_TASKS),
}


def find_own_recipe(algorithm: str, dataset: str) -> OwnRecipe:
    """The recipe for a dataset; for one without a recipe of its own name, that of its kind of data."""
    if dataset == "sts-context-hard":
        dataset = "sts-context"
    kinds = (dataset, "folder") if dataset == PICTURE_FOLDER else (dataset, DATASETS[dataset].kind)
    for kind in kinds:
        if (algorithm, kind) in RECIPES:
            return RECIPES[(algorithm, kind)]
    raise FewoneError(
        f"no recipe says how to train {algorithm} on {dataset}; choose another learner, or add one to RECIPES in"
        f" experiments/own_recipes.py"
    )
