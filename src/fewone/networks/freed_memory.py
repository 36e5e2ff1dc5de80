"""Freed memory stays with the process, instead of being given back and fetched anew, page by page, at every step."""

from __future__ import annotations

import ctypes
from functools import lru_cache

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_LARGEST_FROM_HEAP = 2**25
TRAINING = 2**29


def keep_freed_memory(amount: int = TRAINING) -> bool:
    """Ask the C library to keep up to `amount` bytes for the next feature maps; False where it cannot be asked.

    Fetching the pages of a map costs more than filling it: a fifth to a quarter of a meta-iteration on short series.
    The most that was ever asked for holds, whoever asks next.
    """
    return _keep(amount) if amount > _Kept.amount else True


class _Kept:
    """What this process asked for: the setting is the process's own, so there is one."""

    amount = 0


@lru_cache(maxsize=8)
def _keep(amount: int) -> bool:
    try:
        set_option = ctypes.CDLL(None).mallopt
    except (OSError, TypeError, AttributeError):
        return False
    granted = bool(set_option(_MMAP_THRESHOLD, _LARGEST_FROM_HEAP) and set_option(_TRIM_THRESHOLD, amount))
    _Kept.amount = amount if granted else _Kept.amount
    return granted
