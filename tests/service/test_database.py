"""SQLite's log is brought home by a thread of its own."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from fewone.service import database
from fewone.service.database import connect, migrate
from fewone.service.history import History


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
