"""fewone serve: detectors behind HTTP, with a page."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from fewone.cli.options import parse_options
from fewone.errors import FewoneError
from fewone.extras import needed_for


@dataclass(frozen=True)
class Arguments:
    """Serve the detectors of a folder: a page, REST, streams. Stops on Ctrl-C or SIGTERM, finishing what it accepted.

    Tokens come from --tokens FILE or the environment variable FEWONE_TOKENS, as lines 'PERMISSION TOKEN [EXPIRY]' with
    the permission read, score or manage. Without tokens only this machine is served. Exit code 0; 2: a mistake.
    """

    folder: Path
    """Where the detectors lie, or will lie."""
    host: str = "127.0.0.1"
    """The address to listen on."""
    port: int = 8000
    """The port; 0 takes a free one and says which."""
    database: str | None = None
    """postgresql://USER@HOST/NAME or sqlite:///FILE (default: SQLite in the folder)."""
    workers: int = 1
    """Worker processes."""
    tokens: Path | None = None
    """A file of tokens, read again when it changes."""
    loaded: int = 32
    """Detectors that each worker keeps in memory."""
    kept_values: int = 2000
    """For so many scored things of each detector the values are kept, for explanations and feedback."""
    power_safe: bool = False
    """Answers wait until the disk has written: no acknowledged score is lost even if the power goes."""
    largest_request: int = 64
    """Megabytes of one request."""
    webhook: str | None = None
    """Send alarms to this address; signed with the secret in FEWONE_WEBHOOK_SECRET."""
    mqtt: str | None = None
    """Send alarms to this broker: mqtt://[USER:PASSWORD@]HOST[:PORT][/PREFIX]."""


def main(arguments: list[str]) -> int:
    """Serve until stopped."""
    chosen = parse_options(Arguments, arguments, "fewone serve")
    for name, value in (("workers", chosen.workers), ("loaded", chosen.loaded), ("kept-values", chosen.kept_values)):
        if value < 1:
            raise FewoneError(f"--{name} is {value}: at least 1 is needed")
    if not 0 <= chosen.port < 65536:
        raise FewoneError(f"--port is {chosen.port}: 0 to 65535 is expected")
    with needed_for("the service", "service"):
        from fewone.service.alarms import Mqtt, Webhook
        from fewone.service.server import serve
        from fewone.service.settings import AlarmSettings, Limits, ServiceSettings
        from fewone.service.tokens import TokenBook
    settings = ServiceSettings(
        folder=str(chosen.folder.absolute()),
        database=chosen.database,
        host=chosen.host,
        port=chosen.port,
        workers=chosen.workers,
        token_file=None if chosen.tokens is None else str(chosen.tokens.absolute()),
        tokens=os.environ.pop("FEWONE_TOKENS", None) or None,
        loaded=chosen.loaded,
        kept_values=chosen.kept_values,
        power_safe=chosen.power_safe,
        limits=Limits(body_bytes=chosen.largest_request << 20),
        alarms=AlarmSettings(chosen.webhook, os.environ.pop("FEWONE_WEBHOOK_SECRET", None), chosen.mqtt),
    )
    TokenBook(chosen.tokens, settings.tokens)  # mistakes in the tokens are told before anything starts
    if chosen.webhook is not None:
        Webhook(chosen.webhook, None)
    if chosen.mqtt is not None:
        Mqtt(chosen.mqtt)
    try:
        chosen.folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FewoneError(f"{chosen.folder}: cannot be made ({error.strerror}); give another --folder") from error
    serve(settings, lambda address: print(f"fewone serves {chosen.folder} at {address}", flush=True))
    return 0
