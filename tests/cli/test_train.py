"""fewone train as a user meets it: it begins, goes on, is done, and says what is wrong."""

from __future__ import annotations

import json
import re
import signal
import sys
from itertools import product
from pathlib import Path

import numpy as np
import pytest

import fewone
from fewone.checkpoints import load_learner
from fewone.cli import main
from fewone.cli.train import Display, note_learned_by_heart, parse, say_choices
from fewone.episodes import TaskSplits
from fewone.experiments import build, default_experiment
from fewone.experiments.defaults import choose_learner
from fewone.training import Progress, Validation

SMALL = """
[network]
filters = [4]
[learning]
inner_steps = 1
[training]
iterations = 6
meta_batch = 2
query_size = 4
validate_every = 3
validation_episodes = 2
"""


@pytest.fixture
def small(tmp_path: Path, tiny_splits: TaskSplits, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An experiment file; its data are the tiny series."""
    monkeypatch.setattr(build, "load", lambda *arguments: tiny_splits)
    path = tmp_path / "small.toml"
    path.write_text('dataset = "sts-sine"\nlearner = "oc-maml"\nk = 2\n' + SMALL)
    return path


def test_options_stand_above_the_file_and_the_file_above_the_defaults(small: Path) -> None:
    words = [str(small), "--out", "x", "--seed", "4", "--training.iterations", "9", "--network.filters", "8", "8"]
    chosen = parse([*words, "--training.minutes", "2.5", "--threads", "2"])
    assert chosen.out == Path("x")
    experiment = chosen.experiment
    assert (experiment.seed, experiment.k, experiment.dataset) == (4, 2, "sts-sine")
    assert (experiment.training.iterations, experiment.training.minutes, experiment.training.query_size) == (9, 2.5, 4)
    assert experiment.training.threads == 2
    assert experiment.network.filters == (8, 8)


@pytest.mark.parametrize("form", ["--dataset {} --learner {} --k {}", "--dataset={} --learner={} --k={}"])
def test_without_a_file_the_defaults_follow_dataset_learner_and_k(form: str) -> None:
    words = form.format("omniglot", "oc-reptile", 4).split()
    assert parse([*words, "--out", "x"]).experiment == default_experiment("omniglot", "oc-reptile", 4)


def test_a_run_trains_is_then_finished_and_goes_on_with_more_iterations(
    small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "my rün"
    assert main(["train", str(small), "--out", str(folder)]) == 0
    said = capsys.readouterr().out
    assert "iteration 6/6: loss" in said
    assert "iterations/s" in said
    assert "finished: all 6 iterations are done" in said
    _, card = load_learner(folder)
    assert (card.algorithm, card.support_size, card.dataset) == ("maml", 2, "tiny")
    assert card.experiment is not None and card.experiment.learner == "oc-maml"
    log = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    assert [line["iteration"] for line in log] == [1, 2, 3, 4, 5, 6]
    assert [line["iteration"] for line in log if "validation_loss" in line] == [3, 6]
    state = json.loads((folder / "state.json").read_bytes())["content"]
    assert state["fingerprint"] == "f1"
    assert [item["iteration"] for item in state["history"]] == [3, 6]

    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert main(["train", str(small), "--out", str(folder)]) == 0
    assert "this run was finished before; nothing was done" in capsys.readouterr().out
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before

    assert main(["train", str(small), "--out", str(folder), "--training.iterations", "8"]) == 0
    assert "going on after iteration 6" in capsys.readouterr().out


def test_another_experiment_in_the_folder_is_refused(
    small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", str(small), "--out", str(tmp_path / "run")]) == 0
    assert main(["train", str(small), "--out", str(tmp_path / "run"), "--learning.inner-rate", "0.5"]) == 2
    said = capsys.readouterr().err
    assert "another experiment is in this folder: its learning.inner_rate is 0.01, 0.5 was asked for" in said


def test_an_interrupt_waits_for_the_iteration_and_loses_nothing(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    watch = Display.watch

    def interrupt(display: Display, progress: Progress) -> None:
        if progress.iteration == 2:
            signal.raise_signal(signal.SIGINT)
        watch(display, progress)

    before = signal.getsignal(signal.SIGINT)
    with monkeypatch.context() as patch:
        patch.setattr(Display, "watch", interrupt)
        assert main(["train", str(small), "--out", str(tmp_path / "run")]) == 130
    assert signal.getsignal(signal.SIGINT) is before
    assert json.loads((tmp_path / "run" / "state.json").read_bytes())["content"]["iteration"] == 2
    assert main(["train", str(small), "--out", str(tmp_path / "run")]) == 0
    assert "going on after iteration 2" in capsys.readouterr().out
    assert main(["train", str(small), "--out", str(tmp_path / "whole")]) == 0
    hashes = [json.loads((tmp_path / part / "state.json").read_bytes())["weights"] for part in ("run", "whole")]
    assert hashes[0] == hashes[1]


def test_a_method_without_training_is_settled_and_never_overwrites_another_run(
    small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, words = str(tmp_path / "run"), ["--dataset", "sts-sine", "--k", "2", "--training.query-size", "4"]
    assert main(["train", *words, "--learner", "knn", "--out", folder]) == 0
    assert "knn is not trained by gradient" in capsys.readouterr().out
    assert main(["train", *words, "--learner", "knn", "--out", folder]) == 0
    assert main(["train", *words, "--learner", "mahalanobis", "--out", folder]) == 2
    assert "its learner is 'knn', 'mahalanobis' was asked for" in capsys.readouterr().err
    assert main(["train", str(small), "--out", str(tmp_path / "other")]) == 0
    assert main(["train", *words, "--learner", "knn", "--out", str(tmp_path / "other")]) == 2
    assert "holds a training of another experiment" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["absent.toml", "--out", "x"], "absent.toml: cannot be read"),
        (["--dataset", "omniglott", "--out", "x"], "did you mean 'omniglot'?"),
        (["--learner", "oc-mamll", "--out", "x"], "did you mean 'oc-maml'?"),
        (["--k", "0", "--out", "x"], "k: a whole number of at least 1 is needed, got 0"),
        (["--training.query-size", "7", "--out", "x"], "training.query_size: an even whole number"),
        (["--normal-share", "1.5", "--out", "x"], "normal_share: 0.5 (balanced) to 1 (one-class)"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2_and_nothing_is_written(
    words: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["train", *words]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("words", [["--out"], ["--k", "many", "--out", "x"], ["--outt", "x"], []])
def test_words_that_cannot_be_parsed_are_one_line_and_exit_code_2(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", *words]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_the_kind_of_the_data_chooses_the_learner_and_it_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(3):
        for label in ("normal", "anomalous"):
            (tmp_path / f"plant/press-{number}" / label).mkdir(parents=True)
            for place in range(12):
                values = np.random.default_rng([number, place]).normal(size=(64, 1)) + 5 * (label == "anomalous")
                np.save(tmp_path / f"plant/press-{number}" / label / f"{place}.npy", values)
    dataset = f"folder:{tmp_path / 'plant'}"
    chosen = parse(["--dataset", dataset, "--window", "32", "--stride=16", "--out", "x"])
    assert chosen.experiment.learner == "evidence"
    assert (chosen.experiment.data.window, chosen.experiment.data.stride) == (32, 16)
    said = list(say_choices(["--dataset", dataset, "--training.minutes", "2"], chosen.experiment))
    assert said == ["read as: an array of 64 rows, 1 channel", said[1]]
    assert "learner evidence: chosen for your series; another one: --learner NAME" in said[1]
    limited = parse(["--dataset", dataset, "--learner", "plda", "--training.minutes", "2", "--out", "x"])
    assert "at most 2 minutes of CPU (a cap" in list(say_choices(["--learner", "plda"], limited.experiment))[-1]
    assert choose_learner("omniglot") == "plda"
    assert capsys.readouterr().err == ""


def test_the_commands_of_the_page_your_data_run_as_they_stand_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Only a cap on the minutes is added; the history is as the page lays it out, of files with a line of names."""
    page = (Path(__file__).parents[2] / "docs" / "your-data.md").read_text()
    block = re.search(r"```\n(fewone data check .*?)```", page, re.DOTALL)
    assert block is not None
    for task, label, number in product(range(5), ("normal", "anomalous"), range(12)):
        values = np.sin(np.arange(520) / (5 + task)) + np.random.default_rng([task, number]).normal(0, 0.1, 520)
        values[200:300] += 2.0 * (label == "anomalous")
        file = tmp_path / "PATH" / f"press-{task}" / label / f"{number}.csv"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("torque\n" + "".join(f"{value:.3f}\n" for value in values))
    monkeypatch.chdir(tmp_path)
    commands = [line.split()[1:] for line in block.group(1).splitlines()]
    assert [words[0] for words in commands] == ["data", "data", "train"]
    for words in commands:
        assert main([*words, *(["--training.minutes", "0.02"] if words[0] == "train" else [])]) == 0, words
    said = capsys.readouterr().out
    assert "learner evidence: chosen for your series" in said
    assert "kept: the weights of iteration" in said
    assert fewone.load(tmp_path / "models" / "presses").card.shape == (1, 512)


def test_learning_by_heart_is_told_and_learning_is_not() -> None:
    def judged(*losses: float) -> list[Validation]:
        return [Validation(50 * number, loss, 0.8, 1.0) for number, loss in enumerate(losses, start=1)]

    note = note_learned_by_heart(judged(1.24, 2.0, 1.93, 1.82), 8)
    assert note is not None and "the 8 training tasks were learned by heart; add tasks" in note
    assert note_learned_by_heart(judged(0.4, 0.3, 0.31, 0.29), 8) is None
    assert note_learned_by_heart(judged(0.4, 0.41, 0.39, 0.41), 8) is None
    assert note_learned_by_heart(judged(0.4, 0.9), 8) is None


def test_a_line_of_the_log_beyond_the_checkpoint_is_dropped_on_going_on(small: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    assert main(["train", str(small), "--out", str(folder)]) == 0
    with (folder / "log.jsonl").open("a") as file:
        file.write('{"iteration": 7, "loss": 1.0}\n{"iteration": 8, "lo')
    assert main(["train", str(small), "--out", str(folder), "--training.iterations", "8"]) == 0
    log = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    assert [line["iteration"] for line in log] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert all("gradient_norm" in line for line in log)


def test_scalars_for_tensorboard_can_be_read_back(small: Path, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="the extra 'tensorboard' is not installed")
    folder = tmp_path / "run"
    assert main(["train", str(small), "--out", str(folder), "--tensorboard"]) == 0
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder / "tensorboard")).Reload()
    assert [event.step for event in events.Scalars("training/loss")] == [1, 2, 3, 4, 5, 6]
    assert [event.step for event in events.Scalars("validation/accuracy")] == [3, 6]


def test_without_tensorboard_the_option_is_an_error_that_says_what_to_install(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    assert main(["train", str(small), "--out", str(tmp_path / "run"), "--tensorboard"]) == 2
    assert "pip install 'fewone[tensorboard]'" in capsys.readouterr().err
