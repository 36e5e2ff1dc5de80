"""Windows that come while others are scored wait and are then scored at once: a batch costs little more than a window.

A score does not depend on what it is scored beside, up to the rounding of single precision. The event loop stays free,
and is woken once: when the decision is safe.
"""

from __future__ import annotations

import asyncio
import queue
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from threading import Thread
from typing import Any

import numpy as np

from fewone.detector.few_shot_detector import FewShotDetector
from fewone.service.actions import Current
from fewone.service.eights import Eights
from fewone.service.errors import ServiceError
from fewone.service.judging import Judged, Thing, judge

LARGEST_TOGETHER = 64
"""Things of one batch: beyond it a window would wait longer for its neighbours than for itself."""

Store = Callable[[Current, Sequence[Judged]], "Future[list[list[int]]]"]
Stored = tuple[Judged, list[int]]


@dataclass(frozen=True)
class Waiting:
    """Examples that wait for their scores."""

    current: Current
    thing: Thing
    found: Future[Stored] = field(default_factory=Future)

    @property
    def group(self) -> tuple[Any, ...]:
        """What may be scored in one batch."""
        return self.current.pointer, self.thing.kind, self.thing.values.shape[1:]


class Together:
    """store: puts decisions where they are safe. capacity: so many may wait; the next is sent away."""

    def __init__(self, store: Store, capacity: int) -> None:
        self._store, self._capacity = store, capacity
        self._eights = Eights()
        self._queue: queue.SimpleQueue[Waiting | None] = queue.SimpleQueue()
        self._thread = Thread(target=self._work_off, name="windows", daemon=True)
        self._thread.start()

    async def judge(self, current: Current, thing: Thing) -> Stored:
        """The decisions on examples and their ids, once they are stored."""
        if self._queue.qsize() >= self._capacity:
            raise ServiceError(503, "too many requests wait for scores; slow down and try again", 1)
        one = Waiting(current, thing)
        self._queue.put(one)
        return await asyncio.wrap_future(one.found)

    def close(self) -> None:
        """Everything that waits is scored first."""
        self._queue.put(None)
        self._thread.join()

    def _work_off(self) -> None:
        open_ = True
        waiting: list[Waiting] = []
        while open_ or waiting:
            came = [] if waiting else [self._queue.get()]
            while not self._queue.empty():
                came.append(self._queue.get())
            open_ = open_ and None not in came
            waiting += [one for one in came if one is not None and one.found.set_running_or_notify_cancel()]
            waiting = self._answer_first(waiting)

    def _answer_first(self, waiting: list[Waiting]) -> list[Waiting]:
        """Score the first with those of its group that wait; leave those that still wait."""
        if not waiting:
            return waiting
        batch = [one for one in waiting if one.group == waiting[0].group][:LARGEST_TOGETHER]
        found = judge_together(batch[0].current.detector, [one.thing for one in batch], self._eights)
        for one, answer in zip(batch, found, strict=True):
            self._hand_on(one, answer)
        taken = {id(one) for one in batch}
        return [one for one in waiting if id(one) not in taken]

    def _hand_on(self, one: Waiting, answer: Judged | Exception) -> None:
        if isinstance(answer, Exception):
            one.found.set_exception(answer)
            return
        self._store(one.current, [answer]).add_done_callback(partial(_tell, one.found, answer))


def _tell(found: Future[Stored], judged: Judged, stored: Future[list[list[int]]]) -> None:
    error = stored.exception()
    if error is not None:
        found.set_exception(error)
    else:
        found.set_result((judged, stored.result()[0]))


def judge_together(detector: FewShotDetector, things: Sequence[Thing], eights: Eights) -> list[Judged | Exception]:
    """Things of one kind and shape, scored as one batch; if that fails each for itself, and its error in its place."""
    if len(things) > 1:
        try:
            return list(_split(detector, things, eights))
        except Exception:  # one of them is at fault: the others must not hear of it
            return [found for thing in things for found in judge_together(detector, [thing], eights)]
    try:
        return [judge(detector, thing) for thing in things]
    except Exception as error:  # whatever it is, who waits must hear of it
        return [error]


def _split(detector: FewShotDetector, things: Sequence[Thing], eights: Eights) -> list[Judged]:
    scores = eights.score_samples(detector, np.concatenate([thing.values for thing in things]))
    ends = np.cumsum([len(thing.values) for thing in things])[:-1]
    found = []
    for thing, own in zip(things, np.split(scores, ends), strict=True):
        places = np.arange(len(own))
        found.append(Judged(thing, places, np.ones(len(own), np.int64), places, own, own - detector.offset_))
    return found
