"""The report's tables as Markdown, short enough to be read: what was run, and of datasets together only the whole."""

from __future__ import annotations

import re
from collections.abc import Sequence

from fewone.reporting.page import Report, show_bounds, show_cell
from fewone.reporting.seed_averages import TOGETHER
from fewone.reporting.tables import Cell, Table
from fewone.reporting.ways import LEGEND


def render_markdown(report: Report) -> str:
    """The same tables as Markdown: the paper's number, then ours with its interval, seeds and difference."""
    parts = [
        "# Results",
        "",
        "Made by `fewone report`; every number comes from a row in `results/`; what they add up to is in"
        " [findings](findings.md) and [reading the results](reading-the-results.md). In the paper's tables a cell reads"
        " *paper* / **ours** ± half of the 95 % interval over test tasks (over seeds, where there is one task);"
        " ▲ above the paper's number, ▼ below, ≈ within the interval, nothing where there is none; in brackets seeds,"
        " AUROC, the kept iteration of how many (! the first validation won) and letters for settings that are not the"
        f" paper's ({LEGEND}), then the accuracy with the paper's own settings where it was run beside others. A: the"
        " accuracy by the authors' program where it contradicts the paper's words ([notes](reproduction.md)). · not"
        " run yet; rows and columns of which nothing was run are left out. Every method on every dataset, every K,"
        " every curve and the records are on the page that the command writes. Together the rows cost"
        f" {report.core_hours:.1f} core-hours.",
        "",
        *_markdown_coverage(report),
    ]
    for table in report.paper:
        if table.filled:
            parts += ["", f"## {table.title}", "", *_markdown_paper(table.keep_filled())]
    if report.unadapted.rows:
        parts += ["", f"## {report.unadapted.title}", "", UNADAPTED_NOTE, "", *_markdown_unadapted(report.unadapted)]
    if report.own.rows:
        parts += ["", f"# {report.own.title}", "", OWN_NOTE, "", *_markdown_own(_leave_parts_out(report.own))]
    if report.alarms:
        parts += ["", "# Target and observed false alarms", "", ALARMS_NOTE]
    for table in report.alarms:
        parts += ["", f"## {table.title}", "", *_markdown_alarms(_leave_parts_out(table, sizes=("K=10",)))]
    return "\n".join(parts) + "\n"


UNADAPTED_NOTE = (
    "Accuracy with no inner step taken (batch norm still takes the support's statistics) → with all of them, of the"
    " same training."
)

OWN_NOTE = (
    "Balanced accuracy; one model serves every K. Before each number the paper's best on that dataset and K by any"
    " method with a one-class support, where it has one. Calibrated: the threshold fitted over held-out tasks."
)

ALARMS_NOTE = (
    "Per cent of the normals of test tasks that a detector calls anomalous when it is asked for 10, 5 or 1 %"
    " (`fewone.load(folder, false_alarm_rate=...)`), and of the anomalies that it misses then: means over tasks with"
    " 95 % bootstrap intervals over tasks. Each run: one decision for all segments of a recording, at the rate"
    " calibrated for so many. K=10; ✓ within a factor of 1.5 of what was asked, ✗ not."
)


def _leave_parts_out(table: Table, sizes: tuple[str, ...] = ()) -> Table:
    """Of datasets that are there together only the whole; sizes: only rows whose label names one of them."""
    datasets = {label: re.split("[,:]", label)[0] for label, _ in table.rows}
    parts = {part for name, members in TOGETHER.items() if name in datasets.values() for part in members}
    rows = [
        (label, cells)
        for label, cells in table.rows
        if datasets[label] not in parts and (not sizes or any(f"{size}," in label for size in sizes))
    ]
    return Table(table.title, table.columns, tuple(rows))


_MARKS = {"better": "▲", "worse": "▼", "within": "≈"}
_KEPT = {"better": "✓", "worse": "✗"}


def _markdown_coverage(report: Report) -> list[str]:
    lines = [_line(["the paper's table", "cells", "reachable", "run"]), _line(["---"] * 4)]
    for table in report.paper:
        lines.append(_line([table.title, str(table.wanted), str(table.reachable), str(table.filled)]))
    run = report.wanted_cells - report.open_cells
    return [*lines, _line(["all", str(report.wanted_cells), str(report.reachable_cells), str(run)])]


def _markdown_unadapted(table: Table) -> list[str]:
    lines = [_line(["", *table.columns]), _line(["---"] * (1 + len(table.columns)))]
    for label, cells in table.rows:
        shown = ["" if cell is None else f"{show_cell(cell)} → {cell.notes[0]}" for cell in cells]
        lines.append(_line([label, *shown]))
    return lines


def _markdown_paper(table: Table) -> list[str]:
    lines = [_line(["", *table.columns]), _line(["---"] * (1 + len(table.columns)))]
    for label, cells in table.rows:
        shown = []
        for cell in cells:
            if cell is None:
                shown.append("")
            else:
                authors = "" if cell.authors is None else f" A {cell.authors:.1f}"
                shown.append(f"{cell.published:g} / " + ("·" if cell.ours is None else _show_ours(cell)) + authors)
        lines.append(_line([label, *shown]))
    return lines


def _show_ours(cell: Cell) -> str:
    auroc = "" if cell.auroc is None else f"AUROC {cell.auroc:.1f}"
    plain = "" if cell.plain is None else f"paper's settings {cell.plain:.1f}"
    about = ", ".join(filter(None, [str(cell.seeds), auroc, cell.choice, cell.marks, *cell.notes, plain]))
    return " ".join(f"**{show_cell(cell)}** {_MARKS.get(cell.comparison, '')} ({about})".split())


def _markdown_own(table: Table) -> list[str]:
    lines = [_line(["", *table.columns, "CPU min"]), _line(["---"] * (2 + len(table.columns)))]
    for label, cells in table.rows:
        shown = []
        for cell in cells:
            before = "" if cell is None or cell.published is None else f"{cell.published:g} / "
            mark = "" if cell is None else _MARKS.get(cell.comparison, "")
            seeds = "" if cell is None else f"({cell.seeds})"
            shown.append("" if cell is None else " ".join(f"{before}**{show_cell(cell)}** {mark} {seeds}".split()))
        minutes = max(cell.cpu_minutes for cell in cells[:4] if cell is not None)
        lines.append(_line([label, *shown, f"{minutes:.1f}"]))
    return lines


def _markdown_alarms(table: Table) -> list[str]:
    lines = [_line(["", *table.columns, "tasks", "seeds"]), _line(["---"] * (3 + len(table.columns)))]
    for label, cells in table.rows:
        first = next(cell for cell in cells if cell is not None)
        shown = [
            "" if cell is None else f"{show_bounds(cell)} {_KEPT.get(cell.comparison, '')}".strip() for cell in cells
        ]
        units = "" if first.ours is None else str(first.ours.units)
        lines.append(_line([label, *shown, units, str(first.seeds)]))
    return lines


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"
