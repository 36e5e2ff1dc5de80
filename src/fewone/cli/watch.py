"""fewone watch: scores files as they arrive in a folder, here or by a service; after a restart only what is new."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import tyro

from fewone.cli.options import parse_options
from fewone.cli.score import (
    Cut,
    check_plot,
    describe,
    draw_page,
    find_exit_code,
    judge_path,
    open_once,
    print_not_judged,
    tell_readings,
)
from fewone.errors import FewoneError, say_count
from fewone.file_scoring.user_files import can_be_read, check_stride
from fewone.file_scoring.verdict_rows import Judged, NotJudged, Verdict, as_csv, as_json, count_anomalous, list_all
from fewone.files import atomic_write
from fewone.reading import ReadOptions
from fewone.service.alarms import AlarmQueue, open_queues
from fewone.service.client import AwayError, ServiceClient, patiently
from fewone.service.settings import AlarmSettings

Judge = Callable[[Path], Judged]
LAST_ALARMS = 5.0
"""Seconds in which alarms may still leave when the watch ends; the others wait on disk for the next one."""
MEMORY = ".fewone-watch.json"
"""In the watched folder: which files were scored by which detector, with size and time of change."""
LARGEST_PAGE = 1000
"""The page shows the worst of so many verdicts; a watch may last for years."""

State = tuple[int, int]


@dataclass(frozen=True)
class Arguments:
    """Score files as they arrive, until Ctrl-C or --for-seconds.

    A file is read once it has stopped growing, and once only, also after a restart. Exit code 0: all were normal; 1:
    anomalies were found; 2: a mistake; 3: no anomalies, but something could not be judged or a file not be read. With
    --server the files are sent to `fewone serve`, with the token of the environment variable FEWONE_TOKEN; while it
    does not answer they wait.
    """

    detector: Annotated[Path, tyro.conf.Positional]
    """A folder made by fewone fit or an .onnx file made by fewone export; with --server the name of a detector."""
    folder: Annotated[Path, tyro.conf.Positional]
    """The folder into which new files come."""
    out: Path | None = None
    """Append the verdicts to a .csv file."""
    plot: Path | None = None
    """Keep a page with plots of the most anomalous examples."""
    stride: int | None = None
    """Recordings are cut into a window every so many time steps (default: one window after the other)."""
    each_window: bool = False
    """One verdict for each window of a recording instead of one for the recording."""
    every: float = 1.0
    """Look for new files every so many seconds."""
    for_seconds: float | None = None
    """Stop after so many seconds (default: never)."""
    again: bool = False
    """Forget what was scored before."""
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
    reading: Annotated[ReadOptions, tyro.conf.arg(name="")] = field(default_factory=ReadOptions)


@dataclass
class Tally:
    """What was seen so far."""

    files: int = 0
    verdicts: int = 0
    anomalous: int = 0
    not_judged: int = 0
    unreadable: int = 0
    worst: list[Verdict] = field(default_factory=list)

    def add(self, judged: Judged) -> None:
        self.files += 1
        self.verdicts += len(judged.verdicts)
        self.anomalous += count_anomalous(judged.verdicts)
        self.unreadable += sum(one.place is None for one in judged.not_judged)
        self.not_judged += sum(one.place is not None for one in judged.not_judged)
        self.worst = sorted([*self.worst, *judged.verdicts], key=lambda one: one.decision)[:LARGEST_PAGE]

    def __str__(self) -> str:
        return (
            f"watched {say_count(self.files, 'file')}: {self.anomalous} of {self.verdicts} anomalous,"
            f" {say_count(self.not_judged, 'window')} not judged, {say_count(self.unreadable, 'file')} unreadable"
        )


def main(arguments: list[str]) -> int:
    """Watch; Ctrl-C is the ordinary end."""
    chosen = parse_options(Arguments, arguments, "fewone watch")
    if chosen.source is not None and chosen.server is None:
        raise FewoneError("--source: only a service joins chunks; give --server as well")
    check_stride(chosen.stride)
    if not 0 < chosen.every < float("inf"):
        raise FewoneError(f"--every is {chosen.every:g}: more than 0 seconds are needed")
    if chosen.for_seconds is not None and not chosen.for_seconds >= 0:
        raise FewoneError(f"--for-seconds is {chosen.for_seconds:g}: a number of seconds is needed")
    if chosen.plot is not None and chosen.server is not None:
        raise FewoneError("--plot: the service has a page of its own; leave it out")
    end = None if chosen.for_seconds is None else time.monotonic() + chosen.for_seconds
    judge = _judge_here(chosen) if chosen.server is None else _judge_there(chosen, end)
    if not chosen.folder.is_dir():
        raise FewoneError(f"{chosen.folder}: no such folder to watch")
    tally, said = Tally(), set[str]()
    memory = Memory(chosen.folder, _name_judge(chosen), chosen.again)
    queues = _open_alarms(chosen)
    try:
        for file, state in arrivals(chosen.folder, chosen.every, chosen.for_seconds, memory):
            judged = judge(file)
            tally.add(judged)
            tell_readings([Judged(said="" if judged.said in said else judged.said, notes=judged.notes)])
            said.add(judged.said)
            _tell(judged, chosen.json)
            _append(chosen.out, judged)
            for verdict in judged.verdicts:
                _raise_alarm(queues, chosen.detector.name, verdict)
            _draw(chosen, tally)
            memory.keep(file, state)
    except KeyboardInterrupt:
        pass
    finally:
        _close_alarms(queues)
    print(tally, file=sys.stderr if chosen.json else sys.stdout, flush=True)
    return find_exit_code(tally.anomalous, tally.not_judged + tally.unreadable)


def _name_judge(chosen: Arguments) -> str:
    """Who scores: a folder, or a detector of a service, for a running recording or for single files."""
    if chosen.server is None:
        return str(chosen.detector.resolve())
    return " ".join([chosen.server, str(chosen.detector), *([chosen.source] if chosen.source else [])])


def _draw(chosen: Arguments, tally: Tally) -> None:
    if chosen.plot is None or not tally.worst:
        return
    draw_page(chosen.plot, chosen.detector, tally.worst, chosen.stride, chosen.reading)


class Memory:
    """What one detector has scored in a folder, kept there; a file that changed is new."""

    def __init__(self, folder: Path, detector: str, forget: bool) -> None:
        self._place, self._detector = folder / MEMORY, detector
        self._all: dict[str, dict[str, list[int]]] = {}
        try:
            found = json.loads(self._place.read_text(encoding="utf-8"))
            self._all = found if isinstance(found, dict) else {}
        except (OSError, ValueError):
            pass  # Nothing scored yet, or nothing that can be trusted: everything is new.
        if forget or not isinstance(self._all.get(self._detector), dict):
            self._all[self._detector] = {}

    def holds(self, file: Path, state: State) -> bool:
        return self._all[self._detector].get(file.name) == list(state)

    def keep(self, file: Path, state: State) -> None:
        self._all[self._detector][file.name] = list(state)
        try:
            atomic_write(self._place, json.dumps(self._all).encode())
        except OSError as error:
            raise FewoneError(
                f"{self._place}: cannot be written ({error.strerror}), so a restart would score everything again; make"
                f" the folder writable"
            ) from error


def arrivals(
    folder: Path, every: float, seconds: float | None, memory: Memory | None = None
) -> Iterator[tuple[Path, State]]:
    """Each readable file of the folder once, when two looks in a row found it the same, with its size and time."""
    end = None if seconds is None else time.monotonic() + seconds
    seen: dict[Path, State] = {}
    done: set[Path] = set()
    while True:
        present: dict[Path, State] = {}
        for path in sorted(folder.iterdir()):
            if can_be_read(path) and path.is_file():
                status = path.stat()
                present[path] = (status.st_size, status.st_mtime_ns)
        for path, state in present.items():
            if path in done or (memory is not None and memory.holds(path, state)):
                continue
            if seen.get(path) == state:
                done.add(path)
                yield path, state
        seen, done = present, done & present.keys()
        if end is not None and time.monotonic() >= end:
            return
        time.sleep(every)


def _judge_here(chosen: Arguments) -> Judge:
    check_plot(chosen.detector, chosen.plot)
    open_once.cache_clear()
    open_once(chosen.detector)
    return partial(judge_path, chosen.detector, Cut(chosen.stride, chosen.each_window, chosen.reading))


def _judge_there(chosen: Arguments, end: float | None) -> Judge:
    """By a service: each file for itself, or as the next chunk of one recording."""
    assert chosen.server is not None
    client = ServiceClient(chosen.server, os.environ.get("FEWONE_TOKEN"))
    name, source = str(chosen.detector), chosen.source
    length = 0

    def ask(work: Callable[[], Any]) -> Any:
        return patiently(work, end, lambda line: print(f"fewone: {line}", flush=True))

    def judge(file: Path) -> Judged:
        nonlocal length
        try:
            if source is None:
                results = ask(lambda: client.score_file(name, file))
            else:
                results, length = ask(lambda: client.stream_file(name, source, file, length))
        except AwayError:
            raise
        except FewoneError as error:
            return Judged(not_judged=(NotJudged(str(file), None, str(error)),))
        return Judged(tuple(_as_verdict(file, result) for result in results))

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


def _tell(judged: Judged, as_objects: bool) -> None:
    if as_objects:
        for one in list_all(judged):
            print(as_json(one), flush=True)
        return
    for verdict in judged.verdicts:
        print(describe(verdict, len(judged.verdicts) == 1), flush=True)
    print_not_judged(judged.not_judged, counted=False)
    sys.stdout.flush()


def _append(path: Path | None, judged: Judged) -> None:
    rows = list_all(judged)
    if path is None or not rows:
        return
    try:
        new = not path.exists()
        with path.open("a") as file:
            file.write(as_csv(rows, header=new))
    except OSError as error:
        raise FewoneError(f"{path}: cannot be written ({error.strerror}); give another place") from error
