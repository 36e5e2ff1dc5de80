"""What a cell says beside its number: by whose way, with which settings, from which iteration."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fewone.experiments import default_experiment
from fewone.reporting.markdown import render_markdown
from fewone.reporting.page import build_report, render_html
from fewone.reporting.seed_averages import collect
from fewone.reporting.tables import Cell, build_paper_tables
from fewone.reporting.ways import follows_authors
from fewone.results import (
    Cosine,
    Interval,
    Provenance,
    Row,
    Training,
    UnitScores,
    ValidationPoint,
    Versions,
    write_records,
)

PROVENANCE = Provenance("abc", "f00d", Versions("0", "3", "2", "2", "1"), "2026-01-01T00:00:00+00:00", 60.0, 60.0)


def judge(
    learner: str,
    accuracy: float,
    dataset: str = "sts-sawtooth",
    units: int = 3,
    k: int = 10,
    seed: int = 0,
    share: float = 1.0,
    **changes: dict[str, Any],
) -> Row:
    """A row whose settings are the paper's but for the changes, part by part."""
    usual = default_experiment(dataset, learner, k, seed)
    parts = {part: replace(getattr(usual, part), **settings) for part, settings in changes.items()}
    experiment = replace(usual, **parts)
    values = tuple(accuracy + 0.01 * (unit - (units - 1) / 2) for unit in range(units))
    scores = UnitScores(tuple(f"task {unit}" for unit in range(units)), 30, *(values,) * 7)
    return Row(experiment, PROVENANCE, k, share, "test", "example", "own", scores)


def train(row: Row, *losses: float) -> Training:
    points = (ValidationPoint(100 * number, 1.0, loss, 0.9) for number, loss in enumerate(losses, start=1))
    return Training(row.experiment, PROVENANCE, tuple(points))


def find_cell(folder: Path, title: str, label: str, column: str) -> Cell:
    (table,) = [table for table in build_paper_tables(collect(folder)) if table.title.startswith(title)]
    cell = dict(table.rows)[label][table.columns.index(column)]
    assert cell is not None
    return cell


def main_cell(folder: Path, label: str = "OC-MAML", column: str = "sts-sawtooth, K=10") -> Cell:
    return find_cell(folder, "Main", label, column)


def test_one_task_and_one_seed_give_no_verdict_and_several_seeds_an_interval_over_them(tmp_path: Path) -> None:
    write_records(tmp_path / "a", judge("oc-maml", 0.94, "mt-mnist/0", units=1))
    cell = main_cell(tmp_path, column="mt-mnist/0, K=10")
    assert cell.ours == Interval(pytest.approx(94.0), None, None, 1) and cell.comparison == "unjudged"
    assert "95.1 / **94.0** (1" in render_markdown(build_report(collect(tmp_path)))
    seeds = [judge("oc-maml", 0.94 + seed / 1000, "mt-mnist/0", units=1, seed=seed) for seed in (1, 2)]
    write_records(tmp_path / "a", *seeds)
    cell = main_cell(tmp_path, column="mt-mnist/0, K=10")
    assert cell.ours is not None and cell.ours.low is not None and cell.ours.units == 3
    assert (cell.ours.mean, cell.comparison, cell.seeds) == (pytest.approx(94.1), "worse", 3)


def test_a_cell_says_which_iteration_was_kept_and_where_the_first_validation_won(tmp_path: Path) -> None:
    early, late = judge("oc-maml", 0.99), judge("maml", 0.8)
    write_records(tmp_path / "a", early, train(early, 0.1, 0.3, 0.2), late, train(late, 0.3, 0.1, 0.2))
    assert main_cell(tmp_path).choice == "100/300!"
    assert main_cell(tmp_path, "MAML").choice == "200/300"
    html = render_html(build_report(collect(tmp_path)))
    assert "100/300!" in html and "200/300" in html


def test_the_last_weights_are_the_kept_ones_where_the_experiment_says_so(tmp_path: Path) -> None:
    row = judge("oc-maml", 0.99, training={"select": "last"})
    write_records(tmp_path / "a", row, train(row, 0.1, 0.3, 0.2))
    assert main_cell(tmp_path).choice == "300/300"


def test_other_settings_than_the_papers_are_marked_and_the_papers_own_stand_beside_them(tmp_path: Path) -> None:
    changed = judge("oc-maml", 0.99, learning={"learn_rates": True}, training={"meta_batch": 4, "schedule": "cosine"})
    write_records(tmp_path / "a", changed, train(changed, 0.1))
    cell = main_cell(tmp_path)
    assert (cell.marks, cell.plain) == ("rbs", None)
    usual = judge("oc-maml", 0.95)
    write_records(tmp_path / "a", usual, train(usual, 0.2))
    cell = main_cell(tmp_path)
    assert (cell.marks, cell.plain) == ("rbs", pytest.approx(95.0))
    assert "rbs, paper's settings 95.0" in render_markdown(build_report(collect(tmp_path)))


def test_the_authors_program_is_a_second_value_and_never_the_first(tmp_path: Path) -> None:
    theirs = judge("oc-fomaml", 0.75, learning={"query_statistics": True})
    write_records(tmp_path / "a", theirs)
    cell = main_cell(tmp_path, "OC-FOMAML")
    assert (cell.ours, cell.authors) == (None, pytest.approx(75.0))
    write_records(tmp_path / "a", judge("oc-fomaml", 0.99))
    cell = main_cell(tmp_path, "OC-FOMAML")
    assert cell.ours is not None and (cell.ours.mean, cell.authors) == (pytest.approx(99.0), pytest.approx(75.0))
    assert " A 75.0" in render_markdown(build_report(collect(tmp_path)))


def test_class_balanced_learners_on_the_series_are_the_authors_where_the_support_is_balanced(tmp_path: Path) -> None:
    write_records(tmp_path / "a", judge("maml", 0.76), judge("maml", 0.86, share=0.5), judge("oc-maml", 0.9, share=0.5))
    cell = main_cell(tmp_path, "MAML")
    assert cell.ours is not None and (cell.ours.mean, cell.authors) == (pytest.approx(76.0), pytest.approx(86.0))
    assert main_cell(tmp_path, "OC-MAML").authors is None


def test_fb_that_learned_contradicting_labels_fills_no_cell(tmp_path: Path) -> None:
    write_records(tmp_path / "a", judge("fb", 0.6, "omniglot", learning={"batch": "episodes"}))
    assert main_cell(tmp_path, "FB", "omniglot, K=10").ours is None
    write_records(tmp_path / "a", judge("fb", 0.7, "omniglot"))
    assert main_cell(tmp_path, "FB", "omniglot, K=10").ours is not None


def test_a_row_at_a_further_k_finds_its_training(tmp_path: Path) -> None:
    trained = judge("oc-maml", 0.9)
    further = replace(trained, experiment=replace(trained.experiment, further_k=(2,)), k=2)
    other = judge("oc-maml", 0.7, k=2)
    write_records(tmp_path / "a", further, train(further, 0.1), other, train(other, 0.2))
    cell = main_cell(tmp_path, column="sts-sawtooth, K=2")
    assert cell.ours is not None and cell.ours.mean == pytest.approx(90.0), "its validation loss is the lower one"
    assert cell.marks == "k" and cell.choice == "100/100"


def test_cosine_and_accuracy_of_a_cell_are_of_one_training(tmp_path: Path) -> None:
    better, other = judge("oc-maml", 0.99), judge("oc-maml", 0.6, training={"iterations": 7})
    later = replace(PROVENANCE, timestamp="2026-02-01T00:00:00+00:00")
    cosines = [Cosine(better.experiment, PROVENANCE, ("a",), (0.9,)), Cosine(other.experiment, later, ("a",), (0.1,))]
    write_records(tmp_path / "a", better, train(better, 0.1), cosines[0], other, train(other, 0.5), cosines[1])
    cell = find_cell(tmp_path, "Cosine", "OC-MAML", "sts-sawtooth")
    assert cell.ours is not None and cell.ours.mean == pytest.approx(0.9)
    assert cell.notes == ("accuracy 99.0",) == (f"accuracy {main_cell(tmp_path).ours.mean:.1f}",)  # type: ignore[union-attr]


def test_a_learner_without_a_step_has_a_table_of_its_own_and_fills_no_cell(tmp_path: Path) -> None:
    adapted = judge("oc-maml", 0.99)
    write_records(tmp_path / "a", adapted, replace(judge("oc-maml", 0.5), steps=0))
    report = build_report(collect(tmp_path))
    ((label, (cell,)),) = report.unadapted.rows
    assert cell is not None and cell.ours is not None
    assert (label, cell.ours.mean, cell.notes) == ("oc-maml", pytest.approx(50.0), ("99.0",))
    assert main_cell(tmp_path).ours == Interval(
        pytest.approx(99.0), pytest.approx(96.5, abs=0.1), pytest.approx(101.5, abs=0.1), 3
    )
    assert "→ 99.0" in render_markdown(report) and "→ 99.0" in render_html(report)


def test_the_tables_of_the_docs_leave_out_what_was_not_run_and_count_it(tmp_path: Path) -> None:
    write_records(tmp_path / "a", judge("oc-maml", 0.99))
    markdown = render_markdown(build_report(collect(tmp_path)))
    assert "miniimagenet, K" not in markdown and "Reptile" not in markdown
    assert "| Main results (the paper's Table 1) | 112 | 84 | 1 |" in markdown
    assert "| all | 694 | 616 | 2 |" in markdown


def test_turned_training_digits_are_no_way_of_the_authors(tmp_path: Path) -> None:
    last = {"norm": "support", "norm_place": "last", "halving": "ceil"}
    plain = judge("oc-maml", 0.9, "mt-mnist/0", units=1, network=last)
    turned = judge("oc-maml", 0.97, "mt-mnist/0", units=1, network=last, training={"augmentation": ("affine",)})
    for row, alike in ((plain, True), (turned, False)):
        write_records(tmp_path / str(alike), row)
        (average,) = collect(tmp_path / str(alike)).single
        assert follows_authors(average) is alike
