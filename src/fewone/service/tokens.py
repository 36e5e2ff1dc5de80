"""Who may ask. Tokens are lines `PERMISSION TOKEN [EXPIRY]`; read, score, manage: each includes those before it.

Only hashes are held, compared in constant time; a token is never logged. The file is read again when it changes.
"""

from __future__ import annotations

import hashlib
import hmac
import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from fewone.errors import FewoneError
from fewone.service.errors import ServiceError

Permission = Literal["read", "score", "manage"]
PERMISSIONS: tuple[Permission, ...] = ("read", "score", "manage")
SHORTEST = 16


@dataclass(frozen=True)
class Token:
    """expires: seconds since 1970, None: never."""

    permission: Permission
    digest: bytes
    expires: float | None


def parse_tokens(text: str, where: str) -> tuple[Token, ...]:
    """Lines or parts between commas; empty ones and those that begin with # are passed over."""
    lines = [line.strip() for line in text.replace(",", "\n").splitlines()]
    return tuple(
        _parse_line(line, f"{where}, entry {number}")
        for number, line in enumerate(lines, 1)
        if line and not line.startswith("#")
    )


class TokenBook:
    """The tokens that count now. Without any, everyone on this machine may do everything."""

    def __init__(self, file: Path | None, text: str | None) -> None:
        self._file = file
        self._fixed = parse_tokens(text, "FEWONE_TOKENS") if text else ()
        self._state: tuple[int, int] | None = None
        self._from_file: tuple[Token, ...] = ()
        self.refresh()

    @property
    def open(self) -> bool:
        return self._file is None and not self._fixed

    def refresh(self) -> None:
        """Read the file if it changed; while it cannot be read, what was read before counts."""
        if self._file is None:
            return
        try:
            found = self._file.stat()
            state = found.st_mtime_ns, found.st_size
            if state != self._state:
                if found.st_mode & 0o007:
                    raise FewoneError(f"{self._file}: others can read the tokens; chmod o-rwx {self._file}")
                self._from_file = parse_tokens(self._file.read_text(), str(self._file))
                self._state = state
        except OSError as error:
            if self._state is None:
                raise FewoneError(
                    f"{self._file}: cannot be read ({error.strerror}); name the file of tokens"
                ) from error

    def check(self, header: str | None, wanted: Permission) -> None:
        """Let pass or refuse: 401 who are you, 403 not you."""
        if self.open:
            return
        self.refresh()
        kind, _, given = (header or "").partition(" ")
        if kind.lower() != "bearer" or not given:
            raise ServiceError(401, "no token was sent; send the header 'Authorization: Bearer TOKEN'")
        token = _find((*self._fixed, *self._from_file), given.strip())
        if token is None:
            raise ServiceError(401, "this token is not known; ask who runs the service for one")
        if token.expires is not None and token.expires <= time.time():
            raise ServiceError(401, "this token has expired; ask who runs the service for a new one")
        if PERMISSIONS.index(token.permission) < PERMISSIONS.index(wanted):
            raise ServiceError(403, f"this token may {token.permission}, here {wanted} is needed; use another token")


def _find(tokens: Iterable[Token], given: str) -> Token | None:
    """Every token is compared, whichever fits: the time tells nothing."""
    digest = hashlib.sha256(given.encode()).digest()
    found = None
    for token in tokens:
        if hmac.compare_digest(token.digest, digest):
            found = token
    return found


def _parse_line(line: str, where: str) -> Token:
    words = line.split()
    if len(words) not in (2, 3) or words[0] not in PERMISSIONS:
        raise FewoneError(f"{where}: expected 'PERMISSION TOKEN [EXPIRY]', the permission read, score or manage")
    if len(words[1]) < SHORTEST:
        raise FewoneError(f"{where}: a token has at least {SHORTEST} characters; make one with: openssl rand -hex 24")
    expires = None
    if len(words) == 3:
        try:
            moment = datetime.fromisoformat(words[2])
        except ValueError as error:
            raise FewoneError(f"{where}: the expiry is a date such as 2027-01-31 or 2027-01-31T12:00+00:00") from error
        expires = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    permission: Permission = PERMISSIONS[PERMISSIONS.index(words[0])]
    return Token(permission, hashlib.sha256(words[1].encode()).digest(), expires)
