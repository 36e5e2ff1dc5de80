"""kill -9 at random moments, then the same command: the end is the same to the bit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

EXPERIMENT = """
dataset = "sts-sawtooth"
learner = "oc-maml"
k = 2

[network]
filters = [4]

[learning]
inner_steps = 1

[training]
iterations = 200
meta_batch = 2
query_size = 4
validate_every = 7
validation_episodes = 5
checkpoint_seconds = 0.03
"""


def hash_of(folder: Path, bundle: str) -> str:
    return str(json.loads((folder / f"{bundle}.json").read_bytes())["weights"]["sha256"])


@pytest.mark.slow
def test_twenty_kills_at_random_moments_end_with_the_same_bits(tmp_path: Path) -> None:
    (tmp_path / "experiment.toml").write_text(EXPERIMENT)
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    done = subprocess.run(
        [
            *(sys.executable, str(Path(__file__).parent / "killed_training.py")),
            *(str(tmp_path / "experiment.toml"), str(whole), str(parts), "20", "0"),
        ],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert len(found) == 20
    assert found == sorted(found), "a kill never loses a checkpoint"
    assert len(set(found) - {0, 200}) >= 4, f"the kills must hit the training, not its beginning and end: {found}"
    assert hash_of(parts, "model") == hash_of(whole, "model")
    assert hash_of(parts, "state") == hash_of(whole, "state"), "the optimizer and the last weights too"
    logs = [[json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()] for folder in (whole, parts)]
    strip = [[{key: line[key] for key in line if key != "cpu_seconds"} for line in log] for log in logs]
    assert [line["iteration"] for line in strip[1]] == sorted({line["iteration"] for line in strip[1]})
    assert strip[0][-1] == strip[1][-1]
    named = {json.loads(path.read_bytes())["weights"]["file"] for path in parts.glob("*.json")}
    left = {path.name for path in parts.iterdir() if ".safetensors" in path.name or path.name.endswith(".part")}
    assert left == named, "nothing half-written is left behind"
