"""What the tests of the service share: data, a service in this process, one in a process of its own, a PostgreSQL."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2 as httpx
import numpy as np
import pytest
from starlette.testclient import TestClient

from fewone.service.app import build_app
from fewone.service.settings import ServiceSettings

WINDOW = 128


def make_series(count: int, seed: int = 0) -> np.ndarray:
    """Noisy sines, (count, 128)."""
    random = np.random.default_rng(seed)
    return (np.sin(np.linspace(0, 12, WINDOW)) + 0.1 * random.normal(size=(count, WINDOW))).round(4)


def with_burst(series: np.ndarray) -> np.ndarray:
    broken = series.copy()
    broken[..., 40:60] += 4
    return broken


@pytest.fixture(scope="session")
def normals() -> list[list[float]]:
    return make_series(10).tolist()


class Postgres:
    """A server of our own on loopback that can be stopped and started."""

    def __init__(self, programs: Path, home: Path) -> None:
        self.programs, self.home = programs, home
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self._user: list[str] = []
        if os.geteuid() == 0:  # the server refuses to run as root
            shutil.chown(home, "postgres")
            self._user = ["runuser", "-u", "postgres", "--"]
        self._call("initdb", "-D", str(home / "data"), "-A", "trust", "-U", "fewone", "--no-sync")
        self.start()

    def _call(self, program: str, *arguments: str) -> None:
        command = [*self._user, str(self.programs / program), *arguments]
        subprocess.run(command, check=True, timeout=60, cwd="/", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def start(self) -> None:
        options = f"-p {self.port} -h 127.0.0.1 -k '' -F"
        self._call("pg_ctl", "-D", str(self.home / "data"), "-w", "-o", options, "start")

    def stop(self, mode: str = "fast") -> None:
        self._call("pg_ctl", "-D", str(self.home / "data"), "-m", mode, "stop")

    def new_database(self) -> str:
        import psycopg

        name = f"test_{time.time_ns()}"
        with psycopg.connect(f"postgresql://fewone@127.0.0.1:{self.port}/postgres", autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        return f"postgresql://fewone@127.0.0.1:{self.port}/{name}"


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A real PostgreSQL where Debian's server is installed."""
    programs = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    if not programs or not (programs[-1] / "initdb").exists():
        pytest.skip("no PostgreSQL server is installed (Debian: apt-get install postgresql)")
    if os.geteuid() == 0 and "postgres" not in {entry.pw_name for entry in pwd.getpwall()}:
        pytest.skip("the PostgreSQL server cannot run as root and there is no user postgres")
    # Not below pytest's own folder, which only its owner may enter: the server runs as another user.
    with tempfile.TemporaryDirectory(prefix="fewone-postgres-") as folder:
        server = Postgres(programs[-1], Path(folder))
        try:
            yield server
        finally:
            server.stop("immediate")


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest) -> str | None:
    """Each test against both: None is SQLite in the folder."""
    if request.param == "sqlite":
        return None
    server: Postgres = request.getfixturevalue("postgres")
    return server.new_database()


@contextmanager
def open_client(settings: ServiceSettings, token: str | None = None) -> Iterator[TestClient]:
    """A service in this process."""
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    with TestClient(build_app(settings), headers=headers, raise_server_exceptions=False) as client:
        yield client


@pytest.fixture
def client(tmp_path: Path) -> Iterator[TestClient]:
    """A service on SQLite without tokens."""
    with open_client(ServiceSettings(str(tmp_path / "detectors"))) as found:
        yield found


@pytest.fixture
def fitted(client: TestClient, normals: list[list[float]]) -> TestClient:
    """The same with a detector called press."""
    answer = client.post("/detectors", json={"name": "press", "model": "series", "examples": normals})
    assert answer.status_code == 201, answer.text
    return client


@dataclass
class Running:
    """A service in a process of its own."""

    process: subprocess.Popen[str]
    address: str

    def client(self, **options: Any) -> httpx.Client:
        return httpx.Client(base_url=self.address, timeout=60, **options)


@contextmanager
def run_service(folder: Path, *options: str, environment: dict[str, str] | None = None) -> Iterator[Running]:
    """`fewone serve` on a free port; it is killed at the end if it still runs."""
    command = [sys.executable, "-m", "fewone", "serve", "--folder", str(folder), "--port", "0", *options]
    log = (folder.parent / f"{folder.name}.log").open("a")
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=log,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", **(environment or {})},
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.search(r"at (http://\S+)", line)
        assert found, f"the service did not start: {line!r} {Path(log.name).read_text()[-2000:]}"
        yield Running(process, found[1])
    finally:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()
        log.close()


@pytest.fixture(scope="session")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """One service for all tests that only add to it; each takes names of its own."""
    with run_service(tmp_path_factory.mktemp("shared") / "served") as found:
        yield found


@pytest.fixture
def serve(tmp_path: Path) -> Callable[..., Any]:
    """Starts services in processes of their own."""

    def start(*options: str, folder: str = "served", environment: dict[str, str] | None = None) -> Any:
        return run_service(tmp_path / folder, *options, environment=environment)

    return start
