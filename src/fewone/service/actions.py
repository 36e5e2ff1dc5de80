"""What one can do with detectors, without HTTP: fit, score, correct, undo, restore, ask what happened.

Every method that changes something returns when the change is on disk and in the database.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fewone.detector.few_shot_detector import FewShotDetector
from fewone.detector.loading import load_detector
from fewone.detector.support_report import SupportReport
from fewone.errors import FewoneError, say_count
from fewone.service.errors import ServiceError, not_found
from fewone.service.history import History, Kept, Scored
from fewone.service.judging import (
    LARGEST_EXPLAINED,
    LARGEST_FEEDBACK,
    Judged,
    Thing,
    arrange_examples,
    decide_again,
    example_shape,
    explain_recording,
    judge,
    pick_windows,
)
from fewone.service.loaded import Loaded
from fewone.service.settings import ServiceSettings
from fewone.service.store import NAME, DetectorStore, Pointer, SupportOrigin, Version, Writer
from fewone.service.uploads import Array, as_thing, choose_shape, cut_normals
from fewone.zoo import find_model, read_models

Was = Literal["normal", "anomalous"]

LARGEST_SUPPORT = 2000
KEPT_MAPS = 256
"""Explanations of windows and pictures that are kept in memory."""
PREVIEW = 2000
"""So many of the last decisions are looked at when another false-alarm rate is tried."""


@dataclass(frozen=True)
class Normals:
    """Examples for a support (n, *shape), with the origin of each."""

    values: Array
    origins: tuple[SupportOrigin, ...]

    def without(self, left_out: Sequence[int]) -> Normals:
        outside = [number for number in left_out if not 0 <= number < len(self.origins)]
        if outside:
            raise ServiceError(
                422, f"leave_out: there is no normal {outside[0]}; they are 0 to {len(self.origins) - 1}"
            )
        kept = [number for number in range(len(self.origins)) if number not in set(left_out)]
        if not kept:
            raise ServiceError(422, "leave_out: at least one normal must stay")
        return Normals(self.values[kept], tuple(self.origins[number] for number in kept))


@dataclass(frozen=True)
class Current:
    """The version of a detector that counts now."""

    name: str
    pointer: Pointer
    detector: FewShotDetector


class Actions:
    """The work behind the routes of one process."""

    def __init__(self, settings: ServiceSettings, store: DetectorStore, history: History) -> None:
        self.settings, self.store, self.history = settings, store, history
        self.loaded: Loaded[FewShotDetector] = Loaded(settings.loaded)
        self._maps: Loaded[Array] = Loaded(KEPT_MAPS)
        self.ending = Event()
        """The service goes down: what can be asked again is given up."""
        self.on_load: Callable[[float], None] = lambda seconds: None

    # Models and detectors

    def models(self) -> list[dict[str, Any]]:
        """Of the zoo, and folders made by `fewone train` that lie among the detectors."""
        found = [
            {
                "name": model.name,
                "title": model.card.title,
                "shape": list(model.card.shape),
                "sampling_rate": model.card.sampling_rate,
                "limits": model.card.limits,
                "from": "zoo",
            }
            for model in read_models()
        ]
        names = {model["name"] for model in found}
        for path in sorted(self.store.folder.iterdir()):
            if NAME.fullmatch(path.name) and (path / "model.json").is_file() and path.name not in names:
                found.append(
                    {
                        "name": path.name,
                        "title": "trained here",
                        "shape": [],
                        "sampling_rate": None,
                        "limits": "",
                        "from": "folder",
                    }
                )
        return found

    def load_model(self, name: str, false_alarm_rate: float | None, sampling_rate: float | None) -> FewShotDetector:
        """A model that is not fitted yet, of the zoo or of the folder."""
        place: str | Path = name
        if find_model(name) is None:
            if not (NAME.fullmatch(name) and (self.store.folder / name / "model.json").is_file()):
                names = ", ".join(model["name"] for model in self.models())
                raise not_found(f"no model is called {name[:80]!r}", f"there are {names}")
            place = self.store.folder / name
        return load_detector(place, false_alarm_rate=false_alarm_rate, sampling_rate=sampling_rate)

    def current(self, name: str) -> Current:
        pointer = self.store.pointer(name)
        return Current(name, pointer, self.at_version(name, pointer.uid, pointer.version))

    def is_loaded(self, name: str) -> bool:
        pointer = self.store.pointer(name)
        return (pointer.uid, pointer.version) in self.loaded

    def at_version(self, name: str, uid: str, number: int) -> FewShotDetector:
        def read() -> FewShotDetector:
            self.store.version(name, number)
            begin = time.perf_counter()
            detector = load_detector(self.store.version_folder(name, number))
            self.on_load(time.perf_counter() - begin)
            return detector

        return self.loaded.get((uid, number), read)

    def read_normals(
        self,
        model: FewShotDetector,
        series: Sequence[tuple[str, Array]],
        examples: Array | None,
        window: int | None = None,
        stride: int | None = None,
        kind: Literal["fit", "normals"] = "fit",
    ) -> Normals:
        """Files (as read) and examples of JSON -> one array for a support."""
        if examples is not None:
            origins = tuple(SupportOrigin(kind, "json", place) for place in range(len(examples)))
            return self._check_support(Normals(arrange_examples(examples, example_shape(model)), origins))
        if not series:
            raise ServiceError(422, "no normals were sent; send files or 'examples' or 'recordings'")
        shape = choose_shape(example_shape(model), [values for _, values in series], window)
        arrays, found = [], []
        for source, values in series:
            cut_out, places = cut_normals(as_thing(source, values, shape), shape, stride)
            arrays.append(cut_out)
            found += [SupportOrigin(kind, source, place) for place in places.tolist()]
        if len({array.shape[1:] for array in arrays}) > 1:
            raise ServiceError(
                422, f"the files hold examples of shapes {sorted({a.shape[1:] for a in arrays})}; send one"
            )
        return self._check_support(Normals(np.concatenate(arrays), tuple(found)))

    def try_fit(self, model: FewShotDetector, normals: Normals) -> tuple[FewShotDetector, SupportReport]:
        """Fit without keeping anything."""
        detector = model.fit(normals.values)
        return detector, detector.report()

    def create(self, name: str, model_name: str, model: FewShotDetector, normals: Normals) -> Version:
        """Fit and keep: version 1."""
        detector = model.fit(normals.values)
        version = Version(1, time.time(), "fit", model_name, 1, normals.origins, "fit")
        self.store.create(
            name,
            version,
            detector.save,
            lambda pointer: self.history.record_change(pointer.uid, 1, "fit", {"normals": len(normals.origins)}),
        )
        return version

    def rename(self, name: str, new: str) -> None:
        self.store.rename(name, new)

    def delete(self, name: str) -> None:
        self.history.ping()
        pointer = self.store.delete(name)
        self.loaded.forget(pointer.uid)
        self._maps.forget(pointer.uid)
        self.history.forget(pointer.uid)

    # Changes: each a new version

    def add_normals(self, name: str, normals: Normals) -> Version:
        def grow(detector: FewShotDetector, version: Version) -> tuple[FewShotDetector, tuple[SupportOrigin, ...]]:
            origins = _known_origins(detector, version) + normals.origins
            return _refit(detector, normals.values, np.ones(len(normals.values))), origins

        detail = {"normals": len(normals.origins)}
        return self._change(name, "normals", f"{say_count(len(normals.origins), 'normal')} added", detail, grow)

    def give_feedback(self, name: str, score: int, was: Was) -> Version:
        """A scored thing joins the support as what it was; a second word on the same thing replaces the first."""
        uid = self.store.pointer(name).uid
        kept = self._kept(uid, name, score)
        if kept.values is None:
            raise ServiceError(409, f"score {score}: its values are no longer kept; send the file to /normals instead")
        values, places = _examples_of(kept, was, example_shape(self.current(name).detector))
        origins = tuple(SupportOrigin("feedback", kept.score["source"], place, score) for place in places)

        def correct(detector: FewShotDetector, version: Version) -> tuple[FewShotDetector, tuple[SupportOrigin, ...]]:
            marks = np.full(len(values), 1.0 if was == "normal" else -1.0)
            before = _known_origins(detector, version)
            if any(origin.feedback == score for origin in before):
                detector, before = _drop(detector, version, score)
            return _refit(detector, values, marks), before + origins

        why = f"score {score} was {was}"
        return self._change(name, "feedback", why, {"score": score, "was": was}, correct)

    def undo_feedback(self, name: str, score: int) -> Version:
        def take_out(detector: FewShotDetector, version: Version) -> tuple[FewShotDetector, tuple[SupportOrigin, ...]]:
            if all(origin.feedback != score for origin in version.origins):
                raise not_found(f"there is no feedback on score {score}", f"GET /detectors/{name}/feedback lists it")
            return _drop(detector, version, score)

        return self._change(name, "undo", f"feedback on score {score} undone", {"score": score}, take_out)

    def set_rate(self, name: str, rate: float | None) -> Version:
        def retune(detector: FewShotDetector, version: Version) -> tuple[FewShotDetector, tuple[SupportOrigin, ...]]:
            return _at_rate(detector, rate), version.origins

        why = "the model's own threshold" if rate is None else f"false-alarm rate {rate:g}"
        return self._change(name, "threshold", why, {"false_alarm_rate": rate}, retune, same_support=True)

    def restore(self, name: str, number: int) -> Version:
        """An old version becomes the newest one."""
        old = self.store.version(name, number)
        if number > self.store.pointer(name).version:
            raise not_found(f"{name} has no version {number}", f"GET /detectors/{name}/versions lists them")
        source = self.store.version_folder(name, number)

        def make(version: Version) -> tuple[Version, Writer]:
            why = f"version {number} restored"
            new = replace(old, number=version.number + 1, made=time.time(), why=why, kind="restore")
            return new, load_detector(source).save

        return self._store_change(name, make, "restore", {"restored": number})

    def changes(self, name: str, limit: int) -> list[dict[str, Any]]:
        """What was done, the newest first; what a killed process made but did not note is told by its folder."""
        rows = self.history.changes(self.store.pointer(name).uid, limit)
        noted = {row["version"] for row in rows}
        oldest = min(noted) if len(rows) == limit else 0
        missing = [number for number in self.store.numbers(name) if number > oldest and number not in noted]
        for one in (self.store.version(name, number) for number in missing):
            rows.append({"version": one.number, "at": one.made, "kind": one.kind, "why": one.why})
        return sorted(rows, key=lambda row: -row["version"])[:limit]

    def feedback(self, name: str) -> dict[int, Was]:
        """What people said of scored things, as the current version has learned it."""
        pointer = self.store.pointer(name)
        version = self.store.version(name, pointer.version)
        if all(origin.feedback is None for origin in version.origins):
            return {}
        labels = self.at_version(name, pointer.uid, pointer.version).support_.labels.tolist()
        return {
            origin.feedback: "anomalous" if label else "normal"
            for origin, label in zip(version.origins, labels, strict=True)
            if origin.feedback is not None
        }

    # Scores

    def judge(self, name: str, things: Sequence[Thing], stride: int | None) -> tuple[Current, list[Judged]]:
        current = self.current(name)
        return current, [judge(current.detector, thing, stride) for thing in things]

    def store_scores(self, current: Current, judged: Sequence[Judged]) -> Future[list[list[int]]]:
        """The ids of the decisions, once they are safe."""
        return self.history.write_scores(_as_scored(current, judged))

    def store_scores_now(self, current: Current, judged: Sequence[Judged]) -> list[list[int]]:
        """The same, while the caller waits."""
        return self.history.store(_as_scored(current, judged))

    def preview_rate(self, name: str, rate: float | None) -> dict[str, Any]:
        """What another false-alarm rate would have said of the last decisions. Nothing is changed.

        Decisions of versions with another support are left out of the comparison: their scores meant something else.
        """
        current = self.current(name)
        support = self.store.version(name, current.pointer.version).support_of
        same = {one.number for one in self.store.versions(name) if one.support_of == support}
        tried = _at_rate(current.detector, rate)
        rows = self.history.page(current.pointer.uid, PREVIEW)
        compared = [row for row in rows if row["version"] in same]
        windows = self.history.windows_of(
            current.pointer.uid, [row["id"] for row in compared if row["kind"] == "recording"]
        )
        then = [_decide_row(tried, row, windows) for row in compared]
        now = [_decide_row(current.detector, row, windows) for row in compared]
        changed = [
            {"id": row["id"], "decision": after, "anomalous": after < 0}
            for row, before, after in zip(compared, now, then, strict=True)
            if (before < 0) != (after < 0)
        ]
        return {
            "false_alarm_rate": rate,
            "threshold_now": float(current.detector.offset_),
            "threshold_then": float(tried.offset_),
            "compared": len(compared),
            "left_out": len(rows) - len(compared),
            "alarms_now": sum(value < 0 for value in now),
            "alarms_then": sum(value < 0 for value in then),
            "changed": changed,
        }

    def kept(self, name: str, score: int) -> tuple[str, Kept]:
        uid = self.store.pointer(name).uid
        return uid, self._kept(uid, name, score)

    def _kept(self, uid: str, name: str, score: int) -> Kept:
        kept = self.history.kept(uid, score)
        if kept is None:
            raise not_found(f"{name} has no score {score}", f"GET /detectors/{name}/history lists them")
        return kept

    def explain(self, name: str, kept: Kept, uid: str, count: int = LARGEST_EXPLAINED) -> Array | None:
        """Where the anomaly is, by the version that scored: of an example its map, of a recording one along time.

        count: so many windows of a recording at most. What was found once is kept for a while: to find it may take
        seconds for each window.
        """
        if kept.values is None:
            return None
        detector = self.at_version(name, uid, kept.score["version"])

        def explain(place: int, example: Array) -> Array:
            if self.ending.is_set():
                raise ServiceError(503, "the service is going down; ask again in a moment", 5)
            key = uid, int(kept.score["version"]), int(kept.score["id"]), place
            return self._maps.get(key, lambda: detector.explain(example[None])[0])

        if kept.score["kind"] != "recording":
            return explain(kept.row, kept.values[kept.row])
        assert kept.starts is not None and kept.window_scores is not None
        length = example_shape(detector)[-1]
        return explain_recording(explain, kept.values, kept.starts, kept.window_scores, length, count)

    def _check_support(self, normals: Normals) -> Normals:
        if len(normals.origins) > LARGEST_SUPPORT:
            raise ServiceError(
                413, f"{len(normals.origins)} normals, at most {LARGEST_SUPPORT} are taken; a larger stride cuts fewer"
            )
        return normals

    def _change(
        self,
        name: str,
        kind: str,
        why: str,
        detail: dict[str, Any],
        alter: Callable[[FewShotDetector, Version], tuple[FewShotDetector, tuple[SupportOrigin, ...]]],
        same_support: bool = False,
    ) -> Version:
        def make(version: Version) -> tuple[Version, Writer]:
            detector = load_detector(self.store.version_folder(name, version.number))
            changed, origins = alter(detector, version)
            if len(changed.support_) > LARGEST_SUPPORT:
                raise ServiceError(
                    413, f"the support would grow beyond {LARGEST_SUPPORT} examples; make a new detector"
                )
            number = version.number + 1
            support_of = version.support_of if same_support else number
            return Version(number, time.time(), why, version.model, support_of, origins, kind), changed.save

        return self._store_change(name, make, kind, detail)

    def _store_change(
        self, name: str, make: Callable[[Version], tuple[Version, Writer]], kind: str, detail: dict[str, Any]
    ) -> Version:
        return self.store.change(
            name,
            make,
            lambda pointer: self.history.record_change(pointer.uid, pointer.version, kind, detail),
        )


def _as_scored(current: Current, judged: Sequence[Judged]) -> list[Scored]:
    at, pointer = time.time(), current.pointer
    return [Scored(pointer.uid, pointer.version, one, at) for one in judged]


def _refit(detector: FewShotDetector, values: Array, marks: NDArray[np.float64]) -> FewShotDetector:
    """All that it was fitted on, and more: known anomalies carry the mark -1."""
    support = detector.support_
    everything = np.concatenate([support.values.numpy(), values.astype(support.values.numpy().dtype)])
    labels = np.concatenate([1.0 - 2.0 * support.labels.numpy(), marks])
    return detector.fit(everything, labels)


def _drop(detector: FewShotDetector, version: Version, score: int) -> tuple[FewShotDetector, tuple[SupportOrigin, ...]]:
    """The support without what feedback on a score brought."""
    origins = _known_origins(detector, version)
    stay = np.array([origin.feedback != score for origin in origins])
    values, labels = detector.support_.values.numpy()[stay], detector.support_.labels.numpy()[stay]
    if not (labels == 0).any():
        raise FewoneError(f"without feedback on score {score} no normal would be left; add normals first")
    kept = tuple(origin for origin, stays in zip(origins, stay.tolist(), strict=True) if stays)
    return detector.fit(values, 1.0 - 2.0 * labels), kept


def _known_origins(detector: FewShotDetector, version: Version) -> tuple[SupportOrigin, ...]:
    """One origin per example of the support; a folder that was taken over names none."""
    missing = len(detector.support_) - len(version.origins)
    return tuple(SupportOrigin("fit", "", place) for place in range(missing)) + version.origins


def _at_rate(detector: FewShotDetector, rate: float | None) -> FewShotDetector:
    """The same support with another threshold; the given detector stays as it is."""
    other = copy.copy(detector)
    other.false_alarm_rate = rate
    labels = 1.0 - 2.0 * detector.support_.labels.numpy()
    return other.fit(detector.support_.values.numpy(), labels)


def _examples_of(kept: Kept, was: Was, shape: tuple[int, ...]) -> tuple[Array, list[int]]:
    """What joins the support: the example; of an anomalous recording its worst window, of a normal one some."""
    assert kept.values is not None
    if kept.score["kind"] != "recording":
        return kept.values[kept.row : kept.row + 1], [int(kept.score["place"])]
    assert kept.starts is not None and kept.window_scores is not None
    count = 1 if was == "anomalous" else LARGEST_FEEDBACK
    values, starts = pick_windows(kept.values, kept.starts, kept.window_scores, shape[-1], count)
    return values, starts.tolist()


def _decide_row(
    detector: FewShotDetector, row: dict[str, Any], windows: dict[int, tuple[NDArray[np.int64], NDArray[np.float64]]]
) -> float:
    if row["id"] in windows:
        return decide_again(detector, *windows[row["id"]])
    return float(row["score"] - detector.offset_)
