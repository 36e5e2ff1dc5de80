"""Results of version 0.1: read with nothing lost, and every row finds the training it is of."""

import json
from pathlib import Path
from typing import Any

import pytest

from fewone.errors import FewoneError
from fewone.experiment import Experiment
from fewone.results import read_results, write_records
from fewone.results.__main__ import main

METRICS = ("accuracy", "auroc", "pr_auc", "f1", "false_alarms", "misses", "loss")
VERSIONS = {"fewone": "0.1.0", "python": "3.11.7", "torch": "2", "numpy": "2", "sklearn": "1"}
ORIGIN = {
    "commit": "abc",
    "fingerprint": "f00d",
    "versions": VERSIONS,
    "timestamp": "2026-01-01T00:00:00+00:00",
    "seconds": 2.0,
    "cpu_seconds": 1.5,
}


def make_line(kind: str = "row", **experiment: Any) -> dict[str, Any]:
    """A line as version 0.1 wrote it: the experiment of a row has the K that it was judged at."""
    whole = {"dataset": "omniglot", "learner": "plda", "k": 10, "seed": 0, "test_normal_share": 1.0, "further_k": []}
    whole["normal_share"] = 1.0
    line = {"kind": kind, "experiment": {**whole, **experiment}, "seed": experiment.get("seed", 0), "origin": ORIGIN}
    match kind:
        case "row":
            values = {name: [0.25, 0.75] for name in METRICS}
            mean = {"mean": 0.5, "low": None, "high": None, "units": 2}
            scores = {"units": ["a", "b"], "episodes": 4, **values}
            summary = dict.fromkeys(METRICS, mean)
            line |= {"split": "test", "level": "example", "threshold": "own", "scores": scores, "summary": summary}
        case "training":
            line["history"] = [{"iteration": 100, "cpu_seconds": 1.0, "loss": 0.5, "accuracy": 0.8}]
        case "cosine":
            line |= {"units": ["a", "b"], "values": [0.1, 0.2]}
        case "alarms":
            line |= {"k": 2, "level": "run", "rate": 0.1, "units": ["a"], "false_alarms": [0.1], "misses": [0.0]}
        case "failure":
            line["error"] = "it died"
    return line


def write(path: Path, *lines: dict[str, Any]) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_every_kind_is_read_and_written_anew_with_nothing_lost(tmp_path: Path) -> None:
    kinds = ("row", "training", "cosine", "alarms", "failure")
    old = read_results(write(tmp_path / "a.jsonl", *map(make_line, kinds)))
    everything = (*old.trainings, *old.rows, *old.cosines, *old.alarms, *old.failures)
    assert len(everything) == 5
    (path,) = write_records(tmp_path / "new", *everything)
    new = read_results(path)
    assert (new.rows, new.trainings, new.cosines) == (old.rows, old.trainings, old.cosines)
    assert (new.alarms, new.failures) == (old.alarms, old.failures)


def test_a_row_at_a_further_k_finds_its_training(tmp_path: Path) -> None:
    lines = [make_line(k=k, further_k=[2, 5]) for k in (10, 2, 5)]
    lines += [make_line(k=k, further_k=[2, 5], seed=1) for k in (10, 2)]
    found = read_results(write(tmp_path / "a.jsonl", *lines))
    assert [(row.k, row.experiment.k, row.seed) for row in found.rows] == [
        (10, 10, 0),
        (2, 10, 0),
        (5, 10, 0),
        (10, 10, 1),
        (2, 10, 1),
    ]
    assert len(found.files) == 2


def test_a_row_judged_later_at_other_k_and_shares_finds_its_training(tmp_path: Path) -> None:
    training = make_line("training", further_k=[2])
    later = [make_line(k=20, further_k=[20]), make_line(test_normal_share=0.5)]
    rows = read_results(write(tmp_path / "a.jsonl", *later, training)).rows
    assert [(row.k, row.normal_share) for row in rows] == [(20, 1.0), (10, 0.5)]
    assert all(row.experiment == Experiment.read(training["experiment"]) for row in rows)


def test_trainings_at_two_k_stay_two(tmp_path: Path) -> None:
    lines = [make_line(kind, k=k) for k in (2, 10) for kind in ("row", "training")]
    found = read_results(write(tmp_path / "a.jsonl", *lines))
    assert [(row.k, row.experiment.k) for row in found.rows] == [(2, 2), (10, 10)]
    untrained = read_results(write(tmp_path / "b.jsonl", *(make_line(k=k) for k in (2, 10)))).rows
    assert [(row.k, row.experiment.k) for row in untrained] == [(2, 2), (10, 10)]


@pytest.mark.parametrize("kept", [1, 40, 300])
def test_a_torn_last_line_is_dropped_and_said(tmp_path: Path, kept: int) -> None:
    path = write(tmp_path / "a.jsonl", make_line(), make_line(seed=1))
    first, second = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(first + second[:kept])
    found = read_results(tmp_path)
    assert [row.seed for row in found.rows] == [0]
    assert f"torn ({kept} bytes)" in found.notices[0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"level": "stretchy"}, 'line 1: level: allowed are "example", "run"'),
        ({"sead": 1}, "line 1: sead: there is no such key"),
        ({"seed": 1}, "line 1: seed: 0 is needed, as in its experiment"),
        ({"kind": "verdict"}, "line 1: not a result"),
        ({"experiment": 3}, "line 1: experiment: a table is needed"),
        ({"origin": None}, "line 1: provenance: a table is needed"),
    ],
)
def test_anything_else_wrong_is_an_error_that_names_the_line(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    write(tmp_path / "a.jsonl", {**make_line(), **change})
    with pytest.raises(FewoneError, match=message):
        read_results(tmp_path)


def test_garbage_in_the_middle_is_an_error(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", make_line())
    path.write_bytes(b"{torn\n" + path.read_bytes())
    with pytest.raises(FewoneError, match="line 1: not JSON"):
        read_results(tmp_path)


def test_the_command_turns_old_files_into_folders_and_says_what_it_did(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old = write(tmp_path / "own.jsonl", make_line(), make_line(seed=1), make_line("training"))
    assert main([str(old), "--out", str(tmp_path / "results")]) == 0
    assert "3 records in 2 files" in capsys.readouterr().out
    assert len(read_results(tmp_path / "results").rows) == 2 and old.exists()
    assert main([str(tmp_path / "nothing.jsonl")]) == 2
    assert capsys.readouterr().err.startswith("fewone: ")
