"""A trained folder and its card -> a model of the zoo: `python -m fewone.zoo_making TRAINED CARD.toml`.

CARD.toml: name, title, data, licence, seeds, intended_use, limits, sampling_rate (for series in time) and one
[[accuracy]] table per K (support_size, balanced_accuracy, low, high, in percent). The rest is read from the model.
"""

from __future__ import annotations

import dataclasses
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from fewone.checkpoints import ModelCard, load_calibration, load_learner, save_calibration, save_learner
from fewone.documents import DocumentError, from_plain
from fewone.errors import FewoneError
from fewone.zoo import ZooCard, write_card
from fewone.zoo.cards import HOME


@dataclass(frozen=True)
class Arguments:
    """Put a trained model into the zoo: weights, calibration and card, nothing of the training state."""

    trained: Annotated[Path, tyro.conf.Positional]
    """A folder made by fewone train."""
    card: Annotated[Path, tyro.conf.Positional]
    """The TOML file that says what the model is."""
    home: Path = HOME
    """The folder of the zoo."""


def make_model(trained: Path, description: Path, home: Path = HOME) -> Path:
    """Write home/NAME; a model of that name is replaced."""
    learner, card = load_learner(trained)
    calibration = load_calibration(trained)
    if calibration is None:
        raise FewoneError(f"{trained}: the model was never calibrated, and the zoo promises false-alarm rates")
    name, zoo_card = read_description(description, card)
    folder = home / name
    save_learner(folder, learner, dataclasses.replace(card, sampling_rate=zoo_card.sampling_rate))
    save_calibration(folder, calibration)
    write_card(folder, zoo_card)
    return folder


def read_description(path: Path, card: ModelCard) -> tuple[str, ZooCard]:
    """The model's name and card: what CARD.toml says, and what the model knows of itself."""
    try:
        plain: dict[str, Any] = tomllib.loads(path.read_text())
    except OSError as error:
        raise FewoneError(f"{path}: cannot be read ({error.strerror})") from error
    except ValueError as error:
        raise FewoneError(f"{path}: not TOML ({error})") from error
    name = plain.pop("name", None)
    if not isinstance(name, str) or not name.isidentifier():
        raise FewoneError(f"{path}: name: one word is needed, got {name!r}")
    known = {"shape": list(card.shape), "learner": card.algorithm, "experiment": card.experiment}
    try:
        return name, from_plain(ZooCard, {"sampling_rate": None, **plain, **known})
    except DocumentError as error:
        raise FewoneError(f"{path}: {error}") from error


def main(arguments: list[str] | None = None) -> int:
    """0 if the model is in the zoo, 2 for a mistake."""
    chosen = tyro.cli(Arguments, args=arguments, prog="python -m fewone.zoo_making")
    try:
        folder = make_model(chosen.trained, chosen.card, chosen.home)
    except FewoneError as error:
        print(f"fewone: {error}", file=sys.stderr)
        return 2
    size = sum(file.stat().st_size for file in folder.iterdir())
    print(f"{folder}: {size / 1e6:.2f} MB; see it with: fewone models {folder.name}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
