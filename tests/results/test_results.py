"""Records on disk: one small file per training, strict to read, never torn; statistics that are honest."""

import json
import multiprocessing
import subprocess
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fewone.errors import FewoneError
from fewone.evaluation import METRICS
from fewone.experiment import Experiment
from fewone.experiments import default_experiment
from fewone.results import (
    Alarms,
    Cosine,
    Failure,
    Record,
    Results,
    Row,
    Training,
    UnitScores,
    ValidationPoint,
    average_seeds,
    compare,
    cut_to_shares,
    find_commit,
    find_provenance,
    identify_training,
    interval,
    make_rows,
    read_results,
    summarize_over_seeds,
    warn_of_few,
    write_records,
)

PROVENANCE = find_provenance("abc", 2.0, 1.5)


def make_scores(seed: int, units: int = 6) -> UnitScores:
    columns = np.random.default_rng(seed).random((len(METRICS), units)).round(5).tolist()
    return UnitScores(tuple(f"unit-{number}" for number in range(units)), 12, *map(tuple, columns))


def make_experiment(seed: int = 0, **more: Any) -> Experiment:
    return replace(default_experiment("mt-mnist/0", "maml", 10, seed), **more)


def make_row(seed: int = 0, **more: Any) -> Row:
    return Row(make_experiment(seed, **more), PROVENANCE, 10, 1.0, "test", "example", "own", make_scores(seed))


def make_records(seed: int = 0) -> tuple[Record, ...]:
    """One of each kind, of one training."""
    experiment = make_experiment(seed)
    points = (ValidationPoint(100, 1.5, 0.7, 0.6), ValidationPoint(200, 3.0, 0.6, 0.8))
    return (
        Training(experiment, PROVENANCE, points),
        make_row(seed),
        Cosine(experiment, PROVENANCE, ("unit-0", "unit-1"), (0.5, -0.25)),
        Alarms(experiment, PROVENANCE, 2, "run", 0.05, ("unit-0", "unit-1"), (0.0, 0.1), (0.2, 0.3)),
        Failure(experiment, PROVENANCE, "it died"),
    )


def test_the_interval_is_students_t_over_units() -> None:
    values = np.random.default_rng(0).random(7)
    found = interval(values.tolist())
    low, high = stats.t.interval(0.95, 6, loc=values.mean(), scale=stats.sem(values))
    assert (found.mean, found.low, found.high) == pytest.approx((values.mean(), low, high))
    single = interval([0.5])
    assert (single.mean, single.low, single.high, single.units) == (0.5, None, None, 1)


def test_a_paired_comparison_is_the_interval_of_the_differences_per_unit() -> None:
    first, second = make_scores(0), make_scores(1)
    shuffled = UnitScores(second.units[::-1], 12, *(getattr(second, name)[::-1] for name in METRICS))
    expected = stats.ttest_rel(first.auroc, second.auroc).confidence_interval(0.95)
    found = compare(first, shuffled).auroc
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))
    assert compare(first, first).accuracy.low == compare(first, first).accuracy.high == 0
    with pytest.raises(FewoneError, match="same episodes"):
        compare(first, make_scores(0, units=5))


def test_seeds_are_averaged_per_unit_and_summarised_over_seeds() -> None:
    runs = [make_scores(seed) for seed in range(3)]
    together = average_seeds(runs)
    assert together.f1 == pytest.approx(np.mean([run.f1 for run in runs], axis=0))
    over = summarize_over_seeds(runs).f1
    assert over.units == 3 and over.mean == pytest.approx(together.summarize().f1.mean)
    assert over == interval([float(np.mean(run.f1)) for run in runs])


def test_records_of_every_kind_come_back_as_they_went(tmp_path: Path) -> None:
    training, row, cosine, alarms, failure = records = make_records()
    (path,) = write_records(tmp_path / "deep" / "study", *records)
    for place in (path, path.parent, path.parent.parent):
        found = read_results(place)
        assert (found.trainings, found.rows, found.cosines) == ((training,), (row,), (cosine,))
        assert (found.alarms, found.failures, found.notices) == ((alarms,), (failure,), ())
    assert row.summary == row.scores.summarize()


@given(st.lists(st.floats(0, 1), min_size=2, max_size=30))
def test_what_is_kept_of_any_values_gives_the_same_interval_to_a_hundredth_of_a_per_cent(values: list[float]) -> None:
    from tempfile import TemporaryDirectory

    scores = UnitScores(tuple(map(str, range(len(values)))), 5, *(tuple(values),) * len(METRICS))
    row = replace(make_row(), scores=scores)
    with TemporaryDirectory() as folder:
        write_records(Path(folder), row)
        (kept,) = read_results(Path(folder)).rows
    assert asdict(kept.summary.accuracy) == pytest.approx(asdict(row.summary.accuracy), abs=1e-4)


def test_each_training_has_a_file_that_names_it_and_holds_its_experiment_and_units_once(tmp_path: Path) -> None:
    rows = [make_row(0), replace(make_row(0), k=2, threshold="calibrated"), make_row(1)]
    paths = write_records(tmp_path, *rows)
    assert [path.name.rsplit(".", 3)[0] for path in paths] == ["mt-mnist-0.maml.K10.seed0", "mt-mnist-0.maml.K10.seed1"]
    text = paths[0].read_text()
    assert text.count("mt-mnist/0") == text.count("unit-3") == 1
    assert len(text.splitlines()) == 9, "a line per record, so that differences can be read"
    first, second, _ = read_results(tmp_path).rows
    assert first.experiment is second.experiment


def test_a_file_is_never_changed_and_further_records_stand_beside_it(tmp_path: Path) -> None:
    (path,) = write_records(tmp_path, make_row())
    before = path.read_bytes()
    assert write_records(tmp_path, make_row()) == (path,), "the same records are the same file"
    (other,) = write_records(tmp_path, replace(make_row(), k=2))
    assert path.read_bytes() == before and other != path
    assert sorted(row.k for row in read_results(tmp_path).rows) == [2, 10]
    files = tuple(sorted((path.name, other.name)))
    assert read_results(tmp_path).files == {identify_training(make_experiment()): files}


def test_a_path_of_the_old_kind_is_refused_with_the_new_one(tmp_path: Path) -> None:
    with pytest.raises(FewoneError, match=r"rows.jsonl: results are kept in a folder.*give one such as .*rows$"):
        write_records(tmp_path / "rows.jsonl", make_row())


def test_an_evaluation_with_recordings_gives_two_rows() -> None:
    results = Results(make_scores(0), make_scores(1), 1.0, 1.0)
    rows = make_rows(results, make_experiment(), 5, 0.5, "test", "calibrated", PROVENANCE)
    assert [(row.level, row.k, row.normal_share) for row in rows] == [("example", 5, 0.5), ("run", 5, 0.5)]
    assert rows[1].scores == results.runs


def spoil(document: dict[str, Any], change: str) -> Any:
    row = document["rows"][0]
    match change:
        case "missing":
            del row["k"]
        case "unknown":
            row["levle"] = 1
        case "type":
            row["k"] = "10"
        case "value":
            row["accuracy"][2] = None
        case "literal":
            row["level"] = "stretchy"
        case "source":
            row["source"] = 3
        case "units":
            row["units"] = "unit-0"
        case "history":
            document["trainings"][0]["history"]["loss"].pop()
        case "experiment":
            document["experiment"] = []
        case "part":
            document["verdicts"] = []
        case "format":
            document["format"] = "other"
        case "list":
            return [document]
    return document


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("missing", "rows.0.k: is missing"),
        ("unknown", "rows.0.levle: there is no such key; did you mean 'level'"),
        ("type", 'rows.0.k: a whole number is needed, got "10"'),
        ("value", "rows.0.scores.accuracy: a number is needed, got null"),
        ("literal", 'rows.0.level: allowed are "example", "run"'),
        ("source", "rows.0.source: must be one of the file's 1, counted from 0, got 3"),
        ("units", "rows.0.units: must be one of"),
        ("history", "trainings.0.history: its lists must be of one length"),
        ("experiment", "experiment: a table is needed"),
        ("part", "verdicts: there is no such key"),
        ("format", 'not a file of results \\("format" must be'),
        ("list", 'not a file of results \\("format" must be'),
    ],
)
def test_anything_wrong_in_a_file_is_an_error_that_names_file_and_field(
    tmp_path: Path, change: str, message: str
) -> None:
    (path,) = write_records(tmp_path, *make_records())
    path.write_text(json.dumps(spoil(json.loads(path.read_text()), change)))
    with pytest.raises(FewoneError, match=f"{path.name}: {message}"):
        read_results(tmp_path)


def test_a_torn_file_and_a_missing_one_are_errors(tmp_path: Path) -> None:
    (path,) = write_records(tmp_path, *make_records())
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(FewoneError, match="not JSON"):
        read_results(tmp_path)
    with pytest.raises(FewoneError, match="cannot be read"):
        read_results(tmp_path / "nothing.json")


def test_a_value_that_json_cannot_hold_writes_nothing(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="JSON"):
        write_records(tmp_path, make_row(0), replace(make_row(1), normal_share=float("nan")))
    assert list(tmp_path.iterdir()) == []


def write_many(path: Path, writer: int) -> None:
    for number in range(25):
        write_records(path, make_row(writer * 100 + number), replace(make_row(7), k=writer * 100 + number))


def test_writers_at_once_lose_and_corrupt_nothing(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=write_many, args=(tmp_path, writer)) for writer in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert all(writer.exitcode == 0 for writer in writers)
    expected = sorted(writer * 100 + number for writer in range(3) for number in range(25))
    rows = read_results(tmp_path).rows
    assert sorted(row.seed for row in rows if row.k == 10 and row.seed != 7) == [one for one in expected if one != 7]
    assert sorted({row.k for row in rows if row.seed == 7}) == expected
    assert not list(tmp_path.glob("*.part"))


def test_the_commit_is_unknown_outside_of_a_repository(tmp_path: Path) -> None:
    assert find_commit(tmp_path) == "unknown"


def test_a_change_anywhere_in_the_package_makes_the_commit_dirty_and_git_is_asked_once(tmp_path: Path) -> None:
    def git(*words: str) -> None:
        who = ["-c", "user.name=a", "-c", "user.email=a@b"]
        subprocess.run(["git", *who, *words], cwd=tmp_path, check=True, capture_output=True)

    package = tmp_path / "package"
    (package / "room").mkdir(parents=True)
    for name in ("one.py", "room/two.py"):
        (package / name).write_text("1")
    git("init")
    git("add", ".")
    git("commit", "-m", "first")
    clean = find_commit(package / "room")
    assert len(clean) == 40
    (package / "room" / "two.py").write_text("2")
    assert find_commit(package / "room") == clean, "asked once per process"
    assert find_commit(package) == f"{clean}+dirty"


def test_intervals_of_shares_lie_within_0_and_1_and_few_tasks_say_little() -> None:
    scores = UnitScores(("a", "b"), 2, *[(0.99, 0.7)] * 4, (0.0, 0.02), (0.0, 0.5), (0.1, 0.9))
    summary = scores.summarize()
    for name in ("accuracy", "auroc", "pr_auc", "f1", "false_alarms", "misses"):
        found = cut_to_shares(getattr(summary, name))
        assert 0.0 <= found.low <= found.mean <= found.high <= 1.0
    assert summary.loss.low is not None and summary.loss.low < 0.0
    assert warn_of_few(2) == "2 test tasks say little: another draw of tasks may give other figures"
    assert warn_of_few(30) == ""
