"""A trained folder, its card and its results -> a model of the zoo.

`python -m fewone.zoo_making TRAINED CARD.toml --results results/own`. CARD.toml holds what only people know:
name, title, data, licence, intended_use, limits and, for series in time, sampling_rate. Figures come from result rows.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, TypeVar

from fewone.checkpoints import (
    ModelSpec,
    build_learner,
    load_calibration,
    load_learner,
    save_calibration,
    save_learner,
)
from fewone.documents import DocumentError, from_plain, to_plain
from fewone.errors import FewoneError
from fewone.experiment import Experiment
from fewone.extras import needed_for
from fewone.learners import MetaLearner
from fewone.results import Interval, ResultSet, Row, ValidationPoint, identify_training, read_results
from fewone.training import Validation, read_history
from fewone.zoo import Accuracy, ModelCard, write_card
from fewone.zoo.cards import HOME, SIZES, THRESHOLD

with needed_for("making a model of the zoo"):
    import tyro


@dataclass(frozen=True)
class Arguments:
    """Put a trained model into the zoo: weights, calibration and card, nothing that only the training needs."""

    trained: Annotated[Path, tyro.conf.Positional]
    """A folder made by fewone train."""
    card: Annotated[Path, tyro.conf.Positional]
    """The TOML file that says what the model is."""
    results: tuple[Path, ...]
    """Folders or files of results; the accuracies are taken from those of this very experiment and seed."""
    home: Path = HOME
    """The folder of the zoo."""


def make_model(trained: Path, description: Path, results: Sequence[Path], home: Path = HOME) -> Path:
    """Write home/NAME; a model of that name is replaced."""
    learner, card = load_learner(trained)
    calibration = load_calibration(trained)
    if calibration is None:
        raise FewoneError(f"{trained}: the model was never calibrated, and the zoo promises false-alarm rates")
    accuracy = find_accuracy(trained, card, results)
    name, zoo_card = read_description(description, card, accuracy)
    slim, slim_card = drop_training_parts(learner, card)
    folder = home / name
    save_learner(folder, slim, replace(slim_card, sampling_rate=zoo_card.sampling_rate))
    save_calibration(folder, calibration)
    write_card(folder, zoo_card)
    return folder


def drop_training_parts(learner: MetaLearner, card: ModelSpec) -> tuple[MetaLearner, ModelSpec]:
    """Without the classifier of the auxiliary loss, which adapting never asks; all other weights as they are."""
    slim_card = replace(card, training_classes=0)
    slim = build_learner(slim_card)
    trained = learner.state_dict()
    slim.load_state_dict({name: trained[name] for name in slim.state_dict()})
    return slim.eval(), slim_card


def find_experiment(place: Path, card: ModelSpec) -> Experiment:
    """The experiment that trained the model."""
    if card.experiment is None:
        raise FewoneError(f"{place}: the model does not say by which experiment it was trained; train it again")
    return card.experiment


def find_accuracy(trained: Path, card: ModelSpec, results: Sequence[Path]) -> tuple[Accuracy, ...]:
    """What the rows say of this training at every K of its evaluation, each example and, if there are any, each run."""
    wanted = find_experiment(trained, card)
    readings = [read_results(path) for path in results]
    _check_history(trained, wanted, readings)
    rows = [row for reading in readings for row in reading.rows if _is_of(row, wanted, card.fingerprint)]
    asked = {wanted.k, *wanted.further_k}
    with_runs = any(row.level == "run" for row in rows)
    found = []
    for size in sorted(asked | set(SIZES)):
        for level in ("example", "run") if with_runs else ("example",):
            fitting = [row for row in rows if row.k == size and row.level == level]
            if fitting:
                found.append(_summarize(size, fitting[-1]))
            elif size in asked:
                raise FewoneError(
                    f"{', '.join(map(str, results))}: no test row of {wanted.learner} on {wanted.dataset},"
                    f" K = {size}, seed {wanted.seed}, each {level}, {THRESHOLD} threshold, with the very settings"
                    f" and data of {trained}; add it with: fewone evaluate {trained} --results FOLDER"
                )
    return tuple(found)


def _is_of(row: Row, wanted: Experiment, fingerprint: str) -> bool:
    """Whether a row is of this training, at whatever K."""
    about = (row.split, row.threshold, row.normal_share, row.provenance.fingerprint)
    asked = ("test", THRESHOLD, wanted.test_normal_share, fingerprint)
    return about == asked and identify_training(row.experiment) == identify_training(wanted)


def _check_history(trained: Path, wanted: Experiment, readings: Sequence[ResultSet]) -> None:
    """Refuse rows of another training with the same settings (of another machine, say): its validations differ."""
    here = read_history(trained)
    histories = [
        training.history
        for reading in readings
        for training in reading.trainings
        if identify_training(training.experiment) == identify_training(wanted)
    ]
    if here and histories and not any(_are_same(here, history) for history in histories):
        raise FewoneError(
            f"{trained}: the rows of this experiment are of another training, whose validations differ; evaluate"
            f" this one: fewone evaluate {trained} --results FOLDER, and give that folder"
        )


def _are_same(here: Sequence[Validation], history: Sequence[ValidationPoint]) -> bool:
    """Records keep five digits."""
    return [one.iteration for one in here] == [one.iteration for one in history] and all(
        abs(one.loss - kept.loss) <= 1e-5 for one, kept in zip(here, history, strict=True)
    )


def _summarize(size: int, row: Row) -> Accuracy:
    accuracy: Interval = row.summary.accuracy
    low, high = (
        None if bound is None else round(100 * min(1.0, max(0.0, bound)), 1) for bound in (accuracy.low, accuracy.high)
    )
    return Accuracy(
        size,
        row.level,
        accuracy.units,
        round(100 * accuracy.mean, 1),
        low,
        high,
        round(100 * row.summary.auroc.mean, 1),
    )


def read_description(path: Path, card: ModelSpec, accuracy: Sequence[Accuracy]) -> tuple[str, ModelCard]:
    """The model's name and card: what CARD.toml says, what the model knows of itself, what the rows say."""
    try:
        plain: dict[str, Any] = tomllib.loads(path.read_text())
    except OSError as error:
        raise FewoneError(f"{path}: cannot be read ({error.strerror})") from error
    except ValueError as error:
        raise FewoneError(f"{path}: not TOML ({error})") from error
    name = plain.pop("name", None)
    if not isinstance(name, str) or not name.isidentifier():
        raise FewoneError(f"{path}: name: one word is needed, got {name!r}")
    known = {
        "shape": list(card.shape),
        "learner": card.algorithm,
        "experiment": find_experiment(path, card).to_plain(),
        "seeds": [find_experiment(path, card).seed],
        "accuracy": [to_plain(one) for one in accuracy],
    }
    for key in known:
        if key in plain:
            raise FewoneError(f"{path}: {key}: is taken from the model and its result rows; remove it here")
    try:
        return name, from_plain(ModelCard, {"sampling_rate": None, **plain, **known})
    except DocumentError as error:
        raise FewoneError(f"{path}: {error}") from error


Options = TypeVar("Options")


def run_maker(make: Callable[[Options], object], options: type[Options], program: str, words: list[str] | None) -> int:
    """A maker as a command: prints what it made; 0, or 2 for a mistake."""
    chosen = tyro.cli(options, args=words, prog=f"python -m fewone.{program}")
    try:
        print(make(chosen))
    except FewoneError as error:
        print(f"fewone: {error}", file=sys.stderr)
        return 2
    return 0


def make(arguments: Arguments) -> str:
    """Put the model into the zoo; what to say of it."""
    folder = make_model(arguments.trained, arguments.card, arguments.results, arguments.home)
    size = sum(file.stat().st_size for file in folder.iterdir())
    return f"{folder}: {size / 1e6:.2f} MB; see it with: fewone models {folder.name}"


def main(arguments: list[str] | None = None) -> int:
    """0 if the model is in the zoo, 2 for a mistake."""
    return run_maker(make, Arguments, "zoo_making", arguments)


if __name__ == "__main__":
    raise SystemExit(main())
