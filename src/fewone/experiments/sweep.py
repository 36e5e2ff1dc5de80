"""Many experiments as jobs: on the cores of one machine or on a Dask cluster. What is done is skipped.

A job is whole or not there: its records are one file, written only if no other worker was faster.
"""

from __future__ import annotations

import os
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence, Set
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Literal

from fewone.errors import FewoneError
from fewone.experiment import Experiment
from fewone.experiments.defaults import default_experiment
from fewone.experiments.run import run
from fewone.extras import needed_for
from fewone.results import EVALUATIONS, Failure, find_provenance, read_results, write_records
from fewone.training.process import own_process

with needed_for("a sweep"):
    from joblib import Parallel, delayed, parallel_config
    from joblib.externals.loky.process_executor import TerminatedWorkerError

Backend = Literal["loky", "dask"]
TRUNKS = "trunks"
"""The folder, among those of the runs, of the trunks that FB and MTL jobs share."""
YOUNGER: dict[str, object] = {"validation_queries": None, "select": "loss"}
"""Settings of the training that the first rows were written before, and what they were then."""
_CLUSTER_TRIES = 3
"""A cluster starts a job again on another worker by itself; a job that was begun this often is given up."""


@dataclass(frozen=True)
class Job:
    """One experiment, the folder of its training, the folder of its records, and where the data are."""

    experiment: Experiment
    folder: Path
    results: Path
    data_dirs: tuple[Path, ...] | None = None

    @property
    def name(self) -> str:
        e = self.experiment
        return f"{e.dataset} {e.learner} K={e.k} seed={e.seed}"


@dataclass(frozen=True)
class Outcome:
    """How a job ended: error is empty where it went well."""

    job: Job
    seconds: float
    error: str = ""


def plan(
    experiments: Sequence[Experiment], runs: Path, results: Path, data_dirs: tuple[Path, ...] | None = None
) -> list[Job]:
    """The jobs that are not done yet, in order."""
    done = find_done(results)
    return [
        Job(experiment, runs / experiment.identify(), results, data_dirs)
        for experiment in experiments
        if not is_done(experiment, done)
    ]


Done = Mapping[str, Set[int]]
"""By the key of each training, the K at which it was evaluated on the test tasks."""


def find_done(results: Path) -> Done:
    """What has test rows in a folder of results; settings younger than the rows count as the recipe has them."""
    done: dict[str, set[int]] = {}
    known: dict[Experiment, str] = {}
    for row in read_results(results).rows if results.exists() else ():
        experiment = row.experiment
        as_trained = row.steps is None and row.normal_share == experiment.test_normal_share
        if row.split == "test" and as_trained:
            if experiment not in known:
                known[experiment] = complete(experiment).key(EVALUATIONS)
            done.setdefault(known[experiment], set()).add(row.k)
    return done


def complete(experiment: Experiment) -> Experiment:
    """With today's recipe where a row was written before there was such a setting, and so has its neutral value."""
    try:
        recipe = default_experiment(experiment.dataset, experiment.learner, experiment.k).training
    except FewoneError:
        # A learner or dataset that is not registered here has no recipe: the row stands for itself.
        return experiment
    changes = {
        name: getattr(recipe, name)
        for name, neutral in YOUNGER.items()
        if getattr(experiment.training, name) == neutral
    }
    return replace(experiment, training=replace(experiment.training, **changes))


def is_done(experiment: Experiment, done: Done) -> bool:
    """Whether there are test rows at every K of the experiment."""
    return {experiment.k, *experiment.further_k} <= done.get(experiment.key(EVALUATIONS), set())


def sweep(
    jobs: Sequence[Job], workers: int = 1, backend: Backend = "loky", scheduler: str | None = None
) -> Iterator[Outcome]:
    """Run the jobs and yield each outcome as it comes; a job that fails is recorded and the others go on.

    A process that dies takes its neighbours' jobs with it: they are done again, and a job that dies again while it
    is alone is recorded as failed.
    """
    pending = {job.folder: job for job in jobs}
    with _workers(workers, backend, scheduler):
        while pending:
            try:
                for outcome in Parallel(n_jobs=workers, return_as="generator_unordered", batch_size=1)(
                    delayed(_work)(job, os.getpid()) for job in list(pending.values())
                ):
                    del pending[outcome.job.folder]
                    yield outcome
            except _deaths(backend):
                yield from _sort_out(pending, backend)


def _deaths(backend: Backend) -> tuple[type[Exception], ...]:
    """How each backend says that a worker process died under its jobs."""
    if backend == "loky":
        return (TerminatedWorkerError,)
    from distributed.scheduler import KilledWorker

    return (KilledWorker,)


@contextmanager
def _workers(workers: int, backend: Backend, scheduler: str | None) -> Iterator[None]:
    if backend == "loky":
        with parallel_config(backend="loky", n_jobs=workers, inner_max_num_threads=1):
            yield
        return
    if scheduler is None:
        raise FewoneError("the backend dask needs the address of a scheduler; give --scheduler tcp://HOST:8786")
    with needed_for("the backend dask", "cluster"):
        from distributed import Client
    try:
        client = Client(scheduler, timeout=10)  # type: ignore[no-untyped-call]
    except (OSError, TimeoutError, ValueError) as error:
        raise FewoneError(
            f"no Dask scheduler answers at {scheduler} within 10 s; start one with: dask scheduler"
        ) from error
    with client, parallel_config(backend="dask", n_jobs=workers):
        yield


def _work(job: Job, caller: int) -> Outcome:
    """One job, in a worker process that is its own or in the caller's: the rows, or its failure, and how it ended."""
    if os.getpid() != caller:
        own_process(job.experiment.training.threads)
    started, started_cpu = time.perf_counter(), time.process_time()
    try:
        _note_try(job)
        if not is_done(job.experiment, find_done(job.results)):
            run(job.experiment, job.folder, job.data_dirs, job.results, trunks=job.folder.parent / TRUNKS)
        error = ""
    except Exception as problem:
        error = str(problem) if isinstance(problem, FewoneError) else _locate(problem)
        _record_failure(job, error, time.perf_counter() - started, time.process_time() - started_cpu)
    return Outcome(job, time.perf_counter() - started, error)


def _locate(problem: Exception) -> str:
    """An unexpected error in one line: what, and in which line of which module."""
    last = traceback.extract_tb(problem.__traceback__)[-1]
    return f"{type(problem).__name__}: {problem} ({Path(last.filename).name}, line {last.lineno})"


def _record_failure(job: Job, error: str, seconds: float, cpu_seconds: float) -> None:
    provenance = find_provenance("", seconds, cpu_seconds)
    write_records(job.results, Failure(job.experiment, provenance, error))


def _note_try(job: Job) -> None:
    """A line with the process number for each time the job is begun."""
    job.folder.mkdir(parents=True, exist_ok=True)
    with (job.folder / "tries").open("a") as file:
        file.write(f"{os.getpid()}\n")


def _sort_out(pending: dict[Path, Job], backend: Backend) -> Iterator[Outcome]:
    """After a death: finished jobs are dropped, and the begun ones must show that it was not they who died."""
    for folder, job in list(pending.items()):
        begun = _count_tries(job)
        if is_done(job.experiment, find_done(job.results)):
            outcome = Outcome(job, 0.0)
        elif backend == "loky" and begun:
            outcome = _retry_alone(job)
        elif begun >= _CLUSTER_TRIES:
            outcome = _give_up(job)
        else:
            continue
        del pending[folder]
        yield outcome


def _retry_alone(job: Job) -> Outcome:
    """Once more in a process that no other job shares; if that dies too, it is this job's own doing."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
        try:
            return process.submit(_work, job, os.getpid()).result()
        except BrokenProcessPool:
            return _give_up(job)


def _give_up(job: Job) -> Outcome:
    error = f"its process died {_count_tries(job)} times (killed, or out of memory)"
    (job.folder / "tries").unlink()
    _record_failure(job, error, 0.0, 0.0)
    return Outcome(job, 0.0, error)


def _count_tries(job: Job) -> int:
    tries = job.folder / "tries"
    return len(tries.read_text().splitlines()) if tries.exists() else 0
