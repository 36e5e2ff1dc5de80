"""`import fewone` and `fewone --help` are light: torch and scikit-learn are loaded when they are used."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import fewone


@pytest.mark.parametrize(
    "code",
    [
        "import fewone",
        "from fewone.cli import main; main(['--help'])",
        "from fewone.cli import main; main(['models'])",
        "import fewone; fewone.windows([1, 2, 3], 2)",
    ],
)
def test_light_things_load_neither_torch_nor_scikit_learn(code: str) -> None:
    program = f"import sys; {code}; print([name for name in ('torch', 'sklearn', 'matplotlib') if name in sys.modules])"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout.splitlines()[-1] == "[]"


def test_the_public_names_are_there_whatever_was_imported_before() -> None:
    detector = fewone.FewShotDetector()
    assert callable(fewone.load)
    assert fewone.windows(np.arange(4.0), 2).shape == (2, 2)
    assert detector.fit(np.arange(6.0).reshape(3, 2)).support_size_ == 3
    assert {"FewShotDetector", "load", "windows"} <= set(dir(fewone))
    with pytest.raises(AttributeError, match="has no attribute 'detect'"):
        fewone.detect  # noqa: B018
