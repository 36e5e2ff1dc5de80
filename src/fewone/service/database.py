"""What happened, in a database: changes of detectors, scored things with their decisions, running recordings.

SQLite in the folder (WAL) or PostgreSQL by URL; the tables are made and changed by the migrations alone.
"""

from __future__ import annotations

import fcntl
import sqlite3
import sys
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread
from typing import Any

import sqlalchemy as sql
from alembic import command
from alembic.config import Config
from sqlalchemy.engine import Connection, Engine

from fewone.errors import FewoneError
from fewone.extras import needed_for
from fewone.service.errors import ServiceError

CHECKPOINT_EVERY = 0.25
QUIET_BYTES = 4 << 20
"""A larger log of SQLite is brought home when nothing was written since the last look."""
BUSY_BYTES = 128 << 20
"""Of this size the log is brought home while others write: some of them wait some ten milliseconds for the disk."""
LAST_RESORT = 256 << 20
"""Of this size a writer brings it home itself, and decisions wait for the disk meanwhile."""
PAGE = 1024
"""Bytes of a page of a new file: a decision changes seven of them, and each goes into the log as a whole."""
CHECKPOINT_PATIENCE = 5
"""Milliseconds that beginning the log anew waits for others, and others for it."""
BUSY_MILLISECONDS = 10_000

METADATA = sql.MetaData()
IDENTITY = sql.BigInteger().with_variant(sql.Integer(), "sqlite")
WITH_VALUES = sql.text("kept IS NOT NULL")

CHANGES = sql.Table(
    "changes",
    METADATA,
    sql.Column("id", IDENTITY, primary_key=True, autoincrement=True),
    sql.Column("detector", sql.String(32), nullable=False),
    sql.Column("version", sql.Integer, nullable=False),
    sql.Column("at", sql.Double, nullable=False),
    sql.Column("kind", sql.String(32), nullable=False),
    sql.Column("detail", sql.Text, nullable=False),
    sql.Index("changes_by_detector", "detector", "id"),
)
"""Every fit, feedback, undo, restore and new threshold."""

SCORINGS = sql.Table(
    "scorings",
    METADATA,
    sql.Column("id", IDENTITY, primary_key=True, autoincrement=True),
    sql.Column("detector", sql.String(32), nullable=False),
    sql.Column("shape", sql.String(64), nullable=False),
    sql.Column("kept", sql.LargeBinary, nullable=True),
    sql.Column("starts", sql.LargeBinary, nullable=True),
    sql.Column("window_scores", sql.LargeBinary, nullable=True),
    sql.Index("scorings_by_detector", "detector", "id"),
    sql.Index("scorings_with_values", "detector", "id", sqlite_where=WITH_VALUES, postgresql_where=WITH_VALUES),
)
"""What was scored together: its values as float32 (None once they are no longer kept) and, of a recording, the first
time step and the score of each window."""

SCORES = sql.Table(
    "scores",
    METADATA,
    sql.Column("id", IDENTITY, primary_key=True, autoincrement=True),
    sql.Column("scoring", IDENTITY, nullable=False),
    sql.Column("detector", sql.String(32), nullable=False),
    sql.Column("version", sql.Integer, nullable=False),
    sql.Column("at", sql.Double, nullable=False),
    sql.Column("source", sql.Text, nullable=False),
    sql.Column("kind", sql.String(16), nullable=False),
    sql.Column("row", sql.Integer, nullable=False),
    sql.Column("place", sql.BigInteger, nullable=False),
    sql.Column("windows", sql.Integer, nullable=False),
    sql.Column("worst", sql.BigInteger, nullable=False),
    sql.Column("score", sql.Double, nullable=False),
    sql.Column("decision", sql.Double, nullable=False),
    sql.Column("probability", sql.Double, nullable=False),
    sql.Column("anomalous", sql.Boolean, nullable=False),
    sql.Index("scores_by_detector", "detector", "id"),
    sql.Index("scores_by_time", "detector", "at"),
)
"""One row per decision. row: which of the scoring's examples it is about; place: where it lies in its file."""

STREAMS = sql.Table(
    "streams",
    METADATA,
    sql.Column("detector", sql.String(32), primary_key=True),
    sql.Column("source", sql.String(200), primary_key=True),
    sql.Column("channels", sql.Integer, nullable=False),
    sql.Column("length", sql.BigInteger, nullable=False),
    sql.Column("upcoming", sql.BigInteger, nullable=False),
    sql.Column("tail", sql.LargeBinary, nullable=False),
    sql.Column("at", sql.Double, nullable=False),
)
"""Running recordings: how many rows came, where the next window starts, and the rows it needs."""


def connect(url: str, power_safe: bool) -> Engine:
    """An engine that notices a database that went away; SQLite in WAL, PostgreSQL by psycopg."""
    try:
        address = sql.make_url(url)
        if address.get_backend_name() == "postgresql":
            address = address.set(drivername="postgresql+psycopg")
            with needed_for("the database", "service"):
                return sql.create_engine(
                    address, pool_pre_ping=True, pool_size=8, pool_timeout=10, connect_args={"connect_timeout": 5}
                )
        if address.get_backend_name() != "sqlite":
            raise FewoneError(
                f"--database {address.render_as_string()}: sqlite:///FILE or postgresql://... is expected"
            )
        engine = sql.create_engine(address, connect_args={"timeout": 10})
    except sql.exc.ArgumentError as error:
        raise FewoneError("--database: not a URL; sqlite:///FILE or postgresql://USER@HOST/NAME is expected") from error
    _prepare_sqlite(engine, power_safe)
    return engine


def _prepare_sqlite(engine: Engine, power_safe: bool) -> None:
    def on_connect(connection: Any, _: object) -> None:
        connection.isolation_level = None  # sqlite3 begins transactions late by itself; `on_begin` does it at once
        connection.execute(f"PRAGMA page_size={PAGE}")  # of a file that is there it stays as it is
        ((page,),) = connection.execute("PRAGMA page_size").fetchall()
        for line in (
            "journal_mode=WAL",
            f"synchronous={'FULL' if power_safe else 'NORMAL'}",
            f"busy_timeout={BUSY_MILLISECONDS}",
            f"wal_autocheckpoint={LAST_RESORT // page}",
            "cache_size=-16000",
        ):
            connection.execute(f"PRAGMA {line}")

    def on_begin(connection: Connection) -> None:
        read = connection.get_execution_options().get("read", False)
        connection.exec_driver_sql("BEGIN" if read else "BEGIN IMMEDIATE")

    sql.event.listen(engine, "connect", on_connect)
    sql.event.listen(engine, "begin", on_begin)


class Checkpoints:
    """Brings SQLite's log home in a thread of its own, so that no decision waits for the disk; else does nothing."""

    def __init__(self, engine: Engine) -> None:
        self._engine, self._stop = engine, Event()
        self._log = Path(f"{engine.url.database}-wal") if engine.dialect.name == "sqlite" else None
        self._thread = Thread(target=self._run, name="checkpoints", daemon=True)
        if self._log is not None:
            self._thread.start()

    def close(self) -> None:
        self._stop.set()
        if self._log is not None:
            self._thread.join()

    def _run(self) -> None:
        assert self._log is not None
        before = 0
        while not self._stop.wait(CHECKPOINT_EVERY):
            with suppress(OSError, sql.exc.SQLAlchemyError, sqlite3.Error):  # away or full: writers find out and tell
                log = self._log.stat()
                if log.st_mtime_ns == before and log.st_size > QUIET_BYTES:
                    self._bring_home("TRUNCATE")
                elif self._measure_log() > BUSY_BYTES:
                    self._bring_home("RESTART")
                before = log.st_mtime_ns

    def _measure_log(self) -> int:
        """Bytes in use of the log: what SQLite's index of it says (`szPage` and `mxFrame` of its file format)."""
        with Path(f"{self._engine.url.database}-shm").open("rb") as index:
            head = index.read(20)
        return int.from_bytes(head[14:16], sys.byteorder) * int.from_bytes(head[16:20], sys.byteorder)

    def _bring_home(self, end: str) -> None:
        """end: RESTART, the log begins anew at once, or TRUNCATE, its file is cut off as well, which takes longer."""
        connection = self._engine.raw_connection()
        try:
            connection.execute(f"PRAGMA busy_timeout={CHECKPOINT_PATIENCE}")
            connection.execute("PRAGMA wal_checkpoint(PASSIVE)")  # nearly all of it, while others write
            connection.execute(f"PRAGMA wal_checkpoint({end})")  # the rest: the log begins anew
        finally:
            connection.execute(f"PRAGMA busy_timeout={BUSY_MILLISECONDS}")
            connection.close()


def migrate(engine: Engine, home: Path) -> None:
    """Bring the tables to this version's state; several processes may start at once."""
    home.mkdir(parents=True, exist_ok=True)
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    with (home / "migration.lock").open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with engine.begin() as connection:
            if engine.dialect.name == "postgresql":
                connection.exec_driver_sql("SELECT pg_advisory_xact_lock(748294)")
            config.attributes["connection"] = connection
            command.upgrade(config, "head")


def reading(engine: Engine) -> Engine:
    """The same engine for transactions that only read: they never wait for a writer."""
    return engine.execution_options(read=True)


def check_database_file(engine: Engine) -> None:
    """Refuse to write into a SQLite file that was moved or deleted under us: what is acknowledged must be found."""
    if engine.dialect.name != "sqlite" or not engine.url.database or engine.url.database == ":memory:":
        return
    place = Path(engine.url.database)
    if not place.exists():
        engine.dispose()
        raise ServiceError(503, "the database file is gone; nothing was stored: put it back", 5)
