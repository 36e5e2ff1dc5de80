"""A saved detector and an archive of recordings -> decisions, over many processes or machines.

Enters: a detector's folder, recordings by name. Leaves: a decision per recording, in their order. The detector travels
as bytes, once per worker; a worker opens it once. Knows no file format, no cluster: Dask, Spark and
`fewone score --workers` call the same functions (docs/scale.md).
"""

from __future__ import annotations

import hashlib
import io
import multiprocessing
import os
import sys
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, TypeVar

from numpy.typing import ArrayLike

from fewone.errors import FewoneError

if TYPE_CHECKING:
    from fewone.detector.few_shot_detector import FewShotDetector

Job = TypeVar("Job")
Result = TypeVar("Result")

LARGEST_DETECTOR = 1 << 28
"""More bytes than a detector ever has: what claims to unpack to more is refused."""
KEPT_OPEN = 8
"""So many detectors stay open in a worker."""
AHEAD = 4
"""So many jobs wait for each worker: none idles, and the archive is not read ahead of the scores."""


@dataclass(frozen=True)
class Decision:
    """What a detector says of one recording: value below 0 = anomalous; windows: how many were scored."""

    name: str
    value: float
    anomalous: bool
    windows: int


@dataclass(frozen=True)
class PackedDetector:
    """A saved detector as bytes: the files of its folder, which hold numbers and no code.

    Examples
    --------
    >>> import fewone, numpy as np, tempfile
    >>> from fewone.archive import PackedDetector, decide_recordings
    >>> normals = np.random.default_rng(0).normal(size=(10, 128))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     fewone.load("series").fit(normals).save(folder)
    ...     packed = PackedDetector.of(folder)
    >>> [one.name for one in decide_recordings(packed, [("a", np.zeros(512)), ("b", normals.ravel())])]
    ['a', 'b']
    """

    content: bytes

    @staticmethod
    def of(folder: str | Path) -> PackedDetector:
        """The files of a folder that `save` wrote.

        Parameters
        ----------
        folder
            What `FewShotDetector.save` wrote.

        Returns
        -------
        Its bytes, to be sent to other machines.
        """
        place = Path(folder)
        files = sorted(path for path in place.rglob("*") if path.is_file() and path.suffix in (".json", ".safetensors"))
        if not files:
            raise FewoneError(f"{place}: not a saved detector; give a folder made by `save` or `fewone fit`")
        packed = io.BytesIO()
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
            for path in files:
                # A fixed date: the same detector has the same bytes, and so the same place in every worker.
                entry = zipfile.ZipInfo(path.relative_to(place).as_posix(), (1980, 1, 1, 0, 0, 0))
                archive.writestr(entry, path.read_bytes(), zipfile.ZIP_DEFLATED)
        return PackedDetector(packed.getvalue())

    def open(self) -> FewShotDetector:
        """The detector, opened once in this process; whatever was changed on the way is refused by its hashes.

        Returns
        -------
        The detector.
        """
        return _open(hashlib.sha256(self.content).hexdigest(), self.content)


@lru_cache(KEPT_OPEN)
def _open(digest: str, content: bytes) -> FewShotDetector:
    from fewone.detector.few_shot_detector import FewShotDetector
    from fewone.detector.loading import load

    with TemporaryDirectory(prefix="fewone-") as place:
        try:
            with zipfile.ZipFile(io.BytesIO(content)) as archive:
                if sum(entry.file_size for entry in archive.infolist()) > LARGEST_DETECTOR:
                    raise FewoneError(f"a packed detector of more than {LARGEST_DETECTOR >> 20} MB; pack it anew")
                archive.extractall(place)
        except (zipfile.BadZipFile, ValueError, OSError) as error:
            raise FewoneError(f"a packed detector that cannot be opened ({error}); pack it anew") from error
        detector = load(Path(place))
    if not isinstance(detector, FewShotDetector):
        raise FewoneError(f"a packed {type(detector).__name__}: recordings are decided by a detector of windows")
    return detector


def decide_recordings(
    packed: PackedDetector, recordings: Iterable[tuple[str, ArrayLike]], stride: int | None = None
) -> Iterator[Decision]:
    """One decision per recording (length,) or (length, channels), as `score_series` and `decide` make it.

    The unit of work of every engine: a partition of a Dask bag, a batch of Spark's `mapInPandas`, a job of `share_out`.

    Parameters
    ----------
    packed
        The detector.
    recordings
        (name, values) each, values (length,) or (length, channels).
    stride
        Steps from one window to the next; None: the window.

    Returns
    -------
    One decision per recording.

    Examples
    --------
    >>> import fewone, numpy as np, tempfile
    >>> normals = np.random.default_rng(0).normal(size=(10, 128))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     fewone.load("series").fit(normals).save(folder)
    ...     packed = PackedDetector.of(folder)
    >>> [one.anomalous for one in decide_recordings(packed, [("a", normals[0]), ("b", normals[0] + 90.0)])]
    [False, True]
    """
    detector = packed.open()
    for name, values in recordings:
        step = detector.support_.values.shape[-1] if stride is None else stride
        scores = detector.score_series(values, step)
        value = detector.decide(scores)
        yield Decision(name, value, value < 0, len(scores.windows))


def share_out(work: Callable[[Job], Result], jobs: Iterable[Job], workers: int) -> Iterator[Result]:
    """work(job) of each job in their order, by `workers` processes of one thread each; 1: in this process.

    work must be importable (a function of a module, or a partial of one). A worker that is killed ends all with a
    one-line error; what was yielded before stands.
    """
    if workers < 1:
        raise FewoneError(f"--workers {workers}: at least one worker is needed")
    if workers == 1:
        yield from map(work, jobs)
        return
    # Fresh processes, not copies of this one: torch's threads do not survive a fork.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, context, initializer=_use_one_thread) as pool:
        try:
            yield from _in_order(pool, work, iter(jobs), workers * AHEAD)
        except BrokenProcessPool as error:
            raise FewoneError(
                f"one of {workers} workers ended (killed, or out of memory); give fewer, or run the command again"
            ) from error
        finally:
            pool.shutdown(cancel_futures=True)


def _in_order(
    pool: ProcessPoolExecutor, work: Callable[[Job], Result], jobs: Iterator[Job], ahead: int
) -> Iterator[Result]:
    waiting: list[Future[Result]] = [pool.submit(work, job) for job in islice(jobs, ahead)]
    while waiting:
        result = waiting.pop(0).result()
        waiting += [pool.submit(work, job) for job in islice(jobs, 1)]
        yield result


def _use_one_thread() -> None:
    """A worker's process is its own: with one thread each, as many workers as cores do not hinder each other."""
    os.environ["OMP_NUM_THREADS"] = "1"
    # Where torch is not there yet it reads the variable when it comes; a worker of ONNX Runtime never needs it.
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)


def cut_into_jobs(items: Sequence[Job], size: int) -> Iterator[Sequence[Job]]:
    """Consecutive items, `size` at a time: a job must be longer than the way to the worker and back."""
    for first in range(0, len(items), size):
        yield items[first : first + size]
