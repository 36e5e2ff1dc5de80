"""What stands behind each number -> a page per dataset: every training with its experiment, rows, rates and cost."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import fields
from html import escape

from fewone.reporting.seed_averages import SeedAverages
from fewone.results import Alarms, Interval, Provenance, Record, Row, Summary, Training, identify_training

FOLDER = "records"

_HEAD = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<style>
  body {{ font: 14px/1.5 system-ui, sans-serif; max-width: 1180px; margin: 2rem auto; padding: 0 1rem; }}
  table {{ border-collapse: collapse; font-size: 12px; white-space: nowrap; margin: .5rem 0; }}
  th, td {{ padding: .1rem .5rem; border-bottom: 1px solid #e3e7ec; text-align: left; }}
  pre {{ font-size: 11px; background: #f6f8fa; padding: .5rem; white-space: pre-wrap; }}
  details {{ margin: .3rem 0; }} :target {{ background: #fff6d6; }}
</style></head><body>
<p><a href="../index.html">Results</a></p><h1>{title}</h1>
<p>Every training behind the numbers: its experiment, its evaluations in per cent (mean and 95 % interval over units),
commit, data, versions and cost. The values per unit are in the files that are named.</p>
"""


def link_to(record: Record) -> str:
    """Where a record is shown, as seen from the report's page."""
    return f"{FOLDER}/{name_page(record)}#t{identify_training(record.experiment)}"


def name_page(record: Record) -> str:
    """The page of the record's dataset."""
    return re.sub(r"[^\w-]+", "-", record.experiment.dataset) + ".html"


def render_records(averages: SeedAverages) -> dict[str, str]:
    """The pages by their names."""
    shown: dict[str, dict[str, list[Record]]] = {}
    for record in _list_records(averages):
        trainings = shown.setdefault(name_page(record), {})
        trainings.setdefault(identify_training(record.experiment), []).append(record)
    return {name: _render_page(trainings, averages.files) for name, trainings in shown.items()}


def _list_records(averages: SeedAverages) -> Iterable[Record]:
    for seeds in averages.trainings.values():
        yield from seeds
    for average in averages.single:
        yield from average.rows
    for average in averages.unadapted:
        yield from average.rows
    for alarms in averages.alarms:
        yield from alarms.records


def _render_page(trainings: Mapping[str, list[Record]], files: Mapping[str, tuple[str, ...]]) -> str:
    first = next(iter(trainings.values()))[0]
    parts = [_HEAD.format(title=escape(first.experiment.dataset))]
    for training, records in sorted(trainings.items(), key=lambda item: _sort_key(item[1][0])):
        parts.append(_render_training(training, records, files.get(training, ())))
    return "".join([*parts, "</body></html>\n"])


def _sort_key(record: Record) -> tuple[str, int, int]:
    experiment = record.experiment
    return experiment.learner, experiment.k, record.seed


def _render_training(training: str, records: list[Record], files: tuple[str, ...]) -> str:
    experiment = records[0].experiment
    rows = [record for record in records if isinstance(record, Row)]
    alarms = [record for record in records if isinstance(record, Alarms)]
    histories = [record for record in records if isinstance(record, Training)]
    newest = max((record.provenance for record in records), key=lambda one: one.timestamp)
    parts = [
        f'<details id="t{training}"><summary>{escape(experiment.learner)} K={experiment.k}'
        f" seed {records[0].seed}, {_count(rows, 'evaluation')}</summary>",
        f"<p>{escape(', '.join(files))}<br>{escape(_describe(newest))}</p>",
        *(f"<p>{escape(_describe_training(one))}</p>" for one in histories if one.history),
        f"<pre>{escape(json.dumps(experiment.to_plain()))}</pre>",
    ]
    if rows:
        parts += ["<table>", _line("th", ["K", "normals", "steps", "each", "threshold", *_METRICS, "units", "CPU s"])]
        parts += [_line("td", _describe_row(row)) for row in rows]
        parts.append("</table>")
    if alarms:
        parts += ["<table>", _line("th", ["K", "each", "target %", "observed %", "missed %", "units"])]
        parts += [_line("td", _describe_alarms(one)) for one in alarms]
        parts.append("</table>")
    return "".join([*parts, "</details>\n"])


_METRICS = [one.name for one in fields(Summary)]


def _describe_row(row: Row) -> list[str]:
    values = [_show(getattr(row.summary, name), 1 if name == "loss" else 100) for name in _METRICS]
    cost, units = f"{row.provenance.cpu_seconds:.1f}", str(len(row.scores.units))
    steps = "all" if row.steps is None else str(row.steps)
    return [str(row.k), f"{row.normal_share:.0%}", steps, row.level, row.threshold, *values, units, cost]


def _describe_alarms(one: Alarms) -> list[str]:
    observed, missed = (f"{100 * sum(values) / len(values):.1f}" for values in (one.false_alarms, one.misses))
    return [str(one.k), one.level, f"{100 * one.rate:g}", observed, missed, str(len(one.units))]


def _describe_training(training: Training) -> str:
    best, last = min(training.history, key=lambda point: point.loss), training.history[-1]
    return (
        f"lowest validation loss {best.loss:.4f} at iteration {best.iteration} of {last.iteration}"
        f" (accuracy {100 * best.accuracy:.1f} %), {training.provenance.cpu_seconds / 60:.1f} CPU minutes"
    )


def _describe(provenance: Provenance) -> str:
    versions = provenance.versions
    return (
        f"commit {provenance.commit}, data {provenance.fingerprint[:16]}, {provenance.timestamp}; fewone"
        f" {versions.fewone}, Python {versions.python}, torch {versions.torch}, numpy {versions.numpy}, scikit-learn"
        f" {versions.sklearn}"
    )


def _show(value: Interval, factor: float) -> str:
    text = f"{factor * value.mean:.{2 if factor == 1 else 1}f}"
    if value.low is not None and value.high is not None:
        text += f" ± {factor * (value.high - value.low) / 2:.{2 if factor == 1 else 1}f}"
    return text


def _count(things: list[Row], what: str) -> str:
    return f"{len(things)} {what}{'' if len(things) == 1 else 's'}"


def _line(tag: str, cells: Iterable[str]) -> str:
    return "<tr>" + "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells) + "</tr>"
