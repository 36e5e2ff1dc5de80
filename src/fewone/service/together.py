"""Windows that come while others are scored wait and are then scored at once: a batch costs little more than a window.

A score does not depend on what it is scored beside, up to the rounding of single precision. One thread scores a batch
and stores it, by one transaction; the event loop stays free, and is woken once: when the decisions are safe.
"""

from __future__ import annotations

import asyncio
import queue
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from threading import Thread
from typing import Any

import numpy as np

from fewone.detector.few_shot_detector import FewShotDetector
from fewone.service.actions import Current
from fewone.service.errors import ServiceError
from fewone.service.few_windows import SIZES, FewWindows
from fewone.service.judging import Judged, Thing, judge

LARGEST_TOGETHER = SIZES[-1]
"""Things of one batch: beyond it a window would wait longer for its neighbours than for itself."""

Store = Callable[[Current, Sequence[Judged]], list[list[int]]]
Stored = tuple[Judged, list[int]]


@dataclass(frozen=True)
class Waiting:
    """Examples that wait for their scores."""

    current: Current
    thing: Thing
    loop: asyncio.AbstractEventLoop
    found: asyncio.Future[Stored]

    @property
    def group(self) -> tuple[Any, ...]:
        """What may be scored in one batch."""
        return self.current.pointer, self.thing.kind, self.thing.values.shape[1:]


Answer = tuple[Waiting, Stored | Exception]


class Together:
    """store: puts decisions where they are safe. capacity: so many may wait; the next is sent away."""

    def __init__(self, store: Store, capacity: int) -> None:
        self._store, self._capacity = store, capacity
        self._few = FewWindows()
        self._queue: queue.SimpleQueue[Waiting | None] = queue.SimpleQueue()
        self._thread = Thread(target=self._work_off, name="windows", daemon=True)
        self._thread.start()

    async def judge(self, current: Current, thing: Thing) -> Stored:
        """The decisions on examples and their ids, once they are stored."""
        if self._queue.qsize() >= self._capacity:
            raise ServiceError(503, "too many requests wait for scores; slow down and try again", 1)
        loop = asyncio.get_running_loop()
        one = Waiting(current, thing, loop, loop.create_future())
        self._queue.put(one)
        return await one.found

    def close(self) -> None:
        """Everything that waits is scored first."""
        self._queue.put(None)
        self._thread.join()
        self._few.close()

    def _work_off(self) -> None:
        open_ = True
        waiting: list[Waiting] = []
        while open_ or waiting:
            came = [] if waiting else [self._queue.get()]
            while not self._queue.empty():
                came.append(self._queue.get())
            open_ = open_ and None not in came
            waiting += [one for one in came if one is not None]
            waiting = self._answer_first([one for one in waiting if not one.found.cancelled()])

    def _answer_first(self, waiting: list[Waiting]) -> list[Waiting]:
        """Score the first with those of its group that wait; leave those that still wait."""
        if not waiting:
            return waiting
        batch = [one for one in waiting if one.group == waiting[0].group][:LARGEST_TOGETHER]
        _tell(self._answer(batch))
        taken = {id(one) for one in batch}
        return [one for one in waiting if id(one) not in taken]

    def _answer(self, batch: list[Waiting]) -> list[Answer]:
        current = batch[0].current
        found = judge_together(current.detector, [one.thing for one in batch], self._few)
        judged = [one for one in found if isinstance(one, Judged)]
        stored = iter(self._store_together(current, judged))
        return [(one, next(stored) if isinstance(own, Judged) else own) for one, own in zip(batch, found, strict=True)]

    def _store_together(self, current: Current, judged: list[Judged]) -> list[Stored | Exception]:
        """By one transaction; if that fails each for itself, and its error in its place."""
        try:
            return list(zip(judged, self._store(current, judged), strict=True)) if judged else []
        except Exception as error:  # whatever it is, who waits must hear of it
            if len(judged) == 1:
                return [error]
            return [found for one in judged for found in self._store_together(current, [one])]


def _tell(answers: list[Answer]) -> None:
    """Wake those who wait, all of a loop at once."""
    for loop in {one.loop for one, _ in answers}:
        with suppress(RuntimeError):  # it was closed: nobody waits there
            loop.call_soon_threadsafe(_hand_over, [answer for answer in answers if answer[0].loop is loop])


def _hand_over(answers: list[Answer]) -> None:
    for one, answer in answers:
        if one.found.done():
            continue
        if isinstance(answer, Exception):
            one.found.set_exception(answer)
        else:
            one.found.set_result(answer)


def judge_together(detector: FewShotDetector, things: Sequence[Thing], few: FewWindows) -> list[Judged | Exception]:
    """Things of one kind and shape, scored as one batch; if that fails each for itself, and its error in its place."""
    if len(things) > 1:
        try:
            return list(_split(detector, things, few))
        except Exception:  # one of them is at fault: the others must not hear of it
            return [found for thing in things for found in judge_together(detector, [thing], few)]
    try:
        return [judge(detector, thing) for thing in things]
    except Exception as error:  # whatever it is, who waits must hear of it
        return [error]


def _split(detector: FewShotDetector, things: Sequence[Thing], few: FewWindows) -> list[Judged]:
    scores = few.score_samples(detector, np.concatenate([thing.values for thing in things]))
    ends = np.cumsum([len(thing.values) for thing in things])[:-1]
    found = []
    for thing, own in zip(things, np.split(scores, ends), strict=True):
        places = np.arange(len(own))
        found.append(Judged(thing, places, np.ones(len(own), np.int64), places, own, own - detector.offset_))
    return found
