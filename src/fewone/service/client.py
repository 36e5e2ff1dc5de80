"""A folder's side of a service: sends files, hears decisions. Needs the standard library alone."""

from __future__ import annotations

import http.client
import json
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from fewone.errors import FewoneError

AGAIN = (408, 429, 503, 507)
FIRST_WAIT, LONGEST_WAIT = 0.5, 30.0


class AwayError(FewoneError):
    """The service cannot answer now; the same question may be asked again."""


class ServiceClient:
    """One service. token: sent with every request, never shown."""

    def __init__(self, address: str, token: str | None = None, timeout: float = 60.0) -> None:
        parts = urlsplit(address)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise FewoneError(f"--server {address}: an address http://HOST:PORT is expected")
        self.address, self.token, self.timeout = address.rstrip("/"), token, timeout

    def score_file(self, detector: str, file: Path) -> list[dict[str, Any]]:
        """A file as a thing of its own: one decision for a recording or picture, one for each row of a table."""
        answer = self._send_file(f"/detectors/{quote(detector, safe='')}/score", file, {})
        results: list[dict[str, Any]] = answer["results"]
        return results

    def stream_file(self, detector: str, source: str, file: Path, first_step: int) -> tuple[list[dict[str, Any]], int]:
        """A file as the next chunk of a running recording: its decisions, and how many rows came in all.

        Sent again after an interruption, the rows that came before are not taken twice.
        """
        fields = {"source": source, "first_step": str(first_step)}
        answer = self._send_file(f"/detectors/{quote(detector, safe='')}/stream", file, fields)
        return answer["results"], answer["length"]

    def stream_length(self, detector: str, source: str) -> int:
        """How many rows of a running recording came; 0: it has not begun."""
        running = self._call("GET", f"/detectors/{quote(detector, safe='')}/streams", None, "")
        return next((int(one["length"]) for one in running if one["source"] == source), 0)

    def check(self, detector: str) -> None:
        """Refuse a detector that the service does not have, and a token that may not ask."""
        self._call("GET", f"/detectors/{quote(detector, safe='')}/streams", None, "")

    def _send_file(self, path: str, file: Path, fields: dict[str, str]) -> Any:
        try:
            content = file.read_bytes()
        except OSError as error:
            raise FewoneError(f"{file}: cannot be read ({error.strerror}); it is passed over") from error
        body, kind = encode_form(fields, file.name, content)
        return self._call("POST", path, body, kind)

    def _call(self, method: str, path: str, body: bytes | None, kind: str) -> Any:
        headers = {} if body is None else {"Content-Type": kind}
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        request = urllib.request.Request(self.address + path, body, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=self.timeout) as answer:
                return json.loads(answer.read())
        except urllib.error.HTTPError as error:
            with error:
                told = _read_error(error)
            raise (AwayError if error.code in AGAIN else FewoneError)(f"{self.address}: {told}") from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            reason = getattr(error, "reason", None) or type(error).__name__
            raise AwayError(f"{self.address}: no answer ({reason}); is the service running?") from None


def patiently(work: Callable[[], Any], end: float | None, tell: Callable[[str], None]) -> Any:
    """Ask until the service answers or the time (of `time.monotonic`) is over; each outage is told once."""
    wait, told = FIRST_WAIT, False
    while True:
        try:
            return work()
        except AwayError as error:
            if end is not None and time.monotonic() + wait > end:
                raise
            if not told:
                tell(f"{error}; trying again until it answers")
                told = True
            time.sleep(wait)
            wait = min(2 * wait, LONGEST_WAIT)


def encode_form(fields: dict[str, str], name: str, content: bytes) -> tuple[bytes, str]:
    """multipart/form-data with one file under the name `files`."""
    mark = uuid.uuid4().hex
    shown = name.replace("\\", "_").replace('"', "%22").replace("\r", "%0D").replace("\n", "%0A")
    lines = [
        f'--{mark}\r\nContent-Disposition: form-data; name="{key}"\r\n\r\n{value}\r\n' for key, value in fields.items()
    ]
    head = f'--{mark}\r\nContent-Disposition: form-data; name="files"; filename="{shown}"\r\n\r\n'
    body = "".join(lines).encode() + head.encode("utf-8", "replace") + content + f"\r\n--{mark}--\r\n".encode()
    return body, f"multipart/form-data; boundary={mark}"


def _read_error(error: urllib.error.HTTPError) -> str:
    """The one line that the service says of its refusal."""
    try:
        return str(json.loads(error.read(1 << 16))["error"])
    except (ValueError, KeyError, TypeError, OSError):
        return f"status {error.code}"
