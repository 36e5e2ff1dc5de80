"""A CSV of 200 MB with German time stamps and one channel, scored by the command line: seconds and peak of memory. The
detector is fitted on 30 normals: a larger support takes memory of its own.

python benchmarks/reading.py [MEGABYTES]
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

BLOCK = 20_000
WINDOW, NORMALS = 128, 30


def write(path: Path, megabytes: float) -> int:
    """Rows of a wave with noise until the file is large enough; returns their number."""
    random, rows = np.random.default_rng(0), 0
    with path.open("w") as file:
        file.write("Zeit;Drehmoment;Status\n")
        while file.tell() < megabytes * 1e6:
            values = np.sin((rows + np.arange(BLOCK)) / 5) + random.normal(0, 0.1, BLOCK)
            seconds = 1709272800 + (rows + np.arange(BLOCK)) / 100
            stamps = (seconds * 1000).round().astype("datetime64[ms]").astype(str)
            file.writelines(
                f"{t[8:10]}.{t[5:7]}.{t[:4]} {t[11:]};{v:.5f};ok\n".replace(".", ",").replace(",", ".", 2)
                for t, v in zip(stamps, values, strict=True)
            )
            rows += BLOCK
    return rows


def main(megabytes: float) -> None:
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        write(place / "normals.csv", 0.05)
        lines = (place / "normals.csv").read_text().splitlines(keepends=True)
        (place / "normals.csv").write_text("".join(lines[: 1 + NORMALS * WINDOW]))
        rows = write(place / "large.csv", megabytes)
        program = (
            "import resource, sys, time; from fewone.cli import main; start = time.perf_counter();"
            "code = main(sys.argv[1:]); print(code, time.perf_counter() - start,"
            " resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3)"
        )

        def call(*words: object) -> list[str]:
            done = subprocess.run(
                [sys.executable, "-c", program, *map(str, words)], capture_output=True, text=True, check=True
            )
            return done.stdout.splitlines()[-1].split()

        call("fit", "series", place / "normals.csv", "--window", WINDOW, "--out", place / "detector")
        code, seconds, memory = call("score", place / "detector", place / "large.csv")
        size = (place / "large.csv").stat().st_size / 1e6
        print(f"{size:.0f} MB, {rows} rows: exit code {code}, {float(seconds):.0f} s, peak {float(memory):.0f} MB")


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 200.0)
