"""Writes and reads what happened. Writes go through one thread that commits together what came in the meantime."""

from __future__ import annotations

import json
import queue
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock, Thread
from typing import Any

import numpy as np
import sqlalchemy as sql
from numpy.typing import NDArray
from sqlalchemy.engine import Connection, Engine

from fewone.service.database import CHANGES, SCORES, SCORINGS, STREAMS, Checkpoints, check_database_file, reading
from fewone.service.judging import Judged
from fewone.service.quick_scores import LARGEST_QUICK, QuickScores

KEPT_BYTES = 2 << 20
"""The values of one scored thing are kept up to this size."""
TRIM_EVERY = 50
COLUMNS = [column for column in SCORES.columns if column.name not in ("detector", "scoring", "row")]

ADD_SCORINGS = sql.insert(SCORINGS).returning(SCORINGS.c.id, sort_by_parameter_order=True)
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


@dataclass(frozen=True)
class Scored:
    """What is to be stored: a judged thing, by which version of which detector, and when."""

    uid: str
    version: int
    judged: Judged
    at: float


@dataclass(frozen=True)
class _Write:
    """Something for the next transaction: things that were scored, or any work."""

    what: Work | list[Scored]
    done: Future[Any] = field(default_factory=Future)


class History:
    """The database of one process: one thread writes, anyone reads."""

    def __init__(self, engine: Engine, kept_values: int) -> None:
        self.engine, self.kept_values = engine, kept_values
        self._reading = reading(engine)
        self._queue: queue.SimpleQueue[_Write | None] = queue.SimpleQueue()
        self._since_trim: Counter[str] = Counter()
        self._checkpoints = Checkpoints(engine)
        self._quick = QuickScores(engine) if engine.dialect.name == "sqlite" else None
        self._writing = Lock()
        """Threads of this process wait for each other here: SQLite would let them sleep and try again."""
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
        return self._put(work)

    def write_scores(self, scored: list[Scored]) -> Future[list[list[int]]]:
        """Store what was scored in the next transaction; the future tells the ids once it is committed."""
        return self._put(scored)

    def store(self, scored: list[Scored]) -> list[list[int]]:
        """Store what was scored at once, in the caller's thread."""
        with self._writing:
            check_database_file(self.engine)
            found = self._store(scored)
        if self._find_due():
            self.write(self._trim_what_is_due)
        return found

    def _store(self, scored: list[Scored]) -> list[list[int]]:
        if self._quick is None or sum(len(one.judged.scores) for one in scored) > LARGEST_QUICK:
            with self.engine.begin() as connection:
                return self.add_scores(connection, scored)
        found = self._quick.store([(_scoring_row(one), _score_rows(one)) for one in scored])
        self._since_trim.update(one.uid for one in scored)
        return found

    def _put(self, what: Work | list[Scored]) -> Future[Any]:
        write = _Write(what)
        self._queue.put(write)
        return write.done

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

    def add_scores(self, connection: Connection, scored: Sequence[Scored]) -> list[list[int]]:
        """Store scored things and their decisions, all by two statements; the ids of each thing's decisions."""
        scorings = connection.execute(ADD_SCORINGS, [_scoring_row(one) for one in scored]).scalars().all()
        rows = [_score_rows(one, scoring) for one, scoring in zip(scored, scorings, strict=True)]
        ids = iter(connection.execute(ADD_SCORES, [row for own in rows for row in own]).scalars().all())
        self._since_trim.update(one.uid for one in scored)
        return [[int(next(ids)) for _ in own] for own in rows]

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

    def _find_due(self) -> list[str]:
        return [uid for uid, count in self._since_trim.copy().items() if count >= TRIM_EVERY]

    def _trim_what_is_due(self, connection: Connection) -> None:
        """Values of older things are let go, when nobody waits for it; their decisions stay."""
        for uid in self._find_due():
            self._trim(connection, uid)
            del self._since_trim[uid]

    def _trim(self, connection: Connection, uid: str) -> None:
        kept = (SCORINGS.c.detector == uid) & SCORINGS.c.kept.is_not(None)
        newest = sql.select(SCORINGS.c.id).where(kept).order_by(SCORINGS.c.id.desc())
        bound = connection.execute(newest.offset(self.kept_values).limit(1)).scalar()
        if bound is not None:
            connection.execute(sql.update(SCORINGS).where(kept, SCORINGS.c.id <= bound).values(kept=None))

    def _write_all(self) -> None:
        open_ = True
        while open_:
            batch = [self._queue.get()]
            while not self._queue.empty():
                batch.append(self._queue.get())
            open_ = None not in batch
            with self._writing:
                self._write_together([write for write in batch if write is not None])
                if open_ and self._find_due():
                    self._write_together([_Write(self._trim_what_is_due)])

    def _write_together(self, batch: list[_Write]) -> None:
        if not batch:
            return
        try:
            check_database_file(self.engine)
            with self.engine.begin() as connection:
                results = self._run(connection, batch)
        except Exception as error:  # whatever it is, those who wait must hear of it
            if len(batch) > 1:  # one of them may be at fault: each for itself
                for write in batch:
                    self._write_together([write])
                return
            batch[0].done.set_exception(error)
            return
        for write, result in zip(batch, results, strict=True):
            write.done.set_result(result)

    def _run(self, connection: Connection, batch: list[_Write]) -> list[Any]:
        """What each of them hears; everything that was scored goes together."""
        scored = [one for write in batch if isinstance(write.what, list) for one in write.what]
        ids = iter(self.add_scores(connection, scored)) if scored else iter(())
        return [
            [next(ids) for _ in write.what] if isinstance(write.what, list) else write.what(connection)
            for write in batch
        ]


def _scoring_row(scored: Scored) -> dict[str, Any]:
    judged = scored.judged
    values = np.ascontiguousarray(judged.thing.values, dtype="<f4")
    return {
        "detector": scored.uid,
        "shape": ",".join(map(str, values.shape)),
        "kept": values.tobytes() if values.nbytes <= KEPT_BYTES else None,
        "starts": None if judged.starts is None else judged.starts.astype("<i8").tobytes(),
        "window_scores": None if judged.window_scores is None else judged.window_scores.astype("<f8").tobytes(),
    }


def _score_rows(scored: Scored, scoring: Any = None) -> list[dict[str, Any]]:
    common = {
        "scoring": scoring,
        "detector": scored.uid,
        "version": scored.version,
        "at": scored.at,
        "source": scored.judged.thing.source,
        "kind": scored.judged.thing.kind,
    }
    return [{**common, "row": row, **entry} for row, entry in enumerate(scored.judged.rows())]


def _unpack(data: bytes | None, kind: np.dtype[Any], shape: str | None = None) -> Any:
    if data is None:
        return None
    flat = np.frombuffer(data, kind)
    return flat if shape is None else flat.reshape([int(axis) for axis in shape.split(",")])
