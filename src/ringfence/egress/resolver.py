"""Resolves names once, checks every address, connects to checked addresses, and recognizes this machine's own."""

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

from ringfence.descriptor_stream import DescriptorStream
from ringfence.egress.address import Address, embedded
from ringfence.egress.stream import connect_tcp
from ringfence.frozen import frozen

CONNECT_S = 10.0
_TRIED_ADDRESSES = 4
_LOOKUP_THREADS = 16
_ANY_PORT = 9
_lookups: RunVar[anyio.CapacityLimiter] = RunVar("lookups")


class Unreachable(Exception):
    """A target cannot be reached, or must not be; the gate always handles this error itself.

    Args:
        reason: Why, in one line.
        is_refused: Whether a rule is the reason; otherwise it is the network.
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
    """Resolve a name with this machine's resolver.

    Lookups run in separate threads: a hostile name server can make a lookup hang, which must not occupy the few threads
    that resolve other names, such as that of the model's API.
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
    """Resolve `host` and check every address; return the addresses in the order to try them.

    Args:
        host: A name, or an address in its canonical spelling.
        port: The port on it.
        check: Returns why an address is refused, else None. If one address is refused, all are: a name with both kinds
            is an attack.
        resolve: Resolves the name.

    Raises:
        Unreachable: The name cannot be resolved, or one of its addresses is refused.
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
    for resolved in found:
        reason = check(resolved)
        if reason is not None:
            raise Unreachable(f"{host!r} resolves to {resolved.address}: {reason}", is_refused=True)
    return tuple(found)


async def connect_first(targets: Sequence[Resolved]) -> DescriptorStream:
    """Connect to the first of several checked addresses that accepts a connection.

    Raises:
        Unreachable: None does; the text is the reason of the first.
    """
    first: Unreachable | None = None
    for target in targets[:_TRIED_ADDRESSES]:
        try:
            return await _connect(target)
        except Unreachable as exc:
            first = first or exc
    raise first or Unreachable("there is no address to connect to")


async def _connect(target: Resolved) -> DescriptorStream:
    try:
        with anyio.fail_after(CONNECT_S):
            return await connect_tcp(target.address, target.port)
    except TimeoutError:
        raise Unreachable(f"no answer within {CONNECT_S:g} s") from None
    except OSError as exc:
        raise Unreachable(exc.strerror or str(exc)) from exc


def is_own_address(address: Address) -> bool:
    """Whether `address` is one of this machine; the kernel then also uses it as the source address."""
    if embedded(address).is_loopback:
        return True
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((str(address), _ANY_PORT))
            return str(probe.getsockname()[0]) == str(address)
    except OSError:
        return False  # there is no route to it


def own_ports() -> frozenset[int]:
    """Return the TCP ports on which this process listens; nothing inside may reach them. Empty without `/proc`."""
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
