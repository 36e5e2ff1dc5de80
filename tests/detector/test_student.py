"""Student's quantile by its finite sum is scipy's, without scipy."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import fewone
from fewone.cli import main
from fewone.detector.student import student_quantile


@pytest.mark.parametrize("freedom", [1, 2, 3, 4, 5, 13, 14, 103, 504])
def test_the_quantile_is_that_of_scipy(freedom: int) -> None:
    for share in (0.5, 0.8, 0.975, 0.999, 1 - 1e-5):
        assert student_quantile(freedom, share) == pytest.approx(stats.t.ppf(share, freedom), rel=1e-8, abs=1e-12)


def test_scoring_a_few_rows_imports_nothing_heavy_beside_torch(tmp_path: Path) -> None:
    """What keeps a call near the time that torch itself takes to import."""
    detector = fewone.load("series")
    assert isinstance(detector, fewone.FewShotDetector)
    rows = np.random.default_rng(0).normal(size=(30, 128))
    np.savetxt(tmp_path / "new.csv", rows, delimiter=",")
    assert main(["fit", "series", str(tmp_path / "new.csv"), "--out", str(tmp_path / "d")]) == 0
    heavy = "'sklearn', 'scipy', 'matplotlib', 'pandas', 'pyarrow', 'onnx', 'fastapi', 'dask', 'h5py'"
    program = (
        f"import sys; from fewone.cli import main; main(['score', {str(tmp_path / 'd')!r},"
        f" {str(tmp_path / 'new.csv')!r}]); print([name for name in ({heavy}) if name in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout.splitlines()[-1] == "[]"
