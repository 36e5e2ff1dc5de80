"""The examples of the docstrings are tests: only modules that have one are imported, those without their extra skip."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Files without an example are left alone: importing them all takes seconds, some need a server around them."""
    if collection_path.suffix != ".py":
        return None
    return True if ">>>" not in collection_path.read_text(encoding="utf-8") else None


@pytest.fixture(autouse=True)
def steady() -> None:
    """The same first weights every time, and one thread, as in the other tests."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
