"""Writes and reads what happened. Writes go through one thread that commits together what came in the meantime."""

from __future__ import annotations

import json
import queue
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Thread
from typing import Any

import numpy as np
import sqlalchemy as sql
from numpy.typing import NDArray
from sqlalchemy.engine import Connection, Engine

from fewone.service.database import CHANGES, SCORES, SCORINGS, STREAMS, Checkpoints, check_database_file, reading
from fewone.service.judging import Judged

KEPT_BYTES = 2 << 20
"""The values of one scored thing are kept up to this size."""
TRIM_EVERY = 50
COLUMNS = [column for column in SCORES.columns if column.name not in ("detector", "scoring", "row")]

ADD_SCORING = sql.insert(SCORINGS).returning(SCORINGS.c.id)
ADD_SCORES = sql.insert(SCORES).returning(SCORES.c.id, sort_by_parameter_order=True)
"""Built once: building them takes as long as running them."""

Work = Callable[[Connection], Any]


@dataclass(frozen=True)
class Kept:
    """What is kept of a scored thing: values (None if no longer there), windows of a recording, its row of `scores`."""

    score: dict[str, Any]
    values: NDArray[np.float32] | None
    row: int
    starts: NDArray[np.int64] | None
    window_scores: NDArray[np.float64] | None


class History:
    """The database of one process: one thread writes, anyone reads."""

    def __init__(self, engine: Engine, kept_values: int) -> None:
        self.engine, self.kept_values = engine, kept_values
        self._reading = reading(engine)
        self._queue: queue.SimpleQueue[tuple[Work, Future[Any]] | None] = queue.SimpleQueue()
        self._since_trim: Counter[str] = Counter()
        self._checkpoints = Checkpoints(engine)
        self._thread = Thread(target=self._write_all, name="history", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Everything that was handed in is written first."""
        self._queue.put(None)
        self._thread.join()
        self._checkpoints.close()
        self.engine.dispose()

    def write(self, work: Work) -> Future[Any]:
        """Run `work` in the next transaction; the future is done once it is committed."""
        future: Future[Any] = Future()
        self._queue.put((work, future))
        return future

    def ping(self) -> None:
        check_database_file(self.engine)
        with self._reading.begin() as connection:
            connection.execute(sql.select(SCORES.c.id).limit(1)).all()

    @contextmanager
    def record_change(self, uid: str, version: int, kind: str, detail: dict[str, Any]) -> Iterator[None]:
        """Note a change of a detector; it is committed when the block is through."""
        check_database_file(self.engine)
        with self.engine.begin() as connection:
            row = {"detector": uid, "version": version, "at": time.time(), "kind": kind, "detail": json.dumps(detail)}
            connection.execute(sql.insert(CHANGES), row)
            yield

    def changes(self, uid: str, limit: int) -> list[dict[str, Any]]:
        query = sql.select(CHANGES).where(CHANGES.c.detector == uid).order_by(CHANGES.c.id.desc()).limit(limit)
        with self._reading.begin() as connection:
            rows = connection.execute(query).mappings().all()
        return [
            {"version": row["version"], "at": row["at"], "kind": row["kind"], **json.loads(row["detail"])}
            for row in rows
        ]

    def forget(self, uid: str) -> None:
        """All that is known of a deleted detector."""
        with self.engine.begin() as connection:
            for table in (SCORES, SCORINGS, STREAMS, CHANGES):
                connection.execute(sql.delete(table).where(table.c.detector == uid))

    def add_scores(self, connection: Connection, uid: str, version: int, judged: Judged, at: float) -> list[int]:
        """Store a scored thing and its decisions; their ids."""
        scoring = connection.execute(ADD_SCORING, _scoring_row(uid, judged)).scalar()
        rows = _score_rows(uid, version, judged, at, scoring)
        ids = [int(found) for found in connection.execute(ADD_SCORES, rows).scalars()]
        self._trim(connection, uid)
        return ids

    def page(
        self,
        uid: str,
        limit: int,
        before: int | None = None,
        after: int | None = None,
        since: float | None = None,
        until: float | None = None,
        anomalous: bool | None = None,
    ) -> list[dict[str, Any]]:
        """Decisions, the newest first: of ids below `before` or above `after`, in a range of time."""
        query = sql.select(*COLUMNS).where(SCORES.c.detector == uid)
        if before is not None:
            query = query.where(SCORES.c.id < before)
        if after is not None:
            query = query.where(SCORES.c.id > after)
        if since is not None:
            query = query.where(SCORES.c.at >= since)
        if until is not None:
            query = query.where(SCORES.c.at < until)
        if anomalous is not None:
            query = query.where(SCORES.c.anomalous == anomalous)
        # Beyond a known id the oldest come first, so that nothing is skipped; all are told newest first.
        oldest_first = after is not None and before is None
        order = SCORES.c.id.asc() if oldest_first else SCORES.c.id.desc()
        with self._reading.begin() as connection:
            rows = [dict(row) for row in connection.execute(query.order_by(order).limit(limit)).mappings()]
        return rows[::-1] if oldest_first else rows

    def newest(self, after: int, limit: int) -> list[dict[str, Any]]:
        """Decisions of all detectors beyond an id, the oldest first, each with its detector's uid."""
        query = sql.select(*COLUMNS, SCORES.c.detector).where(SCORES.c.id > after)
        with self._reading.begin() as connection:
            return [dict(row) for row in connection.execute(query.order_by(SCORES.c.id).limit(limit)).mappings()]

    def last_id(self) -> int:
        with self._reading.begin() as connection:
            return int(connection.execute(sql.select(sql.func.max(SCORES.c.id))).scalar() or 0)

    def count_alarms(self, uid: str, since: float) -> int:
        query = sql.select(sql.func.count()).where(
            SCORES.c.detector == uid, SCORES.c.at >= since, SCORES.c.anomalous.is_(True)
        )
        with self._reading.begin() as connection:
            return int(connection.execute(query).scalar() or 0)

    def kept(self, uid: str, score: int) -> Kept | None:
        """One decision with what is kept of the thing it is about."""
        with self._reading.begin() as connection:
            query = sql.select(SCORES).where(SCORES.c.detector == uid, SCORES.c.id == score)
            row = connection.execute(query).mappings().first()
            if row is None:
                return None
            query = sql.select(SCORINGS).where(SCORINGS.c.id == row["scoring"])
            scoring = connection.execute(query).mappings().one()
        told = {column.name: row[column.name] for column in COLUMNS}
        return Kept(
            told,
            _unpack(scoring["kept"], np.dtype("<f4"), scoring["shape"]),
            row["row"],
            _unpack(scoring["starts"], np.dtype("<i8")),
            _unpack(scoring["window_scores"], np.dtype("<f8")),
        )

    def windows_of(self, uid: str, ids: Sequence[int]) -> dict[int, tuple[NDArray[np.int64], NDArray[np.float64]]]:
        """Of those decisions that are about recordings: the starts and scores of their windows."""
        query = (
            sql.select(SCORES.c.id, SCORINGS.c.starts, SCORINGS.c.window_scores)
            .join(SCORINGS, SCORINGS.c.id == SCORES.c.scoring)
            .where(SCORES.c.detector == uid, SCORES.c.id.in_(ids), SCORINGS.c.starts.is_not(None))
        )
        with self._reading.begin() as connection:
            rows = connection.execute(query).all()
        return {row.id: (np.frombuffer(row.starts, "<i8"), np.frombuffer(row.window_scores, "<f8")) for row in rows}

    def _trim(self, connection: Connection, uid: str) -> None:
        """Values of older things are let go; their decisions stay."""
        self._since_trim[uid] += 1
        if self._since_trim[uid] % TRIM_EVERY:
            return
        oldest = (
            sql.select(SCORINGS.c.id)
            .where(SCORINGS.c.detector == uid)
            .order_by(SCORINGS.c.id.desc())
            .offset(self.kept_values)
            .limit(1)
        )
        bound = connection.execute(oldest).scalar()
        if bound is not None:
            old = (SCORINGS.c.detector == uid) & (SCORINGS.c.id <= bound) & SCORINGS.c.kept.is_not(None)
            connection.execute(sql.update(SCORINGS).where(old).values(kept=None))

    def _write_all(self) -> None:
        open_ = True
        while open_:
            batch = [self._queue.get()]
            while not self._queue.empty():
                batch.append(self._queue.get())
            open_ = None not in batch
            self._write_together([entry for entry in batch if entry is not None])

    def _write_together(self, batch: list[tuple[Work, Future[Any]]]) -> None:
        if not batch:
            return
        try:
            check_database_file(self.engine)
            with self.engine.begin() as connection:
                results = [work(connection) for work, _ in batch]
        except Exception as error:  # whatever it is, those who wait must hear of it
            if len(batch) > 1:  # one of them may be at fault: each for itself
                for entry in batch:
                    self._write_together([entry])
                return
            batch[0][1].set_exception(error)
            return
        for (_, future), result in zip(batch, results, strict=True):
            future.set_result(result)


def _scoring_row(uid: str, judged: Judged) -> dict[str, Any]:
    values = np.ascontiguousarray(judged.thing.values, dtype="<f4")
    return {
        "detector": uid,
        "shape": ",".join(map(str, values.shape)),
        "kept": values.tobytes() if values.nbytes <= KEPT_BYTES else None,
        "starts": None if judged.starts is None else judged.starts.astype("<i8").tobytes(),
        "window_scores": None if judged.window_scores is None else judged.window_scores.astype("<f8").tobytes(),
    }


def _score_rows(uid: str, version: int, judged: Judged, at: float, scoring: Any) -> list[dict[str, Any]]:
    common = {
        "scoring": scoring,
        "detector": uid,
        "version": version,
        "at": at,
        "source": judged.thing.source,
        "kind": judged.thing.kind,
    }
    return [{**common, "row": row, **entry} for row, entry in enumerate(judged.rows())]


def _unpack(data: bytes | None, kind: np.dtype[Any], shape: str | None = None) -> Any:
    if data is None:
        return None
    flat = np.frombuffer(data, kind)
    return flat if shape is None else flat.reshape([int(axis) for axis in shape.split(",")])
