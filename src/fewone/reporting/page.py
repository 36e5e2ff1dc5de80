"""SeedAverages -> one self-contained HTML page and, linked from it, a page of records per dataset."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.resources import files

from fewone.extras import needed_for
from fewone.reporting.curves import Figure, draw_curves
from fewone.reporting.false_alarm_tables import build_alarm_tables
from fewone.reporting.own_learners import build_own_table
from fewone.reporting.records_page import link_to
from fewone.reporting.seed_averages import SeedAverages
from fewone.reporting.tables import Cell, Table, build_dataset_tables, build_paper_tables, build_unadapted_table
from fewone.reporting.ways import LEGEND
from fewone.results import identify_training

with needed_for("a report"):
    from jinja2 import Environment, StrictUndefined


@dataclass(frozen=True)
class Report:
    """All that the page shows."""

    paper: tuple[Table, ...]
    datasets: tuple[Table, ...]
    figures: tuple[Figure, ...]
    averages: SeedAverages
    own: Table
    unadapted: Table
    alarms: tuple[Table, ...] = ()

    @property
    def core_hours(self) -> float:
        """What all shown rows cost together: training and evaluation, each training once."""
        spent = {
            identify_training(row.experiment): row.provenance.cpu_seconds
            for average in self.averages.single
            for row in average.rows
        }
        return sum(spent.values()) / 3600

    @property
    def open_cells(self) -> int:
        return sum(table.wanted - table.filled for table in self.paper)

    @property
    def reachable_cells(self) -> int:
        return sum(table.reachable for table in self.paper)

    @property
    def wanted_cells(self) -> int:
        return sum(table.wanted for table in self.paper)


def build_report(averages: SeedAverages) -> Report:
    return Report(
        build_paper_tables(averages),
        build_dataset_tables(averages),
        draw_curves(averages),
        averages,
        build_own_table(averages),
        build_unadapted_table(averages),
        build_alarm_tables(averages),
    )


def render_html(report: Report) -> str:
    """The page: no script, no network, every number a link to the training that made it."""
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters["show"] = show_cell
    environment.filters["bounds"] = show_bounds
    environment.globals["legend"] = LEGEND
    environment.filters["link"] = lambda cell: link_to(cell.rows[0])
    template = files("fewone.reporting").joinpath("report.html.jinja").read_text(encoding="utf-8")
    when = datetime.now(UTC).strftime("%Y-%m-%d")
    return environment.from_string(template).render(report=report, when=when)


def show_bounds(cell: Cell) -> str:
    """A rate with both ends of its interval, which is not symmetric."""
    if cell.ours is None:
        return "not run"
    text = f"{cell.ours.mean:.1f}"
    if cell.ours.low is not None and cell.ours.high is not None:
        text += f" ({cell.ours.low:.1f} to {cell.ours.high:.1f})"
    return text


def show_cell(cell: Cell) -> str:
    """Our number with its interval, in the unit of the table."""
    if cell.ours is None:
        return "not run"
    digits = 2 if cell.published is not None and abs(cell.published) <= 1 else 1
    text = f"{cell.ours.mean:.{digits}f}"
    if cell.ours.low is not None and cell.ours.high is not None:
        text += f" ± {(cell.ours.high - cell.ours.low) / 2:.{digits}f}"
    return text
