"""The forward proxy of one sandbox: each CONNECT and plain request is decided, recorded, and only then forwarded."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread
from anyio.abc import ByteStream

from ringfence.config.egress import Egress
from ringfence.egress.http.rules import BadRequest
from ringfence.egress.http.server import HttpConnection
from ringfence.egress.limiter import RateLimiter
from ringfence.egress.proxy.connector import Connector, Route, connect
from ringfence.egress.proxy.decision import HTTP_PORT, Decision, Rules, Target
from ringfence.egress.proxy.relay import IDLE_S, Progress, Relay
from ringfence.egress.proxy.report import DecisionLog, NoteRefusal, send_failure, send_refusal
from ringfence.egress.proxy.request import HEAD_TIMEOUT_S, ProxyRequest, read_proxy_request
from ringfence.egress.proxy.tunnel import Tunnel
from ringfence.egress.resolver import Resolve, Resolved, Unreachable, is_own_address, resolve_by_system
from ringfence.egress.transfer import Allowance, transfer
from ringfence.events import EgressClosed, Emit

if TYPE_CHECKING:
    from ringfence.egress.injection.interceptor import Interceptor

_PER_S, _BURST = 100.0, 500
_EMIT_S = 5.0
_ESTABLISHED = 200
_MOST_HALF_OPEN = 64


class HalfOpen:
    """Connections that have not sent a request yet; when there are too many, the oldest is dropped.

    An honest client sends its request at once; a flood that sends none displaces itself.
    """

    def __init__(self, most: int = _MOST_HALF_OPEN) -> None:
        self._most = most
        self._scopes: dict[anyio.CancelScope, None] = {}

    @contextmanager
    def waiting(self) -> Iterator[anyio.CancelScope]:
        """Count a connection while its request is awaited; the scope is cancelled if others displace it."""
        while len(self._scopes) >= self._most:
            oldest = next(iter(self._scopes))
            del self._scopes[oldest]
            oldest.cancel()
        with anyio.CancelScope() as scope:
            self._scopes[scope] = None
            try:
                yield scope
            finally:
                self._scopes.pop(scope, None)


class ForwardProxy:
    """Serves the connections of one sandbox.

    Args:
        egress: The egress rules.
        sandbox_id: The sandbox that the connections come from.
        emit: Writes an event to the record; returns when it is written.
        resolve: How names are resolved. There is no setting for it, as it could direct any name anywhere. Tests map
        public names to local mirrors.
        note: Takes a line for each refusal and each host that cannot be reached, for the user or agent.
        interceptor: Serves the hosts to which secrets are injected, if there are any.
    """

    def __init__(
        self,
        egress: Egress,
        *,
        sandbox_id: str,
        emit: Emit,
        resolve: Resolve = resolve_by_system,
        note: NoteRefusal = lambda _line, _grant=None: None,
        interceptor: "Interceptor | None" = None,
    ) -> None:
        self._interceptor = interceptor
        self._egress = egress
        self._rules: Rules | None = None
        self._sandbox_id = sandbox_id
        self._emit = emit
        self._connector = Connector(resolve)
        self._log = DecisionLog(sandbox_id, emit, note)
        self._limiter = RateLimiter(_PER_S, burst=_BURST)
        self._half_open = HalfOpen()
        self._allowances: dict[str, Allowance] = {}
        self._open: dict[anyio.CancelScope, tuple[Target, tuple[Resolved, ...]]] = {}
        self._count = 0

    @property
    def egress(self) -> Egress:
        """The current egress rules."""
        return self._egress

    async def change(self, egress: Egress) -> None:
        """Change the egress rules; connections that are no longer allowed are aborted."""
        self._egress, self._rules = egress, None
        rules = await self._current_rules()
        for scope, (target, addresses) in list(self._open.items()):
            if not rules.decide(target).is_allowed or not all(_is_open(rules, one) for one in addresses):
                scope.cancel()

    async def serve(self, stream: ByteStream) -> None:
        """Serve the one request, or the one tunnel, of a connection."""
        self._count += 1
        number = self._count
        request: ProxyRequest | None = None
        connection = HttpConnection(stream, timeout_s=HEAD_TIMEOUT_S)
        try:
            with self._half_open.waiting() as waiting:
                request = await read_proxy_request(connection, number)
        except BadRequest as exc:
            await self.refuse_bad_request(connection, number, exc)
            return
        if waiting.cancelled_caught:
            raise anyio.BrokenResourceError
        if request is None:
            return
        await self._limiter.wait()
        if request.target.is_tunnel and request.target.port == HTTP_PORT:
            await self._serve_within_tunnel(request)
        else:
            await self._decide(request)

    async def _serve_within_tunnel(self, request: ProxyRequest) -> None:
        """Serve a tunnel to port 80, which must carry HTTP, so that rules on methods and paths hold there, too."""
        target = request.target
        decision = (await self._current_rules()).decide(target)
        if not decision.is_allowed:
            await self._refuse(request, decision)
            return
        received = await request.connection.accept_connect()
        connection = HttpConnection(request.connection.stream, received=received, timeout_s=HEAD_TIMEOUT_S)
        try:
            inner = await read_proxy_request(connection, request.number, tunnel=target)
        except BadRequest as exc:
            await self.refuse_bad_request(connection, request.number, exc, target)
            return
        if inner is not None:
            await self._decide(inner)

    # --- decisions

    async def _current_rules(self) -> Rules:
        while self._rules is None:
            egress = self._egress
            # The data of presets is read on first use, which would make the start of a run slower.
            rules = await anyio.to_thread.run_sync(Rules, egress)
            if egress is self._egress:
                self._rules = rules
        return self._rules

    async def _decide(self, request: ProxyRequest) -> None:
        target = request.target
        if self._interceptor is not None:
            await self._interceptor.note_strays(request)
        rules = await self._current_rules()
        decision = self._within_allowance(rules.decide(target))
        route, failure = Route(), ""
        if decision.is_allowed:
            try:
                route, refused = await self._connector.find_route(rules, target, decision)
                decision = refused or decision
            except Unreachable as exc:
                failure = str(exc)
        if not decision.is_allowed:
            await self._refuse(request, decision)
            return
        await self._log.record(request.number, target, decision, route=route)
        if self._rules is not rules:
            # The rules changed while the name was resolved, which a hostile name server can prolong.
            await self._decide(request)
            return
        await self._forward(request, decision, route, failure=failure)

    def _within_allowance(self, decision: Decision) -> Decision:
        allowance = self._allowance(decision)
        if allowance is None or not allowance.is_used_up:
            return decision
        reason = f"the {allowance.limit_bytes} bytes that rule {decision.rule!r} allows are used up"
        return Decision(False, "limit", reason, "raise its max_bytes")

    def _allowance(self, decision: Decision) -> Allowance | None:
        if not decision.is_allowed or decision.max_bytes is None:
            return None
        return self._allowances.setdefault(decision.rule, Allowance(decision.max_bytes))

    async def _refuse(self, request: ProxyRequest, decision: Decision) -> None:
        await self._log.record(request.number, request.target, decision)
        await send_refusal(request.connection, decision)

    async def refuse_bad_request(
        self, connection: HttpConnection, number: int, error: BadRequest, target: Target | None = None
    ) -> None:
        """Record an unacceptable request and respond to it."""
        await self._limiter.wait()
        decision = Decision(False, "unreadable", str(error))
        await self._log.record(number, target, decision)
        await send_refusal(connection, decision, status=error.status)

    # --- forwarding

    async def _forward(
        self, request: ProxyRequest, decision: Decision, route: Route, *, failure: str
    ) -> None:
        """Forward an allowed request, and record how the exchange ends."""
        began = time.monotonic()
        target = request.target
        passed = Progress(allowance=self._allowance(decision))
        try:
            with anyio.CancelScope() as scope:
                passed.scope = scope
                self._open[scope] = target, route.addresses
                try:
                    if failure:
                        raise Unreachable(failure)
                    await self._exchange(request, route, passed)
                except Unreachable as exc:
                    passed.ended_by, passed.is_reported = str(exc), True
                    self._log.note_failure(target, str(exc))
                    await send_failure(request.connection, f"{target.authority}: {exc}")
            if scope.cancelled_caught:
                passed.ended_by = "idle" if anyio.current_time() >= scope.deadline else "denied"
        finally:
            self._open.pop(scope, None)
            with anyio.move_on_after(_EMIT_S, shield=True):
                await self._emit(
                    EgressClosed(
                        sandbox_id=self._sandbox_id,
                        connection=request.number,
                        host=str(target.host),
                        port=target.port,
                        status=passed.status,
                        sent_bytes=passed.sent_bytes,
                        received_bytes=passed.received_bytes,
                        ended_by=passed.ended_by,
                        duration_ms=round((time.monotonic() - began) * 1000, 3),
                    )
                )
        if passed.ended_by not in ("closed", "refused") and not passed.is_reported:
            raise anyio.BrokenResourceError

    async def _exchange(self, request: ProxyRequest, route: Route, passed: Progress) -> None:
        """Connect, and forward until the end."""
        outside = await connect(route, request.target)
        assert passed.scope is not None
        passed.scope.deadline = anyio.current_time() + IDLE_S
        try:
            if self._interceptor is not None and self._interceptor.injector.intercepts(request.target):
                tunnel = self._tunnel(request)
                await self._interceptor.serve(
                    request, tunnel, outside, passed, on_bad_request=self.refuse_bad_request
                )
            elif request.target.is_tunnel:
                tunnel = self._tunnel(request)
                await tunnel.accept()
                passed.status = _ESTABLISHED
                await transfer(tunnel, outside, passed)
            else:
                await self._relay(request, outside, route, passed)
        finally:
            await anyio.aclose_forcefully(outside)

    async def _relay(
        self, request: ProxyRequest, outside: ByteStream, route: Route, passed: Progress
    ) -> None:
        relay = Relay(request, outside, passed, through=route.through)
        await relay.run()
        if relay.status:
            passed.status = relay.status
        elif passed.ended_by == "limit":
            await send_failure(request.connection, "the bytes that its rule allows are used up")
            passed.is_reported = True
        else:
            raise Unreachable(f"its response could not be read ({passed.ended_by})")

    def _tunnel(self, request: ProxyRequest) -> Tunnel:
        async def on_refused(decision: Decision) -> None:
            await self._log.record(request.number, request.target, decision)

        return Tunnel(request, on_refused)


def _is_open(rules: Rules, one: Resolved) -> bool:
    """Whether an address is allowed."""
    return rules.check_address(one.address, one.port, is_own=is_own_address(one.address)) is None
