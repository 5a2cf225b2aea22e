"""The forward proxy of one sandbox: CONNECT and plain HTTP, each judged, told, and only then carried."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread
from anyio.abc import ByteStream

from ringfence.config.egress import Egress
from ringfence.egress.forwarding import Emit
from ringfence.egress.own_addresses import is_own_address
from ringfence.egress.pace import Pace
from ringfence.egress.proxy.answers import ACCESS_DENIED, ESTABLISHED, failure, refusal
from ringfence.egress.proxy.decision import HTTP_PORT, Decision, Rules, Wanted
from ringfence.egress.proxy.head import Head, Unreadable, read_head
from ringfence.egress.proxy.relaying import Relay
from ringfence.egress.proxy.telling import Telling
from ringfence.egress.proxy.tunnel import CheckedStream
from ringfence.egress.proxy.watched import IDLE_S, Watched
from ringfence.egress.proxy.ways import Way, Ways, opened
from ringfence.egress.pump import Allowance, exchange
from ringfence.egress.resolving import Resolve, Resolved, Unreachable, resolve_by_system
from ringfence.events import EgressClosed

if TYPE_CHECKING:
    from ringfence.egress.injection.interceptor import Interceptor

MOST_CONNECTIONS = 200

_PER_S, _BURST = 100.0, 500
_TELL_S = 5.0
_REFUSED, _ESTABLISHED = 403, 200


_MOST_HALF_OPEN = 64


class HalfOpen:
    """Connections that have not said yet what they want. When one more comes than may be, the oldest is given up.

    A client that means it sends its request at once; a flood that sends none pushes out itself.
    """

    def __init__(self, most: int = _MOST_HALF_OPEN) -> None:
        self._most = most
        self._scopes: dict[anyio.CancelScope, None] = {}

    @contextmanager
    def waiting(self) -> Iterator[anyio.CancelScope]:
        """While a connection's request is awaited; cancelled if others push it out."""
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
        egress: What is granted.
        sandbox_id: Whose connections they are.
        emit: Records an event; returns when it is written.
        resolve: How names are looked up. There is no setting for it: who could choose it could lead any name
            anywhere. Tests map public names to mirrors of their own.
        note: Takes a line for each refusal and each host that cannot be reached, for whoever runs the command.
        interceptor: Serves the hosts with an injected secret, if there are any.
    """

    def __init__(
        self,
        egress: Egress,
        *,
        sandbox_id: str,
        emit: Emit,
        resolve: Resolve = resolve_by_system,
        note: Callable[[str], None] = lambda _line: None,
        interceptor: "Interceptor | None" = None,
    ) -> None:
        self._interceptor = interceptor
        self._egress = egress
        self._rules: Rules | None = None
        self._sandbox_id = sandbox_id
        self._emit = emit
        self._ways = Ways(resolve)
        self._telling = Telling(sandbox_id, emit, note)
        self._pace = Pace(_PER_S, burst=_BURST)
        self._half_open = HalfOpen()
        self._allowances: dict[str, Allowance] = {}
        self._carried: dict[anyio.CancelScope, tuple[Wanted, tuple[Resolved, ...]]] = {}
        self._count = 0

    @property
    def egress(self) -> Egress:
        """What is granted now."""
        return self._egress

    async def change(self, egress: Egress) -> None:
        """Grant something else from now on; connections that it does not allow are cut off."""
        self._egress, self._rules = egress, None
        rules = await self._current_rules()
        for scope, (wanted, targets) in list(self._carried.items()):
            if not rules.decide(wanted).is_allowed or not all(_is_open(rules, one) for one in targets):
                scope.cancel()

    async def serve(self, inside: ByteStream) -> None:
        """Answer the one request, or carry the one tunnel, of a connection."""
        self._count += 1
        number = self._count
        head: Head | None = None
        try:
            with self._half_open.waiting() as waiting:
                head = await read_head(inside)
        except Unreadable as exc:
            await self._refuse_unreadable(inside, number, exc)
            return
        if waiting.cancelled_caught:
            raise anyio.BrokenResourceError
        if head is None:
            return
        await self._pace.wait()
        if head.wanted.is_tunnel and head.wanted.port == HTTP_PORT:
            await self._serve_in_tunnel(inside, number, head)
        else:
            await self._judge_and_carry(inside, number, head)

    async def _serve_in_tunnel(self, inside: ByteStream, number: int, head: Head) -> None:
        """A tunnel to port 80 is read as the HTTP that it must be, so that rules on methods and paths hold there too."""
        decision = (await self._current_rules()).decide(head.wanted)
        if not decision.is_allowed:
            await self._refuse(inside, number, head.wanted, decision)
            return
        await inside.send(ESTABLISHED)
        try:
            inner = await read_head(inside, tunnelled=head.wanted, early=head.early)
        except Unreadable as exc:
            await self._refuse_unreadable(inside, number, exc, head.wanted)
            return
        if inner is not None:
            await self._judge_and_carry(inside, number, inner)

    # --- judging

    async def _current_rules(self) -> Rules:
        while self._rules is None:
            egress = self._egress
            # A preset's data is read when it is first wanted, which takes longer than a run's start should.
            rules = await anyio.to_thread.run_sync(Rules, egress)
            if egress is self._egress:
                self._rules = rules
        return self._rules

    async def _judge_and_carry(self, inside: ByteStream, number: int, head: Head) -> None:
        wanted = head.wanted
        if self._interceptor is not None:
            await self._interceptor.note_strays(number, str(wanted.host), wanted.path, head.headers)
        rules = await self._current_rules()
        decision = self._within_allowance(rules.decide(wanted))
        way = Way()
        trouble = ""
        if decision.is_allowed:
            try:
                way, refused = await self._ways.find(rules, wanted, decision)
                decision = refused or decision
            except Unreachable as exc:
                trouble = str(exc)
        if not decision.is_allowed:
            await self._refuse(inside, number, wanted, decision)
            return
        await self._telling.decided(number, wanted, decision, way=way)
        if self._rules is not rules:
            # Changed while its name was looked up, which whoever serves the name can make last.
            await self._judge_and_carry(inside, number, head)
            return
        await self._carry(inside, number, head, decision, way=way, trouble=trouble)

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

    async def _refuse(self, inside: ByteStream, number: int, wanted: Wanted, decision: Decision) -> None:
        await self._telling.decided(number, wanted, decision)
        await inside.send(refusal(decision, status=_REFUSED, has_body=wanted.method != "HEAD"))

    async def _refuse_unreadable(
        self, inside: ByteStream, number: int, error: Unreadable, wanted: Wanted | None = None
    ) -> None:
        await self._pace.wait()
        decision = Decision(False, "unreadable", str(error))
        await self._telling.decided(number, wanted, decision)
        await inside.send(refusal(decision, status=error.status))

    # --- carrying

    async def _carry(
        self,
        inside: ByteStream,
        number: int,
        head: Head,
        decision: Decision,
        *,
        way: Way,
        trouble: str,
    ) -> None:
        began = time.monotonic()
        wanted = head.wanted
        passed = Watched(allowance=self._allowance(decision))
        try:
            with anyio.CancelScope() as scope:
                passed.scope = scope
                self._carried[scope] = wanted, way.targets
                try:
                    if trouble:
                        raise Unreachable(trouble)
                    await self._converse(inside, number, head, way, passed)
                except Unreachable as exc:
                    passed.ended_by, passed.is_told = str(exc), True
                    self._telling.failed(wanted, str(exc))
                    await inside.send(failure(f"{wanted.target}: {exc}", has_body=wanted.method != "HEAD"))
            if scope.cancelled_caught:
                passed.ended_by = "idle" if anyio.current_time() >= scope.deadline else "denied"
        finally:
            self._carried.pop(scope, None)
            with anyio.move_on_after(_TELL_S, shield=True):
                await self._emit(
                    EgressClosed(
                        sandbox_id=self._sandbox_id,
                        connection=number,
                        host=str(wanted.host),
                        port=wanted.port,
                        status=passed.status,
                        sent_bytes=passed.sent_bytes,
                        received_bytes=passed.received_bytes,
                        ended_by=passed.ended_by,
                        duration_ms=round((time.monotonic() - began) * 1000, 3),
                    )
                )
        if passed.ended_by not in ("closed", "refused") and not passed.is_told:
            raise anyio.BrokenResourceError

    async def _converse(self, inside: ByteStream, number: int, head: Head, way: Way, passed: Watched) -> None:
        """Connect, and pass on until the end."""
        outside = await opened(way, head.wanted)
        assert passed.scope is not None
        passed.scope.deadline = anyio.current_time() + IDLE_S
        try:
            if self._interceptor is not None and self._interceptor.injector.intercepts(head.wanted):
                checked = self._checked(inside, number, head)
                await self._interceptor.serve(
                    number, head, checked, outside, passed=passed, on_unreadable=self._refuse_unreadable
                )
                return
            if head.wanted.is_tunnel:
                await inside.send(ESTABLISHED)
                passed.status = _ESTABLISHED
                await exchange(self._checked(inside, number, head), outside, passed)
                return
            relay = Relay(inside, outside, head, passed, through=way.through)
            await relay.run()
            if relay.status:
                passed.status = relay.status
            elif passed.ended_by == "limit":
                await inside.send(failure("the bytes that its rule allows are used up"))
                passed.is_told = True
            else:
                raise Unreachable(f"its answer could not be read ({passed.ended_by})")
        finally:
            await anyio.aclose_forcefully(outside)

    def _checked(self, inside: ByteStream, number: int, head: Head) -> CheckedStream:
        async def on_refused(decision: Decision, has_ech: bool) -> None:
            await self._telling.decided(number, head.wanted, decision, has_ech=has_ech)
            await inside.send(ACCESS_DENIED)

        return CheckedStream(inside, head.wanted, head.early, on_refused)


def _is_open(rules: Rules, one: Resolved) -> bool:
    """Whether nothing is against an address."""
    return rules.check_address(one.address, one.port, is_own=is_own_address(one.address)) is None
