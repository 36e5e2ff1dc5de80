"""Sweeps: done is skipped, failures are recorded, dead processes lose nothing, a cluster does each job once."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from fewone.cli import main
from fewone.errors import FewoneError
from fewone.experiments import default_experiment
from fewone.experiments.sweep import find_done, is_done, plan, sweep
from fewone.results import read_results

QUICK = """
[[experiments]]
dataset = "sts-sine"
learner = ["max-diff", "energy"]
k = 3
"""
LONG = """
[[experiments]]
dataset = "sts-sine"
learner = "oc-anil"
k = 2
seed = [{seeds}]
network = {{ filters = [2], kernel = 3 }}
learning = {{ inner_steps = 1 }}
training = {{ iterations = {iterations}, validate_every = 1000000, validation_episodes = 5, query_size = 4 }}
"""


def write(folder: Path, text: str) -> Path:
    path = folder / "grid.toml"
    path.write_text(text)
    return path


def words(folder: Path, grid: Path, *more: str) -> list[str]:
    return ["sweep", str(grid), "--results", str(folder / "results"), "--runs", str(folder / "runs"), *more]


def test_what_is_done_is_skipped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    grid = write(tmp_path, QUICK)
    assert main(words(tmp_path, grid)) == 0
    rows = read_results(tmp_path / "results" / "grid").rows
    assert {row.experiment.learner for row in rows} == {"max-diff", "energy"}
    assert {row.threshold for row in rows} == {"own", "calibrated"}
    assert main(words(tmp_path, grid)) == 0
    assert "2 done, 0 to run" in capsys.readouterr().out
    assert read_results(tmp_path / "results" / "grid").rows == rows


def test_a_job_that_fails_is_recorded_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FEWONE_DATA", str(tmp_path))
    grid = write(tmp_path, QUICK + '\n[[experiments]]\ndataset = "mt-mnist/0"\nlearner = "knn"\nk = 2\n')
    assert main(words(tmp_path, grid)) == 1
    reading = read_results(tmp_path / "results" / "grid")
    assert {row.experiment.learner for row in reading.rows} == {"max-diff", "energy"}
    (failure,) = reading.failures
    assert failure.experiment.dataset == "mt-mnist/0"
    assert "\n" not in failure.error
    assert "1 of 3 jobs failed" in capsys.readouterr().out


def test_a_row_written_before_a_setting_existed_still_counts_as_done(tmp_path: Path) -> None:
    experiment = default_experiment("sts-sine", "max-diff", k=3)
    list(sweep(plan([experiment], tmp_path / "runs", tmp_path / "a")))
    (path,) = (tmp_path / "a").iterdir()
    text = path.read_text()
    assert '"leave_out":0' in text
    path.write_text(re.sub(r',?"leave_out":0', "", text))
    assert is_done(experiment, find_done(tmp_path / "a"))


def test_an_experiment_is_done_once_it_was_evaluated_at_each_of_its_k(tmp_path: Path) -> None:
    experiment = default_experiment("sts-sine", "max-diff", k=3)
    more = replace(experiment, further_k=(2,))
    list(sweep(plan([experiment], tmp_path / "runs", tmp_path / "a")))
    assert plan([experiment], tmp_path / "runs", tmp_path / "a") == []
    (job,) = plan([more], tmp_path / "runs", tmp_path / "a")
    list(sweep([job]))
    assert plan([experiment, more], tmp_path / "runs", tmp_path / "a") == []


def test_an_unreachable_scheduler_is_an_error_within_seconds(tmp_path: Path) -> None:
    jobs = plan([default_experiment("sts-sine", "max-diff", k=3)], tmp_path / "runs", tmp_path / "a")
    started = time.monotonic()
    with pytest.raises(FewoneError, match="scheduler"):
        list(sweep(jobs, backend="dask", scheduler=f"tcp://127.0.0.1:{find_port()}"))
    assert time.monotonic() - started < 20


def test_a_job_whose_process_dies_twice_is_given_up_and_the_others_are_done(tmp_path: Path) -> None:
    grid = write(tmp_path, LONG.format(seeds="0", iterations=10_000_000) + QUICK)
    command = [sys.executable, "-m", "fewone", *words(tmp_path, grid, "--jobs", "2")]
    results = tmp_path / "results" / "grid"
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=quiet()) as process:
        for tries in (1, 2):
            # Only the training writes a log, so this waits for its own first and second try.
            wait_for(lambda tries=tries: len(find_tries(tmp_path, trained=True)) == tries)
            time.sleep(0.5)
            os.kill(find_tries(tmp_path, trained=True)[-1], signal.SIGKILL)
        output, _ = process.communicate(timeout=120)
    assert process.returncode == 1, output
    reading = read_results(results)
    assert {row.experiment.learner for row in reading.rows} == {"max-diff", "energy"}
    assert "died 2 times" in reading.failures[0].error


def test_a_cluster_that_loses_a_worker_does_every_job_exactly_once(tmp_path: Path) -> None:
    grid = write(tmp_path, LONG.format(seeds="0, 1, 2, 3, 4, 5", iterations=150))
    address = f"tcp://127.0.0.1:{find_port()}"
    with running("scheduler", "--port", address.rsplit(":", 1)[1], "--no-dashboard"):
        worker = ("worker", address, "--nthreads", "1", "--no-dashboard", "--local-directory", str(tmp_path))
        with running(*worker) as first, running(*worker):
            command = words(tmp_path, grid, "--jobs", "2", "--backend", "dask", "--scheduler", address)
            with subprocess.Popen([sys.executable, "-m", "fewone", *command], env=quiet()) as process:
                wait_for(lambda: len(find_tries(tmp_path)) >= 2)
                os.killpg(first.pid, signal.SIGKILL)
                assert process.wait(timeout=240) == 0
    rows = [row for row in read_results(tmp_path / "results" / "grid").rows if row.steps is None]
    once = {(seed, threshold): 1 for seed in range(6) for threshold in ("own", "calibrated")}
    assert Counter((row.seed, row.threshold) for row in rows) == once


def find_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def quiet() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}


@contextmanager
def running(*command: str) -> Iterator[subprocess.Popen[bytes]]:
    """A dask process as a user starts it, in a process group of its own."""
    process = subprocess.Popen(
        [sys.executable, "-m", "dask", *command],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=quiet(),
        start_new_session=True,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
        process.wait(timeout=30)


def wait_for(condition: object, seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < end, "nothing happened in time"
        time.sleep(0.1)


def find_tries(folder: Path, trained: bool = False) -> list[int]:
    """The processes that began a job, in the order of each job's tries."""
    tries = (folder / "runs").glob("*/tries")
    kept = [path for path in tries if not trained or path.with_name("log.jsonl").exists()]
    return [int(line) for path in kept for line in path.read_text().splitlines()]
