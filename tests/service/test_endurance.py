"""Nothing that was acknowledged is lost: kill -9 under load, full and read-only disks, a database that goes and comes.

The number of kills is FEWONE_KILLS (3; the documented run: 20).
"""

from __future__ import annotations

import json
import os
import random
import re
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest
import sqlalchemy as sql
from starlette.testclient import TestClient
from tests.service.conftest import Postgres, make_series, open_client
from tests.service.receivers import free_port, wait_for

from fewone.service.errors import as_service_error
from fewone.service.settings import ServiceSettings

KILLS = int(os.environ.get("FEWONE_KILLS", "3"))
NURSERY = Path(__file__).with_name("nursery.py")


@dataclass
class Promises:
    """What the service acknowledged."""

    scores: set[int] = field(default_factory=set)
    rows: int = 0
    versions: set[int] = field(default_factory=lambda: {1})
    created: set[str] = field(default_factory=set)
    deleted: set[str] = field(default_factory=set)
    counter: int = 0


class Nursery:
    """Services that start quickly and are killed."""

    def __init__(self, folder: Path) -> None:
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        self.log = folder / "served.log"
        self._options = ["--folder", str(folder / "served"), "--port"]
        self._process = subprocess.Popen(
            [sys.executable, str(NURSERY)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        assert self._read() == "ready"

    def _read(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def start(self) -> tuple[int, str]:
        port = free_port()
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([str(self.log), *self._options, str(port)]) + "\n")
        self._process.stdin.flush()
        child, address = int(self._read()), f"http://127.0.0.1:{port}"

        def answers() -> bool:
            try:
                return httpx.get(f"{address}/ready", timeout=5).status_code == 200
            except httpx.HTTPError:
                return False

        wait_for(answers, 60)
        return child, address

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


def hammer(address: str, work: Callable[[httpx.Client], None], stop: threading.Event) -> threading.Thread:
    """Repeat until the service is gone; whatever was not answered was not promised."""

    def run() -> None:
        with httpx.Client(base_url=address, timeout=30) as client:
            while not stop.is_set():
                try:
                    work(client)
                except (httpx.HTTPError, ValueError):
                    return

    thread = threading.Thread(target=run)
    thread.start()
    return thread


def workloads(promises: Promises) -> list[Callable[[httpx.Client], None]]:
    probe = make_series(3, seed=1)

    def score(client: httpx.Client) -> None:
        answer = client.post("/detectors/press/score", json={"examples": probe.tolist()})
        promises.scores |= {one["id"] for one in answer.json()["results"]}

    def stream(client: httpx.Client) -> None:
        rows = {"recordings": [probe[0].tolist()], "source": "s", "first_step": promises.rows}
        promises.rows = client.post("/detectors/press/stream", json=rows).json()["length"]

    def change(client: httpx.Client) -> None:
        known = sorted(promises.scores)
        if not known:
            return
        question = {"score": known[-1], "was": "normal"}
        answer = client.post("/detectors/press/feedback", json=question)
        if answer.status_code == 200:
            promises.versions.add(answer.json()["version"])
            undone = client.delete(f"/detectors/press/feedback/{known[-1]}")
            if undone.status_code == 200:
                promises.versions.add(undone.json()["version"])

    def create(client: httpx.Client) -> None:
        promises.counter += 1
        name = f"d{promises.counter}"
        if client.post("/detectors", json={"name": name, "examples": probe.tolist()}).status_code == 201:
            promises.created.add(name)
        if promises.counter % 3 == 0:
            promises.created.discard(name)  # asked to go: until the answer comes both are right
            if client.delete(f"/detectors/{name}").status_code == 204:
                promises.deleted.add(name)

    return [score, stream, change, create]


def check_promises(address: str, promises: Promises) -> None:
    with httpx.Client(base_url=address, timeout=60) as client:
        present = set()
        page: dict[str, Any] = {"before": 2**60}
        while page["before"] is not None:
            page = client.get(f"/detectors/press/history?limit=1000&before={page['before']}").json()
            present |= {row["id"] for row in page["rows"]}
        assert promises.scores <= present
        streams = client.get("/detectors/press/streams").json()
        assert sum(one["length"] for one in streams) >= promises.rows
        promises.rows = sum(one["length"] for one in streams)
        numbers = [one["number"] for one in client.get("/detectors/press/versions").json()]
        assert numbers == list(range(numbers[0], 0, -1)) and promises.versions <= set(numbers)
        changes = {one["version"] for one in client.get("/detectors/press/changes").json()}
        assert {number for number in numbers if number > numbers[0] - 400} <= changes
        names = {one["name"] for one in client.get("/detectors").json()}
        assert promises.created <= names
        assert not promises.deleted & names
        for name in sorted(names)[-4:]:
            assert client.get(f"/detectors/{name}").status_code == 200
            assert client.post(f"/detectors/{name}/score", json={"examples": make_series(1).tolist()}).is_success


def test_whatever_was_acknowledged_is_there_after_kill_9(tmp_path: Path) -> None:
    dice, promises = random.Random(0), Promises()
    nursery = Nursery(tmp_path)
    child, address = nursery.start()
    try:
        httpx.post(f"{address}/detectors", json={"name": "press", "examples": make_series(5).tolist()}, timeout=60)
        for _ in range(KILLS):
            stop = threading.Event()
            threads = [hammer(address, work, stop) for work in workloads(promises)]
            time.sleep(dice.uniform(0.2, 0.8))
            os.kill(child, signal.SIGKILL)
            stop.set()
            for thread in threads:
                thread.join(60)
            child, address = nursery.start()
            check_promises(address, promises)
        assert promises.scores and promises.rows and promises.created
    finally:
        os.kill(child, signal.SIGKILL)
        nursery.close()
    assert "internal error" not in nursery.log.read_text()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small disk of its own."""
    place = tmp_path / "disk"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(place)]
    try:
        subprocess.run(command, check=True, capture_output=True, timeout=10)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("this test mounts a small disk, which needs root")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True, capture_output=True, timeout=10)


def fill(disk: Path) -> Path:
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file:
        for size in (65536, 4096, 1):
            try:
                while True:
                    file.write(b"\0" * size)
            except OSError:
                continue
    return filler


def check_reads(client: TestClient) -> None:
    for path in ("/detectors", "/detectors/press", "/detectors/press/history", "/detectors/press/versions", "/health"):
        assert client.get(path).status_code == 200, path


CHANGES: list[tuple[str, str, dict[str, Any]]] = [
    ("POST", "/detectors", {"name": "next", "examples": make_series(3).tolist()}),
    ("POST", "/detectors/press/normals", {"examples": make_series(3, seed=1).tolist()}),
    ("POST", "/detectors/press/feedback", {"score": 1, "was": "anomalous"}),
    ("PATCH", "/detectors/press", {"false_alarm_rate": 0.2}),
]


def test_a_full_disk_is_told_reads_go_on_and_room_is_enough_to_recover(disk: Path, normals: list[list[float]]) -> None:
    with open_client(ServiceSettings(str(disk / "detectors"))) as client:
        client.post("/detectors", json={"name": "press", "examples": normals})
        client.post("/detectors/press/score", json={"examples": normals[:1]})
        filler = fill(disk)
        for method, path, body in CHANGES:
            answer = client.request(method, path, json=body)
            assert answer.status_code == 507 and "full" in answer.json()["error"], answer.text
        large = {"examples": make_series(300).tolist()}
        assert client.post("/detectors/press/score", json=large).status_code == 507
        check_reads(client)
        assert client.get("/detectors/press").json()["version"] == 1
        filler.unlink()
        for method, path, body in CHANGES:
            assert client.request(method, path, json=body).is_success
        assert client.post("/detectors/press/score", json=large).status_code == 200
        assert client.get("/detectors/press").json()["version"] == 4


def test_a_read_only_folder_is_told_and_scores_go_on(disk: Path, tmp_path: Path, normals: list[list[float]]) -> None:
    settings = ServiceSettings(str(disk / "detectors"), database=f"sqlite:///{tmp_path / 'history.sqlite'}")
    with open_client(settings) as client:
        client.post("/detectors", json={"name": "press", "examples": normals})
        client.post("/detectors/press/score", json={"examples": normals[:1]})
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True, timeout=10)
        for method, path, body in [*CHANGES, ("DELETE", "/detectors/press", {})]:
            answer = client.request(method, path, json=body)
            assert answer.status_code == 503 and "written" in answer.json()["error"], answer.text
        check_reads(client)
        assert client.post("/detectors/press/score", json={"examples": normals[:2]}).status_code == 200
        subprocess.run(["mount", "-o", "remount,rw", str(disk)], check=True, timeout=10)
        assert client.post(CHANGES[0][1], json=CHANGES[0][2]).status_code == 201


def test_a_read_only_database_is_told(tmp_path: Path) -> None:
    place = tmp_path / "history.sqlite"
    with sqlite3.connect(place) as connection:
        connection.execute("CREATE TABLE t (x)")
    connection.close()
    engine = sql.create_engine(f"sqlite:///file:{place}?mode=ro&uri=true")
    with pytest.raises(sql.exc.OperationalError) as told, engine.begin() as writing:
        writing.exec_driver_sql("INSERT INTO t VALUES (1)")
    engine.dispose()
    known = as_service_error(told.value)
    assert known is not None and known.status == 503 and re.search("cannot be written", str(known))


def test_a_sqlite_file_that_goes_away_and_comes_back(fitted: TestClient, tmp_path: Path) -> None:
    home = tmp_path / "detectors" / ".service"
    question = {"examples": make_series(1).tolist()}
    assert fitted.post("/detectors/press/score", json=question).status_code == 200
    moved = [path.rename(tmp_path / path.name) for path in sorted(home.glob("history.sqlite*"))]
    assert fitted.post("/detectors/press/score", json=question).status_code == 503
    assert fitted.get("/ready").status_code == 503
    assert fitted.get("/health").status_code == 200
    for path in moved:
        path.rename(home / path.name)
    assert fitted.post("/detectors/press/score", json=question).status_code == 200
    assert len(fitted.get("/detectors/press/history").json()["rows"]) == 2
    assert fitted.get("/ready").status_code == 200


def test_a_postgresql_that_goes_away_and_comes_back(
    postgres: Postgres, tmp_path: Path, normals: list[list[float]]
) -> None:
    question = {"examples": make_series(1).tolist()}
    settings = ServiceSettings(str(tmp_path / "detectors"), database=postgres.new_database())
    with open_client(settings) as client:
        client.post("/detectors", json={"name": "press", "examples": normals})
        assert client.post("/detectors/press/score", json=question).status_code == 200
        postgres.stop("immediate")
        try:
            for _ in range(2):
                answer = client.post("/detectors/press/score", json=question)
                assert answer.status_code == 503 and "nothing was stored" in answer.json()["error"]
            refused = client.post("/detectors/press/normals", json={"examples": normals})
            assert refused.status_code == 503
            assert client.get("/detectors/press/history").status_code == 503
            assert client.get("/ready").status_code == 503
            assert client.get("/detectors/press").json()["version"] == 1
        finally:
            postgres.start()
        assert client.post("/detectors/press/score", json=question).status_code == 200
        assert len(client.get("/detectors/press/history").json()["rows"]) == 2
        assert client.post("/detectors/press/normals", json={"examples": normals}).json()["version"] == 2
