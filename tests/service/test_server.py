"""Worker processes over one port."""

from __future__ import annotations

import socket
from io import BytesIO
from multiprocessing.reduction import ForkingPickler

import pytest

from fewone.service.server import FairListener


def test_a_worker_takes_one_connection_a_turn_and_leaves_the_next_to_others() -> None:
    with FairListener(socket.AF_INET, socket.SOCK_STREAM) as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(8)
        clients = [socket.create_connection(listener.getsockname()) for _ in range(2)]
        taken = [listener.accept()[0]]
        with pytest.raises(BlockingIOError):
            listener.accept()
        taken.append(listener.accept()[0])
        for one in (*taken, *clients):
            one.close()


def test_the_listener_comes_to_another_process_as_what_it_is() -> None:
    assert FairListener in ForkingPickler(BytesIO()).dispatch_table
