"""Running recordings: chunks of rows in, decisions out as windows become whole. State per source, of constant size.

The state lies in the database and moves in the same transaction as the decisions, so that any worker takes the next
chunk and a chunk that is sent twice counts once.
"""

from __future__ import annotations

import time
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import numpy as np
import sqlalchemy as sql
from numpy.typing import NDArray
from sqlalchemy.engine import Connection

from fewone.service.actions import Actions, Current
from fewone.service.database import STREAMS, reading
from fewone.service.errors import ServiceError
from fewone.service.history import Scored
from fewone.service.judging import Judged, Thing, example_shape, judge

Rows = NDArray[np.float32]


@dataclass(frozen=True)
class StreamState:
    """length: rows that came. upcoming: where the next window starts. tail: the last rows, up to row `length`."""

    channels: int
    length: int
    upcoming: int
    tail: Rows


@dataclass(frozen=True)
class Step:
    """What a chunk leads to: the decisions (None: no window became whole) and the state before and after."""

    current: Current
    judged: Judged | None
    before: StreamState | None
    after: StreamState
    taken: int


def read_state(actions: Actions, uid: str, source: str) -> StreamState | None:
    query = sql.select(STREAMS).where(STREAMS.c.detector == uid, STREAMS.c.source == source)
    with reading(actions.history.engine).begin() as connection:
        row = connection.execute(query).mappings().first()
    if row is None:
        return None
    tail = np.frombuffer(row["tail"], "<f4").reshape(-1, row["channels"])
    return StreamState(row["channels"], row["length"], row["upcoming"], tail)


def take_chunk(
    actions: Actions, name: str, source: str, rows: Rows, first_step: int | None, stride: int | None
) -> Step:
    """Score the windows that this chunk makes whole."""
    current = actions.current(name)
    shape = example_shape(current.detector)
    if len(shape) != 2:
        raise ServiceError(422, f"{name} takes pictures; only series come as streams")
    channels, window = shape
    if rows.ndim != 2 or rows.shape[1] != channels:
        raise ServiceError(422, f"rows: (time steps, {channels}) expected, one list per time step; got {rows.shape}")
    before = read_state(actions, current.pointer.uid, source)
    state = before or StreamState(channels, 0, 0, np.zeros((0, channels), np.float32))
    fresh = _skip_known(rows, first_step, state.length)
    step = window if stride is None else stride
    if step < 1:
        raise ServiceError(422, f"stride is {step}: at least 1 is expected")
    windows, starts, after = advance(state, fresh, window, step)
    if not len(starts):
        return Step(current, None, before, after, len(fresh))
    thing = Thing(source, "stream", windows, starts)
    return Step(current, judge(current.detector, thing), before, after, len(fresh))


def advance(state: StreamState, rows: Rows, window: int, stride: int) -> tuple[Rows, NDArray[np.int64], StreamState]:
    """The windows (n, channels, window) that became whole, where they start, and the state after the rows."""
    held = np.concatenate([state.tail, rows])
    length = state.length + len(rows)
    first = length - len(held)
    count = max(0, (length - window - state.upcoming) // stride + 1) if length >= state.upcoming + window else 0
    starts = state.upcoming + stride * np.arange(count)
    whole = np.stack([held[s - first : s - first + window].T for s in starts.tolist()]) if count else held[:0]
    upcoming = state.upcoming + stride * count
    tail = held[max(0, min(upcoming - first, len(held))) :]
    return whole, starts, StreamState(state.channels, length, upcoming, np.ascontiguousarray(tail))


def store_step(actions: Actions, source: str, step: Step, end: bool) -> Future[list[int]]:
    """Decisions and state in one transaction; a second chunk at the same time is refused."""
    pointer = step.current.pointer
    at = time.time()

    def work(connection: Connection) -> list[int]:
        _move(connection, pointer.uid, source, step, at, end)
        if step.judged is None:
            return []
        (ids,) = actions.history.add_scores(connection, [Scored(pointer.uid, pointer.version, step.judged, at)])
        return ids

    return actions.history.write(work)


def list_streams(actions: Actions, uid: str) -> list[dict[str, Any]]:
    query = sql.select(STREAMS.c.source, STREAMS.c.length, STREAMS.c.at).where(STREAMS.c.detector == uid)
    with reading(actions.history.engine).begin() as connection:
        return [dict(row) for row in connection.execute(query.order_by(STREAMS.c.source).limit(1000)).mappings()]


def _skip_known(rows: Rows, first_step: int | None, length: int) -> Rows:
    """A chunk that was sent before is not taken twice."""
    if first_step is None:
        return rows
    if first_step > length:
        raise ServiceError(409, f"first_step is {first_step}, but {length} rows came so far; send from row {length} on")
    return rows[length - first_step :]


def _move(connection: Connection, uid: str, source: str, step: Step, at: float, end: bool) -> None:
    here = (STREAMS.c.detector == uid) & (STREAMS.c.source == source)
    if step.before is not None:
        here &= STREAMS.c.length == step.before.length
    if end:
        if step.before is not None and connection.execute(sql.delete(STREAMS).where(here)).rowcount != 1:
            raise _collision(source)
        return
    values = {
        "channels": step.after.channels,
        "length": step.after.length,
        "upcoming": step.after.upcoming,
        "tail": step.after.tail.astype("<f4").tobytes(),
        "at": at,
    }
    if step.before is not None:
        if connection.execute(sql.update(STREAMS).where(here).values(values)).rowcount != 1:
            raise _collision(source)
        return
    try:
        connection.execute(sql.insert(STREAMS), {"detector": uid, "source": source, **values})
    except sql.exc.IntegrityError as error:
        raise _collision(source) from error


def _collision(source: str) -> ServiceError:
    return ServiceError(409, f"source {source!r}: another chunk came at the same time; send chunks one after the other")
