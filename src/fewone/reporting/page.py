"""Tables and curves -> one self-contained HTML page, and the same tables in Markdown."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.resources import files

from jinja2 import Environment, StrictUndefined

from fewone.evaluation.results import Row
from fewone.reporting.curves import Figure, draw_curves
from fewone.reporting.findings import AlarmFinding, Evidence, Finding
from fewone.reporting.own_learners import build_own_table
from fewone.reporting.promises import build_alarm_tables
from fewone.reporting.tables import Cell, Table, build_dataset_tables, build_paper_tables


@dataclass(frozen=True)
class Report:
    """All that the page shows."""

    paper: tuple[Table, ...]
    datasets: tuple[Table, ...]
    figures: tuple[Figure, ...]
    evidence: Evidence
    own: Table
    alarms: tuple[Table, ...] = ()

    @property
    def core_hours(self) -> float:
        """What all shown rows cost together: training and judging, each training once."""
        spent = {
            _identify_training(row): row.origin.cpu_seconds
            for finding in self.evidence.findings
            for row in finding.rows
        }
        return sum(spent.values()) / 3600

    @property
    def open_cells(self) -> int:
        return sum(table.wanted - table.filled for table in self.paper)

    @property
    def wanted_cells(self) -> int:
        return sum(table.wanted for table in self.paper)


def _identify_training(row: Row) -> str:
    """The same for all rows of one training, which is judged at several K and shares of normals."""
    judged_at = dict.fromkeys(("k", "test_normal_share") if row.experiment.get("further_k") else ("test_normal_share",))
    return json.dumps({**row.experiment, "seed": row.seed, **judged_at}, sort_keys=True)


def build_report(evidence: Evidence) -> Report:
    return Report(
        build_paper_tables(evidence),
        build_dataset_tables(evidence),
        draw_curves(evidence),
        evidence,
        build_own_table(evidence),
        build_alarm_tables(evidence),
    )


def render_html(report: Report) -> str:
    """The page: no script, no network, every number a link to the row that made it."""
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters["show"] = show_cell
    environment.filters["bounds"] = show_bounds
    environment.filters["describe"] = _describe_row
    environment.filters["describe_alarms"] = _describe_alarms
    template = files("fewone.reporting").joinpath("report.html.jinja").read_text(encoding="utf-8")
    when = datetime.now(UTC).strftime("%Y-%m-%d")
    return environment.from_string(template).render(report=report, when=when)


def _describe_row(finding: Finding, index: int) -> str:
    """What stands behind a number, without the values per unit."""
    row = finding.rows[index]
    return json.dumps(
        {"experiment": row.experiment, "summary": asdict(row.summary), "origin": asdict(row.origin)}, indent=1
    )


def _describe_alarms(finding: AlarmFinding, index: int) -> str:
    """What stands behind a rate, with its values per unit."""
    record = finding.records[index]
    values = {"asked": record.rate, "units": record.units, "realised": record.false_alarms, "missed": record.misses}
    return json.dumps({"experiment": record.experiment, **values, "origin": asdict(record.origin)}, indent=1)


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


def render_markdown(report: Report) -> str:
    """The same tables as Markdown: the paper's number, then ours with its interval, seeds and difference."""
    parts = [
        "# Results",
        "",
        "Made by `fewone report`; every number comes from a row in `results/`. In the paper's tables a cell reads"
        " *paper* / **ours** ± half of the 95 % interval over test tasks (seeds); ▲ above the paper's number, ▼ below,"
        " both only where the paper's number lies outside of the interval, ≈ within it; · not run yet."
        f" Together the rows cost {report.core_hours:.1f} core-hours; {report.wanted_cells - report.open_cells} of"
        f" {report.wanted_cells} published cells are filled.",
    ]
    for table in report.paper:
        if table.filled:
            parts += ["", f"## {table.title}", "", *_markdown_paper(table)]
        else:
            parts += ["", f"## {table.title}", "", f"None of its {table.wanted} cells has been run yet."]
    if report.own.rows:
        parts += ["", f"# {report.own.title}", "", OWN_NOTE, "", *_markdown_own(report.own)]
    parts += ["", "# Every method, by dataset", "", "Per cent, mean ± half of the 95 % interval over test tasks."]
    for table in report.datasets:
        parts += ["", f"## {table.title}", "", *_markdown_dataset(table)]
    if report.alarms:
        parts += ["", "# Asked and realised false alarms", "", ALARMS_NOTE]
    for table in report.alarms:
        parts += ["", f"## {table.title}", "", *_markdown_alarms(table)]
    return "\n".join(parts) + "\n"


OWN_NOTE = (
    "Balanced accuracy; one model serves every K. Before each number the paper's best on that dataset and K by any"
    " method with a one-class support, where it has one. Calibrated: the threshold fitted over held-out tasks."
)

ALARMS_NOTE = (
    "Per cent of the normals of test tasks that a detector calls anomalous when it is asked for 10, 5 or 1 %"
    " (`fewone.load(folder, false_alarm_rate=...)`), and of the anomalies that it misses then: means over tasks with"
    " 95 % bootstrap intervals over tasks. Each run: one decision for all stretches of a recording, at the rate"
    " calibrated for so many. ✓ within a factor of 1.5 of what was asked, ✗ not."
)

_MARKS = {"better": "▲", "worse": "▼", "within": "≈", "open": "", "new": ""}


_KEPT = {"better": "✓", "worse": "✗", "within": "", "open": "", "new": ""}


def _markdown_paper(table: Table) -> list[str]:
    lines = [_line(["", *table.columns]), _line(["---"] * (1 + len(table.columns)))]
    for label, cells in table.rows:
        shown = []
        for cell in cells:
            if cell is None:
                shown.append("")
            elif cell.ours is None:
                shown.append(f"{cell.published:g} / ·")
            else:
                auroc = "" if cell.auroc is None else f", AUROC {cell.auroc:.1f}"
                shown.append(f"{cell.published:g} / **{show_cell(cell)}** {_MARKS[cell.verdict]} ({cell.seeds}{auroc})")
        lines.append(_line([label, *shown]))
    return lines


def _markdown_own(table: Table) -> list[str]:
    lines = [_line(["", *table.columns, "CPU min"]), _line(["---"] * (2 + len(table.columns)))]
    for label, cells in table.rows:
        shown = []
        for cell in cells:
            before = "" if cell is None or cell.published is None else f"{cell.published:g} / "
            mark = "" if cell is None else _MARKS[cell.verdict]
            seeds = "" if cell is None else f"({cell.seeds})"
            shown.append("" if cell is None else " ".join(f"{before}**{show_cell(cell)}** {mark} {seeds}".split()))
        minutes = max(cell.cpu_minutes for cell in cells[:4] if cell is not None)
        lines.append(_line([label, *shown, f"{minutes:.1f}"]))
    return lines


def _markdown_dataset(table: Table) -> list[str]:
    lines = [_line(["method", *table.columns, "seeds", "CPU min"]), _line(["---"] * (3 + len(table.columns)))]
    for label, cells in table.rows:
        first = next(cell for cell in cells if cell is not None)
        notes = f" ({'; '.join(first.notes)})" if first.notes else ""
        shown = ["" if cell is None else show_cell(cell) for cell in cells]
        lines.append(_line([label + notes, *shown, str(first.seeds), f"{first.cpu_minutes:.1f}"]))
    return lines


def _markdown_alarms(table: Table) -> list[str]:
    lines = [_line(["", *table.columns, "tasks", "seeds"]), _line(["---"] * (3 + len(table.columns)))]
    for label, cells in table.rows:
        first = next(cell for cell in cells if cell is not None)
        shown = ["" if cell is None else f"{show_bounds(cell)} {_KEPT[cell.verdict]}".strip() for cell in cells]
        units = "" if first.ours is None else str(first.ours.units)
        lines.append(_line([label, *shown, units, str(first.seeds)]))
    return lines


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"
