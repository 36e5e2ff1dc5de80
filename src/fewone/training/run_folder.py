"""A training in a folder: kept every so often, taken up again after any interruption, refused if it is another one."""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from torch import Tensor

from fewone.checkpoints import (
    MODEL,
    ModelSpec,
    OwnSpec,
    Versions,
    check_shapes,
    drop_calibration,
    read_checkpoint,
    read_versions,
    write_checkpoint,
    write_spec,
)
from fewone.documents import DocumentError, from_plain, to_plain
from fewone.errors import FewoneError
from fewone.training.settings import Cost, Validation
from fewone.training.state import SLOTS, TrainingState

STATE = "state"
# A run may be given more time; everything else would make it another run.
_MAY_CHANGE = {"training.minutes", "training.patience", "training.checkpoint_seconds"}


class RunFolder:
    """Keeps the state of one training of one experiment; holds the folder against other processes while open.

    experiment: as plain values, compared with what the folder says on taking up. read: turns what a folder says into
    today's values, for one that an older version began. card: of the model that is trained. wait: for another process
    that holds the folder, instead of refusing.
    """

    def __init__(
        self,
        folder: Path,
        card: ModelSpec | OwnSpec,
        experiment: Mapping[str, Any],
        seconds: float = 60.0,
        read: Callable[[Mapping[str, Any]], Mapping[str, Any]] = dict,
        wait: bool = False,
    ) -> None:
        self.folder, self.card, self.experiment, self.seconds = folder, card, experiment, seconds
        self.read, self.wait = read, wait
        self._kept_at = time.monotonic()
        self._model_iteration = -1
        self._lock = -1

    def __enter__(self) -> RunFolder:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(self.folder / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
            fcntl.flock(self._lock, fcntl.LOCK_EX if self.wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(self._lock)
            raise FewoneError(f"{self.folder}: another process is training into this folder; wait for it") from error
        except OSError as error:
            raise FewoneError(
                f"{self.folder}: cannot write there ({error.strerror}); give a folder that can be written"
            ) from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        os.close(self._lock)

    def restore(self, state: TrainingState) -> None:
        """Bring the state to where the folder's last checkpoint was; a fresh folder leaves it at the beginning."""
        place = self.folder / f"{STATE}.json"
        if not place.exists():
            if (self.folder / f"{MODEL}.json").exists():
                raise FewoneError(f"{self.folder}: holds a model without its training state; give another folder")
            return
        tensors, document = read_checkpoint(self.folder, STATE)
        self._check(document, place)
        try:
            iteration, cost = document["iteration"], from_plain(Cost, document["cost"], path=("cost",))
            if type(iteration) is not int or iteration < 0:
                raise ValueError(f"iteration {iteration!r}")
            history = [from_plain(Validation, item, path=("history",)) for item in document["history"]]
        except (KeyError, TypeError, ValueError, DocumentError) as error:
            raise FewoneError(f"{place}: not a training state ({error})") from error
        check_shapes(*_comparable(tensors, state), place)
        state.restore(tensors)
        state.iteration, state.history, state.spent = iteration, history, cost

    def refuse_others(self) -> None:
        """For a model that is made in one go: the folder may hold the same one already, but no other."""
        if (self.folder / f"{STATE}.json").exists():
            raise FewoneError(f"{self.folder}: holds a training of another experiment; give another folder with --out")
        place = self.folder / f"{MODEL}.json"
        if place.exists():
            _, content = read_checkpoint(self.folder, MODEL)
            try:
                kept = content["experiment"]
                theirs = json.loads(kept) if isinstance(kept, str) else kept
            except (KeyError, TypeError, ValueError) as error:
                raise FewoneError(f"{place}: not a model of fewone ({error}); give another folder") from error
            self._check({"experiment": theirs, "fingerprint": content.get("fingerprint")}, place)

    def _check(self, document: Mapping[str, Any], place: Path) -> None:
        """Refuse the state of another experiment, other data or another network."""
        theirs, ours = document.get("experiment"), self.experiment
        if not isinstance(theirs, Mapping):
            raise FewoneError(f"{place}: not a training state (no experiment)")
        try:
            there, here = _flatten(self.read(theirs)), _flatten(ours)
        except DocumentError as error:
            raise FewoneError(f"{place}: its experiment cannot be read by this version of fewone ({error})") from error
        allowed = _MAY_CHANGE | ({"training.iterations"} if here.get("training.schedule") == "constant" else set())
        for key in sorted({*there, *here} - allowed):
            if there.get(key) != here.get(key):
                raise FewoneError(
                    f"{place}: another experiment is in this folder: its {key} is {there.get(key)!r},"
                    f" {here.get(key)!r} was asked for; give another folder with --out"
                )
        if document.get("fingerprint") != self.card.fingerprint:
            raise FewoneError(
                f"{place}: the run began on other data (fingerprint {document.get('fingerprint')}, the data are"
                f" now {self.card.fingerprint}); give another folder with --out"
            )

    def is_due(self) -> bool:
        return time.monotonic() - self._kept_at >= self.seconds

    def keep(self, state: TrainingState) -> None:
        """Write the best model, if it is new, and then the state: a state never speaks of a model that is not there."""
        best = state.best_validation
        if best is not None and best.iteration != self._model_iteration:
            drop_calibration(self.folder)
            write_checkpoint(self.folder, MODEL, state.best, write_spec(self.card))
            self._model_iteration = best.iteration
        document = {
            "iteration": state.iteration,
            "cost": to_plain(state.cost),
            "history": to_plain(state.history),
            "fingerprint": self.card.fingerprint,
            "experiment": dict(self.experiment),
        }
        write_checkpoint(self.folder, STATE, state.tensors(), document)
        self._kept_at = time.monotonic()


def compare_versions(folder: Path) -> str:
    """Empty, or a note that the training in a folder was written by other versions than these."""
    if not (folder / f"{STATE}.json").exists():
        return ""
    there, here = read_versions(folder, STATE), Versions.here()
    return "" if there == here else f"{folder} was written by {there}, here is {here}: the weights may differ by bits"


def read_cost(folder: Path) -> Cost | None:
    """What the training in a folder has cost so far; None where there is no training state."""
    place = folder / f"{STATE}.json"
    try:
        return from_plain(Cost, json.loads(place.read_bytes())["content"]["cost"], path=("cost",))
    except (OSError, ValueError, KeyError, TypeError, DocumentError):
        return None


def read_history(folder: Path) -> list[Validation]:
    """The validations of the training in a folder; none where nothing was trained."""
    if not (folder / f"{STATE}.json").exists():
        return []
    _, document = read_checkpoint(folder, STATE)
    return [from_plain(Validation, item, path=("history",)) for item in document["history"]]


def _comparable(tensors: dict[str, Tensor], state: TrainingState) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Found and wanted tensors by name; best weights, and slots of a parameter that never moved, may be absent."""
    weights, parameters = state.learner.state_dict(), list(state.learner.parameters())
    wanted = {f"learner.{name}": tensor for name, tensor in weights.items()}
    if any(name.startswith("best.") for name in tensors):
        wanted |= {f"best.{name}": tensor for name, tensor in weights.items()}
    slots = SLOTS[type(state.optimizer)]
    for number, parameter in enumerate(parameters):
        if any(f"optimizer.{number}.{slot}" in tensors for slot in slots):
            for slot in slots:
                wanted[f"optimizer.{number}.{slot}"] = torch.tensor(0.0) if slot == "step" else parameter
    return tensors, wanted


def _flatten(plain: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in plain.items():
        if isinstance(value, Mapping):
            flat |= _flatten(value, f"{prefix}{key}.")
        else:
            flat[prefix + key] = value
    return flat
