"""python -m fewone.results OLD.jsonl... --out results: results of version 0.1 as a small file per training."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from fewone.errors import FewoneError
from fewone.results.files import read_results, write_records
from fewone.results.records import Record


def main(arguments: list[str] | None = None) -> int:
    """Write OUT/OLD/*.json for each OLD.jsonl, which stays as it is; 2 for a mistake."""
    parser = argparse.ArgumentParser(prog="python -m fewone.results", description=__doc__)
    parser.add_argument("old", type=Path, nargs="+", help="a file of JSON lines")
    parser.add_argument("--out", type=Path, default=Path("results"), help="the folder of the results")
    chosen = parser.parse_args(arguments)
    try:
        for old in chosen.old:
            found = read_results(old)
            records: tuple[Record, ...] = (
                *found.trainings,
                *found.rows,
                *found.cosines,
                *found.alarms,
                *found.failures,
            )
            files = write_records(chosen.out / old.stem, *records)
            for notice in found.notices:
                print(notice, file=sys.stderr)
            print(f"{old}: {len(records)} records in {len(files)} files of {chosen.out / old.stem}")
    except FewoneError as error:
        print(f"fewone: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
