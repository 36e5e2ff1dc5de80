"""Alarms out of the house: by webhook, signed, and by MQTT. A bounded queue on disk outlives crashes and outages.

Every alarm is a file, written before the decision is told. One thread of one process delivers, in order, and tries
again ever more slowly; used by `fewone serve` and `fewone watch`.
"""

from __future__ import annotations

import fcntl
import hashlib
import hmac
import http.client
import json
import re
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Any, Protocol
from urllib.parse import unquote, urlsplit

from fewone.errors import FewoneError
from fewone.extras import needed_for
from fewone.files import atomic_write
from fewone.service.logs import get_logger
from fewone.service.settings import AlarmSettings

FIRST_WAIT, LONGEST_WAIT = 1.0, 300.0
REFUSALS = 10
"""An alarm that the other side refused (an answer 4xx) so often is put away into `refused/`."""


class RefusedError(Exception):
    """The other side understood and does not want it."""


class Way(Protocol):
    """How an alarm leaves; raises OSError when it should be tried again, RefusedError when that may be useless."""

    name: str

    def deliver(self, key: str, alarm: bytes) -> None: ...


def sign(secret: str, moment: str, body: bytes) -> str:
    """What a receiver compares with the header X-Fewone-Signature."""
    return "sha256=" + hmac.new(secret.encode(), moment.encode() + b"." + body, hashlib.sha256).hexdigest()


class Webhook:
    """POST of one JSON object; redirects are not followed."""

    name = "webhook"

    def __init__(self, url: str, secret: str | None, timeout: float = 10.0) -> None:
        if urlsplit(url).scheme not in ("http", "https"):
            raise FewoneError(f"--webhook {url}: an address http://... or https://... is expected")
        self.url, self.secret, self.timeout = url, secret, timeout
        self._opener = urllib.request.build_opener(_NoRedirect)

    def deliver(self, key: str, alarm: bytes) -> None:
        moment = str(int(time.time()))
        headers = {"Content-Type": "application/json", "X-Fewone-Delivery": key, "X-Fewone-Timestamp": moment}
        if self.secret is not None:
            headers["X-Fewone-Signature"] = sign(self.secret, moment, alarm)
        request = urllib.request.Request(self.url, alarm, headers, method="POST")
        try:
            with self._opener.open(request, timeout=self.timeout) as answer:
                answer.read(1 << 16)
        except urllib.error.HTTPError as error:
            error.close()
            if 300 <= error.code < 500 and error.code not in (408, 425, 429):
                raise RefusedError(f"status {error.code}") from error
            raise OSError(f"status {error.code}") from error
        except http.client.HTTPException as error:
            raise OSError(type(error).__name__) from error


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


class Mqtt:
    """Publishes at least once to PREFIX/DETECTOR/alarm; the address is mqtt[s]://[USER:PASSWORD@]HOST[:PORT][/PREFIX]."""

    name = "mqtt"

    def __init__(self, url: str, timeout: float = 10.0) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("mqtt", "mqtts") or not parts.hostname:
            raise FewoneError("--mqtt: an address mqtt://HOST[:PORT][/PREFIX] is expected")
        with needed_for("an alarm by MQTT"):
            from paho.mqtt.client import Client
            from paho.mqtt.enums import CallbackAPIVersion
        self._host, self._timeout = parts.hostname, timeout
        self._port = parts.port or (8883 if parts.scheme == "mqtts" else 1883)
        self._prefix = parts.path.strip("/") or "fewone"
        self._client = Client(CallbackAPIVersion.VERSION2, client_id=f"fewone-{uuid.uuid4().hex[:12]}")
        if parts.username:
            self._client.username_pw_set(unquote(parts.username), unquote(parts.password or ""))
        if parts.scheme == "mqtts":
            self._client.tls_set()
        self._running = False

    def deliver(self, key: str, alarm: bytes) -> None:
        if not self._client.is_connected():
            self._connect()
        detector = re.sub(r"[+#/\0]", "_", str(json.loads(alarm)["detector"]))
        message = self._client.publish(f"{self._prefix}/{detector}/alarm", alarm, qos=1)
        try:
            message.wait_for_publish(self._timeout)
        except (RuntimeError, ValueError) as error:
            raise OSError("not published") from error
        if not message.is_published():
            raise OSError("the broker did not confirm")

    def _connect(self) -> None:
        if self._running:
            self._client.loop_stop()
        self._client.connect(self._host, self._port, keepalive=30)
        self._client.loop_start()
        self._running = True
        end = time.monotonic() + self._timeout
        while not self._client.is_connected():
            if time.monotonic() > end:
                raise OSError("the broker did not answer")
            time.sleep(0.01)


class AlarmQueue:
    """Alarms of one way out, a file each; the oldest go when there are too many."""

    def __init__(self, folder: Path, way: Way, largest: int, on_drop: Callable[[], None] = lambda: None) -> None:
        self.folder, self.way, self.largest, self._on_drop = folder, way, largest, on_drop
        folder.mkdir(parents=True, exist_ok=True)
        self._news, self._stop = Event(), Event()
        self._putting = Lock()
        self._count = len(self.waiting())
        self._thread = Thread(target=self._run, name=f"alarms by {way.name}", daemon=True)
        self._thread.start()

    def waiting(self) -> list[Path]:
        return sorted(path for path in self.folder.glob("*.json"))

    def put(self, alarm: dict[str, Any]) -> None:
        """On disk when this returns."""
        path = self.folder / f"{time.time_ns():020d}-{uuid.uuid4().hex[:8]}.json"
        atomic_write(path, json.dumps(alarm).encode())
        with self._putting:
            self._count += 1
            if self._count > self.largest:
                self._shorten()
        self._news.set()

    def close(self, seconds: float = 2.0) -> None:
        """What is not delivered by then is delivered after the next start."""
        self._stop.set()
        self._news.set()
        self._thread.join(seconds)

    def flush(self, seconds: float) -> bool:
        """Wait until nothing waits any more."""
        end = time.monotonic() + seconds
        while self.waiting():
            if time.monotonic() > end:
                return False
            time.sleep(0.02)
        return True

    def _shorten(self) -> None:
        present = self.waiting()
        for path in present[: max(0, len(present) - self.largest)]:
            path.unlink(missing_ok=True)
            self._on_drop()
        self._count = min(len(present), self.largest)

    def _run(self) -> None:
        with (self.folder / ".lock").open("a") as lock:
            while not self._stop.is_set():
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except OSError:  # another process delivers; should it die, we take over
                    self._stop.wait(1.0)
            wait, refusals = FIRST_WAIT, 0
            while not self._stop.is_set():
                first = next(iter(self.waiting()), None)
                if first is None:
                    self._news.wait(0.5)
                    self._news.clear()
                    continue
                outcome = self._try(first)
                refusals = refusals + 1 if outcome == "refused" else 0
                if outcome == "delivered":
                    first.unlink(missing_ok=True)
                    wait = FIRST_WAIT
                elif refusals >= REFUSALS:
                    self._put_away(first)
                    wait, refusals = FIRST_WAIT, 0
                else:
                    self._stop.wait(wait)
                    wait = min(2 * wait, LONGEST_WAIT)

    def _try(self, path: Path) -> str:
        try:
            alarm = path.read_bytes()
        except FileNotFoundError:  # it was too many and went
            return "delivered"
        try:
            self.way.deliver(path.stem, alarm)
        except RefusedError as error:
            get_logger().warning("alarm refused", extra={"fields": {"way": self.way.name, "reason": str(error)}})
            return "refused"
        except OSError as error:
            get_logger().warning("alarm not delivered", extra={"fields": {"way": self.way.name, "reason": str(error)}})
            return "failed"
        return "delivered"

    def _put_away(self, path: Path) -> None:
        refused = self.folder / "refused"
        refused.mkdir(exist_ok=True)
        with suppress(OSError):
            path.replace(refused / path.name)
        for old in sorted(refused.glob("*.json"))[: -self.largest]:
            old.unlink(missing_ok=True)


def open_queues(
    settings: AlarmSettings, folder: Path, on_drop: Callable[[str], None] = lambda way: None
) -> list[AlarmQueue]:
    """A queue for each way that was asked for."""
    ways: list[Way] = []
    if settings.webhook is not None:
        ways.append(Webhook(settings.webhook, settings.secret))
    if settings.mqtt is not None:
        ways.append(Mqtt(settings.mqtt))

    def dropper(name: str) -> Callable[[], None]:
        return lambda: on_drop(name)

    return [AlarmQueue(folder / way.name, way, settings.queue, dropper(way.name)) for way in ways]
