"""SQLite's log is brought home by a thread of its own; both ways of storing store the same; old tables are changed."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest
import sqlalchemy as sql
from alembic import command
from alembic.config import Config

from fewone.service import database
from fewone.service.database import SCORES, SCORINGS, connect, migrate
from fewone.service.history import History, Scored
from fewone.service.judging import Judged, Thing


def make_scored(number: int, count: int = 1) -> Scored:
    places, scores = np.arange(count), np.linspace(number, number + 1, count)
    values = np.full((count, 1, 4), number, np.float32)
    judged = Judged(Thing(f"file {number}", "example", values), places, places + 1, places, scores, scores - 0.5)
    return Scored("u" * 32, 1, judged, 1000.0 + number)


def open_history(folder: Path, kept_values: int = 10) -> History:
    engine = connect(f"sqlite:///{folder / 'history.sqlite'}", power_safe=False)
    migrate(engine, folder)
    return History(engine, kept_values)


def read_all(history: History, table: sql.Table) -> list[tuple[object, ...]]:
    with history.engine.connect() as connection:
        return [tuple(row) for row in connection.execute(sql.select(table).order_by(table.c.id))]


def test_the_log_is_brought_home_while_the_service_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "QUIET_BYTES", 0)
    place = tmp_path / "history.sqlite"
    engine = connect(f"sqlite:///{place}", power_safe=False)
    migrate(engine, tmp_path)
    history = History(engine, 10)
    with history.record_change("u", 1, "fit", {}):
        pass
    log, end = Path(f"{place}-wal"), time.monotonic() + 30
    while log.stat().st_size and time.monotonic() < end:
        time.sleep(0.05)
    assert log.stat().st_size == 0 and [row["version"] for row in history.changes("u", 5)] == [1]
    history.close()


def test_the_log_begins_anew_while_others_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database, "BUSY_BYTES", 50 * database.PAGE)
    monkeypatch.setattr(database, "CHECKPOINT_EVERY", 0.01)
    history = open_history(tmp_path)
    sizes: list[int] = []
    end = time.monotonic() + 30
    while (len(sizes) < 50 or sizes == sorted(sizes)) and time.monotonic() < end:
        history.store([make_scored(len(sizes))])
        sizes.append(history._checkpoints._measure_log())
    assert sizes != sorted(sizes)  # it shrank at least once
    assert len(read_all(history, SCORES)) == len(sizes)
    history.close()


def test_scores_are_stored_alike_with_and_without_sqlalchemy(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    one.mkdir()
    other.mkdir()
    quick, slow = open_history(one), open_history(other)
    scored = [make_scored(1), make_scored(2, count=3)]
    assert quick.store(scored) == slow.write_scores(scored).result(30) == [[1], [2, 3, 4]]
    for table in (SCORES, SCORINGS):
        assert read_all(quick, table) == read_all(slow, table) != []
    quick.close()
    slow.close()


def test_nothing_of_a_transaction_stays_when_one_of_its_rows_is_refused(tmp_path: Path) -> None:
    history = open_history(tmp_path)
    broken = Scored("u" * 32, 1, make_scored(2).judged, None)  # type: ignore[arg-type]
    with pytest.raises(Exception, match="at"):
        history.store([make_scored(1), broken])
    assert read_all(history, SCORES) == read_all(history, SCORINGS) == []
    assert history.store([make_scored(3)]) == [[1]]
    history.close()


@pytest.mark.parametrize("way", ["sqlite", "postgresql"])
def test_tables_of_the_first_version_are_brought_to_this_one(
    way: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    url = f"sqlite:///{tmp_path / 'history.sqlite'}"
    if way == "postgresql":
        url = request.getfixturevalue("postgres").new_database()
    engine = connect(url, power_safe=False)
    config = Config()
    config.set_main_option("script_location", str(Path(database.__file__).parent / "migrations"))
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "0001")
    migrate(engine, tmp_path)
    found = sql.inspect(engine)
    assert "scorings_with_values" in {index["name"] for index in found.get_indexes("scorings")}
    assert "scores_by_scoring" not in {index["name"] for index in found.get_indexes("scores")}
    engine.dispose()
