"""Stores a few decisions in SQLite without SQLAlchemy in between, which takes three times as long as SQLite itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import sqlalchemy as sql
from sqlalchemy.engine import Engine

from fewone.service.database import SCORES, SCORINGS

LARGEST_QUICK = 64
"""Decisions at once; more of them are stored sooner by one long statement."""

Row = dict[str, Any]
Run = Callable[..., Any]


class QuickScores:
    """Rows of `scorings` and of `scores` into SQLite, in one transaction."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._scoring, self._score = _Insert(SCORINGS, engine), _Insert(SCORES, engine)

    def store(self, things: Sequence[tuple[Row, Sequence[Row]]]) -> list[list[int]]:
        """Of each thing its row of `scorings` and those of its decisions -> the ids of the decisions."""
        with self._transaction() as run:
            found = []
            for thing, decisions in things:
                number = self._scoring.run(run, thing)
                found.append([self._score.run(run, {**decision, "scoring": number}) for decision in decisions])
            return found

    @contextmanager
    def _transaction(self) -> Iterator[Run]:
        pooled = self._engine.raw_connection()
        try:
            assert pooled.driver_connection is not None
            run = pooled.driver_connection.execute
            run("BEGIN IMMEDIATE")
            try:
                yield run
                run("COMMIT")
            except BaseException:
                with suppress(Exception):  # a full disk has ended it already
                    run("ROLLBACK")
                raise
        finally:
            pooled.close()


class _Insert:
    """One row into a table -> its id."""

    def __init__(self, table: sql.Table, engine: Engine) -> None:
        self._columns = [column.name for column in table.columns if column.name != "id"]
        compiled = sql.insert(table).returning(table.c.id).compile(engine, column_keys=self._columns)
        assert compiled.positiontup == self._columns
        self._text = str(compiled)

    def run(self, run: Run, row: Row) -> int:
        ((number,),) = run(self._text, [row[name] for name in self._columns]).fetchall()
        return int(number)
