"""Workers that are processes, on this machine or on many, over torch.distributed (gloo).

Who is in the group is told by the environment, as torchrun and `fewone train --workers` set it: RANK, WORLD_SIZE,
MASTER_ADDR, MASTER_PORT.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import PrefixStore, TCPStore

from fewone.errors import FewoneError
from fewone.workers.exchange import ALONE, Exchange, Work, WorkerLostError

START_SECONDS = 60.0
"""How long the workers wait for each other to begin."""
BEAT_SECONDS = 3.0
"""Every so often a worker says that it lives."""
SILENT_SECONDS = 20.0
"""A worker that said nothing for so long hangs."""
LONGEST_WAIT = timedelta(days=7)
"""One exchange may take as long as the longest job; workers that die or hang are noticed otherwise."""

Description = Mapping[str, object]


def is_worker(environment: Mapping[str, str] | None = None) -> bool:
    """Whether this process was started as one of several."""
    found = os.environ if environment is None else environment
    return "RANK" in found and "WORLD_SIZE" in found


@contextmanager
def connect(description: Description) -> Iterator[Exchange]:
    """The group that the environment names, or the process alone.

    description: what must be the same for all (versions, data, experiment); who differs ends all, with what differs.
    """
    if not is_worker():
        yield ALONE
        return
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    store = _open_store(rank, size)
    _compare(store, rank, size, description)
    prefixed = PrefixStore("group", store)
    dist.init_process_group("gloo", store=prefixed, rank=rank, world_size=size, timeout=LONGEST_WAIT)
    with _heart(rank, size):
        yield Group(rank, size)
    # Only on a good end: after a loss the others are gone and waiting for them would hang. The store's host leaves last
    # of all that is asked of it: every heart has stopped before the barrier.
    dist.barrier()
    dist.destroy_process_group()


class Group:
    """The exchange of one worker with the others."""

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size

    def share_out(self, count: int, work: Work) -> list[Tensor]:
        mine = {number: work(number) for number in range(self.rank, count, self.size)}
        # The length of each result, and last the kind of all of them.
        facts = torch.zeros(count + 1, dtype=torch.int64)
        for number, result in mine.items():
            facts[number] = len(result)
            facts[-1] = _KINDS.index(result.dtype) + 1
        with _losing():
            dist.all_reduce(facts, op=dist.ReduceOp.MAX)
        lengths, dtype = facts[:-1], _KINDS[int(facts[-1]) - 1]
        owned = [lengths[rank :: self.size] for rank in range(self.size)]
        longest = max(int(part.sum()) for part in owned)
        sent = torch.zeros(longest, dtype=dtype)
        if mine:
            joined = torch.cat(list(mine.values()))
            sent[: len(joined)] = joined
        received = [torch.empty(longest, dtype=dtype) for _ in range(self.size)]
        with _losing():
            dist.all_gather(received, sent)
        pieces = [
            torch.split(values[: int(part.sum())], part.tolist()) for values, part in zip(received, owned, strict=True)
        ]
        return [pieces[number % self.size][number // self.size] for number in range(count)]

    def from_first(self, payload: bytes) -> bytes:
        length = torch.tensor([len(payload)])
        with _losing():
            dist.broadcast(length, 0)
        content = torch.empty(int(length), dtype=torch.uint8)
        if self.rank == 0 and payload:
            content = torch.frombuffer(bytearray(payload), dtype=torch.uint8)
        if len(content):
            with _losing():
                dist.broadcast(content, 0)
        return content.numpy().tobytes()

    def total(self, number: float) -> float:
        value = torch.tensor([number], dtype=torch.float64)
        with _losing():
            dist.all_reduce(value)
        return float(value)


_KINDS = (torch.float32, torch.float64, torch.uint8, torch.int64)


@contextmanager
def _losing() -> Iterator[None]:
    """Whatever gloo says of a broken connection, it means that another worker is gone."""
    try:
        yield
    except RuntimeError as error:
        raise WorkerLostError("another worker ended; the same command goes on from the last checkpoint") from error


def _open_store(rank: int, size: int) -> TCPStore:
    host, port = os.environ.get("MASTER_ADDR", "127.0.0.1"), int(os.environ.get("MASTER_PORT", "29500"))
    hosted = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    try:
        return TCPStore(host, port, size, is_master=rank == 0 and not hosted, timeout=timedelta(seconds=START_SECONDS))
    except RuntimeError as error:
        raise FewoneError(
            f"worker {rank} of {size} cannot meet the others at {host}:{port}"
            f" ({(str(error).splitlines() or ['no reason given'])[0]}); is the port free and every worker started?"
        ) from error


def _compare(store: TCPStore, rank: int, size: int, description: Description) -> None:
    """Refuse to begin with workers that would do different work."""
    store.set(f"describe-{rank}", json.dumps(description, sort_keys=True, default=str))
    ours = json.loads(json.dumps(description, sort_keys=True, default=str))
    for other in range(size):
        try:
            theirs = json.loads(store.get(f"describe-{other}"))
        except RuntimeError as error:
            raise FewoneError(
                f"worker {other} of {size} did not begin within {START_SECONDS:g} s; start all workers together"
            ) from error
        for key in sorted({*ours, *theirs}):
            if ours.get(key) != theirs.get(key):
                raise FewoneError(
                    f"workers {rank} and {other} differ in {key}: {_short(ours.get(key))} and"
                    f" {_short(theirs.get(key))}; give all of them the same version, data and experiment"
                )


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


@contextmanager
def _heart(rank: int, size: int) -> Iterator[None]:
    """Say that this worker lives, and end it when another one has been silent for too long."""
    store, ended = _open_store_again(size), threading.Event()
    thread = threading.Thread(target=_beat, args=(store, rank, size, ended), daemon=True, name="workers-heart")
    thread.start()
    try:
        yield
    finally:
        ended.set()
        # A thread that is inside the store when Python ends takes the whole process down.
        thread.join(SILENT_SECONDS)


def _open_store_again(size: int) -> TCPStore:
    """A connection of its own: the group's may be waiting."""
    host, port = os.environ.get("MASTER_ADDR", "127.0.0.1"), int(os.environ.get("MASTER_PORT", "29500"))
    return TCPStore(host, port, size, is_master=False, timeout=timedelta(seconds=SILENT_SECONDS))


def _beat(store: TCPStore, rank: int, size: int, ended: threading.Event) -> None:
    heard = dict.fromkeys(range(size), (b"", time.monotonic()))
    number = 0
    try:
        while not ended.wait(BEAT_SECONDS):
            number += 1
            store.set(f"beat-{rank}", str(number))
            for other in range(size):
                if other == rank:
                    continue
                # One that hangs before its first beat is silent, too.
                beat = store.get(f"beat-{other}") if store.check([f"beat-{other}"]) else b""
                if beat != heard[other][0]:
                    heard[other] = (beat, time.monotonic())
                elif time.monotonic() - heard[other][1] > SILENT_SECONDS and not store.check([f"over-{other}"]):
                    _give_up(rank, f"worker {other} of {size} has been silent for {SILENT_SECONDS:g} s: it hangs")
        store.set(f"over-{rank}", "1")
    except RuntimeError:
        # The store went with its host: the group's own exchange tells the tale.
        return


def _give_up(rank: int, reason: str) -> None:
    """End this process although its main thread waits inside gloo: nothing is half written, files are renamed."""
    if rank == 0 or reason.startswith("worker 0"):
        print(f"fewone: {reason}; the same command goes on from the last checkpoint", file=sys.stderr, flush=True)
    os._exit(2)
