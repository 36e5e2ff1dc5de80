"""What a fleet needs, from measured constants: python benchmarks/scale_plan.py [--markdown FILE]

Nothing is measured here: every line is arithmetic on benchmarks/workers.json, which `workers.py` wrote.
"""

from __future__ import annotations

import argparse
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CONSTANTS = Path(__file__).with_name("workers.json")
MACHINES = 10**6
WINDOWS_A_DAY = 10**9
WINDOW_BYTES = 128 * 4
BUSY = 0.5
"""Cores are planned to be busy half of the time: days have peaks."""
DECISION_BYTES = 64
"""A stored score: time, detector, version, value, decision."""
NETWORK_BYTES = 1.25e9
"""Per second and machine: 10 Gbit."""
FAR_RANKS = 64


@dataclass(frozen=True)
class Line:
    what: str
    value: str
    how: str


def plan(constants: dict[str, Any]) -> list[Line]:
    """The lines of the plan."""
    scoring = constants["scoring"]
    per_window = scoring["one"] / scoring["windows"]
    cores = WINDOWS_A_DAY * per_window / 86_400 / BUSY
    detectors = MACHINES * scoring["bytes"]
    # What the detectors of one model share (its weights) is shipped once; a support of ten windows is each one's own.
    own = MACHINES * 10 * WINDOW_BYTES
    stored = WINDOWS_A_DAY * DECISION_BYTES
    ingest = WINDOWS_A_DAY * WINDOW_BYTES
    return [
        Line("processor time for a window", f"{1e6 * per_window:.0f} µs", "measured, one core, batches of 1,000"),
        Line(
            "cores for scoring",
            f"{math.ceil(cores):,}",
            f"{WINDOWS_A_DAY:,} windows a day, cores {100 * BUSY:.0f} % busy",
        ),
        Line("windows a second", f"{WINDOWS_A_DAY / 86_400:,.0f}", "mean over a day"),
        Line("coming in", f"{ingest / 1e9:,.0f} GB a day", f"{WINDOW_BYTES} bytes a window"),
        Line("detectors, each a file of its own", f"{detectors / 1e9:,.0f} GB", f"{scoring['bytes']:,} bytes packed"),
        Line("what is a detector's own in it", f"{own / 1e9:,.1f} GB", "its ten normals; all share the model"),
        Line("scores kept", f"{stored / 1e9:,.0f} GB a day", f"{DECISION_BYTES} bytes a decision"),
        *_plan_training(constants),
    ]


def _plan_training(constants: dict[str, Any]) -> list[Line]:
    """All ranks gather every shard's gradient: (N - 1) / N of N gradients come in over the network of each."""
    lines = []
    for name, size in (("W1", 30_000), ("W3", 120_000)):
        if name not in constants["training"]:
            continue
        alone, exchange = constants["training"][name]["one"], constants["exchange"][str(size)]
        per_rank = (exchange["8"] - exchange["2"]) / 6
        cost = exchange["2"] + per_rank * (FAR_RANKS - 2) + 4 * size * FAR_RANKS / NETWORK_BYTES
        step = alone / FAR_RANKS + cost
        lines.append(
            Line(
                f"{name} on {FAR_RANKS} machines",
                f"{alone / step:.0f} times one",
                f"{1000 * alone / FAR_RANKS:.1f} ms of work and {1000 * cost:.1f} ms of exchange a step, if a batch has"
                f" {FAR_RANKS} tasks or more and its work is shared evenly",
            )
        )
    return lines


def render(lines: list[Line]) -> str:
    text = (
        "# A plan for a fleet\n\nWritten by `python benchmarks/scale_plan.py --markdown FILE` from"
        f" `benchmarks/workers.json`: {MACHINES:,} machines, {WINDOWS_A_DAY:,} windows of 128 values a day.\n\n"
        "| what | how much | from |\n| --- | --- | --- |\n"
    )
    return text + "".join(f"| {line.what} | {line.value} | {line.how} |\n" for line in lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--markdown", type=Path)
    options = parser.parse_args()
    text = render(plan(json.loads(CONSTANTS.read_text())))
    print(text)
    if options.markdown is not None:
        options.markdown.write_text(text)


if __name__ == "__main__":
    main()
