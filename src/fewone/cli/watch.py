"""fewone watch: scores files as they arrive in a folder, here or by a service, until it is stopped."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from fewone.cli.score import describe, load_fitted
from fewone.datasets.example_files import SUFFIXES
from fewone.detector.user_files import read_examples
from fewone.detector.verdicts import Verdict, as_csv, judge_file
from fewone.errors import FewoneError
from fewone.service.alarms import AlarmQueue, open_queues
from fewone.service.client import AwayError, ServiceClient, patiently
from fewone.service.settings import AlarmSettings

Judge = Callable[[Path], list[Verdict]]
LAST_ALARMS = 5.0
"""Seconds in which alarms may still leave when the watch ends; the others wait on disk for the next one."""


@dataclass(frozen=True)
class Arguments:
    """Score files as they arrive, until Ctrl-C or --for-seconds.

    A file is read once it has stopped growing. Exit code 0: all were normal; 1: anomalies were found; 2: a mistake.
    A file that cannot be read is told and passed over. With --server the files are sent to `fewone serve`, with the
    token of the environment variable FEWONE_TOKEN; while it does not answer they wait.
    """

    detector: Annotated[Path, tyro.conf.Positional]
    """A folder made by fewone fit; with --server the name of a detector."""
    folder: Annotated[Path, tyro.conf.Positional]
    """The folder into which new files come."""
    out: Path | None = None
    """Append the verdicts to a .csv file."""
    every: float = 1.0
    """Look for new files every so many seconds."""
    for_seconds: float | None = None
    """Stop after so many seconds (default: never)."""
    json: bool = False
    """Print one JSON object per verdict and line."""
    server: str | None = None
    """Send the files to this service, such as http://127.0.0.1:8000."""
    source: str | None = None
    """With --server: the files are chunks, in the order of their arrival, of one running recording of this name."""
    webhook: str | None = None
    """Send alarms to this address; signed with the secret in FEWONE_WEBHOOK_SECRET."""
    mqtt: str | None = None
    """Send alarms to this broker: mqtt://[USER:PASSWORD@]HOST[:PORT][/PREFIX]."""
    alarms: Path | None = None
    """Where alarms wait until they are delivered (default: .fewone-alarms in the watched folder)."""


def main(arguments: list[str]) -> int:
    """Watch; Ctrl-C is the ordinary end."""
    chosen = tyro.cli(Arguments, args=arguments, prog="fewone watch")
    if chosen.source is not None and chosen.server is None:
        raise FewoneError("--source: only a service joins chunks; give --server as well")
    end = None if chosen.for_seconds is None else time.monotonic() + chosen.for_seconds
    judge = _judge_here(chosen) if chosen.server is None else _judge_there(chosen, end)
    if not chosen.folder.is_dir():
        raise FewoneError(f"{chosen.folder}: no such folder to watch")
    if chosen.every <= 0:
        raise FewoneError(f"--every is {chosen.every:g}: more than 0 seconds are needed")
    anomalous = False
    queues = _open_alarms(chosen)
    try:
        for file in arrivals(chosen.folder, chosen.every, chosen.for_seconds):
            verdicts = _try(judge, file)
            for verdict in verdicts:
                anomalous |= verdict.anomalous
                print(json.dumps(asdict(verdict)) if chosen.json else describe(verdict, len(verdicts) == 1), flush=True)
                _append(chosen.out, verdict)
                _raise_alarm(queues, chosen.detector.name, verdict)
    except KeyboardInterrupt:
        pass
    finally:
        _close_alarms(queues)
    return 1 if anomalous else 0


def arrivals(folder: Path, every: float, seconds: float | None) -> Iterator[Path]:
    """Each readable file of the folder once, when two looks in a row found it the same."""
    end = None if seconds is None else time.monotonic() + seconds
    seen: dict[Path, tuple[int, int]] = {}
    done: set[Path] = set()
    while True:
        present = {
            path: (path.stat().st_size, path.stat().st_mtime_ns)
            for path in sorted(folder.iterdir())
            if path.suffix.lower() in SUFFIXES and not path.name.startswith(".") and path.is_file()
        }
        for path, state in present.items():
            if path not in done and seen.get(path) == state:
                done.add(path)
                yield path
        seen, done = present, done & present.keys()
        if end is not None and time.monotonic() >= end:
            return
        time.sleep(every)


def _judge_here(chosen: Arguments) -> Judge:
    detector, shape = load_fitted(chosen.detector)
    return lambda file: judge_file(detector, read_examples(file, shape))


def _judge_there(chosen: Arguments, end: float | None) -> Judge:
    """By a service: each file for itself, or as the next chunk of one recording."""
    assert chosen.server is not None
    client = ServiceClient(chosen.server, os.environ.get("FEWONE_TOKEN"))
    name, source = str(chosen.detector), chosen.source
    length = 0

    def ask(work: Callable[[], Any]) -> Any:
        return patiently(work, end, lambda line: print(f"fewone: {line}", flush=True))

    def judge(file: Path) -> list[Verdict]:
        nonlocal length
        if source is None:
            results = ask(lambda: client.score_file(name, file))
        else:
            results, length = ask(lambda: client.stream_file(name, source, file, length))
        return [_as_verdict(file, result) for result in results]

    if source is None:
        ask(lambda: client.check(name))
    else:
        length = ask(lambda: client.stream_length(name, source))
    return judge


def _as_verdict(file: Path, result: dict[str, Any]) -> Verdict:
    return Verdict(
        str(file),
        int(result["place"]),
        int(result["windows"]),
        int(result["worst"]) if result["windows"] > 1 else 0,
        float(result["decision"]),
        float(result["probability"]),
        bool(result["anomalous"]),
    )


def _try(judge: Judge, file: Path) -> list[Verdict]:
    try:
        return judge(file)
    except AwayError:
        raise
    except FewoneError as error:
        print(f"fewone: {error}", flush=True)
        return []


def _open_alarms(chosen: Arguments) -> list[AlarmQueue]:
    if chosen.webhook is None and chosen.mqtt is None:
        return []
    settings = AlarmSettings(chosen.webhook, os.environ.get("FEWONE_WEBHOOK_SECRET"), chosen.mqtt)
    folder = chosen.folder / ".fewone-alarms" if chosen.alarms is None else chosen.alarms
    try:
        return open_queues(settings, folder)
    except OSError as error:
        raise FewoneError(f"{folder}: cannot be made ({error.strerror}); give another --alarms") from error


def _raise_alarm(queues: list[AlarmQueue], detector: str, verdict: Verdict) -> None:
    if not verdict.anomalous:
        return
    alarm = {
        "detector": detector,
        "version": None,
        "id": None,
        "at": time.time(),
        "source": Path(verdict.file).name,
        "place": verdict.place,
        "worst": verdict.worst,
        "decision": verdict.decision,
        "probability": verdict.anomaly_probability,
    }
    for queue in queues:
        try:
            queue.put(alarm)
        except OSError as error:
            raise FewoneError(f"{queue.folder}: cannot be written ({error.strerror}); give another --alarms") from error


def _close_alarms(queues: list[AlarmQueue]) -> None:
    end = time.monotonic() + LAST_ALARMS
    for queue in queues:
        if not queue.flush(max(0.0, end - time.monotonic())):
            print(f"fewone: {len(queue.waiting())} alarms by {queue.way.name} wait in {queue.folder}", flush=True)
        queue.close()


def _append(path: Path | None, verdict: Verdict) -> None:
    if path is None:
        return
    try:
        new = not path.exists()
        with path.open("a") as file:
            file.write(as_csv([verdict], header=new))
    except OSError as error:
        raise FewoneError(f"{path}: cannot be written ({error.strerror}); give another place") from error
