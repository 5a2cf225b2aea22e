"""The model gateway of one run: adds the key to requests, enforces the budget, and records every exchange."""

import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

import anyio

from ringfence.egress.gateway.admission import Admitted, admit
from ringfence.egress.gateway.budget import Budget, Reservation, Reserved, UnknownPrice
from ringfence.egress.gateway.exchange import (
    RECORD_TIMEOUT_S,
    Exchange,
    KeptBody,
    Quotas,
    Response,
    StreamedBody,
    rejection_event,
)
from ringfence.egress.gateway.policy import ModelPolicy
from ringfence.egress.gateway.provider import ModelProvider, Redactors
from ringfence.egress.gateway.routes import (
    BAD_GATEWAY,
    FORBIDDEN,
    UNAVAILABLE,
    OverBudget,
    Rejected,
    find_route,
    likely_provider,
)
from ringfence.egress.gateway.upstream import (
    HttpUpstream,
    Upstream,
    UpstreamRequest,
    UpstreamResponse,
    request_headers,
    response_headers,
)
from ringfence.egress.gateway.verdict import MAX_TOKENS, Verdict
from ringfence.egress.http.client import UpstreamError
from ringfence.egress.http.rules import Request
from ringfence.errors import AuthenticationFailed, InfrastructureFault, PolicyRefused, RingfenceError
from ringfence.events import Emit, Event
from ringfence.secret import Credential, CredentialKind, Provider, Redactor

_FAULTS_IN_A_ROW = 50
"""After this many consecutive faults the run ends, because the API counts as unavailable."""

_RESPONSE_LIMIT_BYTES = 64 * 1024 * 1024


class Gateway:
    """Calls models' APIs for one run.

    Args:
        providers: The APIs that may be called.
        policy: The models and features that may be requested.
        budget: The run's budget; None: no limit.
        agent_is_inside: Whether the agent whose turns count sends its requests from inside, as agent CLIs do.
    """

    def __init__(
        self,
        providers: Sequence[ModelProvider],
        *,
        policy: ModelPolicy | None = None,
        budget: Budget | None = None,
        agent_is_inside: bool = False,
    ) -> None:
        self._agent_is_inside = agent_is_inside
        self._providers = {provider.name: provider for provider in providers}
        self._policy = policy or ModelPolicy()
        self._budget = budget or Budget()
        self._upstreams: dict[Provider, Upstream] = {}
        self._emit: Emit | None = None
        self._redactors = Redactors()
        self._quotas = Quotas()
        self._count = 0
        self._faults_in_a_row = 0
        self._when_stopped = anyio.Event()
        self._admission = anyio.Lock(fast_acquire=True)
        self.faults = 0
        """How often an API could not be called, or aborted."""
        self.fault: InfrastructureFault | None = None
        """The last such fault, if no response has followed it."""
        self.stopped: RingfenceError | None = None
        """Why the run must end: a limit was reached, the credential is not valid, the API is gone."""
        self.last: Verdict | None = None
        """The outcome of the agent's last request for a response."""

    @property
    def kinds(self) -> Mapping[Provider, CredentialKind]:
        """The APIs that may be called, and the kind of credential of each."""
        return {name: provider.kind for name, provider in self._providers.items()}

    @property
    def turns(self) -> int:
        """How many requests of the agent were answered."""
        return self._budget.used_turns

    def origin(self, provider: Provider) -> str:
        """Return the address of an API for messages; the gateway must be open."""
        return self._upstreams[provider].origin

    @asynccontextmanager
    async def opened(self, emit: Emit) -> AsyncIterator[None]:
        """Keep the gateway open until the context is left.

        Args:
            emit: Writes an event to the record; returns when it is written.

        Raises:
            UsageError: A base URL is not valid.
        """
        self._upstreams = {
            name: HttpUpstream(each.upstream) if isinstance(each.upstream, str) else each.upstream
            for name, each in self._providers.items()
        }
        self._emit = emit
        try:
            yield
        finally:
            self._emit = None
            upstreams, self._upstreams = self._upstreams, {}
            with anyio.CancelScope(shield=True):
                for upstream in upstreams.values():
                    await upstream.aclose()

    async def prepare(self) -> None:
        """Prepare the upstreams for a first request that is likely to come."""
        for upstream in self._upstreams.values():
            await upstream.open()

    async def wait_stopped(self) -> RingfenceError:
        """Wait until the run must end, and return the reason."""
        await self._when_stopped.wait()
        assert self.stopped is not None
        return self.stopped

    def stop(self, reason: RingfenceError) -> None:
        """Declare that the run must end; the first reason counts."""
        if self.stopped is None:
            self.stopped = reason
            self._when_stopped.set()

    # --- one exchange: admit, send, receive, finish

    async def handle(self, request: Request, *, sandbox_id: str = "") -> Response:
        """Answer a request of any kind.

        Args:
            request: The request as received.
            sandbox_id: The sandbox that sent it; empty for the agent's own loop, which records its conversation itself.

        Raises:
            anyio.ClosedResourceError: The gateway is not open.
            InfrastructureFault: The record could not be written.
        """
        if self._emit is None:
            raise anyio.ClosedResourceError
        self._count += 1
        number = self._count
        try:
            admitted, reservation, credential = await self._admit(request, sandbox_id)
        except Rejected as rejected:
            await self._record(rejection_event(number, request, sandbox_id, str(rejected)))
            return Response.rejection(likely_provider(request), rejected)
        redactor = self._redactors.of(credential)
        kept = KeptBody(self._quotas.kept, is_wanted=bool(sandbox_id))
        exchange = Exchange(number, sandbox_id, admitted, reservation, kept)
        try:
            await self._record(exchange.request_event(request, redactor, self._quotas.recorded))
            received = await self._send(request, admitted, credential)
            return await self._receive(received, exchange, redactor)
        except anyio.get_cancelled_exc_class():
            # The client is gone, but the API may have written a response.
            with anyio.move_on_after(RECORD_TIMEOUT_S, shield=True):
                await self._finish(exchange)
            raise
        except UpstreamError as exc:
            exchange.ended_by, exchange.fault = "upstream", redactor.redact(str(exc))
            await self._finish(exchange)
            failure = Rejected(BAD_GATEWAY, exchange.fault, is_final=exc.is_final)
            return Response.rejection(admitted.route.provider, failure)
        except BaseException:
            reservation.end()
            raise

    async def _admit(self, request: Request, sandbox_id: str) -> tuple[Admitted, Reservation, Credential]:
        """Admit a request; while what is left is reserved, wait for other responses to end."""
        is_agent = bool(sandbox_id) == self._agent_is_inside
        async with self._admission:
            while True:
                try:
                    admitted = self._check(request, is_agent=is_agent)
                    break
                except Reserved:
                    await self._budget.wait_freed()
            reservation = self._budget.reserve(admitted.model, admitted.most, is_turn=admitted.is_turn)
        try:
            return admitted, reservation, await self._credential(admitted.route.provider)
        except BaseException:
            reservation.end()
            raise

    def _check(self, request: Request, *, is_agent: bool) -> Admitted:
        route = find_route(request)
        if route.provider not in self._providers:
            raise Rejected(FORBIDDEN, f"the host has no credential for the API of {route.provider!r}")
        if isinstance(self.stopped, InfrastructureFault):
            raise Rejected(UNAVAILABLE, str(self.stopped))
        if isinstance(self.stopped, PolicyRefused):
            raise Rejected(FORBIDDEN, str(self.stopped))
        try:
            return admit(request, route, self._policy, self._budget, is_turn=is_agent)
        except OverBudget as over:
            self.stop(over.limit)
            raise
        except Rejected as rejected:
            if is_agent and route.is_paid:
                self.last = Verdict(rejected.status, message=str(rejected), is_rejected_by_gateway=True)
            raise

    async def _credential(self, provider: Provider) -> Credential:
        try:
            return await self._providers[provider].current_credential()
        except AuthenticationFailed as exc:
            self.stop(exc)
            raise Rejected(FORBIDDEN, str(exc)) from exc
        except InfrastructureFault as exc:
            raise Rejected(UNAVAILABLE, str(exc), is_final=False) from exc

    async def _send(self, request: Request, admitted: Admitted, credential: Credential) -> UpstreamResponse:
        route = admitted.route
        headers = request_headers(request.headers, credential, self._policy)
        return await self._upstreams[route.provider].send(
            UpstreamRequest(request.method, route.path, headers, admitted.body)
        )

    async def _receive(self, received: UpstreamResponse, exchange: Exchange, redactor: Redactor) -> Response:
        exchange.status = received.status
        exchange.first_byte_s = time.monotonic() - exchange.began
        headers = response_headers(received.headers, redactor)
        exchange.content_type = headers.get("content-type", "")
        body: bytes | StreamedBody
        if exchange.content_type.startswith("text/event-stream"):
            body = StreamedBody(received, exchange, redactor, finish=self._finish, stop=self.stop)
        else:
            body = await self._read_whole(received, exchange, redactor)
        return Response(received.status, headers, body)

    async def _read_whole(self, received: UpstreamResponse, exchange: Exchange, redactor: Redactor) -> bytes:
        body = bytearray()
        try:
            async for piece in received.body():
                if len(body) + len(piece) > _RESPONSE_LIMIT_BYTES:
                    raise UpstreamError(
                        f"the response is larger than {_RESPONSE_LIMIT_BYTES} bytes", is_final=True
                    )
                if not self._quotas.whole.reserve(len(piece)):
                    raise UpstreamError("too many large responses arrive at once")
                body += piece
        finally:
            self._quotas.whole.release(len(body))
            await received.aclose()
        if exchange.admitted.route.is_paid:
            exchange.reader.take_body(bytes(body), is_answer=received.status < 400)
        redacted = redactor.redact(bytes(body))
        exchange.kept.add(redacted)
        exchange.ended_by = "closed"
        await self._finish(exchange)
        return redacted

    async def _record(self, event: Event) -> None:
        if self._emit is None:
            raise anyio.ClosedResourceError
        await self._emit(event)

    async def _finish(self, exchange: Exchange) -> None:
        """Count an exchange that has ended, and record it."""
        admitted, reader = exchange.admitted, exchange.reader
        verdict = reader.verdict(exchange.status, exchange.fault)
        is_answered = _is_answered(exchange, verdict)
        is_unseen = exchange.ended_by == "inside" and not reader.is_begun
        if is_unseen and admitted.route.is_paid and exchange.status < 400:
            reader.assume(time.monotonic() - exchange.began, admitted.max_tokens)
        exchange.reservation.update(reader.usage, reader.model)
        exchange.reservation.end(is_answered=is_answered)
        if admitted.is_turn:
            self.last = verdict
        if admitted.is_bounded_by_budget and verdict.stop_reason == MAX_TOKENS:
            self.stop(self._budget.used_up())
        self._note_fault(exchange)
        self._check_price(admitted.model, reader.model)
        model = self._budget.charged_as(admitted.model, reader.model)
        cost_usd = self._budget.cost(model, reader.usage) if model else None
        event = exchange.response_event(cost_usd, self._quotas.recorded)
        exchange.kept.release()
        if self._emit is not None:
            await self._emit(event)

    def _check_price(self, requested: str, responded: str) -> None:
        """End the run if another model than requested responded, and a limit on cost cannot be kept for it."""
        try:
            self._budget.check_charged(requested, responded)
        except UnknownPrice:
            self.stop(
                PolicyRefused(
                    f"the provider answered with the model {responded!r} in place of {requested!r}, and its price is "
                    "not known, so the limit on cost cannot be kept; give the price under `prices:` in "
                    "~/.config/ringfence/ringfence.yaml, or limit tokens instead",
                    rule="cost_limit_needs_price",
                )
            )

    def _note_fault(self, exchange: Exchange) -> None:
        """Count faults of the API, for which the agent is not responsible."""
        if exchange.status == 0 and exchange.ended_by == "inside":
            return  # the client left before the API responded
        if not exchange.fault and exchange.status < 500:
            self._faults_in_a_row, self.fault = 0, None
            return
        self.faults += 1
        self._faults_in_a_row += 1
        why = exchange.fault or f"the model's API answers with {exchange.status}"
        self.fault = InfrastructureFault(f"{why}; try again later")
        if self._faults_in_a_row >= _FAULTS_IN_A_ROW:
            self.stop(
                InfrastructureFault(f"{_FAULTS_IN_A_ROW} requests to the model in a row failed ({why})")
            )


def _is_answered(exchange: Exchange, verdict: Verdict) -> bool:
    """Whether a request was answered completely, or as far as the client wanted to read.

    A client retries a request whose response is an error or was cut off.
    """
    if verdict.is_failure:
        return False
    return verdict.is_complete or (exchange.reader.is_begun and exchange.ended_by in ("inside", "limit"))
