"""Pages of prose whose figures come from rows: templates quote an average by learner, dataset and K.

`fewone report` renders them beside its tables, and a test compares the committed pages with the committed rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Literal

from fewone.extras import needed_for
from fewone.reporting.page import Report
from fewone.reporting.published import read_published
from fewone.reporting.seed_averages import SeedAverage, average_units
from fewone.reporting.tables import Cell, choose, find_current, measure
from fewone.reporting.ways import follows_authors, follows_paper
from fewone.results import interval

with needed_for("a report"):
    from jinja2 import Environment, StrictUndefined

PAGES = ("findings.md", "reading-the-results.md")
OWN = ("plda", "support-distance", "evidence")
OPEN = "·"
"""Stands for what was not run."""


@dataclass(frozen=True)
class Quotes:
    """What the templates may ask of a report; everything is answered as text, `·` where nothing was run."""

    report: Report

    def find(
        self,
        learner: str,
        dataset: str,
        k: int,
        bn: bool | None = None,
        calibrated: bool = False,
        run: bool = False,
        share: float = 1.0,
        way: Literal["paper", "authors"] = "paper",
        small: bool = False,
        front: str = "",
    ) -> SeedAverage | None:
        """The average that the tables would show; of an own learner the recipe with the most seeds.

        small: with the paper's network and no augmentation. front: the network's front end.
        """
        found = [
            one
            for one in self.report.averages.shown
            if (one.learner, one.dataset, one.k, one.level) == (learner, dataset, k, "run" if run else "example")
            and one.threshold == ("calibrated" if calibrated else "own")
            and one.normal_share == share
            and bn in (None, one.normed)
            and (follows_paper(one) if way == "paper" else follows_authors(one))
            and (not front or one.shown_at("network.front_end") == front)
            and (learner not in OWN or _is_small(one) == small)
        ]
        if learner in OWN:
            return max(found, key=lambda one: (one.seeds, one.rows[-1].provenance.timestamp), default=None)
        return choose(find_current(found), self.report.averages) if found else None

    def number(self, learner: str, dataset: str, k: int = 10, metric: str = "accuracy", **how: object) -> float | None:
        average = self.find(learner, dataset, k, **how)  # type: ignore[arg-type]
        return None if average is None else measure(average, metric).mean

    def say(
        self, learner: str, dataset: str, k: int = 10, metric: str = "accuracy", digits: int = 1, **how: object
    ) -> str:
        """A mean in per cent."""
        value = self.number(learner, dataset, k, metric, **how)
        return OPEN if value is None else f"{value:.{digits}f}"

    def reach(
        self, aim: float, learner: str, dataset: str, k: int = 10, metric: str = "accuracy", **how: object
    ) -> str:
        """The same, bold where it falls short of an aim (a rate of false alarms: where it exceeds it)."""
        value = self.number(learner, dataset, k, metric, **how)
        if value is None:
            return OPEN
        missed = round(value, 1) > aim if metric == "false_alarms" else round(value, 1) < aim
        return f"**{value:.1f}**" if missed else f"{value:.1f}"

    def spread(self, learner: str, dataset: str, k: int = 10, **how: object) -> str:
        """From the lowest to the highest seed."""
        average = self.find(learner, dataset, k, **how)  # type: ignore[arg-type]
        if average is None:
            return OPEN
        by_seed: dict[int, list[float]] = {}
        for row in average.rows:
            by_seed.setdefault(row.seed, []).append(100 * row.summary.accuracy.mean)
        means = sorted(sum(values) / len(values) for values in by_seed.values())
        return f"{means[0]:.1f} to {means[-1]:.1f}"

    def minutes(self, learner: str, dataset: str, k: int = 10, **how: object) -> str:
        average = self.find(learner, dataset, k, **how)  # type: ignore[arg-type]
        return OPEN if average is None else f"{average.cpu_minutes:.0f}"

    def paper(self, model: str, dataset: str, k: int = 10, bn: Literal["yes", "no", "best"] | None = None) -> str:
        """The published accuracy; bn None: the best of both."""
        values = [
            number.value
            for number in read_published()
            if (number.model, number.dataset, number.k, number.support_cir) == (model, dataset, k, 0)
            and number.metric == "accuracy_pct"
            and bn in (None, number.batch_norm)
        ]
        return f"{max(values):.1f}" if values else OPEN

    def steps(self, learner: str, dataset: str, k: int = 10, bn: bool = False) -> str:
        """The accuracy without a step and with all of them, of one training: "50.0 → 99.4"."""
        found = [
            one
            for one in self.report.averages.unadapted
            if (one.learner, one.dataset, one.k, one.normed) == (learner, dataset, k, bn) and follows_paper(one)
        ]
        if not found:
            return f"{OPEN} → {self.say(learner, dataset, k, bn=bn)}"
        before = choose(found, self.report.averages)
        (after,) = [
            one
            for one in self.report.averages.find(learner, dataset, k)
            if (one.key, one.normal_share, one.level, one.threshold)
            == (before.key, before.normal_share, before.level, "own")
        ]
        return f"{measure(before).mean:.1f} → {measure(after).mean:.1f}"

    def cosine(self, learner: str, dataset: str, k: int = 10, bn: bool | None = None) -> str:
        average = self.find(learner, dataset, k, bn)
        cosines = () if average is None else self.report.averages.cosines.get(average.key, ())
        if not cosines:
            return OPEN
        return f"{interval(average_units([(one.units, one.values) for one in cosines])).mean:.2f}"

    def alarms(self, learner: str, dataset: str, level: str = "example", k: int = 10) -> str:
        """The observed false alarms at 10, 5 and 1 %, as the tables show them for the learner's own recipe."""
        wanted = f"{dataset}, {learner} K={k}, each {level}"
        for table in self.report.alarms:
            for label, cells in table.rows:
                observed = [cell for cell in cells[::2] if cell is not None and cell.ours is not None]
                if label.split(" (")[0] == wanted and observed and not _has_papers_network(observed[0]):
                    return ", ".join(f"{cell.ours.mean:.1f}" for cell in observed if cell.ours is not None)
        return OPEN

    @property
    def agreements(self) -> Sequence[tuple[str, str]]:
        """For each row of the paper's main table how it compares, cell by cell."""
        main = self.report.paper[0]
        return [(label, _compare(cells, main.columns)) for label, cells in main.rows]


PAPERS_FILTERS = (32, 32, 32, 32)


def _is_small(average: SeedAverage) -> bool:
    filters = tuple(average.shown_at("network.filters"))
    return not average.shown_at("training.augmentation") and filters == PAPERS_FILTERS


def _has_papers_network(cell: Cell) -> bool:
    return tuple(cell.rows[0].experiment.network.filters) == PAPERS_FILTERS


def _compare(cells: Sequence[Cell | None], columns: Sequence[str]) -> str:
    """ "2 of 4 within the interval; above: sts-sawtooth, K=2 (+3.0); below: ..." """
    run = [(cell, column) for cell, column in zip(cells, columns, strict=True) if cell is not None and cell.ours]
    if not run:
        return "not run"
    parts = []
    for comparison, name in (
        ("within", "within"),
        ("better", "above"),
        ("worse", "below"),
        ("unjudged", "no interval"),
    ):
        shown = [
            f"{column.replace(', ', ' ')} {cell.ours.mean - cell.published:+.1f}"
            for cell, column in run
            if cell.comparison == comparison and cell.ours is not None and cell.published is not None
        ]
        parts += [f"{name}: {', '.join(shown)}"] if shown else []
    return "; ".join(parts)


def render_pages(report: Report) -> dict[str, str]:
    """The pages by their file names."""
    environment = Environment(
        undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )
    quotes = Quotes(report)
    for name in ("say", "reach", "spread", "minutes", "paper", "steps", "cosine", "alarms"):
        environment.globals[name] = getattr(quotes, name)
    # What was seen before rows were kept: no row holds it.
    environment.globals["unrecorded"] = str
    texts = {name: files("fewone.reporting").joinpath(f"{name}.jinja").read_text(encoding="utf-8") for name in PAGES}
    return {
        name: environment.from_string(text).render(report=report, agreements=quotes.agreements)
        for name, text in texts.items()
    }
