"""Every command and program of the tutorial in docs/service.md runs, in its order, on the milling data, as it says."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.service.receivers import free_port

from fewone.datasets import DATASETS
from fewone.datasets.sources import default_data_dirs

PAGE = (Path(__file__).parents[2] / "docs" / "service.md").read_text()
BLOCKS = re.findall(r"^```(python|sh)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def write_script() -> str:
    """The blocks as one script; what it started is ended with it."""
    parts = ["set -e", "trap 'kill $(jobs -p); wait' EXIT"]
    for language, text in BLOCKS:
        parts.append(text if language == "sh" else f"python - <<'PYTHON'\n{text}PYTHON\n")
    return "\n".join(parts)


def test_the_tutorial_runs_as_it_is_written(tmp_path: Path) -> None:
    source = DATASETS["cnc"].source
    assert source is not None
    found = source.find(default_data_dirs())
    if found is None:
        pytest.skip("the milling data are not in FEWONE_DATA")
    if shutil.which("curl") is None or shutil.which("openssl") is None:
        pytest.skip("curl and openssl are needed")
    (tmp_path / "CNC_Machining").mkdir()
    (tmp_path / "CNC_Machining" / "data").symlink_to(found.resolve())
    programs = tmp_path / "programs"
    programs.mkdir()
    for name, words in {"python": "", "fewone": " -m fewone"}.items():
        (programs / name).write_text(f'#!/bin/sh\nexec "{sys.executable}"{words} "$@"\n')
        (programs / name).chmod(0o755)
    ports = {"8000": str(free_port()), "9000": str(free_port())}
    script = re.sub(r"\b(8000|9000)\b", lambda match: ports[match[1]], write_script())
    script = script.replace("fewone serve --folder", f"fewone serve --port {ports['8000']} --folder")
    environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        ["bash", "-c", script],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        out, complaints = process.communicate(timeout=300)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    assert process.returncode == 0, complaints[-2000:]
    told = re.findall(r"^```text\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    expected = [
        line for block in told[1:] for line in block.splitlines() if re.match(r'The model|\{"detector":"|ALARM', line)
    ]
    assert len(expected) == 12
    assert [line for line in expected if line not in out] == []
    assert (tmp_path / "alarms.txt").read_text().count("ALARM") == 7
    assert "27\nALARM" in out
    history = json.loads((tmp_path / "history.json").read_text())
    assert len(history["rows"]) == 2 and all(row["anomalous"] for row in history["rows"])
    threshold = json.loads((tmp_path / "threshold.json").read_text())
    assert threshold["compared"] == 34 and threshold["alarms_now"] == 7


def test_the_pictures_of_the_page_are_there_and_small() -> None:
    images = re.findall(r"!\[[^\]]*\]\(([^)]*)\)", PAGE)
    assert len(images) == 3
    assert [
        one for one in images if not 1000 < (Path(__file__).parents[2] / "docs" / one).stat().st_size < 150_000
    ] == []
