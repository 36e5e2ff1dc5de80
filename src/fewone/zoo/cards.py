"""What each model of the zoo is: data, licence, accuracy, use and limits, as JSON beside its weights.

Reads no weights and loads no torch: `fewone models` answers at once.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from fewone.documents import DocumentError, Json, from_plain, to_plain
from fewone.errors import FewoneError
from fewone.old_names import rename_learner

CARD = "card.json"
HOME = Path(__file__).parent
THRESHOLD = "calibrated"
"""Where a model of the zoo puts its threshold unless a false-alarm rate is asked for: 0 on its calibrated log-odds."""
LEAST_FREE = 16
"""The least length of an axis of time or space that a model leaves open (0 in its shape)."""
SIZES = (1, 2, 5, 10, 20)
"""The K whose accuracy a card gives where the data allow it."""


@dataclass(frozen=True)
class Accuracy:
    """Balanced accuracy and AUROC on test tasks at K normals, in percent, at the model's default threshold.

    level: each example, or each run of a machine by the mean over its segments. tasks: how many independent ones the
    mean and its 95 % interval are over; no interval where there is one.
    """

    support_size: int
    level: Literal["example", "run"]
    tasks: int
    balanced_accuracy: float
    low: float | None
    high: float | None
    auroc: float


@dataclass(frozen=True)
class ModelCard:
    """What a user must know before trusting a model.

    shape: of one input, channels first. sampling_rate: in Hz, where the inputs are series in time. experiment:
    the whole experiment, as a table. seeds: of the models behind the accuracies (the shipped one is the first).
    """

    title: str
    shape: tuple[int, ...]
    sampling_rate: float | None
    learner: str
    data: str
    licence: str
    experiment: dict[str, Json]
    seeds: tuple[int, ...]
    accuracy: tuple[Accuracy, ...]
    intended_use: str
    limits: str


@dataclass(frozen=True)
class ZooModel:
    """A model of the zoo: its name, where it lies, its card and the bytes of its files."""

    name: str
    folder: Path
    card: ModelCard
    size: int


def read_models(home: Path = HOME) -> tuple[ZooModel, ...]:
    """Every model there is, by name."""
    folders = sorted(path.parent for path in home.glob(f"*/{CARD}"))
    return tuple(
        ZooModel(folder.name, folder, read_card(folder), sum(file.stat().st_size for file in folder.iterdir()))
        for folder in folders
    )


def find_model(name: str, home: Path = HOME) -> ZooModel | None:
    """The model called `name`, if there is one."""
    return next((model for model in read_models(home) if model.name == name), None)


def fitting_models(got: Sequence[int], sampling_rate: float | None = None, home: Path = HOME) -> list[str]:
    """Names of the models that take one example of this shape, as a user lays it out (and this sampling rate)."""
    return [
        model.name
        for model in read_models(home)
        if fill_shape(got, model.card.shape) is not None
        and (sampling_rate is None or model.card.sampling_rate in (None, sampling_rate))
    ]


def advise(got: Sequence[int], sampling_rate: float | None = None) -> str:
    """For someone whose examples have this shape: which models take them, and how to train one."""
    names = fitting_models(got, sampling_rate)
    turned = fitting_models(got[::-1], sampling_rate) if len(got) == 2 and not names else []
    if names:
        fits = f"models that take such examples: {', '.join(names)}"
    elif turned:
        fits = f"models that take such examples with channels before time steps: {', '.join(turned)}"
    else:
        rate = "" if sampling_rate is None else f" at {sampling_rate:g} Hz"
        fits = f"no model of the zoo takes such examples{rate}"
    return f"{fits}; to train one on your own tasks: fewone train --dataset folder:PATH"


def advise_on_array(shape: Sequence[int], sampling_rate: float | None = None) -> str:
    """The same for a whole array, whose first axis counts the examples unless the array is itself one example."""
    if not fitting_models(shape[1:], sampling_rate) and fitting_models(shape, sampling_rate):
        return f"taken as one example: {advise(shape, sampling_rate)}"
    return advise(shape[1:], sampling_rate)


def fill_shape(got: Sequence[int], shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """The shape, channels first, of one example laid out as `got`, for a model of this shape; None: it takes no such.

    Channels may come first, those of pictures also last, and a single one needs no axis. 0 in a model's shape is free:
    any number of channels, any length from 16.
    """
    channels, *space = shape
    first = [tuple(got)] if len(got) == len(shape) else []
    last = [(got[-1], *got[:-1])] if len(got) == 3 and len(space) == 2 else []
    without = [(1, *got)] if len(got) == len(space) and channels in (0, 1) else []
    return next((found for found in (*last, *first, *without) if fits(found, shape)), None)


def fits(found: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    """Whether a shape, channels first, is one that a model of this shape takes."""
    least = (1, *(LEAST_FREE for _ in shape[1:]))
    return len(found) == len(shape) and all(
        one == wanted or (wanted == 0 and one >= low) for one, wanted, low in zip(found, shape, least, strict=True)
    )


def read_card(folder: Path) -> ModelCard:
    """The card of a model's folder."""
    place = folder / CARD
    try:
        plain = json.loads(place.read_text())
        if isinstance(plain, dict) and isinstance(plain.get("experiment"), str):
            # Version 0.1 kept the experiment as a text.
            plain["experiment"] = json.loads(plain["experiment"])
        card = from_plain(ModelCard, plain)
        return replace(card, learner=rename_learner(card.learner))
    except OSError as error:
        raise FewoneError(f"{place}: cannot be read ({error.strerror})") from error
    except DocumentError as fault:
        raise FewoneError(f"{place}: {fault}") from fault
    except (ValueError, RecursionError) as error:
        raise FewoneError(f"{place}: not JSON ({error})") from error


def write_card(folder: Path, card: ModelCard) -> None:
    """Put the card beside the model."""
    aside = folder / f"{CARD}.part"
    aside.write_text(json.dumps(to_plain(card), indent=1, ensure_ascii=False) + "\n")
    aside.replace(folder / CARD)
