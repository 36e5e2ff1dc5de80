"""Windows that wait at the same time are scored at once, and each hears of its own scores alone."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from threading import Event
from typing import Any, cast

import numpy as np
import pytest
import torch
from tests.service.conftest import make_series

from fewone.detector.loading import load_detector
from fewone.detector.one_example import record
from fewone.errors import InputError
from fewone.service.actions import Current
from fewone.service.errors import ServiceError
from fewone.service.few_windows import SIZES, FewWindows, record_several
from fewone.service.judging import Judged, Thing, judge
from fewone.service.store import Pointer
from fewone.service.together import Together


class Mean:
    """A detector whose score is the mean; what holds 9 is refused."""

    offset_ = 0.5

    def __init__(self) -> None:
        self.batches: list[int] = []

    def score_samples(self, values: np.ndarray) -> np.ndarray:
        self.batches.append(len(values))
        if (values == 9).any():
            raise InputError("9 is refused")
        return values.mean(axis=(1, 2))


def store_at_once(current: Current, judged: Sequence[Judged]) -> list[list[int]]:
    return [list(range(len(one.scores))) for one in judged]


class Gate:
    """A detector that takes its time: whoever asks meanwhile waits."""

    offset_ = 0.0

    def __init__(self) -> None:
        self.open = Event()

    def score_samples(self, values: np.ndarray) -> np.ndarray:
        self.open.wait(10)
        return np.zeros(len(values))


def ask(detector: Any, things: list[Thing], capacity: int = 100, store: Any = store_at_once) -> list[Any]:
    """What each hears who asks while something else is scored: its decisions, or an error."""

    async def run() -> list[Any]:
        together, gate = Together(store, capacity), Gate()
        first = Current("gate", Pointer("other", 1), cast(Any, gate))
        current = Current("press", Pointer("uid", 1), detector)
        asked = [asyncio.create_task(together.judge(first, constant(0)))]
        await asyncio.sleep(0.05)
        asked += [asyncio.create_task(together.judge(current, thing)) for thing in things]
        await asyncio.sleep(0.05)
        gate.open.set()
        found = await asyncio.gather(*asked, return_exceptions=True)
        together.close()
        return [one[0] if isinstance(one, tuple) else one for one in found[1:]]

    return asyncio.run(run())


def constant(value: float, count: int = 1) -> Thing:
    return Thing(f"source {value}", "example", np.full((count, 1, 4), value, np.float32))


def test_those_that_wait_are_scored_in_one_batch_and_each_gets_its_own() -> None:
    detector = Mean()
    found = ask(detector, [constant(1), constant(2, 3), constant(3)])
    assert detector.batches == [5]
    for one, value, count in zip(found, (1, 2, 3), (1, 3, 1), strict=True):
        assert isinstance(one, Judged) and one.thing.source == f"source {value}"
        assert one.scores.tolist() == [value] * count and one.decisions.tolist() == [value - 0.5] * count
        assert one.places.tolist() == list(range(count))


def test_a_mistake_of_one_is_not_told_to_the_others() -> None:
    first, wrong, last = ask(Mean(), [constant(1), constant(9), constant(2)])
    assert isinstance(first, Judged) and isinstance(last, Judged) and last.scores.tolist() == [2]
    assert isinstance(wrong, InputError)


def test_windows_of_another_shape_are_a_batch_of_their_own() -> None:
    detector = Mean()
    other = Thing("other", "example", np.zeros((1, 2, 4), np.float32))
    ask(detector, [constant(1), other, constant(2)])
    assert sorted(detector.batches) == [1, 2]


def test_too_many_that_wait_are_sent_away() -> None:
    found = ask(Mean(), [constant(1), constant(2), constant(3)], capacity=2)
    assert [isinstance(one, Judged) for one in found] == [True, True, False]
    assert isinstance(found[2], ServiceError) and found[2].status == 503


def test_the_scores_are_those_of_each_window_alone() -> None:
    detector = load_detector("series").fit(make_series(10).astype(np.float32))
    things = [Thing("json", "example", window[None, None].astype(np.float32)) for window in make_series(4, seed=3)]
    for one, thing in zip(ask(detector, things), things, strict=True):
        assert isinstance(one, Judged)
        assert one.scores == pytest.approx(judge(detector, thing).scores, abs=1e-4)


def test_who_asks_hears_when_nothing_could_be_stored() -> None:
    def refuse(current: Current, judged: Sequence[Judged]) -> list[list[int]]:
        raise ServiceError(507, "the disk is full")

    (found,) = ask(Mean(), [constant(1)], store=refuse)
    assert isinstance(found, ServiceError) and found.status == 507


def test_what_cannot_be_stored_does_not_keep_the_others_from_it() -> None:
    def refuse_two(current: Current, judged: Sequence[Judged]) -> list[list[int]]:
        if any(one.thing.source == "source 2" for one in judged):
            raise ServiceError(507, "the disk is full")
        return store_at_once(current, judged)

    first, second, third = ask(Mean(), [constant(1), constant(2), constant(3)], store=refuse_two)
    assert isinstance(first, Judged) and isinstance(third, Judged) and isinstance(second, ServiceError)


def test_recordings_of_a_few_give_the_scores_of_the_detector() -> None:
    detector = load_detector("series").fit(make_series(10).astype(np.float32))
    windows = make_series(SIZES[-1] + 1, seed=3).astype(np.float32)[:, None]
    few = FewWindows()
    assert few.score_samples(detector, windows[:3]) == pytest.approx(detector.score_samples(windows[:3]), abs=0)
    assert not few._known  # a detector that is not asked often has no recording
    detector.one_example_.recorded = record(detector.guarded_, detector.support_.normals.split(1))
    few.score_samples(detector, windows[:2])
    assert all(made.result() is not None for made in few._known[detector].values())
    for count in range(1, len(windows) + 1):
        found = few.score_samples(detector, windows[:count])
        assert found == pytest.approx(detector.score_samples(windows[:count]), abs=1e-4)
    with pytest.raises(InputError):
        few.score_samples(detector, windows[:3, :, :5])
    few.close()


def test_recordings_of_so_many_give_the_bits_of_the_module() -> None:
    detector = load_detector("series").fit(make_series(10).astype(np.float32))
    for size in SIZES:
        recorded = record_several(detector.guarded_, detector.support_.normals, size)
        for seed in range(5):
            windows = torch.from_numpy(make_series(size, seed=seed).astype(np.float32)[:, None])
            with torch.inference_mode():
                assert torch.equal(recorded(windows), detector.guarded_(windows))
