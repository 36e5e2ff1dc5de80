"""The first hour of a new user, as a script: the files of a plant as they are, from `fit` to an alarm.

A press writes three channels ten times a second, with German stamps and decimal commas; a cycle of 128 rows has one
hump; summer is warmer than winter; now and then the logger loses rows. No model has seen anything like it. The figures
are printed beside a one-class SVM and the nearest normal.
"""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score
from sklearn.svm import OneClassSVM

import fewone
from fewone.cli import main
from fewone.errors import FewoneError
from fewone.file_scoring.choosing import choose_model
from fewone.reading import ReadOptions

CYCLE, CYCLES, FILES = 128, 5, 10
CHANNELS = ("Drehmoment", "Drehzahl", "Temperatur")


def run_press(number: int, fault: bool, strength: float = 4.0) -> np.ndarray:
    """(rows, 3) of one file: a hump per cycle in torque, a dip in speed, warmth that follows the season."""
    random, steps = np.random.default_rng([number, fault]), np.arange(CYCLE)
    season = 0.5 + 0.5 * np.sin(number / FILES * np.pi)
    cycles = []
    for cycle in range(CYCLES):
        hump = np.exp(-0.5 * ((steps - 60 - random.normal(0, 1.5)) / 12) ** 2) * (1 + random.normal(0, 0.03))
        torque, speed, warmth = 40 * hump + 2, 1480 - 15 * hump, 35 + 3 * season + 0.5 * hump
        if fault and cycle in (1, 2, 3):
            torque = torque + strength * np.where((steps > 70) & (steps < 90), random.normal(0, 1, CYCLE), 0.0)
        cycles.append(np.stack([torque, speed, warmth], axis=1) + random.normal(0, (0.5, 0.5, 0.05), (CYCLE, 3)))
    return np.concatenate(cycles)


def write(path: Path, number: int, fault: bool, gap: bool = False, strength: float = 4.0) -> np.ndarray:
    values, start = run_press(number, fault, strength), datetime(2024, 3, 1, 6) + timedelta(days=30 * number)
    lines = ["Zeit;" + ";".join(CHANNELS) + ";Status"]
    for row, cells in enumerate(values):
        if gap and 300 <= row < 330:
            continue
        stamp = (start + timedelta(seconds=row / 10)).strftime("%d.%m.%Y %H:%M:%S,%f")[:-3]
        lines.append(f"{stamp};" + ";".join(f"{cell:.3f}".replace(".", ",") for cell in cells) + ";ok")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8-sig")
    return values


def test_from_a_folder_of_files_to_an_alarm(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("normals", "new", "inbox"):
        (tmp_path / name).mkdir()
    normals = [write(tmp_path / "normals" / f"{n}.csv", 2 * n, False) for n in range(4)]
    # 1. Look at a file: how it is read, what is missing.
    recording = fewone.read_recording(tmp_path / "normals" / "0.csv")
    assert recording.said == (
        "read as: ; separated, decimal comma, time in column 1 (day.month.year),"
        " channels Drehmoment, Drehzahl, Temperatur; left out: text column Status"
    )
    assert recording.inspect().whole
    assert recording.sampling_rate == pytest.approx(10.0)
    # 2. Fit: all channels where the zoo has a model for them, else the first.
    files = sorted((tmp_path / "normals").iterdir())
    try:
        choose_model(files, ReadOptions())
        options, used = [], [0, 1, 2]
    except FewoneError:
        options, used = ["--columns", "Drehmoment"], [0]
    detector = tmp_path / "press-7"
    words = ["fit", str(tmp_path / "normals"), "--window", str(CYCLE), "--out", str(detector), *options]
    assert main(words) == 0
    told = capsys.readouterr()
    assert "chosen by the kind of the files" in told.err
    # 3. Score a year: ten good files, ten with a fault in some cycles, one with a gap.
    truth, values = [], []
    for number in range(FILES):
        for fault in (False, True):
            values.append(write(tmp_path / "new" / f"{number}-{int(fault)}.csv", number + 100, fault)[:, used])
            truth.append(fault)
    gap = write(tmp_path / "inbox" / "gap.csv", 300, False, gap=True)
    assert len(gap) == CYCLE * CYCLES
    code = main(["score", str(detector), str(tmp_path / "new"), "--json", "--each-window", *options])
    lowest: dict[str, float] = {}
    for line in capsys.readouterr().out.splitlines():
        verdict = json.loads(line)
        lowest[verdict["file"]] = min(verdict["decision"], lowest.get(verdict["file"], np.inf))
    assert code == 1
    assert len(lowest) == 2 * FILES
    ours = -np.array([lowest[file] for file in sorted(lowest)])
    figures = {"fewone": roc_auc_score(truth, ours)}
    alarms = ours > 0
    # 4. The same windows for two classical methods.
    support = np.concatenate([fewone.windows(one[:, used], CYCLE) for one in normals]).reshape(4 * CYCLES, -1)
    mean, deviation = support.mean(axis=0), support.std(axis=0) + 1e-9
    machine = OneClassSVM(gamma="scale").fit((support - mean) / deviation)
    queries = [(fewone.windows(one, CYCLE).reshape(CYCLES, -1) - mean) / deviation for one in values]
    scaled = (support - mean) / deviation
    nearest = [np.linalg.norm(query[:, None] - scaled[None], axis=2).min(axis=1).max() for query in queries]
    figures["1-NN"] = roc_auc_score(truth, nearest)
    figures["OC-SVM"] = roc_auc_score(truth, [-machine.decision_function(query).min() for query in queries])
    found, false = alarms[np.array(truth)].mean(), alarms[~np.array(truth)].mean()
    with capsys.disabled():
        told_figures = ", ".join(f"{name} {value:.3f}" for name, value in figures.items())
        print(f"\nAUROC by file, {len(used)} channel(s): {told_figures}; found {found:.0%}, false alarms {false:.0%}")
    assert figures["fewone"] >= 0.8
    assert found >= 0.5
    # 5. Watch: the gap is told, not judged; a fault raises the alarm; after a restart nothing is scored twice.
    write(tmp_path / "inbox" / "bad.csv", 301, True, strength=12.0)
    watch = ["watch", str(detector), str(tmp_path / "inbox"), "--every", "0.02", "--for-seconds", "0.3", *options]
    watch.append("--each-window")
    assert main(watch) == 1
    said = capsys.readouterr()
    assert "NOT JUDGED" in said.out and "gap.csv at 256" in said.out
    assert "1 gap in time, the longest 3.1 s" in said.err
    assert main(watch) == 0
    assert "watched 0 files" in capsys.readouterr().out
