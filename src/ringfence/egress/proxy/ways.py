"""How an allowed host is reached: at addresses that were checked, or through this machine's own proxy."""

import anyio
from anyio.abc import ByteStream

from ringfence.config.host import written
from ringfence.egress.host_proxy import HostProxy, host_proxy_for, reached, tunnelled
from ringfence.egress.own_addresses import is_own_address
from ringfence.egress.own_sockets import own_ports
from ringfence.egress.proxy.decision import Decision, Rules, Wanted, remedy_for
from ringfence.egress.resolving import Resolve, Resolved, Unreachable, connected, resolved_once
from ringfence.frozen import frozen

_LOOKUP_S = 2.0
_MOST_SLOW = 1000


@frozen
class Way:
    """How a host is reached."""

    targets: tuple[Resolved, ...] = ()
    """Its addresses, checked."""
    through: HostProxy | None = None
    """What makes the connection instead of us, and looks names up by itself; `targets` are then what we know of it."""


class Ways:
    """Finds them.

    Args:
        resolve: How names are looked up.
    """

    def __init__(self, resolve: Resolve) -> None:
        self._resolve = resolve
        self._slow: set[str] = set()

    async def find(self, rules: Rules, wanted: Wanted, decision: Decision) -> tuple[Way, Decision | None]:
        """How a host is reached, and why it must not be; None if it may.

        Raises:
            Unreachable: It cannot be.
        """
        scheme = "https" if wanted.is_tunnel else "http"
        through = host_proxy_for(f"{scheme}://{written(wanted.host)}:{wanted.port}")
        if through is None or not isinstance(wanted.host, str):
            targets, refused = await self._checked(rules, wanted)
        else:
            targets, refused = await self._known_here(rules, wanted, decision)
        return Way(targets, through), refused

    async def _known_here(
        self, rules: Rules, wanted: Wanted, decision: Decision
    ) -> tuple[tuple[Resolved, ...], Decision | None]:
        """What we know of a name that the proxy will look up again: a name that leads inwards from here is refused.

        Behind a proxy there may be nobody to ask. Then a rule about the name must be enough; where every public host is
        open, a name of which nothing is known is none.
        """
        host = str(wanted.host)
        if host not in self._slow:
            try:
                with anyio.fail_after(_LOOKUP_S):
                    return await self._checked(rules, wanted)
            except Unreachable:
                pass
            except TimeoutError:
                self._slow |= {host} if len(self._slow) < _MOST_SLOW else set()
        if decision.rule != "open":
            return (), None
        reason = (
            f"{wanted.target} cannot be looked up here, so where this machine's proxy would lead is not known"
        )
        return (), Decision(False, "open", reason, remedy_for(wanted))

    async def _checked(self, rules: Rules, wanted: Wanted) -> tuple[tuple[Resolved, ...], Decision | None]:
        """Where the host is, and why one of these places is refused."""
        refused: Decision | None = None

        def check(one: Resolved) -> str | None:
            nonlocal refused
            is_own = is_own_address(one.address)
            refused = rules.check_address(one.address, one.port, is_own=is_own)
            if refused is None and is_own and one.port in own_ports():
                refused = Decision(False, "never", f"port {one.port} is one that ringfence itself listens on")
            return refused.reason if refused else None

        try:
            found = await resolved_once(str(wanted.host), wanted.port, check, resolve=self._resolve)
        except Unreachable as exc:
            if refused is None:
                raise
            return (), Decision(False, refused.rule, str(exc), refused.remedy)
        return found, None


async def opened(way: Way, wanted: Wanted) -> ByteStream:
    """A connection: to the host; or to the proxy, where that is asked for one plain request.

    Raises:
        Unreachable: There is none.
    """
    if way.through is None:
        return await connected(way.targets)
    if wanted.is_tunnel:
        return await tunnelled(way.through, wanted.target)
    return await reached(way.through)
