"""Freed memory stays with the process, instead of being given back and fetched anew, page by page, at every step."""

from __future__ import annotations

import ctypes

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_LARGEST_FROM_HEAP = 2**25
_KEPT = 2**29


def keep_heap() -> bool:
    """Ask the C library to keep half a gigabyte for the next feature maps; False where it cannot be asked.

    Fetching the pages of a map costs more than filling it: a fifth to a quarter of a meta-iteration on short series.
    The setting (mallopt) is the whole process's: for commands, never for a library call.
    """
    try:
        set_option = ctypes.CDLL(None).mallopt
    except (OSError, TypeError, AttributeError):
        return False
    return bool(set_option(_MMAP_THRESHOLD, _LARGEST_FROM_HEAP) and set_option(_TRIM_THRESHOLD, _KEPT))
