"""Memory of `fewone score` over a long folder of pictures: python benchmarks/picture_stream.py [COUNT]

Fits the zoo's `pictures` on ten pictures of a synthetic product and scores COUNT (10,000) files of 64 x 64 pixels,
which are hard links to 40 of them. The memory of the command and of the process that decodes is read once a second
(Linux). The row goes to results/pictures/stream.jsonl; benchmarks/pictures.py puts it on its page.
"""

from __future__ import annotations

import json
import os
import re
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from PIL import Image

from fewone.datasets.synthetic_products import draw_products
from fewone.files import atomic_write

ROWS = Path(__file__).parent.parent / "results" / "pictures" / "stream.jsonl"
NORMALS, DISTINCT, SIDE = 10, 40, 64
TENTHS = 10
MEGABYTE = 1e3
FEWONE = (sys.executable, "-m", "fewone")


def draw(folder: Path, count: int) -> None:
    """Folders `normals` and `new` with their files."""
    for name in ("normals", "new"):
        (folder / name).mkdir()
    for number, part in enumerate(draw_products("plate", 5, NORMALS + DISTINCT, side=SIDE)):
        image = Image.fromarray(np.rint(255 * part.pixels).astype(np.uint8))
        if number < NORMALS:
            image.save(folder / "normals" / f"{number}.png")
        else:
            image.save(folder / f"{number - NORMALS}.png")
    for number in range(count):
        os.link(folder / f"{number % DISTINCT}.png", folder / "new" / f"{number:06}.png")


def read_memory(process: int) -> float:
    """Megabytes of a process and of those it started; those that ended count for nothing."""
    try:
        own = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{process}/status").read_text())
        children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    except OSError:
        return 0.0
    return (float(own[1]) / MEGABYTE if own else 0.0) + sum(read_memory(int(child)) for child in children)


def score(folder: Path) -> list[float]:
    """Megabytes, once a second, from the beginning of the command to its end."""
    command = [*FEWONE, "score", "part", "new", "--out", "verdicts.csv"]
    found = []
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL) as running:
        while running.poll() is None:
            found.append(read_memory(running.pid))
            time.sleep(1.0)
    if running.returncode not in (0, 1):
        raise SystemExit(f"fewone score ended with exit code {running.returncode}")
    return found


def find_peaks(memory: Sequence[float]) -> list[float]:
    """The most in each tenth of the time."""
    return [round(float(part.max()), 1) for part in np.array_split(np.array(memory), TENTHS)]


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    with TemporaryDirectory() as name:
        folder = Path(name)
        draw(folder, count)
        subprocess.run([*FEWONE, "fit", "pictures", "normals", "--out", "part"], cwd=folder, check=True)
        before, begin = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime, time.monotonic()
        peaks = find_peaks(score(folder))
        used = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
        judged = len((folder / "verdicts.csv").read_text().splitlines()) - 1
    row = {
        "pictures": count,
        "judged": judged,
        "peak_megabytes_by_tenth": peaks,
        "seconds": round(time.monotonic() - begin, 1),
        "cpu_seconds": round(used, 1),
    }
    print(row)
    atomic_write(ROWS, (json.dumps(row) + "\n").encode())


if __name__ == "__main__":
    main()
