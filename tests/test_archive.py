"""Scoring an archive: the same decisions by one process, by several, on Dask and on Spark, each recording once."""

from __future__ import annotations

import os
import signal
import sys
from collections import Counter
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from fewone.archive import Decision, PackedDetector, cut_into_jobs, decide_recordings, share_out
from fewone.detector.few_shot_detector import FewShotDetector
from fewone.detector.loading import load
from fewone.errors import FewoneError


@pytest.fixture(scope="module")
def fitted() -> FewShotDetector:
    return load("series").fit(np.random.default_rng(0).normal(size=(10, 128)))


@pytest.fixture(scope="module")
def folder(fitted: FewShotDetector, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("archive") / "detector"
    fitted.save(place)
    return place


def make_recordings(count: int = 6) -> list[tuple[str, np.ndarray]]:
    random = np.random.default_rng(1)
    return [(f"r{number}", random.normal(size=1024) * (1 + 20 * (number % 3 == 2))) for number in range(count)]


def decide_job(packed: PackedDetector, job: list[tuple[str, np.ndarray]]) -> list[Decision]:
    return list(decide_recordings(packed, job))


def kill_own_worker(job: int) -> int:
    if job == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return job


def test_a_packed_detector_decides_as_the_one_that_was_saved(fitted: FewShotDetector, folder: Path) -> None:
    packed = PackedDetector.of(folder)
    found = list(decide_recordings(packed, make_recordings()))
    for one, (name, values) in zip(found, make_recordings(), strict=True):
        scores = fitted.score_series(values, 128)
        assert (one.name, one.windows) == (name, len(scores.windows))
        assert one.value == pytest.approx(fitted.decide(scores), abs=1e-6)
        assert one.anomalous == (one.value < 0)
    assert [one.anomalous for one in found] == [False, False, True] * 2
    assert packed.open() is packed.open()


def test_the_same_detector_packs_to_the_same_bytes_and_little_of_them(folder: Path) -> None:
    assert PackedDetector.of(folder) == PackedDetector.of(folder)
    assert len(PackedDetector.of(folder).content) < 6_000_000


def test_what_is_no_detector_or_was_changed_on_the_way_is_refused_in_one_line(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(FewoneError, match="not a saved detector"):
        PackedDetector.of(tmp_path)
    content = bytearray(PackedDetector.of(folder).content)
    content[len(content) // 2] ^= 0xFF
    with pytest.raises(FewoneError):
        PackedDetector(bytes(content)).open()
    with pytest.raises(FewoneError, match="cannot be opened"):
        PackedDetector(b"nothing").open()


def test_two_processes_give_what_one_gives_in_order(folder: Path) -> None:
    packed = PackedDetector.of(folder)
    jobs = list(cut_into_jobs(make_recordings(7), 2))
    alone, shared = (list(share_out(partial(decide_job, packed), jobs, workers)) for workers in (1, 2))
    assert shared == alone
    assert [one.name for part in shared for one in part] == [f"r{number}" for number in range(7)]


def test_a_killed_worker_is_one_line_and_what_came_before_stands() -> None:
    found = []
    with pytest.raises(FewoneError, match="one of 2 workers ended"):
        found.extend(share_out(kill_own_worker, range(8), 2))
    assert found == list(range(len(found))) and len(found) <= 3
    with pytest.raises(FewoneError, match="--workers 0: at least one"):
        list(share_out(kill_own_worker, [1], 0))


def test_a_dask_cluster_scores_every_recording_once_although_a_worker_is_killed(folder: Path) -> None:
    distributed = pytest.importorskip("distributed", reason="the extra `cluster` is not installed")
    packed, recordings = PackedDetector.of(folder), make_recordings(24)
    expected = [one for job in cut_into_jobs(recordings, 2) for one in decide_job(packed, list(job))]
    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0") as cluster,
        distributed.Client(cluster) as client,
    ):
        sent = client.scatter(packed, broadcast=True)
        futures = client.map(decide_job, [sent] * 12, [list(job) for job in cut_into_jobs(recordings, 2)], pure=False)
        distributed.wait(futures[:1])
        os.kill(next(iter(client.run(os.getpid).values())), signal.SIGKILL)
        found = [one for part in client.gather(futures) for one in part]
    assert Counter(one.name for one in found) == Counter(name for name, _ in recordings)
    assert found == expected


@pytest.mark.filterwarnings("ignore:PySpark does not yet fully support:FutureWarning")
@pytest.mark.skipif(sys.platform != "linux", reason="Spark in local mode is tried on Linux")
def test_spark_scores_batches_of_a_data_frame(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sql = pytest.importorskip("pyspark.sql", reason="pyspark is not installed")
    pandas = pytest.importorskip("pandas")
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    packed, recordings = PackedDetector.of(folder), make_recordings(6)
    session = (
        sql.SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .getOrCreate()
    )
    try:
        sent = session.sparkContext.broadcast(packed.content)

        def decide(batches):
            for batch in batches:
                found = decide_recordings(PackedDetector(sent.value), zip(batch["name"], batch["values"], strict=True))
                rows = [(one.name, one.value, one.anomalous, one.windows) for one in found]
                yield pandas.DataFrame(rows, columns=["name", "value", "anomalous", "windows"])

        frame = session.createDataFrame([(name, values.tolist()) for name, values in recordings], ["name", "values"])
        decided = frame.mapInPandas(decide, "name string, value double, anomalous boolean, windows long").collect()
    finally:
        session.stop()
    expected = {one.name: one for one in decide_recordings(packed, recordings)}
    assert {row["name"] for row in decided} == expected.keys() and len(decided) == len(expected)
    for row in decided:
        assert row["value"] == pytest.approx(expected[row["name"]].value, abs=1e-5)
