"""What `fewone serve` was asked for, as one value that every worker process reads."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

from fewone.documents import from_plain, to_plain


@dataclass(frozen=True)
class Limits:
    """What one request may cost. Beyond them: 413 (too large) or 408 (too slow)."""

    body_bytes: int = 64 << 20
    """Bytes of one request."""
    files: int = 256
    """Files of one upload."""
    values: int = 32 << 20
    """Numbers of one request once decoded: a small file may hold a large table."""
    pixels: int = 32_000_000
    """Pixels of one picture."""
    idle_seconds: float = 15.0
    """A client that sends nothing for so long is sent away."""
    request_seconds: float = 120.0
    """A request must have arrived whole after so long."""
    waiting: int = 128
    """Requests that may wait for the scores of one worker; the next is told to come back (503)."""


@dataclass(frozen=True)
class AlarmSettings:
    """Where alarms are sent. The secret signs webhooks; queue: alarms kept on disk until they are delivered."""

    webhook: str | None = None
    secret: str | None = None
    mqtt: str | None = None
    queue: int = 10_000


@dataclass(frozen=True)
class ServiceSettings:
    """Where the detectors lie, who may ask, and how much.

    tokens: lines of tokens (see `tokens.py`) from the environment; token_file: a file of such lines, read again when it
    changes. loaded: detectors kept in memory by each worker. kept_values: for so many of the last scored things of
    each detector their values are kept, for explanations and feedback. power_safe: every answer waits for the disk.
    """

    folder: str
    database: str | None = None
    host: str = "127.0.0.1"
    port: int = 8000
    workers: int = 1
    token_file: str | None = None
    tokens: str | None = None
    loaded: int = 32
    kept_values: int = 2000
    power_safe: bool = False
    limits: Limits = field(default_factory=Limits)
    alarms: AlarmSettings = field(default_factory=AlarmSettings)

    @property
    def home(self) -> Path:
        """What the service keeps beside the detectors: database, locks, alarms that wait."""
        return Path(self.folder) / ".service"

    @property
    def database_url(self) -> str:
        return self.database or f"sqlite:///{(self.home / 'history.sqlite').absolute()}"

    def to_json(self) -> str:
        return json.dumps(to_plain(self))

    @staticmethod
    def from_json(text: str) -> ServiceSettings:
        return from_plain(ServiceSettings, json.loads(text))
