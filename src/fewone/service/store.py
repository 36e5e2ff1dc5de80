"""The folder of detectors: every change a new version, written aside and renamed; old ones stay and can be restored.

`NAME/current.json` points at one of `NAME/versions/N/`, each a whole folder as `detector.save` writes it, with
`version.json` beside. A killed process leaves the old version or the new one. Several processes share one folder: a
change holds the lock of its detector; reading needs none.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from fewone.checkpoints import atomic_write
from fewone.documents import from_plain, to_plain
from fewone.errors import FewoneError
from fewone.service.errors import ServiceError, not_found

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
POINTER, VERSION = "current.json", "version.json"
PART, OLD = ".part-", ".old-"
"""What is being written, and what was there before, by the first letters of their folders."""


@dataclass(frozen=True)
class SupportOrigin:
    """Where one example of the support came from. feedback: the scored thing that someone corrected."""

    kind: Literal["fit", "normals", "feedback"]
    file: str
    place: int
    feedback: int | None = None


@dataclass(frozen=True)
class Version:
    """One state of a detector: when and why it was made, and the origin of each example of its support.

    support_of: the version that brought this support; a new threshold keeps it. kind: what was done, in one word.
    """

    number: int
    made: float
    why: str
    model: str
    support_of: int
    origins: tuple[SupportOrigin, ...]
    kind: str = "change"


@dataclass(frozen=True)
class Pointer:
    """Which version counts. uid: of the detector, whatever its name."""

    uid: str
    version: int


Writer = Callable[[Path], None]
"""Writes the files of a version into the folder it is given."""


def check_name(name: str) -> str:
    """A name that is no path: letters, digits, - and _."""
    if not NAME.fullmatch(name):
        raise ServiceError(
            422, f"name {name[:80]!r}: 1 to 64 letters, digits, - and _ are allowed, the first a letter or digit"
        )
    return name


class DetectorStore:
    """Detectors by name. Knows no learner: a version's files are written by whoever hands in `write`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._locks = folder / ".service" / "locks"
        self._pointers: dict[str, tuple[tuple[int, int], Pointer]] = {}
        """As they were read, with the file's inode and time: each is a new file when it changes."""

    def prepare(self) -> None:
        """Make the folder, and finish or clear what a killed process left."""
        self._locks.mkdir(parents=True, exist_ok=True)
        for old in self.folder.glob(f"{OLD}*"):
            self._put_back(old)
        for plain in sorted(self.folder.iterdir()):
            if NAME.fullmatch(plain.name) and (plain / "detector.json").is_file():
                self._adopt(plain)
        for left in self.folder.glob(f"{PART}*"):
            # Who still writes into it holds the lock; afterwards it is in its place.
            with self._lock(left.name):
                shutil.rmtree(left, ignore_errors=True)

    def names(self) -> list[str]:
        return sorted(
            path.name for path in self.folder.iterdir() if NAME.fullmatch(path.name) and (path / POINTER).is_file()
        )

    def pointer(self, name: str) -> Pointer:
        place = self.folder / check_name(name) / POINTER
        try:
            found = place.stat()
            state = found.st_ino, found.st_mtime_ns
            known = self._pointers.get(name)
            if known is None or known[0] != state:
                known = self._pointers[name] = state, from_plain(Pointer, json.loads(place.read_bytes()))
            return known[1]
        except FileNotFoundError:
            raise not_found(f"no detector is called {name!r}", "GET /detectors lists them") from None
        except (ValueError, FewoneError) as error:
            raise ServiceError(500, f"{name}: {POINTER} is not what the service wrote; restore it ({error})") from error

    def version_folder(self, name: str, number: int) -> Path:
        return self.folder / check_name(name) / "versions" / str(number)

    def version(self, name: str, number: int) -> Version:
        place = self.version_folder(name, number) / VERSION
        try:
            return from_plain(Version, json.loads(place.read_bytes()))
        except FileNotFoundError:
            raise not_found(f"{name} has no version {number}", f"GET /detectors/{name}/versions lists them") from None

    def versions(self, name: str) -> list[Version]:
        """All of them, the newest first; what a killed process left beyond the pointer does not count."""
        return [self.version(name, number) for number in self.numbers(name)]

    def numbers(self, name: str) -> list[int]:
        current = self.pointer(name).version
        found = (int(path.name) for path in (self.folder / name / "versions").iterdir() if path.name.isdigit())
        return sorted((number for number in found if number <= current), reverse=True)

    def create(
        self, name: str, version: Version, write: Writer, record: Callable[[Pointer], AbstractContextManager[None]]
    ) -> Pointer:
        """A new detector. It is put in its place inside `record`, which notes it; an error there takes it back."""
        check_name(name)
        pointer = Pointer(uuid.uuid4().hex, version.number)
        with self._lock(name):
            if (self.folder / name).exists():
                raise ServiceError(409, f"a detector called {name!r} is there; delete it or take another name")
            with self._aside(pointer.uid) as aside:
                self._write_version(aside / "versions", version, write, None)
                atomic_write(aside / POINTER, json.dumps(to_plain(pointer)).encode())
                with self._taken_back(self.folder / name, aside), record(pointer):
                    aside.rename(self.folder / name)
                    _sync(self.folder)
        return pointer

    def change(
        self,
        name: str,
        make: Callable[[Version], tuple[Version, Writer]],
        record: Callable[[Pointer], AbstractContextManager[None]],
    ) -> Version:
        """A new version from the current one: `make` says what it is and how to write it. One change at a time."""
        with self._lock(check_name(name)):
            pointer = self.pointer(name)
            home = self.folder / name / "versions"
            self._clear(home, pointer.version)
            version, write = make(self.version(name, pointer.version))
            folder = self._write_version(home, version, write, home / str(pointer.version))
            new = Pointer(pointer.uid, version.number)
            try:
                with record(new):
                    self._point(name, new)
            except BaseException:
                with suppress(OSError):
                    self._point(name, pointer)
                shutil.rmtree(folder, ignore_errors=True)
                raise
        return version

    def rename(self, name: str, new: str) -> None:
        first, second = sorted((check_name(name), check_name(new)))
        if first == second:
            return
        with self._lock(first), self._lock(second):
            self.pointer(name)
            if (self.folder / new).exists():
                raise ServiceError(409, f"a detector called {new!r} is there; take another name")
            (self.folder / name).rename(self.folder / new)
            _sync(self.folder)

    def delete(self, name: str) -> Pointer:
        with self._lock(check_name(name)):
            pointer = self.pointer(name)
            aside = self.folder / f"{PART}{uuid.uuid4().hex}"
            (self.folder / name).rename(aside)
            _sync(self.folder)
            shutil.rmtree(aside, ignore_errors=True)
        return pointer

    def _adopt(self, plain: Path) -> None:
        """A folder that `fewone fit` wrote becomes version 1 of a detector."""
        from time import time

        with self._lock(plain.name):
            if not (plain / "detector.json").is_file():
                return
            pointer = Pointer(uuid.uuid4().hex, 1)
            version = Version(1, time(), "taken over from a folder of fewone fit", "", 1, (), "taken over")
            old = self.folder / f"{OLD}{plain.name}"
            with self._aside(pointer.uid) as aside:
                self._write_version(aside / "versions", version, lambda part: _copy_into(plain, part), None)
                atomic_write(aside / POINTER, json.dumps(to_plain(pointer)).encode())
                plain.rename(old)
                aside.rename(plain)
            shutil.rmtree(old, ignore_errors=True)

    def _put_back(self, old: Path) -> None:
        """A folder that was being taken over when the process was killed is put back, or cleared if it was done."""
        plain = self.folder / old.name.removeprefix(OLD)
        with self._lock(plain.name):
            if plain.exists():
                shutil.rmtree(old, ignore_errors=True)
            elif old.exists():
                old.rename(plain)

    @contextmanager
    def _aside(self, uid: str) -> Iterator[Path]:
        """A folder to write into; no process that starts meanwhile takes it for what a killed one left."""
        place = self.folder / f"{PART}{uid}"
        with self._lock(place.name):
            try:
                yield place
            finally:
                shutil.rmtree(place, ignore_errors=True)
                (self._locks / place.name).unlink(missing_ok=True)

    def _write_version(self, home: Path, version: Version, write: Writer, previous: Path | None) -> Path:
        """A whole version folder, flushed, under its number; files that the previous one holds are shared with it."""
        home.mkdir(parents=True, exist_ok=True)
        part, final = home / f".part-{uuid.uuid4().hex}", home / str(version.number)
        try:
            part.mkdir()
            write(part)
            atomic_write(part / VERSION, json.dumps(to_plain(version)).encode())
            if previous is not None:
                _share_files(part, previous)
            part.rename(final)
            _sync(home)
        finally:
            shutil.rmtree(part, ignore_errors=True)
        return final

    @contextmanager
    def _taken_back(self, place: Path, aside: Path) -> Iterator[None]:
        """An error inside the block takes the new detector out of its place again."""
        try:
            yield
        except BaseException:
            with suppress(FileNotFoundError):
                place.rename(aside)
            raise

    def _point(self, name: str, pointer: Pointer) -> None:
        atomic_write(self.folder / name / POINTER, json.dumps(to_plain(pointer)).encode())

    def _clear(self, home: Path, current: int) -> None:
        """Take away what a killed process left: half versions, and whole ones that were never pointed at."""
        for path in home.iterdir():
            if path.name.startswith(".part-") or (path.name.isdigit() and int(path.name) > current):
                shutil.rmtree(path, ignore_errors=True)

    @contextmanager
    def _lock(self, name: str) -> Iterator[None]:
        """Held by one thread of one process at a time; the system frees it when a process dies."""
        with (self._locks / name).open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def _copy_into(source: Path, target: Path) -> None:
    shutil.copytree(source, target, dirs_exist_ok=True)


def _share_files(part: Path, previous: Path) -> None:
    """Weights are named after their hash: where the previous version holds the same file, link instead of a copy."""
    for file in part.rglob("*.safetensors"):
        twin = previous / file.relative_to(part)
        with suppress(OSError):
            if twin.is_file() and twin.stat().st_size == file.stat().st_size:
                link = file.with_name(file.name + ".link")
                os.link(twin, link)
                link.replace(file)


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
