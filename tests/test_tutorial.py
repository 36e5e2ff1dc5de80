"""Every command and program of docs/tutorial.md runs, in its order, on the real data, and does what the page says."""

from __future__ import annotations

import contextlib
import csv
import io
import re
import shlex
from pathlib import Path

import pytest

from fewone.cli import main
from fewone.datasets import DATASETS
from fewone.datasets.sources import default_data_dirs

PAGE = (Path(__file__).parents[1] / "docs" / "tutorial.md").read_text()
BLOCKS = re.findall(r"^```(python|sh)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def find_data() -> Path:
    source = DATASETS["cnc"].source
    assert source is not None
    found = source.find(default_data_dirs())
    if found is None:
        pytest.skip("the milling data are not in FEWONE_DATA")
    return found.resolve()


def read_shortcut() -> list[str]:
    """The options that the page names for a short training."""
    (options,) = re.findall(r"`(--training\.iterations[^`]*)`", PAGE)
    return shlex.split(options)


def read_numbers(pattern: str, told: str) -> list[int]:
    found = re.search(pattern, told, re.MULTILINE)
    assert found, f"{pattern!r} is not in {told!r}"
    return [int(number) for number in found.groups()]


def run_page() -> tuple[str, dict[str, int]]:
    """What the blocks print, and the exit code of each command."""
    names: dict[str, object] = {}
    codes = {}
    told = io.StringIO()
    with contextlib.redirect_stdout(told):
        for language, text in BLOCKS:
            if language == "python":
                exec(compile(text, "tutorial.md", "exec"), names)
                continue
            for line in text.splitlines():
                words = shlex.split(line)[1:]
                codes[line.split(" -")[0]] = main(words + (read_shortcut() if words[0] == "train" else []))
    return told.getvalue(), codes


def test_the_tutorial_runs_as_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "CNC_Machining").mkdir()
    (tmp_path / "CNC_Machining" / "data").symlink_to(find_data())
    monkeypatch.chdir(tmp_path)
    told, codes = run_page()
    assert codes == {
        "fewone data check cnc/M02": 0,
        "fewone train": 0,
        "fewone export m02-op07": 0,
        "fewone fit m01 normals": 0,
        "fewone score m02 new": 1,
    }
    found, bad = read_numbers(r"bad runs found: (\d+) of (\d+)", told)
    assert found == bad > 0
    alarms, good = read_numbers(r"false alarms: (\d+) of (\d+) good runs", told)
    assert alarms < good / 3
    # What the page says of all operations: most bad runs are found, ten runs of one month are far worse than ten spread
    # over the time, and more of them help.
    found_all, bad_all, spread, month, added = read_numbers(r"^all +(\d+) of (\d+) +(\d+)% +(\d+)% +(\d+)%", told)
    assert found_all >= 0.9 * bad_all
    assert bad_all > 20
    assert spread < 25
    assert 2 * spread < month
    assert added < month
    (by_groups, _) = read_numbers(r"one detector for all segments: (\d+) of (\d+)", told)
    assert by_groups >= 1
    assert "bad runs by ONNX Runtime: [" + " ".join(["-1"] * bad) + "]" in told
    assert Path("bad-run.png").stat().st_size > 1000
    with Path("scores.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == good + bad
    assert [row["anomalous"] for row in rows[-bad:]] == ["True"] * bad
    assert sum(row["anomalous"] == "True" for row in rows) == alarms + found


def test_what_the_page_shows_is_there() -> None:
    images = re.findall(r"!\[[^\]]*\]\(([^)]*)\)", PAGE)
    sizes = [(Path(__file__).parents[1] / "docs" / image).stat().st_size for image in images]
    assert [size for size in sizes if size > 100_000] == []
    assert len(sizes) == 1
    assert "PLACEHOLDER" not in PAGE
