"""Connects to allowed hosts at checked addresses, or through this machine's own proxy."""

import anyio
from anyio.abc import ByteStream

from ringfence.config.host import format_host
from ringfence.egress.host_proxy import HostProxy, connect_proxy, host_proxy_for, open_tunnel
from ringfence.egress.proxy.decision import Decision, Rules, Target, not_allowed
from ringfence.egress.resolver import (
    Resolve,
    Resolved,
    Unreachable,
    connect_first,
    is_own_address,
    own_ports,
    resolve_checked,
)
from ringfence.frozen import frozen

_LOOKUP_S = 2.0
_SLOW_NAMES = 1000


@frozen
class Route:
    """How a host is reached."""

    addresses: tuple[Resolved, ...] = ()
    """The checked addresses of the host."""
    through: HostProxy | None = None
    """The proxy of this machine that makes the connection and resolves the name itself; `addresses` are then only those
    that are known here."""


class Connector:
    """Finds routes.

    Args:
        resolve: How names are resolved.
    """

    def __init__(self, resolve: Resolve) -> None:
        self._resolve = resolve
        self._slow: set[str] = set()

    async def find_route(
        self, rules: Rules, target: Target, decision: Decision
    ) -> tuple[Route, Decision | None]:
        """Find the route to an allowed host; also return the refusal if its addresses are not allowed.

        Raises:
            Unreachable: There is none.
        """
        scheme = "https" if target.is_tunnel else "http"
        through = host_proxy_for(f"{scheme}://{format_host(target.host)}:{target.port}")
        if through is None or not isinstance(target.host, str):
            addresses, refused = await self._check_addresses(rules, target)
        else:
            addresses, refused = await self._check_known(rules, target, decision)
        return Route(addresses, through), refused

    async def _check_known(
        self, rules: Rules, target: Target, decision: Decision
    ) -> tuple[tuple[Resolved, ...], Decision | None]:
        """Check the addresses known here of a name that the proxy will resolve again; refuse one that leads inwards.

        Behind a proxy, names may not be resolvable here. Then a rule that names the host must be enough; if every public
        host is allowed, a name that cannot be resolved is refused.
        """
        host = str(target.host)
        if host not in self._slow:
            try:
                with anyio.fail_after(_LOOKUP_S):
                    return await self._check_addresses(rules, target)
            except Unreachable:
                pass
            except TimeoutError:
                self._slow |= {host} if len(self._slow) < _SLOW_NAMES else set()
        if decision.rule != "open":
            return (), None
        reason = f"{target.authority} cannot be resolved here, so it is not known where this machine's proxy would lead"
        return (), not_allowed(target, "open", reason)

    async def _check_addresses(
        self, rules: Rules, target: Target
    ) -> tuple[tuple[Resolved, ...], Decision | None]:
        """Return the addresses of the host, or why one of them is refused."""
        refused: Decision | None = None

        def check(one: Resolved) -> str | None:
            nonlocal refused
            is_own = is_own_address(one.address)
            refused = rules.check_address(one.address, one.port, is_own=is_own)
            if refused is None and is_own and one.port in own_ports():
                refused = Decision(False, "never", f"port {one.port} is one that ringfence itself listens on")
            return refused.reason if refused else None

        try:
            found = await resolve_checked(str(target.host), target.port, check, resolve=self._resolve)
        except Unreachable as exc:
            if refused is None:
                raise
            return (), Decision(False, refused.rule, str(exc), refused.remedy, refused.grant)
        return found, None


async def connect(route: Route, target: Target) -> ByteStream:
    """Connect to the host, or to the proxy if that is sent a plain request.

    Raises:
        Unreachable: There is no connection.
    """
    if route.through is None:
        return await connect_first(route.addresses)
    if target.is_tunnel:
        return await open_tunnel(route.through, target.authority)
    return await connect_proxy(route.through)
