"""Windows that come while others are scored wait and are then scored at once: a batch costs little more than a window.

A score does not depend on what it is scored beside, up to the rounding of single precision. The event loop stays free.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fewone.detector.few_shot_detector import FewShotDetector
from fewone.service.actions import Current
from fewone.service.errors import ServiceError
from fewone.service.judging import Judged, Thing, judge

LARGEST_TOGETHER = 64
"""Things of one batch: beyond it a window would wait longer for its neighbours than for itself."""


@dataclass(frozen=True)
class Waiting:
    """Examples that wait for their scores."""

    current: Current
    thing: Thing
    found: asyncio.Future[Judged]

    @property
    def group(self) -> tuple[Any, ...]:
        """What may be scored in one batch."""
        return self.current.pointer, self.thing.kind, self.thing.values.shape[1:]


class Together:
    """score: runs a call in the thread of the scores. capacity: so many may wait; the next is sent away."""

    def __init__(self, score: Callable[..., Awaitable[Any]], capacity: int) -> None:
        self._score, self._capacity = score, capacity
        self._waiting: list[Waiting] = []
        self._task: asyncio.Task[None] | None = None

    async def judge(self, current: Current, thing: Thing) -> Judged:
        """The decisions on examples, scored with whatever else waits for the same version."""
        if len(self._waiting) >= self._capacity:
            raise ServiceError(503, "too many requests wait for scores; slow down and try again", 1)
        one = Waiting(current, thing, asyncio.get_running_loop().create_future())
        self._waiting.append(one)
        if self._task is None:
            self._task = asyncio.create_task(self._work_off())
        return await one.found

    async def _work_off(self) -> None:
        try:
            while self._waiting:
                first = self._waiting[0].group
                batch = [one for one in self._waiting if one.group == first][:LARGEST_TOGETHER]
                taken = {id(one) for one in batch}
                self._waiting = [one for one in self._waiting if id(one) not in taken]
                await self._answer(batch)
        finally:
            self._task = None

    async def _answer(self, batch: list[Waiting]) -> None:
        found: Sequence[Judged | Exception]
        try:
            found = await self._score(judge_together, batch[0].current.detector, [one.thing for one in batch])
        except Exception as error:  # whatever it is, those who wait must hear of it
            found = [error] * len(batch)
        for one, answer in zip(batch, found, strict=True):
            if one.found.done():  # who asked has left
                continue
            if isinstance(answer, Exception):
                one.found.set_exception(answer)
            else:
                one.found.set_result(answer)


def judge_together(detector: FewShotDetector, things: Sequence[Thing]) -> list[Judged | Exception]:
    """Things of one kind and shape, scored as one batch; if that fails each for itself, and its error in its place."""
    if len(things) > 1:
        try:
            return list(_split(detector, things))
        except Exception:  # one of them is at fault: the others must not hear of it
            return [found for thing in things for found in judge_together(detector, [thing])]
    try:
        return [judge(detector, thing) for thing in things]
    except Exception as error:
        return [error]


def _split(detector: FewShotDetector, things: Sequence[Thing]) -> list[Judged]:
    scores = detector.score_samples(np.concatenate([thing.values for thing in things]))
    ends = np.cumsum([len(thing.values) for thing in things])[:-1]
    found = []
    for thing, own in zip(things, np.split(scores, ends), strict=True):
        places = np.arange(len(own))
        found.append(Judged(thing, places, np.ones(len(own), np.int64), places, own, own - detector.offset_))
    return found
