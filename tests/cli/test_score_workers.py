"""fewone score --workers: the workers open the detector; the process that starts them needs no torch."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from fewone.cli import main
from fewone.detector.loading import load_detector

PROGRAM = """
import sys
from fewone.cli import main
if __name__ == "__main__":
    code = main(["score", "detector", "new", "--json", "--workers", "2"])
    print(code, "torch" in sys.modules)
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    random = np.random.default_rng(0)
    load_detector("periodic").fit(random.normal(size=(6, 128))).save(tmp_path / "detector")
    (tmp_path / "new").mkdir()
    for number in range(4):
        np.save(tmp_path / "new" / f"{number}.npy", random.normal(size=512) * (1 + 30 * (number == 2)))
    return tmp_path


def test_the_process_that_starts_workers_does_without_torch(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = subprocess.run([sys.executable, "-c", PROGRAM], cwd=place, capture_output=True, text=True)
    *lines, last = found.stdout.splitlines()
    assert last == "1 False", found.stderr
    assert main(["score", str(place / "detector"), str(place / "new"), "--json"]) == 1
    alone = capsys.readouterr().out.replace(str(place) + "/", "")
    assert lines == alone.splitlines()


def test_a_fault_of_the_detector_is_the_same_line_from_a_worker(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    weights = next((place / "detector" / "model").glob("*.safetensors"))
    weights.write_bytes(weights.read_bytes()[:-1] + b"?")
    said = []
    for workers in ("1", "2"):
        assert main(["score", str(place / "detector"), str(place / "new"), "--workers", workers]) == 2
        said.append(capsys.readouterr().err)
    assert said[0] == said[1] and said[0].count("\n") == 1
