"""The report's tables as Markdown, short enough to be read: what was run, and of datasets together only the whole."""

from __future__ import annotations

from collections.abc import Sequence

from fewone.reporting.page import Report, show_bounds, show_cell
from fewone.reporting.tables import Table


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
