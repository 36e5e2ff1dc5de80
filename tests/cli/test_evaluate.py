"""fewone evaluate and fewone analyze on what fewone train wrote."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from fewone.cli import main
from fewone.episodes import TaskSplits
from fewone.experiments import build
from fewone.experiments.sweep import find_done
from fewone.results import read_results


@pytest.fixture
def trained(tmp_path: Path, tiny_splits: TaskSplits, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a learner trained on the tiny series."""
    monkeypatch.setattr(build, "load", lambda *arguments: tiny_splits)
    words = ["--dataset", "sts-sine", "--learner", "oc-maml", "--k", "2", "--network.filters", "4"]
    words += ["--learning.inner-steps", "1", "--training.iterations", "4", "--training.meta-batch", "2"]
    words += ["--training.query-size", "4", "--training.validation-episodes", "2"]
    assert main(["train", *words, "--out", str(tmp_path / "run")]) == 0
    return tmp_path / "run"


def test_evaluate_prints_every_metric_and_adds_rows(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = tmp_path / "results" / "rows"
    assert main(["evaluate", str(trained), "--results", str(results)]) == 0
    said = capsys.readouterr().out
    for heading in ("accuracy (balanced)", "AUROC", "PR-AUC", "F1", "false alarms", "misses", "95 % interval"):
        assert heading in said
    own = [row for row in read_results(results).rows if row.threshold == "own"]
    assert len(own) == 1
    assert own[0].scores.units == ("task 8", "task 9")
    assert own[0].scores.episodes == 4
    assert (own[0].experiment.learner, own[0].k, own[0].seed) == ("oc-maml", 2, 0)
    assert own[0].provenance.fingerprint == "f1"
    assert f"{100 * own[0].summary.accuracy.mean:.1f}" in said
    assert main(["evaluate", str(trained), "--results", str(results)]) == 0
    again = [row for row in read_results(results).rows if row.threshold == "own"]
    assert {row.scores for row in again} == {own[0].scores}


def test_evaluate_judges_supports_with_known_anomalies_too(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = tmp_path / "rows"
    assert main(["evaluate", str(trained), "--normal-share", "1", "0.5", "--results", str(results)]) == 0
    assert "K=2 (50% normal)" in capsys.readouterr().out
    one_class, balanced = (row for row in read_results(results).rows if row.threshold == "own")
    assert (one_class.normal_share, balanced.normal_share) == (1.0, 0.5)
    assert one_class.experiment == balanced.experiment, "both are of the one training"
    assert one_class.scores != balanced.scores
    assert main(["evaluate", str(trained), "--normal-share", "1.5"]) == 2
    assert "test_normal_share: 0.5 (balanced) to 1 (one-class)" in capsys.readouterr().err


def test_other_data_than_it_was_trained_on_are_refused(
    trained: Path, tiny_splits: TaskSplits, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(build, "load", lambda *arguments: replace(tiny_splits, fingerprint="f2"))
    assert main(["evaluate", str(trained)]) == 2
    assert "trained on other data than these (fingerprint f1, here f2)" in capsys.readouterr().err


def test_a_folder_without_a_model_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", str(tmp_path)]) == 2
    assert "model.json: cannot be read (No such file or directory); give a folder" in capsys.readouterr().err


def test_analyze_cosine_prints_the_mean_and_keeps_the_values(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = tmp_path / "cosines"
    assert main(["analyze", "cosine", str(trained), "--results", str(results)]) == 0
    (record,) = read_results(results).cosines
    assert record.units == ("task 8", "task 9")
    assert f"cosine {sum(record.values) / 2:.3f} (" in capsys.readouterr().out


def test_analyze_unadapted_judges_the_initialisation_and_keeps_it_apart_from_the_adapted_learner(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = tmp_path / "unadapted"
    assert main(["analyze", "unadapted", str(trained), "--results", str(results)]) == 0
    (row,) = read_results(results).rows
    assert (row.steps, row.threshold, row.scores.units) == (0, "own", ("task 8", "task 9"))
    assert "no inner step taken" in capsys.readouterr().out
    assert find_done(results) == {}, "the experiment itself is still to be judged"


def test_analyze_alarms_prints_asked_and_realised_rates_and_keeps_them(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = tmp_path / "alarms"
    capsys.readouterr()
    assert main(["analyze", "alarms", str(trained), "--results", str(results)]) == 0
    records = read_results(results).alarms
    assert [(record.k, record.level, record.rate) for record in records] == [
        (2, "example", rate) for rate in (0.1, 0.05, 0.01)
    ]
    assert records[0].units == ("task 8", "task 9")
    said = capsys.readouterr().out
    assert f"{100 * sum(records[0].false_alarms) / 2:.1f}" in said
    assert "target" in said and "observed" in said
    (trained / "calibration.json").unlink()
    assert main(["analyze", "alarms", str(trained)]) == 2
    assert "no calibration" in capsys.readouterr().err


def test_analyze_theory_compares_both_kinds_of_pairs(
    trained: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    assert main(["analyze", "theory", str(trained)]) == 0
    said = capsys.readouterr().out
    assert "balanced, balanced" in said and "normals, balanced" in said and "95 % interval" in said
