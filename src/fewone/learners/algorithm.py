"""What a table of algorithms holds: of each, its settings, how it is built, and what others must know of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Generic, TypeVar

from fewone.documents import from_plain
from fewone.errors import FewoneError
from fewone.learners.meta_learner import MetaLearner
from fewone.networks import NetworkSettings


@dataclass(frozen=True)
class LearnerSettings:
    """What an algorithm can be told. Each has its own class beside its code, with limits in the annotations.

    >>> from fewone.learners import MamlSettings
    >>> issubclass(MamlSettings, LearnerSettings)
    True
    """


@dataclass(frozen=True)
class NoSettings(LearnerSettings):
    """Of an algorithm that cannot be told anything.

    >>> NoSettings()
    NoSettings()
    """


@dataclass(frozen=True)
class DataFacts:
    """What an algorithm is told of its data: facts that nobody sets.

    shape: of one input, channels first. training_tasks: how many there are. training_classes: how many a batch of
    classes is drawn from, those that augmentation makes included. 0: unknown, as for a learner that is only applied.

    >>> DataFacts((1, 128), training_tasks=20).shape
    (1, 128)
    """

    shape: tuple[int, ...]
    training_tasks: int = 0
    training_classes: int = 0


Settings = TypeVar("Settings", bound=LearnerSettings)


@dataclass(frozen=True)
class Algorithm(Generic[Settings]):
    """One line of a table: LEARNERS["mine"] = Algorithm(MySettings, build_mine).

    settings: the class of its settings. build: settings, network and facts of the data -> an untrained learner.
    balanced: it has a class-balanced form, which is what its bare name means; `oc-` in front makes it one-class.
    gradient_based: it adapts by gradient from an initialisation, so that no norm may average over tasks.
    running_norm: where a dataset's recipe norms by the support, it takes ordinary batch norm, as its original does.
    query_like_support: it is trained with as many queries as there are examples in the support (Reptile).
    own: of this library, with recipes of its own. series_only: it takes (channels, length) and nothing else.
    trunk: the algorithm whose training this one stands on ("fb", "mtl"): K and c leave that as it is.

    >>> from fewone.learners import LEARNERS
    >>> LEARNERS["maml"].gradient_based
    True
    """

    settings: type[Settings]
    build: Callable[[Settings, NetworkSettings, DataFacts], MetaLearner]
    balanced: bool = False
    gradient_based: bool = False
    running_norm: bool = False
    query_like_support: bool = False
    own: bool = False
    series_only: bool = False
    trunk: str = ""

    def __call__(
        self,
        settings: LearnerSettings,
        network: NetworkSettings,
        shape: tuple[int, ...],
        training_tasks: int = 0,
        training_classes: int = 0,
    ) -> MetaLearner:
        """The untrained learner for inputs of this shape."""
        if not isinstance(settings, self.settings):
            raise FewoneError(f"{self.settings.__name__} are needed here, got {type(settings).__name__}")
        if self.series_only and len(shape) != 2:
            raise FewoneError(f"this algorithm is for series (channels, length), the input shape is {shape}")
        return self.build(settings, network, DataFacts(tuple(shape), training_tasks, training_classes))

    def choose(self, **values: Any) -> Settings:
        """Its settings: those of the values that it has, its defaults for the rest.

        Parameters
        ----------
        values
            Settings by name; those it does not have are left aside.

        Returns
        -------
        Its settings.

        Examples
        --------
        >>> from fewone.learners import LEARNERS
        >>> LEARNERS["protonet"].choose(inner_steps=3)
        ProtoNetSettings()
        """
        own = {field.name for field in fields(self.settings)}
        return self.settings(**{name: value for name, value in values.items() if name in own})

    def read_settings(self, plain: object, default: LearnerSettings | None = None) -> Settings:
        """From the table of a file; what version 0.1 kept for other algorithms is left aside.

        Parameters
        ----------
        plain
            The table of a file.
        default
            Where the table is silent.

        Returns
        -------
        Its settings.

        Raises
        ------
        DocumentError
            A key or value that no version wrote.
        """
        own = {field.name for field in fields(self.settings)}
        if isinstance(plain, Mapping):
            plain = {name: value for name, value in plain.items() if name in own or name not in SHARED_TABLE}
        base = default if isinstance(default, self.settings) else None
        return from_plain(self.settings, plain, base, ("learning",))


SHARED_TABLE = frozenset(
    {
        "inner_rate",
        "inner_steps",
        "learn_rates",
        "query_statistics",
        "balanced_step",
        "nu",
        "kernel",
        "ridge",
        "penalty",
        "batch",
        "dimensions",
        "largest_support",
        "auxiliary_classes",
        "auxiliary_weight",
        "training_tasks",
        "head_width",
        "precision",
        "flip_views",
        "residual",
        "random_kernels",
        "evidence",
    }
)
"""The settings of version 0.1, in whose files every algorithm has all of them."""
