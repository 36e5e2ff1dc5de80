"""Hours are said before they are spent."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from fewone.cli import main
from fewone.experiments import default_experiment
from fewone.experiments.cost import estimate
from fewone.results import Provenance, Row, UnitScores, Versions, write_records


def judge(dataset: str, learner: str, cpu_seconds: float, when: str = "2026-01-01") -> Row:
    provenance = Provenance("abc", "f00d", Versions("0", "3", "2", "2", "1"), when, cpu_seconds, cpu_seconds)
    scores = UnitScores(("a", "b"), 2, *((0.5, 0.5),) * 7)
    experiment = default_experiment(dataset, learner, 10)
    return Row(experiment, provenance, 10, 1.0, "test", "example", "own", scores)


def test_the_newest_row_of_the_same_kind_is_scaled_by_the_episodes_of_the_training() -> None:
    rows = [judge("mt-mnist/0", "maml", 7200), judge("mt-mnist/0", "maml", 3600, "2026-02-01")]
    rows.append(replace(judge("mt-mnist/0", "maml", 5, "2026-03-01"), steps=0))
    wanted = default_experiment("mt-mnist/5", "maml", 10)
    short = replace(wanted, training=replace(wanted.training, iterations=2500, meta_batch=4))
    found = estimate([wanted, short], rows)
    assert found is not None
    assert (found.core_hours, found.guessed) == (pytest.approx(1 + 1 / 8), 0)


def test_what_was_never_run_is_guessed_and_said_to_be() -> None:
    rows = [
        judge("sts-sine", learner, seconds) for learner, seconds in (("maml", 60), ("fomaml", 3600), ("reptile", 7200))
    ]
    found = estimate([default_experiment("omniglot", "oc-maml", 10)], rows)
    assert found is not None and (found.core_hours, found.guessed) == (pytest.approx(1.0), 1)
    assert "guessed" in str(found)
    assert estimate([default_experiment("omniglot", "oc-maml", 10)], []) is None


def test_a_sweep_over_several_files_says_the_hours_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_records(tmp_path / "costs", judge("sts-sine", "maml", 3600))
    for name, learner in (("one", "maml"), ("two", "fomaml")):
        (tmp_path / f"{name}.toml").write_text(f'[[experiments]]\ndataset = "sts-sine"\nlearner = "{learner}"\n')
    words = [str(tmp_path / "one.toml"), str(tmp_path / "two.toml"), "--results", str(tmp_path / "results")]
    assert main(["sweep", *words, "--costs", str(tmp_path / "costs"), "--list", "--jobs", "2"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "one: 1 experiments, 0 done, 1 to run" in said and "two: 1 experiments" in said
    assert "about 2.0 core-hours by what such trainings took before; 1 of them guessed, 1.0 hours with --jobs 2" in said
