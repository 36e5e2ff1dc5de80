"""Every program and command of the pages on the detector runs, in their order, in a folder of its own."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fewone.calibration import CalibrationMap
from fewone.checkpoints import save_calibration, save_learner
from fewone.cli import main
from fewone.datasets.synthetic_series import generate_task
from fewone.detector.few_shot_detector import FewShotDetector
from fewone.detector.loading import load

DOCS = Path(__file__).parents[2] / "docs"


def read_blocks(page: str) -> list[tuple[str, str]]:
    """(language, text) of each fenced block, in order."""
    return re.findall(r"^```(python|sh)\n(.*?)^```", (DOCS / page).read_text(), re.MULTILINE | re.DOTALL)


def test_the_pages_run_as_they_are_written(
    trained: Callable[[], FewShotDetector],
    calibration: CalibrationMap,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    model = trained()
    assert model.learner is not None
    assert model.card is not None
    # Where the zoo has a model of this name it comes first: the pages must run with either.
    save_learner(Path("series"), model.learner, model.card)
    save_calibration(Path("series"), calibration)
    task = generate_task("sine", np.random.default_rng(4), 40)
    np.savetxt("normals.csv", task.normal[:10], delimiter=",")
    np.savetxt("new.csv", np.concatenate([task.normal[10:20], task.anomalous[:5]]), delimiter=",")
    Path("inbox").mkdir()
    series = np.concatenate([*task.normal[20:26]])
    names: dict[str, object] = {
        "X_normal": task.normal[:10],
        "X_mixed": np.concatenate([task.normal[:9], task.anomalous[:1]]),
        "y": [1] * 9 + [-1],
        "X_more": task.normal[30:33],
        "X": np.concatenate([task.normal[10:16], task.anomalous[:6]]),
        "recording": [0] * 6 + [1] * 6,
        "series": series,
        "chunks": np.split(series, 3),
        "window": task.anomalous[:1],
        "recent": task.normal[10:24],
    }
    codes = []
    for page in ("detector.md", "export.md", "what-can-go-wrong.md"):
        blocks = read_blocks(page)
        assert blocks
        for language, text in blocks:
            if language == "python":
                exec(compile(text, page, "exec"), names)
                continue
            codes += [main(shlex.split(line)[1:]) for line in text.splitlines()]
    assert codes == [0, 1, 0, 0, 1]
    told = capsys.readouterr().out
    assert "no normal looks odd" in told
    found = [int(number) for number in re.findall(r"^window (\d+) is anomalous", told, re.MULTILINE)]
    expected = load(tmp_path / "press-7").predict(np.loadtxt("new.csv", delimiter=","))
    assert found == np.flatnonzero(expected < 0).tolist() != []
    assert Path("anomalies.png").exists()
    assert Path("page.html").exists()
