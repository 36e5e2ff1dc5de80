"""The pages of prose: their figures are those of the committed rows, and none is typed by hand."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path

import pytest

from fewone.reporting.markdown import render_markdown
from fewone.reporting.page import Report, build_report
from fewone.reporting.prose import OPEN, PAGES, Quotes, render_pages
from fewone.reporting.seed_averages import collect

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def report() -> Report:
    """Of the committed rows."""
    if not (ROOT / "results").is_dir():
        pytest.skip("the rows are not part of an installed package")
    return build_report(collect(ROOT / "results"))


def test_the_committed_pages_say_what_the_committed_rows_say(report: Report) -> None:
    for name, text in render_pages(report).items():
        committed = (ROOT / "docs" / name).read_text()
        assert committed == text, f"docs/{name} is out of date: fewone report results --out report, then copy it"


def test_the_committed_tables_are_those_of_the_paper_with_the_committed_rows(report: Report) -> None:
    def take_paper(text: str) -> str:
        return text[text.index("| the paper's table") : text.index("# The library's own learners")]

    assert take_paper((ROOT / "docs" / "results.md").read_text()) == take_paper(render_markdown(report))


def test_the_pages_are_short_enough_to_be_read(report: Report) -> None:
    assert len(render_markdown(report).splitlines()) < 300
    assert len(render_pages(report)["findings.md"].splitlines()) <= 80, "two screens"


@pytest.mark.parametrize("name", PAGES)
def test_no_figure_of_a_page_is_typed_by_hand(name: str) -> None:
    text = files("fewone.reporting").joinpath(f"{name}.jinja").read_text()
    prose = re.sub(r"\{\{.*?\}\}|\{%.*?%\}", "", text, flags=re.DOTALL)
    # Rates that were set, the promise's factor, and the paper's two cosines.
    assert set(re.findall(r"\d+\.\d+", prose)) <= {"0.003", "0.01", "0.05", "1.5", "0.23", "0.12"}


def test_what_was_not_run_is_said_to_be_open(report: Report) -> None:
    quotes = Quotes(report)
    assert quotes.say("oc-maml", "miniimagenet") == quotes.spread("oc-maml", "miniimagenet") == OPEN
    assert quotes.reach(50, "oc-maml", "miniimagenet") == quotes.cosine("oc-maml", "miniimagenet") == OPEN


def test_a_quote_is_the_number_of_the_tables_and_an_aim_that_is_missed_is_bold(report: Report) -> None:
    quotes = Quotes(report)
    (main, *_) = report.paper
    cell = dict(main.rows)["OC-MAML"][main.columns.index("omniglot, K=2")]
    assert cell is not None and cell.ours is not None
    assert quotes.say("oc-maml", "omniglot", 2) == f"{cell.ours.mean:.1f}"
    assert quotes.paper("OC-MAML", "omniglot", 2) == f"{cell.published:.1f}"
    assert quotes.reach(99.9, "oc-maml", "omniglot", 2) == f"**{cell.ours.mean:.1f}**"
    assert quotes.reach(50, "oc-maml", "omniglot", 2) == f"{cell.ours.mean:.1f}"


def test_the_false_alarms_of_a_learner_with_two_networks_are_those_of_its_own_recipe(report: Report) -> None:
    quotes = Quotes(report)
    for dataset in ("cifar-fs", "fc100", "mt-mnist/0 to 8 together"):
        own = quotes.alarms("plda", dataset).split(", ")
        labels = [label for table in report.alarms for label, _ in table.rows]
        assert sum(label.startswith(f"{dataset}, plda K=10, each example (") for label in labels) == 2
        assert len(own) == 3 and float(own[0]) > float(own[1]) > float(own[2])
