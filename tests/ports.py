"""Ports for servers that can only be told a number."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def kept_port() -> Iterator[int]:
    """A port on 127.0.0.1 that nobody listens on and that the kernel gives to nobody else meanwhile.

    Only who names it, and may reuse addresses, as servers do, can listen there.
    """
    with socket.socket() as keeper:
        keeper.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        keeper.bind(("127.0.0.1", 0))
        yield int(keeper.getsockname()[1])
