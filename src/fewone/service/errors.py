"""Mistakes as HTTP tells them: a status and one line that says what, where and what to do."""

from __future__ import annotations

import errno
import sqlite3

from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from fewone.errors import FewoneError

FULL = (errno.ENOSPC, errno.EDQUOT)
READ_ONLY = (errno.EROFS, errno.EACCES, errno.EPERM)


class ServiceError(FewoneError):
    """A refusal with its HTTP status."""

    def __init__(self, status: int, message: str, retry_after: int | None = None) -> None:
        super().__init__(message)
        self.status, self.retry_after = status, retry_after


def not_found(what: str, advice: str) -> ServiceError:
    return ServiceError(404, f"{what}; {advice}")


def as_service_error(error: Exception) -> ServiceError | None:
    """What a caller is told of an error; None: not ours to explain, a 500."""
    if isinstance(error, ServiceError):
        return error
    if isinstance(error, FewoneError):
        cause = error.__cause__
        if isinstance(cause, OSError) and cause.errno in (*FULL, *READ_ONLY):
            return _from_disk(cause)
        return ServiceError(422, _one_line(str(error)))
    if isinstance(error, OSError):
        return _from_disk(error)
    if isinstance(error, SQLAlchemyError | sqlite3.Error):
        return _from_database(error)
    return None


def _from_disk(error: OSError) -> ServiceError | None:
    if error.errno in FULL:
        return ServiceError(
            507, "the disk of the detectors' folder is full; nothing was changed: make room, then again"
        )
    if error.errno in READ_ONLY:
        return ServiceError(503, "the detectors' folder cannot be written; nothing was changed: make it writable", 30)
    return None


def _from_database(error: SQLAlchemyError | sqlite3.Error) -> ServiceError | None:
    original = error.orig if isinstance(error, DBAPIError) else error
    code = getattr(original, "sqlite_errorcode", None)
    if code is not None and code & 0xFF == sqlite3.SQLITE_FULL:
        return ServiceError(507, "the disk of the database is full; nothing was stored: make room, then again")
    if code is not None and code & 0xFF == sqlite3.SQLITE_READONLY:
        return ServiceError(503, "the database cannot be written; nothing was stored: make it writable", 30)
    if getattr(original, "sqlstate", None) == "53100":
        return ServiceError(507, "the disk of the database is full; nothing was stored: make room, then again")
    if isinstance(error, OperationalError | InterfaceError | PoolTimeoutError | sqlite3.OperationalError):
        return ServiceError(503, "the database does not answer; nothing was stored: try again in a moment", 5)
    if isinstance(error, DBAPIError) and error.connection_invalidated:
        return ServiceError(503, "the database went away; nothing was stored: try again in a moment", 5)
    return None


def _one_line(text: str) -> str:
    return " ".join(text.split())
