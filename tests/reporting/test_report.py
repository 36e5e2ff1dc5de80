"""The report: the paper's numbers, our rows in the same places, honest verdicts."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fewone.errors import FewoneError
from fewone.experiments import default_experiment
from fewone.reporting.curves import draw_curves
from fewone.reporting.false_alarm_tables import compare_rate
from fewone.reporting.markdown import render_markdown
from fewone.reporting.page import Report, build_report, render_html
from fewone.reporting.published import NAMES, read_published
from fewone.reporting.records_page import render_records
from fewone.reporting.seed_averages import collect
from fewone.reporting.tables import build_paper_tables, compare_with_paper
from fewone.results import (
    Alarms,
    Cosine,
    Interval,
    Level,
    Provenance,
    Row,
    Training,
    UnitScores,
    ValidationPoint,
    Versions,
    write_records,
)

PROVENANCE = Provenance("abc", "f00d", Versions("0", "3", "2", "2", "1"), "2026-01-01T00:00:00+00:00", 60.0, 60.0)


def make_row(learner: str, accuracy: float, seed: int = 0, k: int = 10, norm: str = "none") -> Row:
    experiment = default_experiment("sts-sawtooth", learner, k=k, seed=seed)
    experiment = replace(experiment, network=replace(experiment.network, norm=norm))
    values = (accuracy - 0.01, accuracy, accuracy + 0.01)
    scores = UnitScores(("a", "b", "c"), 30, *(values,) * 7)
    return Row(experiment, PROVENANCE, k, 1.0, "test", "example", "own", scores)


def test_the_papers_numbers_are_all_there() -> None:
    published = read_published()
    assert len(published) == 694
    value = [
        number.value
        for number in published
        if (number.table, number.model, number.dataset, number.k) == ("main", "OC-MAML", "sts-sawtooth", 2)
    ]
    assert value == [96.6]
    assert {number.model for number in published} == set(NAMES)


def test_a_verdict_needs_the_papers_number_outside_of_our_interval() -> None:
    ours = Interval(90.0, 88.0, 92.0, 5)
    assert [compare_with_paper(value, ours) for value in (87.0, 88.0, 90.0, 92.0, 93.0)] == [
        "better",
        "within",
        "within",
        "within",
        "worse",
    ]


def test_rows_stand_beside_the_papers_numbers(tmp_path: Path) -> None:
    write_records(tmp_path / "a", make_row("oc-maml", 0.99), make_row("oc-maml", 0.97, seed=1), make_row("maml", 0.5))
    main = build_paper_tables(collect(tmp_path))[0]
    rows = {label: dict(zip(main.columns, cells, strict=True)) for label, cells in main.rows}
    ours = rows["OC-MAML"]["sts-sawtooth, K=10"]
    assert ours is not None and ours.ours is not None
    assert ours.ours.mean == pytest.approx(98.0)
    assert (ours.seeds, ours.comparison, ours.published) == (2, "within", 95.7)
    worse = rows["MAML"]["sts-sawtooth, K=10"]
    assert worse is not None and worse.comparison == "worse"
    still_open = rows["OC-MAML"]["omniglot, K=10"]
    assert still_open is not None and still_open.comparison == "open"
    assert main.filled == 2


def test_a_newer_row_of_the_same_seed_replaces_the_older(tmp_path: Path) -> None:
    newer = replace(make_row("oc-maml", 0.9), provenance=replace(PROVENANCE, timestamp="2026-02-01T00:00:00+00:00"))
    write_records(tmp_path / "a", newer, make_row("oc-maml", 0.6))
    (average,) = collect(tmp_path).single
    assert average.summary.accuracy.mean == pytest.approx(0.9)


def test_a_training_and_a_cosine_that_were_kept_twice_count_once(tmp_path: Path) -> None:
    experiment = make_row("oc-maml", 0.9).experiment
    later = replace(PROVENANCE, timestamp="2026-02-01T00:00:00+00:00")
    for provenance, value in ((later, 0.5), (PROVENANCE, 0.1)):
        training = Training(experiment, provenance, (ValidationPoint(1, 1.0, value, value),))
        write_records(tmp_path / "a", training, Cosine(experiment, provenance, ("a", "b"), (value, value)))
    averages = collect(tmp_path)
    ((training,),), ((cosine,),) = averages.trainings.values(), averages.cosines.values()
    assert (training.history[0].loss, cosine.values) == (0.5, (0.5, 0.5))


def test_of_two_settings_the_lower_validation_loss_is_shown_never_the_better_test_score(tmp_path: Path) -> None:
    plain, normed = make_row("oc-maml", 0.8), make_row("oc-maml", 0.95, norm="support")
    write_records(
        tmp_path / "a",
        plain,
        normed,
        Training(plain.experiment, PROVENANCE, (ValidationPoint(1, 1.0, 0.1, 0.9),)),
        Training(normed.experiment, PROVENANCE, (ValidationPoint(1, 1.0, 0.5, 0.7),)),
    )
    main = build_paper_tables(collect(tmp_path))[0]
    cell = dict(zip(main.columns, dict(main.rows)["OC-MAML"], strict=True))["sts-sawtooth, K=10"]
    assert cell is not None and cell.ours is not None
    assert cell.ours.mean == pytest.approx(80.0)


def test_several_seeds_are_shown_before_a_single_one_with_a_lower_validation_loss(tmp_path: Path) -> None:
    lucky, seeds = make_row("oc-maml", 0.95), [make_row("oc-maml", 0.8, seed=seed, norm="support") for seed in (0, 1)]
    losses = [(lucky, 0.1), *((row, 0.5) for row in seeds)]
    trainings = [Training(row.experiment, PROVENANCE, (ValidationPoint(1, 1.0, loss, 0.9),)) for row, loss in losses]
    write_records(tmp_path / "a", lucky, *seeds, *trainings)
    main = build_paper_tables(collect(tmp_path))[0]
    cell = dict(zip(main.columns, dict(main.rows)["OC-MAML"], strict=True))["sts-sawtooth, K=10"]
    assert cell is not None and cell.ours is not None
    assert (cell.ours.mean, cell.seeds) == (pytest.approx(80.0), 2)


def test_a_method_that_does_not_beat_the_control_is_marked(tmp_path: Path) -> None:
    write_records(tmp_path / "a", make_row("no-support", 0.9), make_row("maml", 0.9), make_row("oc-maml", 0.95))
    (table,) = build_report(collect(tmp_path)).datasets
    notes = {label: cells[0].notes for label, cells in table.rows if cells[0] is not None}
    assert notes["oc-maml K=10"] == ()
    assert "control" in notes["maml K=10"][0]


def test_two_settings_of_one_method_are_told_apart_by_what_differs(tmp_path: Path) -> None:
    short = make_row("oc-maml", 0.9)
    training = replace(short.experiment.training, iterations=7, validate_every=3)
    network = replace(short.experiment.network, filters=(8, 9))
    other = replace(short, experiment=replace(short.experiment, training=training, network=network))
    write_records(tmp_path / "a", short, other, make_row("maml", 0.5))
    (table,) = build_report(collect(tmp_path)).datasets
    labels = {label for label, _ in table.rows}
    assert "maml K=10" in labels and "oc-maml K=10; filters 8-9; iterations 7" in labels
    assert len(labels) == 3


def check_links(report: Report) -> None:
    """Every link of the page leads to a training on a page of records, and both pages need nothing else."""
    records = render_records(report.averages)
    links = re.findall(r'href="records/([^"#]+)#([^"]+)"', render_html(report))
    assert links and all(f'id="{anchor}"' in records[page] for page, anchor in links)


def test_the_page_links_every_number_to_its_row(tmp_path: Path) -> None:
    row = make_row("oc-maml", 0.99)
    history = tuple(ValidationPoint(n, float(n), 1 / n, 0.5 + n / 100) for n in range(1, 20))
    cosine = Cosine(row.experiment, PROVENANCE, ("a", "b"), (0.9, 0.8))
    write_records(tmp_path / "a", row, Training(row.experiment, PROVENANCE, history), cosine)
    report = build_report(collect(tmp_path))
    html = render_html(report)
    check_links(report)
    assert "<svg" in html and "<script" not in html
    assert "0.85" in html  # the cosine
    markdown = render_markdown(report)
    assert "95.7 / **99.0 ± 2.5** ▲" in markdown or "95.7 / **99.0 ± 2.5**" in markdown


def make_alarms(dataset: str, rate: float, observed: float, seed: int = 0, level: Level = "example") -> Alarms:
    experiment = default_experiment(dataset, "plda", k=10, seed=seed)
    units = tuple(f"{dataset} {name}" for name in "abc")
    return Alarms(experiment, PROVENANCE, 10, level, rate, units, (observed, 0.0, 2 * observed), (0.2, 0.3, 0.4))


def test_target_and_observed_false_alarms_have_a_table_and_a_new_machine_one_of_its_own(tmp_path: Path) -> None:
    write_records(
        tmp_path / "a",
        make_alarms("cnc/A", 0.05, 0.06, seed=0),
        make_alarms("cnc/A", 0.05, 0.04, seed=1),
        make_alarms("cnc/A", 0.1, 0.3, level="run"),
        make_alarms("cnc/M02", 0.05, 0.2),
        make_alarms("cnc/M02-B", 0.05, 0.01),
    )
    report = build_report(collect(tmp_path))
    known, shifted = report.alarms
    assert known.columns == ("target 10 %", "missed", "target 5 %", "missed")
    assert [label for label, _ in known.rows] == ["cnc/A, plda K=10, each example", "cnc/A, plda K=10, each run"]
    cells = known.rows[0][1]
    assert cells[0] is None and cells[2] is not None and cells[2].ours is not None
    assert (cells[2].ours.mean, cells[2].comparison, cells[2].seeds) == (pytest.approx(5.0), "better", 2)
    assert cells[2].ours.low == pytest.approx(0.0), "over tasks, each the mean of its seeds"
    assert known.rows[1][1][0] is not None and known.rows[1][1][0].comparison == "worse"
    assert [label.split(",")[0] for label, _ in shifted.rows] == ["cnc/M02", "cnc/M02-B"]
    assert "a shift" in shifted.title
    markdown = render_markdown(report)
    check_links(report)
    assert "5.0 (0.0 to 10.0) ✓" in markdown
    assert "20.0 (0.0 to 40.0) ✗" in markdown


def test_the_folds_of_the_milling_data_are_also_judged_together_once_all_are_there(tmp_path: Path) -> None:
    folds = [make_alarms(f"cnc/{fold}", 0.05, rate) for fold, rate in zip("ABC", (0.02, 0.04, 0.06), strict=True)]
    write_records(tmp_path / "a", *folds)
    (table,) = build_report(collect(tmp_path)).alarms
    assert len(table.rows) == 3
    write_records(tmp_path / "a", make_alarms("cnc/D", 0.05, 0.12))
    (table,) = build_report(collect(tmp_path)).alarms
    cell = dict(table.rows)["cnc/A to D together, plda K=10, each example"][0]
    assert cell is not None and cell.ours is not None
    assert (cell.ours.mean, cell.ours.units, cell.seeds) == (pytest.approx(6.0), 12, 1)


def test_a_rate_is_kept_within_a_factor_of_one_and_a_half_both_ways() -> None:
    verdicts = [compare_rate(6.0, Interval(mean, None, None, 1)) for mean in (3.9, 4.1, 8.9, 9.1)]
    assert verdicts == ["worse", "better", "better", "worse"]


def test_results_without_alarms_have_no_table_of_them(tmp_path: Path) -> None:
    write_records(tmp_path / "a", make_row("oc-maml", 0.99))
    report = build_report(collect(tmp_path))
    assert report.alarms == ()
    assert "observed" not in render_html(report) + render_markdown(report)


def test_an_empty_folder_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(FewoneError, match="fewone sweep"):
        collect(tmp_path)


def test_own_learners_stand_beside_the_papers_best_and_our_own_maml(tmp_path: Path) -> None:
    write_records(tmp_path / "a", make_row("support-distance", 0.99), make_row("oc-maml", 0.97), make_row("knn", 0.5))
    report = build_report(collect(tmp_path))
    ((label, cells),) = report.own.rows
    assert label == "sts-sawtooth: support-distance (32-64-64)"
    shown = dict(zip(report.own.columns, cells, strict=True))
    own, reference = shown["K=10, own threshold"], shown["OC-MAML here, K=10"]
    assert own is not None and own.ours is not None and reference is not None and reference.ours is not None
    assert (own.published, own.comparison) == (95.7, "better")
    assert reference.ours.mean == pytest.approx(97.0)
    assert shown["K=2, own threshold"] is None
    assert "95.7 / **99.0" in render_markdown(report)
    assert "paper's best 95.7" in render_html(report).replace("&#39;", "'")


def test_the_nine_digits_are_also_judged_together_beside_the_papers_best_mean(tmp_path: Path) -> None:
    def judge_digit(digit: int, learner: str, accuracy: float, seed: int = 0) -> Row:
        row = make_row(learner, accuracy, seed)
        experiment = default_experiment(f"mt-mnist/{digit}", learner, k=10, seed=seed)
        scores = UnitScores(("the digit",), 10, *((accuracy,),) * 7)
        return replace(row, experiment=experiment, scores=scores)

    write_records(tmp_path / "a", *(judge_digit(digit, "plda", 0.9 + digit / 100) for digit in range(8)))
    assert len(build_report(collect(tmp_path)).own.rows) == 8
    write_records(tmp_path / "a", judge_digit(8, "plda", 0.98), judge_digit(0, "plda", 0.92, seed=1))
    write_records(tmp_path / "a", *(judge_digit(digit, "no-support", 0.5) for digit in range(9)))
    report = build_report(collect(tmp_path))
    (cells,) = [cells for label, cells in report.own.rows if label.startswith("mt-mnist/0 to 8 together")]
    cell = dict(zip(report.own.columns, cells, strict=True))["K=10, own threshold"]
    assert cell is not None and cell.ours is not None
    digits = [0.91, *(0.9 + digit / 100 for digit in range(1, 9))]
    assert cell.ours.mean == pytest.approx(100 * sum(digits) / 9), "each digit its mean over seeds, then all alike"
    assert (cell.ours.units, cell.seeds, len(cell.rows)) == (9, 1, 10)
    assert cell.published == 92.4, "OC-MAML's mean over the digits, by batch norm whichever is better"
    (table,) = [table for table in report.datasets if table.title.startswith("mt-mnist/0 to 8 together")]
    assert [label.split()[0] for label, _ in table.rows] == ["plda", "no-support"]
    identifiers = re.findall(r'<details id="([^"]+)"', "".join(render_records(report.averages).values()))
    assert len(identifiers) == len(set(identifiers)) == 19, "each training is shown once"


def test_a_training_judged_at_several_k_is_paid_once(tmp_path: Path) -> None:
    first = make_row("support-distance", 0.99)
    first = replace(first, experiment=replace(first.experiment, further_k=(2,)))
    second = replace(first, k=2)
    write_records(tmp_path / "a", first, second)
    assert build_report(collect(tmp_path)).core_hours == pytest.approx(60 / 3600)


def test_a_seed_that_was_judged_at_more_k_stands_with_the_other_seeds(tmp_path: Path) -> None:
    rows = [make_row("support-distance", accuracy, seed) for seed, accuracy in enumerate((0.9, 0.8))]
    more = replace(rows[0], experiment=replace(rows[0].experiment, further_k=(1, 5, 20)))
    write_records(
        tmp_path / "a", *rows, replace(more, provenance=replace(PROVENANCE, timestamp="2026-02-01T00:00:00+00:00"))
    )
    (average,) = collect(tmp_path).single
    assert (average.seeds, average.summary.accuracy.mean) == (2, pytest.approx(0.85))


def test_a_row_from_before_a_setting_existed_is_the_same_experiment(tmp_path: Path) -> None:
    newer = replace(make_row("oc-maml", 0.9), provenance=replace(PROVENANCE, timestamp="2026-02-01T00:00:00+00:00"))
    older = make_row("oc-maml", 0.6)
    write_records(tmp_path / "a", newer)
    (path,) = write_records(tmp_path / "b", older)
    path.write_text(path.read_text().replace('"leave_out":0,', ""))
    (average,) = collect(tmp_path).single
    assert average.summary.accuracy.mean == pytest.approx(0.9)


def test_curves_keep_apart_what_was_trained_in_other_ways(tmp_path: Path) -> None:
    trained = make_row("support-distance", 0.9)

    def judge(accuracy: float, **changes: Any) -> Row:
        scores = UnitScores(("a", "b"), 30, *((accuracy, accuracy),) * 7)
        return replace(trained, scores=scores, **changes)

    wide = [judge(accuracy, k=k) for k, accuracy in ((1, 0.8), (2, 0.85), (10, 0.9))]
    network = replace(trained.experiment.network, filters=(8, 8, 8))
    small = [replace(row, experiment=replace(row.experiment, network=network)) for row in wide]
    shares = [judge(0.9, normal_share=share) for share in (0.9, 0.7, 0.5)]
    write_records(tmp_path / "a", *wide, *small[:2], *shares)
    along_k, along_share = draw_curves(collect(tmp_path))
    assert along_k.title == "sts-sawtooth: test accuracy against K"
    assert "support-distance (32-64-64), own threshold" in along_k.svg and "(8-8-8)" not in along_k.svg
    assert along_share.title == "sts-sawtooth: test accuracy against anomalies in the support, %"
    ((_, cells),) = [row for row in build_report(collect(tmp_path)).own.rows if "32-64-64" in row[0]]
    assert [cell.ours.mean for cell in cells if cell and cell.ours] == [pytest.approx(85.0), pytest.approx(90.0)]
