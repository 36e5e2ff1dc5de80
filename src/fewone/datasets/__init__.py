"""Files on disk -> TaskSplits. Enters: a name and data folders. Leaves: training, validation and test tasks.

Knows no sampling rule, no network, no learner. Adding a dataset: one module with a loader, one line in DATASETS.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast

from fewone.datasets.recipes import (
    CIFAR_FS,
    CNC,
    DIGITS,
    FC100,
    FOLDER,
    MINI_IMAGENET,
    OMNIGLOT,
    SERIES,
    Recipe,
)
from fewone.datasets.sources import LoadOptions, Request, Source, default_data_dirs
from fewone.errors import FewoneError
from fewone.extras import needed_for

if TYPE_CHECKING:
    from fewone.episodes import TaskSplits

Loader = Callable[[Request], "TaskSplits"]


@dataclass(frozen=True)
class Dataset:
    """One line of the table. loader: a function, or "module:function" of this package, imported when it is called for.

    recipe: how the paper's learners are trained on it; kind: which of the recipes of the library's own learners fit
    where the dataset has none of its own name. exclusive_classes: another task's normals are anomalies.
    tasks: how many for training, validation and test (None: it depends on the variant or on the files).
    variants: what may follow the name after a slash; source: None where nothing is read from a data folder.
    known_copies: examples that the published files hold twice, in two splits (one photograph under two labels).
    """

    loader: str | Loader
    shape: tuple[int, ...] | None
    tasks: tuple[int, int, int] | None
    recipe: Recipe
    kind: Literal["series", "images", "folder"]
    variants: tuple[str, ...] = ()
    source: Source | None = None
    known_copies: int = 0
    exclusive_classes: bool = False

    def load(self, request: Request) -> TaskSplits:
        if callable(self.loader):
            return self.loader(request)
        module, function = self.loader.split(":")
        with needed_for(f"fewone.datasets.{module}"):
            loader = cast(Loader, getattr(import_module(f"fewone.datasets.{module}"), function))
        return loader(request)


_MNIST = Source(
    ("mnist", "MNIST/raw", "."),
    tuple(
        f"{part}-ubyte.gz"
        for part in ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1")
    ),
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
)
_OMNIGLOT = Source(
    ("omniglot", "."),
    ("images_background.zip", "images_evaluation.zip"),
    "https://github.com/brendenlake/omniglot/tree/master/python",
)
_MINI_IMAGENET = Source(
    ("miniimagenet", "mini-imagenet", "mini_imagenet", "miniImageNet", "mini-ImageNet"),
    ("train*", "val*", "test*"),
    "https://github.com/twitter-research/meta-learning-lstm (its terms forbid handing it on)",
)
_CIFAR_100 = Source(
    ("cifar-100-binary", "cifar100/cifar-100-binary", "."),
    ("train.bin", "test.bin"),
    "https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz (unpack it)",
)
_CNC = Source(
    ("cnc/data", "CNC_Machining/data", "CNC_Machining-main/data", "data", "."),
    ("M01/OP*/good/*.h5", "M02/OP*/good/*.h5"),
    "https://github.com/boschresearch/CNC_Machining",
)
_CNC_VARIANTS = (
    *(f"OP{number:02d}" for number in (1, 2, 4, 5, 6, 7, 8, 10, 11, 12, 14)),
    *("A", "B", "C", "D", "M02", "M02-A", "M02-B", "M02-C", "M02-D", "event", "event-seen"),
)

_UCR = Source(
    ("ucr", "UCRArchive_2018"),
    ("*",),
    "https://www.cs.ucr.edu/~eamonn/time_series_data_2018/ (unpack it as ucr)",
)

DATASETS: dict[str, Dataset] = {
    "mt-mnist": Dataset(
        "mt_mnist:load_mt_mnist",
        (1, 28, 28),
        (8, 1, 1),
        DIGITS,
        "images",
        tuple("012345678"),
        _MNIST,
        exclusive_classes=True,
    ),
    "omniglot": Dataset(
        "omniglot:load_omniglot",
        (1, 28, 28),
        (884, 80, 659),
        OMNIGLOT,
        "images",
        source=_OMNIGLOT,
        exclusive_classes=True,
    ),
    "miniimagenet": Dataset(
        "mini_imagenet:load_mini_imagenet",
        (3, 84, 84),
        (64, 16, 20),
        MINI_IMAGENET,
        "images",
        source=_MINI_IMAGENET,
        exclusive_classes=True,
    ),
    "cifar-fs": Dataset(
        "cifar:load_cifar_fs",
        (3, 32, 32),
        (64, 16, 20),
        CIFAR_FS,
        "images",
        source=_CIFAR_100,
        known_copies=15,
        exclusive_classes=True,
    ),
    "fc100": Dataset(
        "cifar:load_fc100",
        (3, 32, 32),
        (60, 20, 20),
        FC100,
        "images",
        source=_CIFAR_100,
        known_copies=3,
        exclusive_classes=True,
    ),
    "sts-sawtooth": Dataset("synthetic_series:load_sawtooth", (1, 128), (20, 5, 5), SERIES, "series"),
    "sts-sine": Dataset("synthetic_series:load_sine", (1, 128), (20, 5, 5), SERIES, "series"),
    "sts-smooth": Dataset("smooth_series:load_smooth", (1, 128), (300, 20, 60), SERIES, "series"),
    "sts-context": Dataset("context_series:load_context", (1, 128), (300, 20, 60), SERIES, "series"),
    "sts-context-hard": Dataset("context_series:load_context_hard", (1, 128), (300, 20, 60), SERIES, "series"),
    "cnc": Dataset("cnc_milling:load_cnc", (3, 2048), None, CNC, "series", _CNC_VARIANTS, _CNC),
    "ucr": Dataset("ucr:load_ucr", (1, 128), None, SERIES, "series", ("", "faults"), _UCR),
    "folder": Dataset("folder:load_folder", None, None, FOLDER, "folder"),
}


def load(name: str, data_dirs: Sequence[Path] | None = None, options: LoadOptions | None = None) -> TaskSplits:
    """The dataset called `name` ("omniglot", "mt-mnist/3", "folder:PATH"); data_dirs None: those of FEWONE_DATA."""
    family, variant = split_name(name)
    dataset = DATASETS[family]
    if family == "folder":
        folder = Path(variant)
    elif dataset.source is None:
        folder = Path()
    else:
        folder = dataset.source.require(name, default_data_dirs() if data_dirs is None else data_dirs)
    return dataset.load(Request(name, variant, folder, options or LoadOptions()))


def split_name(name: str) -> tuple[str, str]:
    """ "mt-mnist/3" -> ("mt-mnist", "3"); an unknown name is an error that names the nearest."""
    if name.startswith("folder:"):
        return "folder", name.removeprefix("folder:")
    family, _, variant = name.partition("/")
    if family not in DATASETS:
        near = get_close_matches(family, DATASETS, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(DATASETS)}"
        raise FewoneError(f"no dataset is called {name!r}; {hint}")
    variants = DATASETS[family].variants
    if (variants and variant not in variants) or (variant and not variants):
        choice = f"choose {family}/{variants[0]} ... {family}/{variants[-1]}" if variants else f"say {family!r}"
        raise FewoneError(f"dataset {family} has no variant {variant!r}; {choice}")
    return family, variant


__all__ = ["DATASETS", "Dataset", "LoadOptions", "Recipe", "Request", "load", "split_name"]
