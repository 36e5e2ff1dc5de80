"""Alarms leave the house: signed, in order, again after failures, from a bounded queue on disk; by webhook and MQTT."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.service.conftest import make_series, open_client, with_burst
from tests.service.receivers import free_port, receive, run_broker, wait_for

import fewone
from fewone.cli import main
from fewone.errors import FewoneError
from fewone.service import alarms
from fewone.service.alarms import AlarmQueue, Mqtt, RefusedError, Webhook, sign
from fewone.service.settings import AlarmSettings, ServiceSettings

SECRET = "secret-of-the-webhook"


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alarms, "FIRST_WAIT", 0.02)
    monkeypatch.setattr(alarms, "LONGEST_WAIT", 0.05)


def number(count: int) -> dict[str, Any]:
    return {"detector": "press", "number": count}


class Refusing:
    """A way out that never opens."""

    name = "closed"

    def deliver(self, key: str, alarm: bytes) -> None:
        raise OSError("closed")


def test_alarms_arrive_signed_once_and_in_order_after_failures(tmp_path: Path) -> None:
    with receive(500, 503, 429) as receiver:
        queue = AlarmQueue(tmp_path, Webhook(receiver.url, SECRET), 100)
        for count in range(5):
            queue.put(number(count))
        assert queue.flush(10)
        queue.close()
        assert [alarm["number"] for alarm in receiver.taken] == [0, 1, 2, 3, 4]
        assert [status for _, _, status in receiver.came[:3]] == [500, 503, 429]
        for headers, body, _ in receiver.came:
            assert headers["x-fewone-signature"] == sign(SECRET, headers["x-fewone-timestamp"], body)
        keys = [headers["x-fewone-delivery"] for headers, _, _ in receiver.came]
        assert keys[0] == keys[3] and len(set(keys)) == 5


def test_what_is_refused_again_and_again_is_put_away_and_the_next_gets_through(tmp_path: Path) -> None:
    with receive(*[400] * alarms.REFUSALS) as receiver:
        queue = AlarmQueue(tmp_path, Webhook(receiver.url, None), 100)
        queue.put(number(0))
        queue.put(number(1))
        assert queue.flush(10)
        queue.close()
        assert [alarm["number"] for alarm in receiver.taken] == [1]
        (refused,) = (tmp_path / "refused").glob("*.json")
        assert json.loads(refused.read_bytes()) == number(0)


def test_redirects_are_not_followed(tmp_path: Path) -> None:
    with receive(302) as receiver:
        with pytest.raises(RefusedError, match="302"):
            Webhook(receiver.url, None).deliver("key", b"{}")
        assert len(receiver.came) == 1


def test_the_queue_is_bounded_outlives_its_process_and_counts_what_it_dropped(tmp_path: Path) -> None:
    dropped: list[None] = []
    queue = AlarmQueue(tmp_path, Refusing(), 3, lambda: dropped.append(None))
    for count in range(10):
        queue.put(number(count))
    queue.close()
    assert len(dropped) == 7
    with receive() as receiver:
        after = AlarmQueue(tmp_path, Webhook(receiver.url, None), 3)
        assert after.flush(10)
        after.close()
        assert [alarm["number"] for alarm in receiver.taken] == [7, 8, 9]


def test_the_service_sends_an_alarm_for_every_anomalous_decision(tmp_path: Path, normals: list[list[float]]) -> None:
    with receive() as receiver:
        settings = ServiceSettings(str(tmp_path / "detectors"), alarms=AlarmSettings(receiver.url, SECRET))
        with open_client(settings) as client:
            client.post("/detectors", json={"name": "press", "examples": normals})
            mixed = [*make_series(2, seed=1), *with_burst(make_series(2, seed=2))]
            question = {"examples": np.array(mixed).tolist(), "source": "line 4"}
            results = client.post("/detectors/press/score", json=question).json()["results"]
            wait_for(lambda: len(receiver.taken) == 2)
            told = [(alarm["id"], alarm["source"], alarm["decision"]) for alarm in receiver.taken]
            assert told == [(one["id"], "line 4", one["decision"]) for one in results if one["anomalous"]]
            assert 'fewone_undelivered_alarms{way="webhook"}' in client.get("/metrics").text


def test_watch_sends_alarms_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fewone.load("series").fit(make_series(10).astype(np.float32)).save(tmp_path / "press")
    inbox = tmp_path / "inbox"
    inbox.mkdir()
    np.save(inbox / "good.npy", make_series(1, seed=1)[0])
    np.save(inbox / "bad.npy", with_burst(make_series(1, seed=2))[0])
    monkeypatch.setenv("FEWONE_WEBHOOK_SECRET", SECRET)
    with receive(500) as receiver:
        words = ["watch", str(tmp_path / "press"), str(inbox), "--every", "0.05", "--for-seconds", "0.3"]
        assert main([*words, "--webhook", receiver.url]) == 1
        (alarm,) = receiver.taken
        assert (alarm["detector"], alarm["source"]) == ("press", "bad.npy") and alarm["decision"] < 0
        headers, body, _ = receiver.came[-1]
        assert headers["x-fewone-signature"] == sign(SECRET, headers["x-fewone-timestamp"], body)
    monkeypatch.setattr("fewone.cli.watch.LAST_ALARMS", 0.1)
    assert main([*words, "--again", "--webhook", receiver.url]) == 1  # nobody listens any more
    assert "1 alarms by webhook wait" in capsys.readouterr().out


def listen(port: int, topic: str, heard: list[tuple[str, dict[str, Any]]]) -> Callable[[], None]:
    """A subscriber of this process; returns how to end it."""
    from paho.mqtt.client import Client
    from paho.mqtt.enums import CallbackAPIVersion

    client = Client(CallbackAPIVersion.VERSION2)
    ready: list[None] = []
    client.on_connect = lambda *_: client.subscribe(topic, qos=1)
    client.on_subscribe = lambda *_: ready.append(None)
    client.on_message = lambda _, __, message: heard.append((message.topic, json.loads(message.payload)))
    client.connect("127.0.0.1", port)
    client.loop_start()
    wait_for(lambda: bool(ready))

    def end() -> None:
        client.disconnect()
        client.loop_stop()

    return end


def test_alarms_reach_a_broker_also_one_that_was_away(tmp_path: Path) -> None:
    port = free_port()
    heard: list[tuple[str, dict[str, Any]]] = []
    queue = AlarmQueue(tmp_path / "queue", Mqtt(f"mqtt://127.0.0.1:{port}/hall-2", timeout=2.0), 100)
    with ExitStack() as stack:
        stack.callback(queue.close)
        queue.put({"detector": "a/+b", "number": 0})  # nobody is there
        stack.enter_context(run_broker(tmp_path / "broker", port))
        stack.callback(listen(port, "hall-2/#", heard))
        queue.put(number(1))
        wait_for(lambda: ("hall-2/press/alarm", number(1)) in heard)
    assert queue.waiting() == []


def test_the_service_publishes_to_a_broker(tmp_path: Path, normals: list[list[float]]) -> None:
    port = free_port()
    heard: list[tuple[str, dict[str, Any]]] = []
    with run_broker(tmp_path / "broker", port):
        end = listen(port, "fewone/press/alarm", heard)
        settings = ServiceSettings(str(tmp_path / "detectors"), alarms=AlarmSettings(mqtt=f"mqtt://127.0.0.1:{port}"))
        with open_client(settings) as client:
            client.post("/detectors", json={"name": "press", "examples": normals})
            client.post("/detectors/press/score", json={"examples": with_burst(make_series(1, seed=2)).tolist()})
            wait_for(lambda: len(heard) == 1)
        end()
    assert heard[0][1]["detector"] == "press" and heard[0][1]["decision"] < 0


@pytest.mark.parametrize(
    "options", [["--webhook", "ftp://x"], ["--mqtt", "http://x"], ["--source", "a"], ["--server", "127.0.0.1:1"]]
)
def test_a_mistake_in_an_address_is_told(options: list[str], tmp_path: Path) -> None:
    fewone.load("series").fit(make_series(4).astype(np.float32)).save(tmp_path / "press")
    assert main(["watch", str(tmp_path / "press"), str(tmp_path), "--for-seconds", "0", *options]) == 2


def test_an_address_of_another_kind_is_refused() -> None:
    with pytest.raises(FewoneError, match="http"):
        Webhook("file:///etc/passwd", None)
