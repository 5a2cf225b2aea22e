"""Resolves names once, checks every address, and connects to what was checked; knows what is this machine's own."""

# Names are resolved in threads; two of them may find this module half imported: "unknown encoding: idna".
import encodings.idna  # noqa: F401
import ipaddress
import os
import socket
import stat
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
from anyio.lowlevel import RunVar

from ringfence.egress.address import Address, embedded
from ringfence.egress.stream import TcpStream, connect_tcp
from ringfence.frozen import frozen

CONNECT_S = 10.0
_TRIED_ADDRESSES = 4
_LOOKUP_THREADS = 16
_ANY_PORT = 9
_lookups: RunVar[anyio.CapacityLimiter] = RunVar("lookups")


class Unreachable(Exception):
    """A target cannot be reached, or must not; the text says why. Never leaves the gate.

    Args:
        reason: Why.
        is_refused: Whether a rule is the reason, as opposed to the network.
    """

    def __init__(self, reason: str, *, is_refused: bool = False) -> None:
        super().__init__(reason)
        self.is_refused = is_refused


@frozen
class Resolved:
    """An address and port that a name resolves to."""

    address: Address
    port: int

    def __str__(self) -> str:
        host = f"[{self.address}]" if self.address.version == 6 else str(self.address)
        return f"{host}:{self.port}"


Resolve = Callable[[str, int], Awaitable[Sequence[Resolved]]]
"""Resolves a host and port; raises OSError if it cannot."""


async def resolve_by_system(host: str, port: int) -> Sequence[Resolved]:
    """Resolve a name as this machine does.

    In threads of its own: whoever serves a name can make its lookup hang, and the few threads in which everything else
    is resolved, such as the model's API, must not wait for that.
    """
    rows = await anyio.to_thread.run_sync(_look_up, host, port, abandon_on_cancel=True, limiter=_limiter())
    return [Resolved(ipaddress.ip_address(str(row[4][0])), port) for row in rows]


def _look_up(host: str, port: int) -> Sequence[tuple[Any, ...]]:
    return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)


def _limiter() -> anyio.CapacityLimiter:
    try:
        return _lookups.get()
    except LookupError:
        limiter = anyio.CapacityLimiter(_LOOKUP_THREADS)
        _lookups.set(limiter)
        return limiter


async def resolve_checked(
    host: str, port: int, check: Callable[[Resolved], str | None], *, resolve: Resolve = resolve_by_system
) -> tuple[Resolved, ...]:
    """Everything `host` resolves to, in the order to be tried.

    Args:
        host: A name, or an address in its canonical spelling.
        port: The port on it.
        check: Says why an address is refused; None if it is not. One bad address among good ones is an attack on the
            name: then all are refused.
        resolve: How the name is resolved.

    Raises:
        Unreachable: The name is not known, or one of its addresses is refused.
    """
    try:
        with anyio.fail_after(CONNECT_S):
            found = await resolve(host, port)
    except TimeoutError:
        raise Unreachable(f"{host!r} was not resolved within {CONNECT_S:g} s") from None
    except (OSError, UnicodeError) as exc:
        raise Unreachable(f"{host!r} cannot be resolved: {getattr(exc, 'strerror', None) or exc}") from exc
    if not found:
        raise Unreachable(f"{host!r} has no address")
    for one in found:
        reason = check(one)
        if reason is not None:
            raise Unreachable(f"{host!r} resolves to {one.address}: {reason}", is_refused=True)
    return tuple(found)


async def connect_first(targets: Sequence[Resolved]) -> TcpStream:
    """Connect to the first of some checked addresses that answers.

    Raises:
        Unreachable: None does; with the reason of the first.
    """
    first: Unreachable | None = None
    for target in targets[:_TRIED_ADDRESSES]:
        try:
            return await _connect(target)
        except Unreachable as exc:
            first = first or exc
    raise first or Unreachable("there is no address to connect to")


async def _connect(target: Resolved) -> TcpStream:
    try:
        with anyio.fail_after(CONNECT_S):
            return await connect_tcp(target.address, target.port)
    except TimeoutError:
        raise Unreachable(f"no answer within {CONNECT_S:g} s") from None
    except OSError as exc:
        raise Unreachable(exc.strerror or str(exc)) from exc


def is_own_address(address: Address) -> bool:
    """Whether what is sent to `address` stays on this machine, as the kernel then uses it as the source, too."""
    if embedded(address).is_loopback:
        return True
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((str(address), _ANY_PORT))
            return str(probe.getsockname()[0]) == str(address)
    except OSError:
        return False  # no way there at all


def own_ports() -> frozenset[int]:
    """The TCP ports on which this process listens, which nothing inside may reach; none where there is no `/proc`."""
    try:
        descriptors = [int(entry.name) for entry in Path("/proc/self/fd").iterdir()]
    except OSError:
        return frozenset()
    found = set()
    for descriptor in descriptors:
        with suppress(OSError):  # closed meanwhile
            if stat.S_ISSOCK(os.fstat(descriptor).st_mode):
                port = _listening_port(descriptor)
                found |= {port} if port else set()
    return frozenset(found)


def _listening_port(descriptor: int) -> int | None:
    # The kernel's list of all sockets of the machine takes ten milliseconds to read where there are many.
    with socket.socket(fileno=os.dup(descriptor)) as own:
        if own.family not in (socket.AF_INET, socket.AF_INET6) or own.type != socket.SOCK_STREAM:
            return None
        if not own.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            return None
        return int(own.getsockname()[1])
