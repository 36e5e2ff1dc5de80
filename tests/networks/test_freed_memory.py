"""Memory that is kept: by whoever asks for most, and the scores are the same."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import ctypes
from fewone.networks import freed_memory
asked = []
class Library:
    def mallopt(self, option, value):
        asked.append((option, value))
        return 1
ctypes.CDLL = lambda name: Library()
for amount in (1 << 26, 1 << 26, 1 << 29, 1 << 26):
    assert freed_memory.keep_freed_memory(amount)
print([value for option, value in asked if option == -1] == [1 << 26, 1 << 29])
"""


def test_the_most_that_was_asked_for_holds() -> None:
    told = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True).stdout
    assert told.strip() == "True"
