"""Running recordings by chunks, decisions as they fall, and a folder that is fed into them."""

from __future__ import annotations

import json
import socket
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient
from tests.service.conftest import WINDOW, Running, make_series, open_client, run_service, with_burst
from tests.service.receivers import free_port, wait_for

import fewone
from fewone.cli import main
from fewone.service.settings import ServiceSettings
from fewone.service.streams import StreamState, advance


def send(client: Any, rows: np.ndarray, name: str = "press", **options: Any) -> Any:
    answer = client.post(f"/detectors/{name}/stream", json={"recordings": [rows.tolist()], **options})
    assert answer.status_code == 200, answer.text
    return answer.json()


@given(cuts=st.lists(st.integers(0, 300), max_size=12), window=st.integers(1, 40), stride=st.integers(1, 60))
@settings(max_examples=60, deadline=None)
def test_windows_do_not_depend_on_how_a_recording_is_cut_and_the_state_stays_small(
    cuts: list[int], window: int, stride: int
) -> None:
    rows = np.arange(300, dtype=np.float32)[:, None]
    state = StreamState(1, 0, 0, rows[:0])
    starts: list[int] = []
    for first, last in zip([0, *sorted(cuts)], [*sorted(cuts), 300], strict=True):
        whole, found, state = advance(state, rows[first:last], window, stride)
        assert [values[0].tolist() for values in whole] == [list(range(at, at + window)) for at in found.tolist()]
        starts += found.tolist()
        assert len(state.tail) < window + stride
    assert starts == list(range(0, 300 - window + 1, stride))


def test_a_stream_says_what_the_library_says_of_the_whole_recording(
    fitted: TestClient, normals: list[list[float]]
) -> None:
    recording = np.concatenate(make_series(5, seed=1))
    recording[300:330] += 4
    results = []
    for chunk in np.array_split(recording, 13):
        results += send(fitted, chunk, source="spindle")["results"]
    expected = fewone.load("series").fit(np.array(normals, np.float32)).score_series(recording.astype(np.float32))
    assert [one["place"] for one in results] == expected.starts.tolist()
    assert [one["decision"] for one in results] == pytest.approx(expected.windows.tolist(), rel=1e-3, abs=1e-3)
    rows = fitted.get("/detectors/press/history").json()["rows"]
    assert {(row["source"], row["kind"]) for row in rows} == {("spindle", "stream")}
    assert fitted.get("/detectors/press/streams").json()[0]["length"] == len(recording)


def test_a_chunk_that_is_sent_twice_counts_once_and_a_gap_is_told(fitted: TestClient) -> None:
    recording = np.concatenate(make_series(2, seed=2))
    first = send(fitted, recording[:200], first_step=0)
    again = send(fitted, recording[:200], first_step=0)
    assert (first["length"], again["length"], again["taken"], again["results"]) == (200, 200, 0, [])
    question = {"recordings": [recording[:5].tolist()], "first_step": 201}
    gap = fitted.post("/detectors/press/stream", json=question)
    assert gap.status_code == 409 and "row 200" in gap.json()["error"]
    assert send(fitted, recording[200:], first_step=200, end=True)["ended"]
    assert fitted.get("/detectors/press/streams").json() == []
    assert send(fitted, recording[:10], first_step=0)["length"] == 10


def test_a_stream_of_other_channels_or_of_nothing_is_refused(fitted: TestClient) -> None:
    wide = fitted.post("/detectors/press/stream", json={"recordings": [[[1, 2], [3, 4]]]})
    assert wide.status_code == 422 and "(time steps, 1)" in wide.json()["error"]
    assert fitted.post("/detectors/press/stream", json={}).status_code == 422
    assert fitted.post("/detectors/press/stream", json={"recordings": [[1], [2]]}).status_code == 422


class Ear:
    """Listens to server-sent events in a thread."""

    def __init__(self, running: Running, path: str, headers: dict[str, str] | None = None) -> None:
        self.events: list[dict[str, Any]] = []
        self.ready = threading.Event()
        self._client = running.client()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(path, headers or {}))
        self._thread.start()
        assert self.ready.wait(10)

    def _run(self, path: str, headers: dict[str, str]) -> None:
        with self._client, self._client.stream("GET", path, headers=headers) as answer:
            for line in answer.iter_lines():
                self.ready.set()
                if line.startswith("data: "):
                    self.events.append(json.loads(line[6:]))
                if self._stop.is_set():
                    return

    def ended(self, seconds: float = 10) -> bool:
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def stop(self) -> None:
        self._stop.set()


def test_decisions_are_told_as_they_fall_and_after_the_last_one_seen(running: Running) -> None:
    with running.client() as client:
        for name in ("heard", "other"):
            client.post("/detectors", json={"name": name, "examples": make_series(5).tolist()})
        ear = Ear(running, "/detectors/heard/events")
        send(client, make_series(1)[0], "other")
        send(client, make_series(1)[0], "heard", source="a")
        send(client, with_burst(make_series(1))[0], "heard", source="b")
        wait_for(lambda: len(ear.events) == 2)
        assert [(event["source"], event["anomalous"]) for event in ear.events] == [("a", False), ("b", True)]
        late = Ear(running, "/events", {"Last-Event-ID": str(ear.events[0]["id"])})
        wait_for(lambda: len(late.events) == 1)
        assert late.events == ear.events[1:]
        for listener in (ear, late):
            listener.stop()
        send(client, make_series(1)[0], "heard", source="c")
        assert ear.ended() and late.ended()


def watch(running_address: str, name: str, inbox: Path, *options: str, seconds: str = "0.4") -> int:
    words = ["watch", name, str(inbox), "--server", running_address, "--every", "0.05", "--for-seconds", seconds]
    return main([*words, *options])


def test_watch_feeds_a_folder_into_a_service(
    running: Running, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.save(tmp_path / "1 good.npy", make_series(1, seed=1)[0])
    np.save(tmp_path / '2 "bad".npy', with_burst(make_series(1, seed=2))[0])
    (tmp_path / "3.csv").write_text("a\nb\n")
    with running.client() as client:
        client.post("/detectors", json={"name": "fed", "examples": make_series(10).tolist()})
        assert watch(running.address, "fed", tmp_path, "--json") == 1
        lines = capsys.readouterr().out.splitlines()
        verdicts = [json.loads(line) for line in lines if line.startswith("{")]
        assert [one.get("anomalous") for one in verdicts] == [False, True, None]
        assert "3.csv" in verdicts[2]["cause"]
        rows = client.get("/detectors/fed/history").json()["rows"]
        assert [row["kind"] for row in rows] == ["recording", "recording"]
        (tmp_path / "3.csv").unlink()
        assert watch(running.address, "fed", tmp_path, "--source", "hall") == 1
        assert client.get("/detectors/fed/streams").json()[0]["length"] == 2 * WINDOW
        # Started again it knows what it has sent; asked to send it again it goes on where the service is.
        assert watch(running.address, "fed", tmp_path, "--source", "hall", seconds="0.2") == 0
        assert watch(running.address, "fed", tmp_path, "--source", "hall", "--again", seconds="0.2") == 1
        assert client.get("/detectors/fed/streams").json()[0]["length"] == 4 * WINDOW
    assert watch(running.address, "nobody", tmp_path) == 2
    assert "no detector is called 'nobody'" in capsys.readouterr().err


def test_watch_waits_for_a_service_that_is_away_and_gives_up_in_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert watch(f"http://127.0.0.1:{free_port()}", "press", tmp_path, seconds="0.6") == 2
    told = capsys.readouterr()
    assert "trying again" in told.out and "is the service running?" in told.err


def test_an_answer_is_not_held_back_by_the_network_layer(running: Running) -> None:
    """Nagle's algorithm on the server's side would add 40 ms to each."""
    with running.client() as client:
        seconds = []
        for _ in range(15):
            begin = time.perf_counter()
            client.get("/health")
            seconds.append(time.perf_counter() - begin)
    assert min(seconds[1:]) < 0.03


class HalfRequest:
    """A request whose head was taken by the service while its body is still to come."""

    def __init__(self, running: Running, path: str, body: bytes) -> None:
        host, port = running.address.removeprefix("http://").split(":")
        self._socket, self._body = socket.create_connection((host, int(port)), timeout=60), body
        head = f"POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nConnection: close\r\n"
        self._socket.sendall(f"{head}Content-Length: {len(body)}\r\nExpect: 100-continue\r\n\r\n".encode())
        assert self._socket.recv(1000).startswith(b"HTTP/1.1 100")

    def finish(self) -> bytes:
        with self._socket:
            self._socket.sendall(self._body)
            return b"".join(iter(lambda: self._socket.recv(65536), b""))


def test_a_service_that_ends_sends_its_listeners_away_and_finishes_what_it_accepted(tmp_path: Path) -> None:
    with run_service(tmp_path / "served", "--workers", "2") as running, running.client() as client:
        made = client.post("/detectors", json={"name": "press", "examples": make_series(5).tolist()})
        assert made.status_code == 201, made.text
        ear = Ear(running, "/events")
        body = json.dumps({"examples": make_series(700).tolist()}).encode()
        accepted = HalfRequest(running, "/detectors/press/score", body)
        running.process.terminate()
        assert ear.ended(30)
        answer = accepted.finish()
        assert answer.startswith(b"HTTP/1.1 200"), answer
        assert running.process.wait(60) == 0
    with open_client(ServiceSettings(str(tmp_path / "served"))) as after:
        assert len(after.get("/detectors/press/history?limit=1000").json()["rows"]) == 700
