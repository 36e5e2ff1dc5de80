"""The docs lead somewhere."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fewone import load
from fewone.cli import VERBS, main

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
PAGES = [README, *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_into_the_project_leads_somewhere(page: Path) -> None:
    words = re.sub(r"`[^`]*`", "", page.read_text())  # what looks like a link in code is none
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", words)
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_the_program_of_the_readme_runs_and_does_what_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (program,) = re.findall(r"^```python\n(.*?)^```", README.read_text(), re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(program, "README.md", "exec"), names)
    assert load("press-7").predict(names["X"]).tolist() == [-1] + [1] * 19
    for name in ("normals", "new"):
        np.savetxt(f"{name}.csv", names["X_normal" if name == "normals" else "X"], delimiter=",")
    blocks = re.findall(r"^```\n(fewone .*?)^```", README.read_text(), re.MULTILINE | re.DOTALL)
    commands = [shlex.split(line, comments=True)[1:] for block in blocks for line in block.splitlines()]
    assert {words[0] for words in commands} <= VERBS.keys()
    assert [main(words) for words in commands[:3]] == [0, 0, 1]


def test_the_programs_of_the_library_page_run_and_find_the_anomalies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "library.md").read_text()
    program = "\n".join(re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL))
    torch.manual_seed(0)
    exec(compile(program, "library.md", "exec"), {})
    assert capsys.readouterr().out.splitlines() == ["[-1 -1 -1]"] * 3
    assert {path.suffix for path in tmp_path.rglob("*") if path.is_file()} == {".json", ".safetensors", ".jsonl", ""}
