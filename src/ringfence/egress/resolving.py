"""Names are looked up once, every answer is checked, and what was checked is what is connected to."""

# Names are looked up in threads, where two at once may find this half imported: "unknown encoding: idna".
import encodings.idna  # noqa: F401
import ipaddress
import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import anyio
import anyio.to_thread
from anyio.lowlevel import RunVar

from ringfence.egress.address import Address
from ringfence.egress.outside import OutsideStream, connect
from ringfence.frozen import frozen

CONNECT_S = 10.0
_MOST_TRIED = 4
_MOST_LOOKUPS = 16
_lookups: RunVar[anyio.CapacityLimiter] = RunVar("lookups")


class Unreachable(Exception):
    """The target cannot be had, or must not; the text says why. Never leaves the gate.

    Args:
        reason: Why.
        is_refused: Whether a rule is why, as against the network.
    """

    def __init__(self, reason: str, *, is_refused: bool = False) -> None:
        super().__init__(reason)
        self.is_refused = is_refused


@frozen
class Resolved:
    """One answer."""

    address: Address
    port: int

    def __str__(self) -> str:
        host = f"[{self.address}]" if self.address.version == 6 else str(self.address)
        return f"{host}:{self.port}"


Resolve = Callable[[str, int], Awaitable[Sequence[Resolved]]]
"""Looks a host and port up; raises OSError where it cannot."""


async def resolve_by_system(host: str, port: int) -> Sequence[Resolved]:
    """As this machine resolves names.

    In threads of its own: who serves a name can let its lookup hang, and the few threads in which everything else is
    looked up, such as the model's API, must not wait for him.
    """
    rows = await anyio.to_thread.run_sync(_look_up, host, port, abandon_on_cancel=True, limiter=_limiter())
    return [Resolved(ipaddress.ip_address(str(row[4][0])), port) for row in rows]


def _look_up(host: str, port: int) -> Sequence[tuple[Any, ...]]:
    return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)


def _limiter() -> anyio.CapacityLimiter:
    try:
        return _lookups.get()
    except LookupError:
        limiter = anyio.CapacityLimiter(_MOST_LOOKUPS)
        _lookups.set(limiter)
        return limiter


async def resolved_once(
    host: str, port: int, check: Callable[[Resolved], str | None], *, resolve: Resolve = resolve_by_system
) -> tuple[Resolved, ...]:
    """Everything `host` resolves to, in the order to be tried.

    Args:
        host: A name, or an address in its one spelling.
        port: Where on it.
        check: Says why an answer is refused; None if it is not. One bad answer among good ones is an attack on the
            name, not a detail: then all are refused.
        resolve: How it is looked up.

    Raises:
        Unreachable: It is not known, or one of its answers is refused.
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


async def connected(targets: Sequence[Resolved]) -> OutsideStream:
    """A connection to the first of some checked addresses that answers.

    Raises:
        Unreachable: None does; for the reason of the first.
    """
    first: Unreachable | None = None
    for target in targets[:_MOST_TRIED]:
        try:
            return await _connected(target)
        except Unreachable as exc:
            first = first or exc
    raise first or Unreachable("there is no address to connect to")


async def _connected(target: Resolved) -> OutsideStream:
    try:
        with anyio.fail_after(CONNECT_S):
            return await connect(target.address, target.port)
    except TimeoutError:
        raise Unreachable(f"no answer within {CONNECT_S:g} s") from None
    except OSError as exc:
        raise Unreachable(exc.strerror or str(exc)) from exc
