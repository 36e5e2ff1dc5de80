"""Real processes: the same bits for one and two, a killed worker ends all in one line, and the same command goes on."""

from __future__ import annotations

import hashlib
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from fewone.checkpoints import load_learner
from fewone.cli.train import describe_work
from fewone.datasets import load
from fewone.experiments import default_experiment

COMMAND = [
    "train",
    *("--dataset", "sts-sawtooth", "--learner", "oc-maml", "--k", "2", "--network.filters", "4", "4"),
    *("--training.meta-batch", "4", "--training.query-size", "8", "--training.validate-every", "20"),
    *("--training.validation-episodes", "4", "--training.checkpoint-seconds", "0.05"),
]


def start(folder, *words, environment=None, before=("-m", "fewone")):
    return subprocess.Popen(
        [sys.executable, *before, *COMMAND, "--out", str(folder), *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | (environment or {}),
    )


def finish(process, seconds=120):
    out, error = process.communicate(timeout=seconds)
    return process.returncode, out, error


def weights(folder):
    learner, _ = load_learner(folder)
    digest = hashlib.sha256()
    for name, tensor in sorted(learner.state_dict().items()):
        digest.update(name.encode() + tensor.numpy().tobytes())
    return digest.hexdigest()


@pytest.fixture(scope="module")
def one(tmp_path_factory):
    """The folder of the training by one worker."""
    folder = tmp_path_factory.mktemp("workers") / "one"
    code, _, error = finish(start(folder, "--training.iterations", "60", "--workers", "1"))
    assert code == 0, error
    return folder


def wait_for_checkpoint(folder, process):
    deadline = time.monotonic() + 90
    while not (folder / "state.json").exists() and time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.02)


def children_of(process):
    listed = subprocess.run(["pgrep", "-P", str(process.pid)], capture_output=True, text=True, check=False).stdout
    return [int(word) for word in listed.split()]


def ranks_of(process):
    """Process numbers by rank, read from their environments."""
    found = {}
    for child in children_of(process):
        try:
            content = Path(f"/proc/{child}/environ").read_bytes()
        except OSError:
            continue
        names = dict(part.split(b"=", 1) for part in content.split(b"\0") if b"=" in part)
        if b"RANK" in names:
            found[int(names[b"RANK"])] = child
    return found


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="needs /proc to find the worker to kill")
def test_two_workers_end_like_one_also_after_one_was_killed(one, tmp_path):
    killed = start(tmp_path / "two", "--training.iterations", "60", "--workers", "2")
    wait_for_checkpoint(tmp_path / "two", killed)
    os.kill(ranks_of(killed)[1], signal.SIGKILL)
    began = time.monotonic()
    code, _, error = finish(killed, 40)
    assert time.monotonic() - began < 30
    assert code == 2
    assert error.strip().splitlines()[-1].startswith("fewone: worker 1 of 2 was killed by SIGKILL; the same command")
    code, _, error = finish(start(tmp_path / "two", "--training.iterations", "60", "--workers", "2"))
    assert code == 0, error
    assert weights(tmp_path / "two") == weights(one)
    assert (tmp_path / "two" / "calibration.json").read_bytes() == (one / "calibration.json").read_bytes()


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="needs /proc to find the worker to stop")
def test_under_torchrun_a_rank_that_hangs_ends_the_run_and_the_same_command_ends_like_one_worker(one, tmp_path):
    torchrun = ("-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-addr", "127.0.0.1", "-m", "fewone")
    torchrun = (*torchrun[:4], "--master-port", find_port(), *torchrun[4:])
    hanging = start(tmp_path / "two", "--training.iterations", "60", before=torchrun)
    wait_for_checkpoint(tmp_path / "two", hanging)
    ranks = ranks_of(hanging)
    os.kill(ranks[1], signal.SIGSTOP)
    deadline = time.monotonic() + 60
    while is_running(ranks[0]) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not is_running(ranks[0])
    # torchrun would wait half a minute more for the one that hangs.
    os.kill(ranks[1], signal.SIGKILL)
    code, _, error = finish(hanging)
    assert code != 0
    assert "fewone: worker 1 of 2 has been silent for 20 s: it hangs; the same command goes on" in error
    code, _, error = finish(start(tmp_path / "two", "--training.iterations", "60", before=torchrun))
    assert code == 0, error
    assert weights(tmp_path / "two") == weights(one)


def is_running(process):
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def find_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return str(free.getsockname()[1])


@pytest.mark.slow
def test_workers_with_different_experiments_are_refused_with_what_differs(tmp_path):
    common = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": find_port()}
    processes = [
        start(tmp_path, "--training.iterations", "5", "--seed", str(rank), environment=common | {"RANK": str(rank)})
        for rank in range(2)
    ]
    results = [finish(process) for process in processes]
    assert [code for code, _, _ in results] == [2, 2]
    assert "differ in experiment: seed: 0 and 1" in results[0][2] + results[1][2]


@pytest.mark.parametrize("what", ["versions", "data"])
def test_workers_with_different_versions_or_data_are_refused_with_what_differs(what):
    program = (
        "import sys\n"
        "from fewone.errors import FewoneError\n"
        "from fewone.workers import connect\n"
        "common = {'versions': 'fewone 1, torch 2', 'data': 'a1b2'}\n"
        "try:\n"
        "    with connect(common | {sys.argv[1]: sys.argv[2]}):\n"
        "        print('begun')\n"
        "except FewoneError as error:\n"
        "    sys.exit(str(error))\n"
    )
    common = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": find_port()}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", program, what, f"own {rank}"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | common | {"RANK": str(rank)},
        )
        for rank in range(2)
    ]
    results = [finish(process) for process in processes]
    assert [(code, out) for code, out, _ in results] == [(1, ""), (1, "")]
    said = results[0][2].splitlines()[-1]
    assert said.startswith(f"workers 0 and 1 differ in {what}: own 0 and own 1; give all of them the same")


def test_what_workers_must_have_in_common_names_versions_data_and_every_setting():
    splits, experiment = load("sts-sine"), default_experiment("sts-sine", "maml", 2)
    described = describe_work(experiment, splits)
    assert described["data"] == splits.fingerprint != load("sts-sawtooth").fingerprint
    assert "torch" in str(described["versions"])
    assert {key.removeprefix("experiment: ") for key in described} >= experiment.to_plain().keys()


def test_bad_numbers_of_workers_and_occupied_ports_are_one_line(tmp_path, capsys):
    from fewone.cli import main

    for words, message in [
        (["--workers", "0"], "at least one worker is needed"),
        (["--workers", "9"], "9 workers, but a batch has 4 shards"),
        (["--workers", "9", "--training.shards", "9"], "training.shards is 9, but a batch can be cut into 4"),
    ]:
        assert main([*COMMAND, "--out", str(tmp_path / "x"), *words]) == 2
        error = capsys.readouterr().err
        assert message in error and error.count("\n") == 1
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert main([*COMMAND, "--out", str(tmp_path / "x"), "--workers", "2", "--port", str(port)]) == 2
    assert f"port {port} is occupied" in capsys.readouterr().err
