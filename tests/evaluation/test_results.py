"""Rows on disk: strict to read, atomic to write, honest about intervals."""

import json
import multiprocessing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from fewone.errors import FewoneError
from fewone.evaluation import (
    METRICS,
    Failure,
    Results,
    Row,
    UnitScores,
    append,
    average_seeds,
    compare,
    find_commit,
    find_origin,
    interval,
    make_rows,
    read,
    summarize_over_seeds,
)


def make_scores(seed: int, units: int = 6) -> UnitScores:
    columns = np.random.default_rng(seed).random((len(METRICS), units)).tolist()
    return UnitScores(tuple(f"unit-{number}" for number in range(units)), 12, *map(tuple, columns))


def make_row(seed: int = 0, note: str = "") -> Row:
    results = Results(make_scores(seed), None, 1.0, 1.0)
    (row,) = make_rows(results, {"learner": "maml", "note": note}, seed, "test", "own", find_origin("abc", 2.0, 1.5))
    return row


def make_failure() -> Failure:
    return Failure({"learner": "maml"}, 1, "it died", find_origin("abc", 2.0, 1.5))


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


def test_rows_and_failures_come_back_as_they_went(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "results.jsonl"
    row, failure = make_row(), make_failure()
    assert append(path, row, failure) == ""
    reading = read(path)
    assert reading.rows == (row,) and reading.failures == (failure,) and reading.notice == ""
    assert row.summary == row.scores.summarize()


def test_an_evaluation_with_recordings_gives_two_rows() -> None:
    results = Results(make_scores(0), make_scores(1), 1.0, 1.0)
    rows = make_rows(results, {}, 0, "test", "calibrated", find_origin("abc", 2.0, 1.5))
    assert [row.level for row in rows] == ["example", "run"]
    assert rows[1].scores == results.runs


@pytest.mark.parametrize("kept", [1, 40, 300])
def test_a_torn_last_line_is_dropped_and_said(tmp_path: Path, kept: int) -> None:
    path = tmp_path / "results.jsonl"
    append(path, make_row(0))
    append(path, make_row(1))
    first, second = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(first + second[:kept])
    reading = read(path)
    assert [row.seed for row in reading.rows] == [0]
    assert f"torn ({kept} bytes)" in reading.notice
    assert "torn" in append(path, make_row(2))
    assert [row.seed for row in read(path).rows] == [0, 2] and read(path).notice == ""


def test_a_whole_last_line_without_its_newline_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    append(path, make_row(0))
    path.write_bytes(path.read_bytes().rstrip(b"\n"))
    assert [row.seed for row in read(path).rows] == [0]
    assert append(path, make_row(1)) == ""
    assert [row.seed for row in read(path).rows] == [0, 1]


def spoil(change: str) -> str:
    values = json.loads(json.dumps({"kind": "row"} | json.loads(_line())))
    match change:
        case "missing":
            del values["seed"]
        case "unknown":
            values["sead"] = 1
        case "type":
            values["seed"] = "1"
        case "nested":
            values["summary"]["f1"]["mean"] = None
        case "literal":
            values["level"] = "stretchy"
        case "kind":
            values["kind"] = "verdict"
    return json.dumps(values)


def _line() -> str:
    from dataclasses import asdict

    return json.dumps(asdict(make_row()))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("missing", "line 1: seed: is missing"),
        ("unknown", "line 1: sead: there is no such key; did you mean 'seed'"),
        ("type", 'line 1: seed: a whole number is needed, got "1"'),
        ("nested", "line 1: summary.f1.mean: a number is needed"),
        ("literal", 'line 1: level: allowed are "example", "run"'),
        ("kind", "line 1: not a result"),
    ],
)
def test_anything_else_wrong_is_an_error_that_names_line_and_field(tmp_path: Path, change: str, message: str) -> None:
    path = tmp_path / "results.jsonl"
    path.write_text(spoil(change) + "\n")
    with pytest.raises(FewoneError, match=message):
        read(path)


def test_garbage_in_the_middle_and_a_missing_file_are_errors(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    append(path, make_row())
    path.write_bytes(b"{torn\n" + path.read_bytes())
    with pytest.raises(FewoneError, match="line 1: not JSON"):
        read(path)
    with pytest.raises(FewoneError, match="cannot be read"):
        read(tmp_path / "nothing.jsonl")


def test_a_value_that_json_cannot_hold_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    append(path, make_row())
    before = path.read_bytes()
    with pytest.raises(ValueError, match="JSON"):
        append(path, replace(make_row(), experiment={"rate": float("nan")}))
    assert path.read_bytes() == before


def write_many(path: Path, writer: int) -> None:
    for number in range(25):
        append(path, make_row(writer * 100 + number, note="x" * 20_000))


def test_two_writers_at_once_lose_and_corrupt_nothing(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=write_many, args=(path, writer)) for writer in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert all(writer.exitcode == 0 for writer in writers)
    seeds = [row.seed for row in read(path).rows]
    assert sorted(seeds) == sorted(writer * 100 + number for writer in range(3) for number in range(25))


def test_the_commit_is_unknown_outside_of_a_repository(tmp_path: Path) -> None:
    assert find_commit(tmp_path) == "unknown"
