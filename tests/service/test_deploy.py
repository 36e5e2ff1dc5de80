"""The files of deploy/ call the program as it is."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
import tyro

from fewone.cli.serve import Arguments

DEPLOY = Path(__file__).parents[2] / "deploy"


def test_the_unit_starts_the_service_with_options_that_it_has() -> None:
    (line,) = re.findall(r"^ExecStart=(.*)$", (DEPLOY / "fewone.service").read_text(), re.MULTILINE)
    program, verb, *options = shlex.split(line)
    assert (Path(program).name, verb) == ("fewone", "serve")
    chosen = tyro.cli(Arguments, args=options)
    assert chosen.host == "127.0.0.1" and chosen.tokens is not None


def test_the_container_starts_the_service_with_options_that_it_has() -> None:
    (entry,) = re.findall(r"^ENTRYPOINT (\[.*\])$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)
    _, verb, *options = json.loads(entry)
    assert verb == "serve"
    assert tyro.cli(Arguments, args=options).host == "0.0.0.0"


def test_the_build_is_sent_what_it_copies_and_asks_for_extras_that_exist() -> None:
    text = (DEPLOY / "Dockerfile").read_text()
    copied = [part for line in re.findall(r"^COPY (?!--from)(.*) \S+$", text, re.MULTILINE) for part in line.split()]
    sent = (DEPLOY.parent / ".dockerignore").read_text().splitlines()
    assert "*" in sent and copied
    for part in copied:
        assert (DEPLOY.parent / part).exists() and f"!{part}" in sent, part
    (extras,) = re.findall(r"^ARG EXTRAS=(.*)$", text, re.MULTILINE)
    known = tomllib.loads((DEPLOY.parent / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert {*extras.split(","), "all"} <= known.keys()


def test_the_container_is_not_root_and_its_health_is_asked_where_it_serves() -> None:
    text = (DEPLOY / "Dockerfile").read_text()
    (user,) = re.findall(r"^USER (\d+):\d+$", text, re.MULTILINE)
    assert int(user) > 0
    (port,) = re.findall(r"^EXPOSE (\d+)$", text, re.MULTILINE)
    (asked,) = re.findall(r"http://127\.0\.0\.1:(\d+)/ready", text)
    assert int(port) == int(asked) == tyro.cli(Arguments, args=["--folder", "/detectors"]).port


def test_systemd_finds_no_mistake_in_the_unit(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd is not installed")
    text = (DEPLOY / "fewone.service").read_text().replace("/opt/fewone/bin/fewone", "/bin/true")
    (tmp_path / "fewone.service").write_text(text)
    command = ["systemd-analyze", "verify", "--man=no", str(tmp_path / "fewone.service")]
    told = subprocess.run(command, capture_output=True, text=True, timeout=30)
    assert "fewone.service:" not in told.stdout + told.stderr
