"""The folder of versions: changes are whole or not there, names are no paths, several processes share it."""

from __future__ import annotations

import json
import multiprocessing
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

import pytest

from fewone.service.errors import ServiceError
from fewone.service.store import DetectorStore, Pointer, Version, check_name


def version(number: int) -> Version:
    return Version(number, 0.0, "test", "series", number, ())


@contextmanager
def note(pointer: Pointer) -> Iterator[None]:
    yield


@contextmanager
def refuse(pointer: Pointer) -> Iterator[None]:
    yield
    raise ServiceError(503, "the database does not answer")


def write_text(folder: Path) -> None:
    (folder / "content.safetensors").write_text("x" * 1000)


@pytest.fixture
def store(tmp_path: Path) -> DetectorStore:
    found = DetectorStore(tmp_path)
    found.prepare()
    found.create("press", version(1), write_text, note)
    return found


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../x", "a/b", "a\\b", ".hidden", "a b", "x" * 65, "ä", "a\n", "a.b", "-a"]
)
def test_a_name_that_could_leave_the_folder_is_refused(store: DetectorStore, name: str) -> None:
    with pytest.raises(ServiceError) as refused:
        check_name(name)
    assert refused.value.status == 422
    for action in (store.pointer, store.delete, store.versions):
        with pytest.raises(ServiceError):
            action(name)


def test_a_change_that_is_not_recorded_is_taken_back(store: DetectorStore) -> None:
    with pytest.raises(ServiceError):
        store.change("press", lambda old: (version(2), write_text), refuse)
    with pytest.raises(ServiceError):
        store.create("mill", version(1), write_text, refuse)
    assert store.pointer("press").version == 1
    assert [one.number for one in store.versions("press")] == [1]
    assert store.names() == ["press"]
    assert not list(store.folder.glob(".part-*"))


def test_what_a_killed_process_left_does_not_count_and_is_cleared(store: DetectorStore) -> None:
    home = store.folder / "press" / "versions"
    (home / ".part-dead").mkdir()
    (home / "2").mkdir()
    (home / "2" / "version.json").write_text("{")
    (store.folder / ".part-dead").mkdir()
    assert [one.number for one in store.versions("press")] == [1]
    store.prepare()
    made = store.change("press", lambda old: (version(2), write_text), note)
    assert made.number == 2
    assert sorted(path.name for path in home.iterdir()) == ["1", "2"]
    assert not (store.folder / ".part-dead").exists()


def test_a_worker_that_starts_while_a_detector_is_made_leaves_its_files_alone(store: DetectorStore) -> None:
    written, go_on = Event(), Event()

    def write_slowly(folder: Path) -> None:
        write_text(folder)
        written.set()
        go_on.wait(30)

    maker = Thread(target=store.create, args=("mill", version(1), write_slowly, note))
    starter = Thread(target=DetectorStore(store.folder).prepare)
    maker.start()
    assert written.wait(30)
    starter.start()
    starter.join(0.5)
    go_on.set()
    maker.join(30)
    starter.join(30)
    assert (store.version_folder("mill", 1) / "content.safetensors").is_file()
    assert store.pointer("mill").version == 1
    assert not [path.name for path in store.folder.glob(".part-*")]


@pytest.mark.parametrize("done", [False, True])
def test_a_folder_whose_adoption_was_killed_is_put_back_or_cleared(store: DetectorStore, done: bool) -> None:
    old = store.folder / ".old-mill"
    old.mkdir()
    (old / "detector.json").write_text("{}")
    if done:
        store.create("mill", version(1), write_text, note)
    store.prepare()
    assert not old.exists()
    assert store.pointer("mill").version == 1


def test_equal_files_of_versions_are_stored_once(store: DetectorStore) -> None:
    store.change("press", lambda old: (version(2), write_text), note)
    first, second = (store.version_folder("press", number) / "content.safetensors" for number in (1, 2))
    assert first.stat().st_ino == second.stat().st_ino


def test_a_write_that_fails_leaves_the_old_version(store: DetectorStore) -> None:
    def fail(folder: Path) -> None:
        (folder / "half").write_text("half")
        raise OSError(28, os.strerror(28))

    with pytest.raises(OSError, match="No space"):
        store.change("press", lambda old: (version(2), fail), note)
    assert store.pointer("press").version == 1
    assert [path.name for path in (store.folder / "press" / "versions").iterdir()] == ["1"]


def grow(folder: str, times: int) -> None:
    store = DetectorStore(Path(folder))
    for _ in range(times):
        store.change("press", lambda old: (version(old.number + 1), write_text), note)


def test_processes_that_change_one_detector_lose_no_version(store: DetectorStore) -> None:
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=grow, args=(str(store.folder), 8)) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0, 0, 0]
    assert store.pointer("press").version == 25
    assert [one.number for one in store.versions("press")] == list(range(25, 0, -1))


def test_a_name_is_taken_once(store: DetectorStore) -> None:
    with pytest.raises(ServiceError) as refused:
        store.create("press", version(1), write_text, note)
    assert refused.value.status == 409
    store.create("mill", version(1), write_text, note)
    with pytest.raises(ServiceError):
        store.rename("mill", "press")
    store.rename("mill", "drill")
    assert store.names() == ["drill", "press"]


def test_a_pointer_that_someone_broke_is_told(store: DetectorStore) -> None:
    (store.folder / "press" / "current.json").write_text(json.dumps({"uid": "x"}))
    with pytest.raises(ServiceError, match=r"current\.json"):
        store.pointer("press")
