"""Bytes -> a file that is whole or not there. Knows no content."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path


def atomic_write(path: Path, data: bytes, aside: str = ".part") -> None:
    """Write a file so that a crash leaves the old one or the new one, never half of it.

    Parameters
    ----------
    path
        The file; its folder must be there.
    data
        All of its content.
    aside
        What the file is called on the way, behind its name; writers that may meet need one each.

    Raises
    ------
    OSError
        The disk is full or the folder cannot be written; the old file, if any, is as it was.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     atomic_write(Path(folder, "verdicts.csv"), b"name,score")
    ...     Path(folder, "verdicts.csv").read_text()
    'name,score'
    """
    beside = path.with_name(path.name + aside)
    try:
        with beside.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except OSError:
        with suppress(OSError):
            beside.unlink()
        raise
    handle = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
