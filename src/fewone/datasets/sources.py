"""What a loader is asked for, and where the files of a dataset lie below the user's data folders."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from fewone.errors import FewoneError


def default_cache_dir() -> Path:
    """FEWONE_CACHE, else fewone below the user's cache folder."""
    return Path(os.environ.get("FEWONE_CACHE") or Path("~/.cache/fewone").expanduser())


def default_data_dirs() -> tuple[Path, ...]:
    """The folders named by FEWONE_DATA, separated as in PATH."""
    return tuple(Path(part) for part in os.environ.get("FEWONE_DATA", "").split(os.pathsep) if part)


Anomalies = Literal["labelled", "injected", "both"]
"""Those of the files; faults that are injected into the normals; or either."""


@dataclass(frozen=True)
class LoadOptions:
    """What may be chosen beside the name; each dataset reads what concerns it.

    seed: of generated series and of the split of a user's folder. window, stride: how long series are cut.
    group: the column or file-name prefix that says which examples belong to one recording.
    anomalies: of a user's folder of series, what training and validation take for anomalies.
    exclusive: what is normal in one task of a user's folder is anomalous in every other.
    any_size: pictures of a user's folder come as a detector for pictures of every size sees them, (3, SIDE, SIDE).
    """

    cache_dir: Path = field(default_factory=default_cache_dir)
    seed: int = 0
    window: int | None = None
    stride: int | None = None
    group: str | None = None
    any_size: bool = False
    anomalies: Anomalies = "labelled"
    exclusive: bool = False


@dataclass(frozen=True)
class Request:
    """One call of a loader: name "mt-mnist/3" has the variant "3"; folder is where the files were found.

    Generated datasets read no folder; for "folder:PATH" it is PATH.
    """

    name: str
    variant: str
    folder: Path
    options: LoadOptions


@dataclass(frozen=True)
class Source:
    """Files of a public download. places: folders below a data folder; files: patterns that must all match there."""

    places: tuple[str, ...]
    files: tuple[str, ...]
    address: str

    def find(self, data_dirs: Sequence[Path]) -> Path | None:
        """The first place that holds a file for every pattern."""
        for data_dir in data_dirs:
            for place in self.places:
                folder = data_dir / place
                if folder.is_dir() and all(next(folder.glob(pattern), None) for pattern in self.files):
                    return folder
        return None

    def require(self, name: str, data_dirs: Sequence[Path]) -> Path:
        """As `find`, or an error that says what was looked for, where, and where to get it."""
        found = self.find(data_dirs)
        if found is None:
            folders = [
                str(folder) if folder.is_dir() else f"{folder} (there is no such folder)" for folder in data_dirs
            ]
            looked = ", ".join(folders) or "no data folder (set FEWONE_DATA or give --data-dir)"
            raise FewoneError(
                f"dataset {name}: {', '.join(self.files)} not found below {looked}, neither in"
                f" {' nor in '.join(self.places)}; get it from {self.address}"
            )
        return found
