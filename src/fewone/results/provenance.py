"""Where a record comes from: commit, data, versions, time and cost."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version
from pathlib import Path
from platform import python_version


@dataclass(frozen=True)
class Versions:
    """What computed a record."""

    fewone: str
    python: str
    torch: str
    numpy: str
    sklearn: str


@dataclass(frozen=True)
class Provenance:
    """Code, data, time and cost of a record. commit ends in +dirty where the tree had changes."""

    commit: str
    fingerprint: str
    versions: Versions
    timestamp: str
    seconds: float
    cpu_seconds: float


def find_provenance(fingerprint: str, seconds: float, cpu_seconds: float) -> Provenance:
    """The provenance of a record made here and now from data with this fingerprint."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return Provenance(find_commit(), fingerprint, find_versions(), now, seconds, cpu_seconds)


@cache
def find_commit(folder: Path | None = None) -> str:
    """The commit of the source tree, with +dirty where tracked files differ from it; "unknown" outside of git.

    Asked once per process: the code that runs is the one that was there when it began.
    """
    where = folder or Path(__file__).parents[1]

    def ask(*words: str) -> str:
        return subprocess.run(
            ["git", *words], cwd=where, capture_output=True, text=True, check=True, timeout=30
        ).stdout.strip()

    try:
        commit = ask("rev-parse", "HEAD")
        dirty = ask("status", "--porcelain", "--untracked-files=no", "--", ".")
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return f"{commit}+dirty" if dirty else commit


@cache
def find_versions() -> Versions:
    """The versions of fewone and of what it computes with."""
    return Versions(version("fewone"), python_version(), version("torch"), version("numpy"), version("scikit-learn"))
