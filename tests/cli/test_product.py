"""fewone fit, score, watch, export for people who write no Python: files in, verdicts and exit codes out."""

from __future__ import annotations

import csv
import json
import shutil
import threading
import time
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from PIL import Image

from fewone.checkpoints import ModelSpec, build_learner, save_learner
from fewone.cli import main
from fewone.detector.loading import load
from fewone.episodes import InputScaling
from fewone.learners import PldaSettings
from fewone.learners.meta_learner import PARAMETER_SCALE
from fewone.networks import NetworkSettings


def write_model(folder: Path, shape: tuple[int, ...], preparation: InputScaling) -> Path:
    """The Bayesian head on the values themselves: it needs no training to tell a wave from a spike."""
    card = ModelSpec(
        "plda",
        PldaSettings(dimensions=0),
        NetworkSettings(architecture="identity"),
        shape,
        preparation,
        support_size=5,
        seed=0,
        dataset="made",
        fingerprint="",
        experiment=None,
    )
    learner = build_learner(card)
    state = learner.state_dict()
    state["within_logit"][:] = -3.0 / PARAMETER_SCALE
    state["last_norm.running_variance"][:] = 20.0
    learner.load_state_dict(state)
    save_learner(folder, learner, card)
    return folder


def noise(count: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(count).normal(size=(count, *shape))


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_model(tmp_path / "model", (2, 16), InputScaling(standardize=True))


@pytest.fixture
def detector(model: Path, tmp_path: Path) -> Path:
    """Fitted on five recordings of 64 steps and 2 channels."""
    normals = tmp_path / "good runs"
    normals.mkdir()
    for number, recording in enumerate(noise(5, 64, 2)):
        np.savetxt(normals / f"rün {number}.csv", recording, delimiter=",", header="x,y", comments="")
    assert main(["fit", str(model), str(normals), "--out", str(tmp_path / "detector")]) == 0
    return tmp_path / "detector"


def write_new(folder: Path, anomalous: bool) -> Path:
    """Two new recordings as .npy; the second may be much louder from time step 32 on."""
    folder.mkdir()
    first, second = noise(2, 64, 2)
    if anomalous:
        second[32:48] *= 9
    np.save(folder / "a.npy", first)
    np.save(folder / "b.npy", second)
    return folder


def test_fit_makes_a_detector_that_python_loads(
    detector: Path, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert load(detector).support_size_ == 20
    capsys.readouterr()
    arguments = ["fit", str(model), str(tmp_path / "good runs"), "--out", str(tmp_path / "again"), "--json"]
    assert main([*arguments, "--false-alarm-rate", "0.1"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["normals"] == 20
    assert load(tmp_path / "again").false_alarm_rate == 0.1


def test_fit_names_a_normal_that_looks_odd(
    model: Path, detector: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.savetxt(tmp_path / "good runs" / "z.csv", 30 * noise(16, 2), delimiter=",")
    capsys.readouterr()
    assert main(["fit", str(model), str(tmp_path / "good runs"), "--out", str(tmp_path / "again")]) == 0
    assert "z.csv at 0" in capsys.readouterr().out


def test_score_says_0_for_all_normal_and_1_for_an_anomaly(
    detector: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["score", str(detector), str(write_new(tmp_path / "fine", anomalous=False))]) == 0
    assert "0 of 2 anomalous" in capsys.readouterr().out
    new = write_new(tmp_path / "new", anomalous=True)
    page, table = tmp_path / "page.html", tmp_path / "scores.csv"
    assert main(["score", str(detector), str(new), "--out", str(table), "--plot", str(page)]) == 1
    out = capsys.readouterr().out
    assert "1 of 2 anomalous" in out
    assert "window at 32 is the worst of 4" in out
    rows = list(csv.DictReader(table.read_text().splitlines()))
    assert [row["anomalous"] for row in rows] == ["False", "True"]
    assert rows[1]["worst"] == "32"
    assert "b.npy" in page.read_text()
    assert "data:image/png;base64," in page.read_text()


def test_score_each_window_and_json(detector: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    new = write_new(tmp_path / "new", anomalous=True)
    capsys.readouterr()
    assert main(["score", str(detector), str(new / "b.npy"), "--each-window", "--stride", "8", "--json"]) == 1
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["place"] for row in rows] == list(range(0, 49, 8))
    assert {row["place"] for row in rows if row["anomalous"]} == {24, 32, 40}
    decisions = load(detector).score_series(np.load(new / "b.npy"), stride=8).windows
    np.testing.assert_allclose([row["decision"] for row in rows], decisions, rtol=1e-4)


def test_a_table_has_one_example_per_row(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = write_model(tmp_path / "model", (1, 16), InputScaling(standardize=True))
    np.savetxt(tmp_path / "normals.csv", noise(8, 16), delimiter=",")
    new = noise(3, 16)
    new[2] *= 9
    np.savetxt(tmp_path / "new.csv", new, delimiter=",")
    assert main(["fit", str(model), str(tmp_path / "normals.csv"), "--out", str(tmp_path / "detector")]) == 0
    capsys.readouterr()
    assert main(["score", str(tmp_path / "detector"), str(tmp_path / "new.csv"), "--json"]) == 1
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["anomalous"] for row in rows] == [False, False, True]
    assert main(["score", str(tmp_path / "detector"), str(tmp_path / "new.csv")]) == 1
    said = capsys.readouterr().out
    assert all(f"new.csv at {row}\n" in said for row in range(3))


def test_pictures_are_examples(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = write_model(tmp_path / "model", (1, 8, 8), InputScaling(1 / 10, -10.0))
    for folder, centre in (("normals", 100), ("new", 240)):
        (tmp_path / folder).mkdir()
        for number in range(4):
            pixels = (centre + 3 * noise(number + 1, 8, 8)[0]).astype(np.uint8)
            Image.fromarray(pixels).save(tmp_path / folder / f"{number}.png")
    assert main(["fit", str(model), str(tmp_path / "normals"), "--out", str(tmp_path / "detector")]) == 0
    page = tmp_path / "page.html"
    assert main(["score", str(tmp_path / "detector"), str(tmp_path / "new"), "--plot", str(page)]) == 1
    assert "4 of 4 anomalous" in page.read_text()


def test_watch_scores_files_as_they_arrive(detector: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    new = write_new(tmp_path / "new", anomalous=True)
    inbox = tmp_path / "inbox"
    inbox.mkdir()
    shutil.copy(new / "a.npy", inbox)
    (inbox / "broken.csv").write_text("a,b\n1,x\n")
    capsys.readouterr()

    def bring() -> None:
        time.sleep(0.3)
        shutil.copy(new / "b.npy", inbox)

    bringer = threading.Thread(target=bring)
    bringer.start()
    arguments = ["watch", str(detector), str(inbox), "--every", "0.05", "--for-seconds", "1.5"]
    assert main([*arguments, "--out", str(tmp_path / "log.csv"), "--json"]) == 1
    bringer.join()
    lines = capsys.readouterr().out.splitlines()
    rows = [json.loads(line) for line in lines if line.startswith("{")]
    found = [(Path(row["file"]).name, row.get("anomalous")) for row in rows]
    assert found == [("a.npy", False), ("broken.csv", None), ("b.npy", True)]
    assert "1 rows of 1 columns (read as: , separated, channel a; left out: text column b)" in rows[1]["cause"]
    assert len((tmp_path / "log.csv").read_text().splitlines()) == 4


def test_export_writes_a_file_that_onnx_runtime_runs(detector: Path, tmp_path: Path) -> None:
    assert main(["export", str(detector), "--onnx", str(tmp_path / "out.onnx")]) == 0
    values = noise(3, 2, 16).astype(np.float32)
    _, decisions, _ = onnxruntime.InferenceSession(tmp_path / "out.onnx").run(None, {"values": values})
    np.testing.assert_allclose(decisions, load(detector).decision_function(values), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["fit", "MODEL", "missing.csv", "--out", "OUT"], "no such file or folder"),
        (["fit", "nothing", "GOOD", "--out", "OUT"], "no model and no folder"),
        (["fit", "MODEL", "WIDE", "--out", "OUT"], "expected a recording of 2 columns"),
        (["fit", "MODEL", "EMPTY", "--out", "OUT"], "holds no file that can be read"),
        (["fit", "MODEL", "GOOD", "--out", "OUT", "--false-alarm-rate", "0.01"], "needs 99 of them, got 20"),
        (["fit", "MODEL", "GOOD", "--out", "OUT", "--false-alarm-rate", "5"], "between 0 and 1"),
        (["score", "MODEL", "GOOD"], "not a fitted detector; first: fewone fit"),
        (["watch", "DETECTOR", "missing"], "no such folder to watch"),
        (["export", "MODEL", "--onnx", "OUT"], "not a fitted detector"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(
    arguments: list[str],
    words: str,
    model: Path,
    detector: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    np.savetxt(tmp_path / "wide.csv", noise(40, 3), delimiter=",")
    (tmp_path / "empty").mkdir()
    places = {
        "MODEL": model,
        "DETECTOR": detector,
        "GOOD": tmp_path / "good runs",
        "WIDE": tmp_path / "wide.csv",
        "EMPTY": tmp_path / "empty",
        "OUT": tmp_path / "out",
    }
    capsys.readouterr()
    assert main([str(places.get(word, word)) for word in arguments]) == 2
    (error,) = [line for line in capsys.readouterr().err.splitlines() if not line.startswith("fewone: note: read as")]
    assert words in error
    assert not (tmp_path / "out").exists()


def test_two_workers_print_what_one_prints(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    random = np.random.default_rng(0)
    for name, count in (("normals", 5), ("new", 4)):
        (tmp_path / name).mkdir()
        for number in range(count):
            values = random.normal(size=256) + (100.0 if (name, number) == ("new", 2) else 0.0)
            np.savetxt(tmp_path / name / f"{number}.csv", values)
    assert main(["fit", "series", str(tmp_path / "normals"), "--out", str(tmp_path / "detector")]) == 0
    capsys.readouterr()
    printed = []
    for workers in ("1", "2"):
        words = ["score", str(tmp_path / "detector"), str(tmp_path / "new"), "--json", "--workers", workers]
        assert main(words) == 1
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1] and printed[0].count("\n") == 4
    assert main(["score", str(tmp_path / "detector"), str(tmp_path / "new"), "--workers", "0"]) == 2
    assert "at least one worker" in capsys.readouterr().err
