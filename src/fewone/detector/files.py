"""A fitted detector <-> a folder of JSON and safetensors that can be shipped. Loading executes nothing.

`FOLDER/detector.json` and its tensors hold the support and the settings, `FOLDER/model/` the learner; the first names
the hash of the second, so that parts of two detectors are never mixed.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import torch

from fewone.calibration import CalibrationMap
from fewone.checkpoints import (
    CALIBRATION,
    MODEL,
    ModelSpec,
    OwnSpec,
    drop_calibration,
    fill_learner,
    load_calibration,
    load_learner,
    read_checkpoint,
    save_calibration,
    save_learner,
    write_checkpoint,
)
from fewone.detector.adaptation import Support
from fewone.documents import DocumentError, from_plain, to_plain
from fewone.episodes import InputScaling
from fewone.errors import FewoneError
from fewone.learners import MetaLearner
from fewone.picture_files import FullScale
from fewone.zoo import fits

DETECTOR = "detector"


@dataclass(frozen=True)
class DetectorSettings:
    """The constructor's arguments beside the learner, and the hash of the model's document (None: no model).

    full_scale: of a detector for pictures of every size: what white was among its normals.
    """

    false_alarm_rate: float | None
    sampling_rate: float | None
    n_features: int
    model: str | None
    full_scale: FullScale | None = None


@dataclass(frozen=True)
class SavedDetector:
    """What a detector's folder holds; learner and card are None for a detector of plain tables.

    scaling: in place of the card, where the learner is the user's own; scores (K,): what such a detector said of its
    support, so that a learner that was built otherwise is noticed.
    """

    learner: MetaLearner | None
    card: ModelSpec | None
    calibration: CalibrationMap | None
    support: Support
    n_features: int
    false_alarm_rate: float | None
    sampling_rate: float | None
    scaling: InputScaling | None = None
    scores: torch.Tensor | None = None
    full_scale: FullScale | None = None


def is_detector(folder: Path) -> bool:
    """Whether a fitted detector was saved here."""
    return (folder / f"{DETECTOR}.json").exists()


def write_detector(folder: Path, delivery: SavedDetector) -> None:
    """Write the folder; the document that makes it a detector comes last."""
    model = None
    if delivery.learner is not None:
        save_learner(folder / MODEL, delivery.learner, _describe(delivery, delivery.learner))
        drop_calibration(folder / MODEL)
        if delivery.calibration is not None:
            save_calibration(folder / MODEL, delivery.calibration)
        model = _hash(folder / MODEL)
    settings = DetectorSettings(
        delivery.false_alarm_rate, delivery.sampling_rate, delivery.n_features, model, delivery.full_scale
    )
    tensors = {"values": _pack(delivery.support.values, delivery.full_scale), "labels": delivery.support.labels}
    if delivery.scores is not None:
        tensors["scores"] = delivery.scores
    write_checkpoint(folder, DETECTOR, tensors, to_plain(settings))


def _describe(delivery: SavedDetector, learner: MetaLearner) -> ModelSpec | OwnSpec:
    if delivery.card is not None:
        return delivery.card
    assert delivery.scaling is not None
    return OwnSpec.of(learner, tuple(delivery.support.values.shape[1:]), delivery.scaling)


def read_detector(folder: Path, learner: MetaLearner | None = None) -> SavedDetector:
    """What `write_detector` wrote, or a refusal with the reason. learner: the user's own, built as it was."""
    tensors, document = read_checkpoint(folder, DETECTOR)
    place = folder / f"{DETECTOR}.json"
    try:
        settings = from_plain(DetectorSettings, document)
    except DocumentError as fault:
        raise FewoneError(f"{place}: {fault}; the file is not one that this version of fewone wrote") from fault
    card, scaling, shape, calibration = None, None, None, None
    if settings.model is None and learner is not None:
        raise FewoneError(f"{place}: a detector of plain tables, saved without a learner: leave learner= out")
    if settings.model is not None:
        if _hash(folder / MODEL) != settings.model:
            raise FewoneError(f"{folder / MODEL}: not the model that the detector was saved with; take a whole copy")
        calibration = load_calibration(folder / MODEL)
        if learner is None:
            learner, card = load_learner(folder / MODEL)
            shape = card.shape
        else:
            learner, own = fill_learner(folder / MODEL, learner)
            scaling, shape = own.preparation, own.shape
    scores = tensors.pop("scores", None)
    support = _read_support(tensors, shape, place)
    return SavedDetector(
        learner,
        card,
        calibration,
        support,
        settings.n_features,
        settings.false_alarm_rate,
        settings.sampling_rate,
        scaling,
        scores,
        settings.full_scale,
    )


def _pack(values: torch.Tensor, full_scale: FullScale | None) -> torch.Tensor:
    """Pictures as bytes: their values are whole numbers, and what is beyond white was so by a later normal alone."""
    return values if full_scale is None else values.clamp(0, 255).to(torch.uint8)


def _hash(folder: Path) -> str:
    """Of the model's documents; they hold the hashes of its weights."""
    digest = hashlib.sha256()
    for place in (folder / f"{MODEL}.json", folder / f"{CALIBRATION}.json"):
        try:
            digest.update(hashlib.sha256(place.read_bytes()).digest())
        except FileNotFoundError:
            digest.update(b"absent")
        except OSError as error:
            raise FewoneError(f"{place}: cannot be read ({error.strerror}); take a whole copy") from error
    return digest.hexdigest()


def _read_support(tensors: dict[str, torch.Tensor], shape: tuple[int, ...] | None, place: Path) -> Support:
    if set(tensors) != {"values", "labels"}:
        raise FewoneError(f"{place}: values and labels of the support expected, got {', '.join(sorted(tensors))}")
    values, labels = tensors["values"], tensors["labels"]
    if values.dtype == torch.uint8:
        values = values.float()
    whole = values.dim() >= 2 and labels.shape == values.shape[:1] and len(labels) > 0
    if not whole or (shape is not None and not fits(tuple(values.shape[1:]), shape)):
        raise FewoneError(f"{place}: a support of shape {tuple(values.shape)} with labels {tuple(labels.shape)}")
    types = (torch.float32, torch.float64)
    if values.dtype not in types or labels.dtype not in types or not torch.isfinite(values).all():
        raise FewoneError(f"{place}: a support of finite numbers expected, got {values.dtype} and {labels.dtype}")
    if not (((labels == 0) | (labels == 1)).all() and (labels == 0).any()):
        raise FewoneError(f"{place}: labels 0 and 1 with at least one normal expected")
    return Support(values, labels)
