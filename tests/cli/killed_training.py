"""A program for test_train_killed.py: forks `fewone train` again and again and kills it at random moments.

Forking one warm process spares every kill the seconds that importing takes; it is the same command all the same.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from pathlib import Path

import torch._dynamo  # noqa: F401  (the first optimizer imports it: two seconds)

from fewone.cli import main, train
from fewone.datasets import load
from fewone.experiments import build


def fork(arguments: list[str]) -> int:
    child = os.fork()
    if child == 0:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os._exit(main(arguments))
    return child


def iteration_of(folder: Path) -> int:
    try:
        return int(json.loads((folder / "state.json").read_bytes())["content"]["iteration"])
    except FileNotFoundError:
        return 0


def program(experiment: str, whole: Path, parts: Path, kills: int, seed: int) -> None:
    """Train once without interruption, then with `kills` of them; print the iterations found after each kill."""
    splits = load("sts-sawtooth")
    # Generated once and before the forks: what is killed is the training.
    train.load_splits = lambda *arguments: splits
    build.load = lambda *arguments: splits
    started = time.monotonic()
    assert os.waitpid(fork(["train", experiment, "--out", str(whole)]), 0)[1] == 0
    duration = time.monotonic() - started
    generator = random.Random(seed)
    found = []
    for number in range(kills):
        child = fork(["train", experiment, "--out", str(parts)])
        if number % 4:
            wait_for_progress(parts, iteration_of(parts), timeout=10 * duration)
        time.sleep(generator.uniform(0, duration / kills))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        found.append(iteration_of(parts))
    assert os.waitpid(fork(["train", experiment, "--out", str(parts)]), 0)[1] == 0
    print(json.dumps(found))


def wait_for_progress(folder: Path, iteration: int, timeout: float) -> None:
    """Until the training is under way, so that most kills hit it and not its beginning."""
    end = time.monotonic() + timeout
    while iteration_of(folder) == iteration and time.monotonic() < end:
        time.sleep(0.002)


if __name__ == "__main__":
    program(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5]))
