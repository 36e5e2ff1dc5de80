"""Detectors in folders: saved = loaded to the bit; a folder that is not whole or not ours is refused."""

from __future__ import annotations

import hashlib
import json
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fewone.calibration import CalibrationMap, CalibrationPoint, NormalQuantiles
from fewone.calibration.calibrated import LEVELS
from fewone.detector.few_shot_detector import FewShotDetector
from fewone.detector.loading import load
from fewone.errors import FewoneError

Maker = Callable[..., FewShotDetector]
CALIBRATION = CalibrationMap(
    (CalibrationPoint(5, 2.0, 0.1, 0.3, -0.2, (NormalQuantiles(1, tuple(np.linspace(-1, 1, len(LEVELS)).tolist())),)),)
)
SCORE = """
import sys, numpy
from fewone import load
values = numpy.load(sys.argv[2])
sys.stdout.buffer.write(load(sys.argv[1]).decision_function(values).tobytes())
"""


def test_saved_is_loaded_to_the_bit_for_every_learner(
    any_learner: str, make_detector: Maker, normals: np.ndarray, tmp_path: Path
) -> None:
    detector = make_detector(any_learner).fit(normals[:6], [1, 1, 1, 1, 1, -1])
    detector.save(tmp_path / "saved")
    again = load(tmp_path / "saved")
    assert np.array_equal(again.decision_function(normals), detector.decision_function(normals))
    assert again.n_features_in_ == 32
    assert again.partial_fit(normals[6:]).support_size_ == 6


def test_saved_is_loaded_to_the_bit_in_another_process(
    make_detector: Maker, normals: np.ndarray, tmp_path: Path
) -> None:
    detector = make_detector("maml", (1, 32), None, 2000.0).set_params(calibration=CALIBRATION, false_alarm_rate=0.05)
    detector.set_params(sampling_rate=2000.0).fit(normals).save(tmp_path / "saved")
    np.save(tmp_path / "values.npy", normals)
    command = [sys.executable, "-c", SCORE, str(tmp_path / "saved"), str(tmp_path / "values.npy")]
    found = subprocess.run(command, capture_output=True, check=True).stdout
    assert found == detector.decision_function(normals).tobytes()
    again = load(tmp_path / "saved")
    assert (again.false_alarm_rate, again.sampling_rate) == (0.05, 2000.0)
    assert again.offset_ == detector.offset_ != 0
    assert load(tmp_path / "saved", false_alarm_rate=0.2).offset_ != detector.offset_


def test_a_detector_of_tables_is_saved_without_a_model(tmp_path: Path) -> None:
    values = np.random.default_rng(0).normal(size=(8, 3))
    detector = FewShotDetector().fit(values)
    detector.save(tmp_path)
    assert np.array_equal(load(tmp_path).score_samples(values), detector.score_samples(values))


def test_saving_anew_replaces_what_was_there(make_detector: Maker, normals: np.ndarray, tmp_path: Path) -> None:
    detector = make_detector().fit(normals[:3])
    detector.save(tmp_path)
    detector.partial_fit(normals[3:]).save(tmp_path)
    assert load(tmp_path).support_size_ == 7
    assert len(list(tmp_path.glob("detector.*.safetensors"))) == 1


def test_nothing_in_a_folder_is_pickled(make_detector: Maker, normals: np.ndarray, tmp_path: Path) -> None:
    make_detector().set_params(calibration=CALIBRATION).fit(normals).save(tmp_path)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {path.suffix for path in files} == {".json", ".safetensors"}


def test_what_is_no_folder_of_ours_is_refused(make_detector: Maker, normals: np.ndarray, tmp_path: Path) -> None:
    with pytest.raises(FewoneError, match="no model and no folder"):
        load(tmp_path / "missing")
    with pytest.raises(FewoneError, match="cannot be read"):
        load(tmp_path)
    first, second = tmp_path / "first", tmp_path / "second"
    make_detector("plda").fit(normals).save(first)
    make_detector("protonet").fit(normals).save(second)
    shutil.rmtree(first / "model")
    shutil.copytree(second / "model", first / "model")
    with pytest.raises(FewoneError, match="not the model that the detector was saved with"):
        load(first)
    document = json.loads((second / "detector.json").read_text())
    (second / "detector.json").write_text(json.dumps(rehash(document | {"format": 99})))
    with pytest.raises(FewoneError, match="format 99"):
        load(second)


def rehash(document: dict[str, Any]) -> dict[str, Any]:
    """The document with the hash it would have been written with: a forgery, not an accident."""
    document.pop("sha256", None)
    return document | {"sha256": hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()}


def damage(data: bytes, choose: random.Random) -> bytes:
    """Flip, cut, repeat, insert or overwrite some bytes."""
    place = choose.randrange(len(data) + 1)
    length = choose.choice((1, 1, 2, 8, 64))
    kind = choose.randrange(5)
    if kind == 0:
        return data[:place]
    if kind == 1:
        return data[:place] + choose.randbytes(length) + data[place:]
    if kind == 2:
        return data[:place] + data[place + length :]
    if kind == 3:
        return data[:place] + data[place : place + length] * 2 + data[place + length :]
    return data[:place] + choose.randbytes(length) + data[place + length :]


def tamper(value: Any, choose: random.Random) -> Any:
    """One value somewhere in a document replaced by something hostile."""
    if isinstance(value, dict) and value and choose.random() < 0.9:
        key = choose.choice(sorted(value))
        if choose.random() < 0.1:
            return {name: inner for name, inner in value.items() if name != key}
        return value | {key: tamper(value[key], choose)}
    if isinstance(value, list) and value and choose.random() < 0.6:
        place = choose.randrange(len(value))
        return [*value[:place], tamper(value[place], choose), *value[place + 1 :]]
    hostile: list[Any] = [
        None,
        True,
        -1,
        0,
        1,
        2,
        7,
        2**31,
        2**63,
        10**30,
        1e308,
        float("nan"),
        "",
        "..",
        "/etc/passwd",
    ]
    hostile += [
        [],
        {},
        [[]],
        [10**9] * 4,
        [1] * 10000,
        "model.json",
        "a" * 10000,
        "maml",
        "\x00",
        -0.5,
        [0],
        [2**40, 2],
    ]
    return choose.choice(hostile)


def load_and_score(folder: Path, values: np.ndarray) -> bytes | None:
    """The scores, or None where the folder is refused; anything but a FewoneError goes through."""
    try:
        return load(folder).decision_function(values).tobytes()
    except FewoneError as error:
        assert str(error)
        assert "\n" not in str(error)
        return None


@pytest.fixture
def saved(make_detector: Maker, tmp_path: Path) -> Iterator[Path]:
    """A small detector; in memory where the system has a folder for that, since it is written ten thousand times."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else tmp_path) as folder:
        yield write_small(make_detector, Path(folder) / "saved")


def write_small(make_detector: Maker, folder: Path) -> Path:
    values = np.random.default_rng(0).normal(size=(3, 8))
    detector = make_detector("plda", (1, 8)).set_params(calibration=CALIBRATION, false_alarm_rate=0.1)
    detector.fit(values).save(folder)
    return folder


def test_ten_thousand_damaged_folders_are_refused_or_score_the_same(saved: Path) -> None:
    values = np.random.default_rng(1).normal(size=(2, 8))
    expected = load_and_score(saved, values)
    assert expected is not None
    files = sorted(path for path in saved.rglob("*") if path.is_file())
    whole = {path: path.read_bytes() for path in files}
    choose = random.Random(0)
    before, slowest, refused = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, 0.0, 0
    for number in range(10_000):
        path = choose.choice(files)
        if number % 50 == 0:
            path.unlink()
        else:
            path.write_bytes(damage(whole[path], choose))
        started = time.process_time()
        found = load_and_score(saved, values)
        slowest = max(slowest, time.process_time() - started)
        assert found in (None, expected), path
        refused += found is None
        path.write_bytes(whole[path])
    assert refused > 9_000
    assert slowest < 2.0
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000
    assert load_and_score(saved, values) == expected


def test_forged_documents_never_crash_hang_or_blow_up(saved: Path) -> None:
    values = np.random.default_rng(1).normal(size=(2, 8))
    places = [saved / "model" / "model.json", saved / "model" / "calibration.json", saved / "detector.json"]
    whole = {path: path.read_bytes() for path in places}
    choose = random.Random(0)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    refused = 0
    for _ in range(600):
        path = choose.choice(places)
        document = tamper(json.loads(whole[path]), choose)
        path.write_text(json.dumps(rehash(document) if isinstance(document, dict) else document))
        if path.parent.name == "model":
            bind(saved)
        started = time.process_time()
        refused += load_and_score(saved, values) is None
        assert time.process_time() - started < 2.0
        for changed, data in whole.items():
            changed.write_bytes(data)
    assert refused > 200
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000


def bind(folder: Path) -> None:
    """Make the detector's document name the model as it now is, as a forger would."""
    digest = hashlib.sha256()
    for name in ("model.json", "calibration.json"):
        digest.update(hashlib.sha256((folder / "model" / name).read_bytes()).digest())
    document = json.loads((folder / "detector.json").read_text())
    document["content"]["model"] = digest.hexdigest()
    (folder / "detector.json").write_text(json.dumps(rehash(document)))
