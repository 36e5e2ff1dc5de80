"""One JSON object per line on standard error; no token, no body, no query is ever written."""

from __future__ import annotations

import json
import logging
import sys
import time
import traceback


class JsonLines(logging.Formatter):
    """A record and its `fields` as one line."""

    def format(self, record: logging.LogRecord) -> str:
        told = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info and record.exc_info[0] is not None:
            told["trace"] = "".join(traceback.format_exception(*record.exc_info))
        return json.dumps(told, default=str)


def get_logger() -> logging.Logger:
    return logging.getLogger("fewone.service")


def write_logs(level: int = logging.INFO) -> None:
    """For the server's own process: our lines and uvicorn's errors in one form."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    for name in ("fewone.service", "uvicorn.error"):
        logger = logging.getLogger(name)
        logger.handlers[:] = [handler]
        logger.setLevel(level)
        logger.propagate = False
