"""Learner <-> folder: safetensors and JSON, nothing pickled, loading executes nothing.

A bundle is two files, `NAME.json` and the weights `NAME.HASH.safetensors` it points to. Both are written aside, flushed
to the disk and renamed, the JSON last: at any moment the folder holds one whole bundle.
"""

from __future__ import annotations

import copy
import hashlib
import json
import platform
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import version
from itertools import zip_longest
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from fewone.algorithms import find_algorithm
from fewone.calibration import CalibrationMap
from fewone.documents import DocumentError, from_plain, to_plain
from fewone.episodes import InputScaling
from fewone.errors import FewoneError
from fewone.experiment import Experiment
from fewone.files import atomic_write as atomic_write
from fewone.learners import LearnerSettings, MetaLearner
from fewone.networks import NetworkSettings
from fewone.old_names import CLASSES, rename_calibration, rename_learner

FORMAT = 1
MODEL, CALIBRATION = "model", "calibration"


@dataclass(frozen=True)
class ModelSpec:
    """All that is needed to build a learner again and to prepare inputs for it, and where it came from.

    algorithm: a name of LEARNERS or BASELINES. support_size: the K it was trained for. seed: of the first weights.
    experiment: that trained it, if one did; fingerprint: of the data. training_tasks, training_classes: how many it was
    trained on, where that makes a part of it larger.
    sampling_rate: of the series in Hz, where the inputs are series in time and it is known.
    """

    algorithm: str
    learning: LearnerSettings
    network: NetworkSettings
    shape: tuple[int, ...]
    preparation: InputScaling
    support_size: int
    seed: int
    dataset: str
    fingerprint: str
    experiment: Experiment | None = None
    sampling_rate: float | None = None
    training_tasks: int = 0
    training_classes: int = 0


@dataclass(frozen=True)
class OwnSpec:
    """What a learner of the user's own is compared by on loading: the file holds its weights, the user its code.

    learner: its class. arguments: those of its constructor that no tensor shows. modules: "path: class" of each module
    inside. shape: of one input. fingerprint: of the data, where it is known.
    """

    learner: str
    arguments: str
    modules: tuple[str, ...]
    shape: tuple[int, ...]
    preparation: InputScaling
    fingerprint: str = ""

    @staticmethod
    def of(learner: MetaLearner, shape: tuple[int, ...], preparation: InputScaling, fingerprint: str = "") -> OwnSpec:
        """The description of a learner as it is now."""
        inside = tuple(f"{path}: {type(module).__name__}" for path, module in learner.named_modules() if path)
        return OwnSpec(type(learner).__name__, learner.extra_repr(), inside, tuple(shape), preparation, fingerprint)


@dataclass(frozen=True)
class Versions:
    """What wrote a file: the same versions on the same machine give the same bits."""

    fewone: str
    torch: str
    python: str

    def __str__(self) -> str:
        return f"fewone {self.fewone}, torch {self.torch}, Python {self.python}"

    @staticmethod
    @cache
    def here() -> Versions:
        return Versions(version("fewone"), version("torch"), platform.python_version())


@dataclass(frozen=True)
class _Weights:
    """The weights file of a bundle as its JSON describes it."""

    file: str
    size: int
    sha256: str


def save_learner(folder: Path, learner: MetaLearner, card: ModelSpec | OwnSpec) -> None:
    """Write the learner's weights and its card into the folder, replacing what was there in one step."""
    write_checkpoint(folder, MODEL, learner.state_dict(), write_spec(card))


def load_learner(folder: Path) -> tuple[MetaLearner, ModelSpec]:
    """The learner of a folder, ready to adapt, and its card; anything that does not fit is refused with the reason."""
    tensors, document = read_checkpoint(folder, MODEL)
    place = folder / f"{MODEL}.json"
    if _is_own(document):
        raise FewoneError(
            f"{place}: holds the weights of {document['learner']}, a learner of your own: build it as it was and"
            f" give it to fewone.load as learner="
        )
    try:
        card = read_spec(document, place)
    except DocumentError as fault:
        raise FewoneError(f"{place}: {fault}; the file is not one that this version of fewone wrote") from fault
    # Shapes are compared on a learner without storage: a forged card cannot make us allocate more than the file holds.
    with torch.device("meta"):
        check_shapes(tensors, _build(card, place).state_dict(), place)
    learner = build_learner(card)
    learner.load_state_dict(tensors)
    return learner.eval(), card


def fill_learner(folder: Path, learner: MetaLearner) -> tuple[MetaLearner, OwnSpec]:
    """A copy of the user's learner with the folder's weights, ready to adapt; a learner that differs is refused."""
    tensors, document = read_checkpoint(folder, MODEL)
    place = folder / f"{MODEL}.json"
    if not isinstance(learner, MetaLearner):
        raise FewoneError(f"learner: a learner such as fewone.learners.Maml is expected, got {type(learner).__name__}")
    if not _is_own(document):
        raise FewoneError(f"{place}: holds a learner that is built from the file: leave learner= out")
    try:
        theirs = from_plain(OwnSpec, document)
        theirs = replace(theirs, learner=CLASSES.get(theirs.learner, theirs.learner))
    except DocumentError as fault:
        raise FewoneError(f"{place}: {fault}; the file is not one that this version of fewone wrote") from fault
    _compare(theirs, OwnSpec.of(learner, theirs.shape, theirs.preparation), place)
    check_shapes(tensors, learner.state_dict(), place)
    filled = copy.deepcopy(learner)
    filled.load_state_dict(tensors)
    return filled.eval(), theirs


def _is_own(document: Mapping[str, Any]) -> bool:
    return "modules" in document and "learner" in document


def _compare(theirs: OwnSpec, ours: OwnSpec, place: Path) -> None:
    """Refuse a learner of another class, with other arguments or of other modules."""
    if theirs.learner != ours.learner:
        raise FewoneError(f"{place}: {theirs.learner} was saved, the learner given is {ours.learner}")
    if theirs.arguments != ours.arguments:
        raise FewoneError(
            f"{place}: {theirs.learner}({theirs.arguments}) was saved, the learner given is"
            f" {ours.learner}({ours.arguments})"
        )
    for there, here in zip_longest(theirs.modules, ours.modules, fillvalue="no further module"):
        if there != here:
            raise FewoneError(f"{place}: the saved learner has {there!r} where the one given has {here!r}")


def write_spec(spec: ModelSpec | OwnSpec) -> dict[str, Any]:
    """The spec as plain values."""
    if isinstance(spec, OwnSpec):
        plain: dict[str, Any] = to_plain(spec)
        return plain
    experiment = None if spec.experiment is None else spec.experiment.to_plain()
    return {**to_plain(spec), "experiment": experiment}


def read_spec(document: Mapping[str, Any], place: Path) -> ModelSpec:
    """The spec of a file, of version 0.1 too: its table of settings was one for all learners, its experiment a text."""
    plain = dict(document)
    plain["algorithm"] = name = rename_learner(str(plain.get("algorithm")))
    learning = plain.get("learning")
    if isinstance(learning, Mapping):
        old = {"training_tasks": "training_tasks", "training_classes": "auxiliary_classes"}
        plain |= {key: learning[there] for key, there in old.items() if there in learning}
    plain["learning"] = find_algorithm(name, f"{place}: ").read_settings(learning)
    plain["experiment"] = read_stored_experiment(plain.get("experiment"))
    return from_plain(ModelSpec, plain)


def read_stored_experiment(stored: object) -> Experiment | None:
    """The experiment of a spec or card: a table, in version 0.1 a JSON text; empty where there is none."""
    if isinstance(stored, str):
        try:
            stored = json.loads(stored)
        except (ValueError, RecursionError) as error:
            raise DocumentError(("experiment",), f"not JSON ({error})") from error
    if stored is None or stored == {}:
        return None
    if not isinstance(stored, Mapping):
        raise DocumentError(("experiment",), "a table is needed")
    return Experiment.read(stored)


def save_calibration(folder: Path, calibration: CalibrationMap) -> None:
    """Keep the map from score to log-odds beside the learner it was measured with."""
    write_checkpoint(folder, CALIBRATION, {}, to_plain(calibration))


def drop_calibration(folder: Path) -> None:
    """Forget the map of a learner that is about to change."""
    (folder / f"{CALIBRATION}.json").unlink(missing_ok=True)


def load_calibration(folder: Path) -> CalibrationMap | None:
    """The map that is kept beside the folder's learner; None where it was never calibrated."""
    place = folder / f"{CALIBRATION}.json"
    if not place.exists():
        return None
    _, document = read_checkpoint(folder, CALIBRATION)
    try:
        return from_plain(CalibrationMap, rename_calibration(document))
    except DocumentError as fault:
        raise FewoneError(f"{place}: {fault}; the file is not one that this version of fewone wrote") from fault


def build_learner(card: ModelSpec) -> MetaLearner:
    """The untrained learner of a card, its first weights fixed by the seed alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(card.seed)
        return _build(card, None)


def _build(card: ModelSpec, place: Path | None) -> MetaLearner:
    where = "" if place is None else f"{place}: "
    try:
        entry = find_algorithm(card.algorithm, where)
        return entry(card.learning, card.network, card.shape, card.training_tasks, card.training_classes)
    except (ValueError, RuntimeError, OverflowError, IndexError) as error:
        raise FewoneError(f"{where}cannot build {card.algorithm} for inputs of shape {card.shape}: {error}") from error


def check_shapes(found: Mapping[str, Tensor], wanted: Mapping[str, Tensor], place: Path) -> None:
    """Refuse tensors whose names, shapes or types are not those of the wanted ones."""
    for name in sorted({*found, *wanted}):
        if name not in found:
            raise FewoneError(f"{place}: the weights lack {name!r}; they belong to another network")
        if name not in wanted:
            raise FewoneError(f"{place}: the weights hold {name!r}, which this network lacks")
        here, there = wanted[name], found[name]
        if here.shape != there.shape or here.dtype != there.dtype:
            raise FewoneError(
                f"{place}: {name!r} is {tuple(there.shape)} {there.dtype} in the file, the network"
                f" has {tuple(here.shape)} {here.dtype}"
            )


def write_checkpoint(folder: Path, name: str, tensors: Mapping[str, Tensor], content: Mapping[str, Any]) -> None:
    """Tensors and a JSON document that belong together, replaced in one step."""
    data = save({key: tensor.detach().contiguous() for key, tensor in tensors.items()})
    digest = hashlib.sha256(data).hexdigest()
    weights = _Weights(f"{name}.{digest[:12]}.safetensors", len(data), digest)
    document = {
        "format": FORMAT,
        "weights": to_plain(weights),
        "versions": to_plain(Versions.here()),
        "content": content,
    }
    text = json.dumps(document | {"sha256": _hash_document(document)}, indent=1, allow_nan=False) + "\n"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        atomic_write(folder / weights.file, data)
        atomic_write(folder / f"{name}.json", text.encode())
    except OSError as error:
        raise FewoneError(
            f"{folder}: cannot write {name} ({error.strerror or error}); what was written there before is whole:"
            f" make room or give another folder, then run the same command again"
        ) from error
    for old in folder.glob(f"{name}.*.safetensors*"):
        if old.name != weights.file:
            with suppress(OSError):
                old.unlink()


def read_checkpoint(folder: Path, name: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors and the document of a bundle, refused if a single bit of the weights is not as it was written."""
    place = folder / f"{name}.json"
    weights, content = _read_document(place)
    path = folder / weights.file
    try:
        if path.stat().st_size != weights.size:
            raise FewoneError(f"{path}: {path.stat().st_size} bytes, {weights.size} were written; it is cut or foreign")
        data = path.read_bytes()
    except OSError as error:
        raise FewoneError(f"{path}: cannot be read ({error.strerror}); {place.name} names it") from error
    if hashlib.sha256(data).hexdigest() != weights.sha256:
        raise FewoneError(f"{path}: the content is not what was written (its hash differs); take a whole copy")
    try:
        with safe_open(path, framework="pt") as file:
            # Clones: tensors over the mapped file are not aligned as allocated ones are, and sums would differ by bits.
            return {key: file.get_tensor(key).clone() for key in file.keys()}, content  # noqa: SIM118
    except SafetensorError as error:
        raise FewoneError(f"{path}: not a safetensors file ({error})") from error


def _read_document(place: Path) -> tuple[_Weights, dict[str, Any]]:
    try:
        document = json.loads(place.read_bytes())
    except OSError as error:
        raise FewoneError(f"{place}: cannot be read ({error.strerror}); give a folder written by fewone") from error
    except (ValueError, RecursionError) as error:
        raise FewoneError(f"{place}: not JSON ({error})") from error
    if not isinstance(document, dict) or not isinstance(document.get("content"), dict):
        raise FewoneError(f"{place}: not a checkpoint of fewone")
    if document.pop("sha256", None) != _hash_document(document):
        raise FewoneError(f"{place}: the content is not what was written (its hash differs); take a whole copy")
    if document.get("format") != FORMAT:
        raise FewoneError(
            f"{place}: format {document.get('format')!r}, this version of fewone reads format {FORMAT};"
            f" use the version that wrote it"
        )
    try:
        weights = from_plain(_Weights, document.get("weights"), path=("weights",))
    except DocumentError as fault:
        raise FewoneError(f"{place}: {fault}") from fault
    if Path(weights.file).name != weights.file or "\0" in weights.file:
        raise FewoneError(f"{place}: weights.file is {weights.file!r}: only a file of the same folder is read")
    return weights, document["content"]


def _hash_document(document: Mapping[str, Any]) -> str:
    """Of the document without its own hash: a flipped digit in a setting would change every score unseen."""
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


def read_versions(folder: Path, name: str) -> Versions:
    """Which versions wrote a bundle."""
    place = folder / f"{name}.json"
    try:
        return from_plain(Versions, json.loads(place.read_bytes())["versions"])
    except (OSError, ValueError, KeyError, TypeError, DocumentError) as error:
        raise FewoneError(f"{place}: does not say what wrote it ({error})") from error
