"""Connections that the host asks for, to a port on the loopback inside."""

import anyio

from ringfence.errors import SandboxPortError
from ringfence.sandbox.channels.connection import Connection
from ringfence.sandbox.guest import frames
from ringfence.sandbox.link import GuestLink
from ringfence.sandbox.records import errno_name


async def dial(link: GuestLink, port: int, *, timeout_s: float) -> Connection:
    """Connect to `port` inside. The caller closes the connection.

    Raises:
        SandboxPortError: Nothing answers there, or not within `timeout_s` (`ETIMEDOUT`).
        SandboxDied: The sandbox is gone.
    """
    number = link.next_number()
    connection = Connection(link, number, is_asked_for=True, on_over=_nothing)
    link.attach(number, connection)
    link.post(frames.CONNECT, number, frames.encode_record([("port", port)]))
    reason, name = f"nothing answered within {timeout_s:g} s", "ETIMEDOUT"
    try:
        with anyio.move_on_after(timeout_s) as patience:
            await connection.wait_for_answer()
    except BaseException:
        connection.reset()
        raise
    if connection.failure is not None:
        reason, name = connection.failure.message, errno_name(connection.failure)
    elif not patience.cancelled_caught:
        return connection
    connection.reset()
    where = f"port {port!r}"
    raise SandboxPortError(
        f"cannot connect to {where} inside the sandbox: {reason}", where=where, errno_name=name
    )


def _nothing() -> None:
    """Nobody counts them."""
