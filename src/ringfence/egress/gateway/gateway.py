"""The model gateway of one run: what is asked through it has no key, leaves with one, is counted and in the record."""

import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

import anyio

from ringfence.egress.forwarding import Emit
from ringfence.egress.gateway.admission import Admitted, admit, find_asked, is_anthropic
from ringfence.egress.gateway.answer import Answer, Kept, Passage, Rooms, StreamedBody
from ringfence.egress.gateway.budget import Budget, Charge, Taken, UnknownPrice
from ringfence.egress.gateway.headers import answering, asking
from ringfence.egress.gateway.policy import ModelPolicy
from ringfence.egress.gateway.provider import ModelProvider, Redactors
from ringfence.egress.gateway.shapes import (
    BAD_GATEWAY,
    FORBIDDEN,
    UNAVAILABLE,
    Denied,
    OverBudget,
)
from ringfence.egress.gateway.telling import exchanged, passed_on, refused
from ringfence.egress.gateway.upstream import HttpUpstream, Upstream, UpstreamRequest, UpstreamResponse
from ringfence.egress.gateway.usage import Counter
from ringfence.egress.gateway.verdict import MAX_TOKENS, Verdict
from ringfence.egress.http.client import UpstreamError
from ringfence.egress.reading import Asked
from ringfence.errors import AuthenticationFailed, InfrastructureFault, PolicyRefused, RingfenceError
from ringfence.events import Event
from ringfence.secret import Credential, CredentialKind, Provider, Redactor

_MOST_FAULTS = 50
"""In a row; then the API counts as gone for this run."""

_MOST_BYTES = 64 * 1024 * 1024
_TELL_S = 5.0


class Gateway:
    """Asks models' APIs for one run.

    Args:
        providers: The APIs that can be asked.
        policy: What may be asked of them.
        budget: What may be used; None is no limit.
        agent_is_inside: Whether the agent that is counted in turns asks from inside, as against our own loop.
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
        self._providers = {each.name: each for each in providers}
        self._policy = policy or ModelPolicy()
        self._budget = budget or Budget()
        self._upstreams: dict[Provider, Upstream] = {}
        self._emit: Emit | None = None
        self._redactors = Redactors()
        self._rooms = Rooms()
        self._users = 0
        self._count = 0
        self._faults_in_a_row = 0
        self._when_stopped = anyio.Event()
        self._turn = anyio.Lock(fast_acquire=True)
        self.faults = 0
        """How often an API could not be asked, or broke off."""
        self.fault: InfrastructureFault | None = None
        """The last of them, while no answer has come since."""
        self.stopped: RingfenceError | None = None
        """Why the run is to end: a limit was reached, the credential is not to be had, the API is gone."""
        self.last: Verdict | None = None
        """What was said of the agent's last request for an answer."""

    @property
    def kinds(self) -> Mapping[Provider, CredentialKind]:
        """The APIs that can be asked, and which kind of credential each takes."""
        return {name: each.kind for name, each in self._providers.items()}

    @property
    def turns(self) -> int:
        """How many requests of the agent were answered."""
        return self._budget.used_turns

    def origin(self, provider: Provider) -> str:
        """Where an API is, for messages; known once the gateway is open."""
        return self._upstreams[provider].origin

    @asynccontextmanager
    async def opened(self, emit: Emit) -> AsyncIterator[None]:
        """Be there until the context is left; may be entered by several at once.

        Args:
            emit: Records an event; returns when it is written. The first one counts.

        Raises:
            UsageError: A base URL is none.
        """
        if self._users == 0:
            self._open(emit)
        self._users += 1
        try:
            yield
        finally:
            self._users -= 1
            if self._users == 0:
                await self._close()

    def _open(self, emit: Emit) -> None:
        self._upstreams = {
            name: HttpUpstream(each.upstream) if isinstance(each.upstream, str) else each.upstream
            for name, each in self._providers.items()
        }
        self._emit = emit

    async def _close(self) -> None:
        self._emit = None
        upstreams, self._upstreams = self._upstreams, {}
        with anyio.CancelScope(shield=True):
            for upstream in upstreams.values():
                await upstream.aclose()

    async def prepare(self) -> None:
        """Get the upstreams ready for a first request that is likely to come."""
        for upstream in self._upstreams.values():
            await upstream.open()

    async def wait_stopped(self) -> RingfenceError:
        """Wait until the run is to end; why."""
        await self._when_stopped.wait()
        assert self.stopped is not None
        return self.stopped

    def stop(self, reason: RingfenceError) -> None:
        """Say that the run is to end; the first reason counts."""
        if self.stopped is None:
            self.stopped = reason
            self._when_stopped.set()

    # --- one exchange

    async def answer(self, asked: Asked, *, sandbox_id: str = "") -> Answer:
        """Answer one request, whatever it is.

        Args:
            asked: As it came.
            sandbox_id: Whose it is; empty for the agent's own loop, whose conversation is in the record by itself.

        Raises:
            anyio.ClosedResourceError: The gateway is not open.
            InfrastructureFault: It could not be written down.
        """
        if self._emit is None:
            raise anyio.ClosedResourceError
        self._count += 1
        number = self._count
        is_agent = bool(sandbox_id) == self._agent_is_inside
        try:
            admitted, charge, credential = await self._admitted(asked, is_agent=is_agent)
        except Denied as denied:
            await self._tell(refused(number, asked, sandbox_id, str(denied)))
            return Answer.refusal("anthropic" if is_anthropic(asked) else "openai", denied)
        redactor = self._redactors.of(credential)
        passage = Passage(
            number,
            sandbox_id,
            admitted,
            counter=Counter(admitted.route.api, len(admitted.body)),
            charge=charge,
            kept=Kept(self._rooms.kept, wanted=bool(sandbox_id)),
        )
        try:
            came = await self._ask(asked, passage, credential, redactor)
            return await self._passed_on(came, passage, redactor)
        except anyio.get_cancelled_exc_class():
            # Nobody waits for it any more; the API may have written it all the same.
            with anyio.move_on_after(_TELL_S, shield=True):
                await self._finish(passage)
            raise
        except UpstreamError as exc:
            passage.ended_by, passage.fault = "upstream", redactor.redact(str(exc))
            await self._finish(passage)
            return Answer.refusal(
                admitted.route.provider, Denied(BAD_GATEWAY, passage.fault, is_final=exc.is_final)
            )
        except BaseException:
            charge.end()
            raise

    async def _admitted(self, asked: Asked, *, is_agent: bool) -> tuple[Admitted, Charge, Credential]:
        """What is asked; where what is left is held for other answers, when one of them is over."""
        async with self._turn:
            while True:
                try:
                    admitted = self._admit(asked, is_agent=is_agent)
                    break
                except Taken:
                    await self._budget.wait_freed()
            charge = self._budget.begin(admitted.model, admitted.most, is_turn=admitted.is_turn)
        try:
            return admitted, charge, await self._credential(admitted)
        except BaseException:
            charge.end()
            raise

    def _admit(self, asked: Asked, *, is_agent: bool) -> Admitted:
        route = find_asked(asked)
        if route.provider not in self._providers:
            raise Denied(
                FORBIDDEN, f"there is no credential for the API of {route.provider!r} on the host's side"
            )
        if isinstance(self.stopped, InfrastructureFault):
            raise Denied(UNAVAILABLE, str(self.stopped))
        if isinstance(self.stopped, PolicyRefused):
            raise Denied(FORBIDDEN, str(self.stopped))
        try:
            return admit(asked, route, self._policy, self._budget, is_turn=is_agent)
        except OverBudget as over:
            self.stop(over.limit)
            raise
        except Denied as denied:
            if is_agent and route.is_paid:
                self.last = Verdict(denied.status, message=str(denied), is_rejected_by_gateway=True)
            raise

    async def _credential(self, admitted: Admitted) -> Credential:
        try:
            return await self._providers[admitted.route.provider].current_credential()
        except AuthenticationFailed as exc:
            self.stop(exc)
            raise Denied(FORBIDDEN, str(exc)) from exc
        except InfrastructureFault as exc:
            raise Denied(UNAVAILABLE, str(exc), is_final=False) from exc

    async def _ask(
        self, asked: Asked, passage: Passage, credential: Credential, redactor: Redactor
    ) -> UpstreamResponse:
        """Write the request down, and send it."""
        route = passage.admitted.route
        await self._tell(passed_on(passage, asked, redactor, self._rooms.recorded))
        headers = asking(asked.headers, credential, self._policy)
        return await self._upstreams[route.provider].send(
            UpstreamRequest(asked.method, route.path, headers, passage.admitted.body)
        )

    async def _passed_on(self, came: UpstreamResponse, passage: Passage, redactor: Redactor) -> Answer:
        passage.status = came.status
        passage.first_byte_s = time.monotonic() - passage.began
        headers = answering(came.headers, redactor)
        passage.content_type = headers.get("content-type", "")
        if passage.content_type.startswith("text/event-stream"):
            return Answer(
                came.status,
                headers,
                StreamedBody(came, passage, redactor, finish=self._finish, stop=self.stop),
            )
        return Answer(came.status, headers, await self._whole(came, passage, redactor))

    async def _whole(self, came: UpstreamResponse, passage: Passage, redactor: Redactor) -> bytes:
        body = bytearray()
        try:
            async for piece in came.body():
                if len(body) + len(piece) > _MOST_BYTES:
                    raise UpstreamError(f"the answer is larger than {_MOST_BYTES} bytes", is_final=True)
                if not self._rooms.whole.take(len(piece)):
                    raise UpstreamError("too many large answers come at once")
                body += piece
        finally:
            self._rooms.whole.give_back(len(body))
            await came.aclose()
        if passage.admitted.route.is_paid:
            passage.counter.verdict.take_body(bytes(body))
            if came.status < 400:
                passage.counter.take_json(bytes(body))
        redacted = redactor.redact(bytes(body))
        passage.kept.add(redacted)
        passage.ended_by = "closed"
        await self._finish(passage)
        return redacted

    # --- telling

    async def _tell(self, event: Event) -> None:
        if self._emit is None:
            raise anyio.ClosedResourceError
        await self._emit(event)

    async def _finish(self, passage: Passage) -> None:
        verdict = passage.counter.verdict.verdict(passage.status, passage.fault)
        is_answered = _is_answered(passage, verdict)
        is_unseen = passage.ended_by == "inside" and not passage.counter.is_begun
        if is_unseen and passage.admitted.route.is_paid and passage.status < 400:
            passage.counter.assume(time.monotonic() - passage.began, passage.admitted.max_tokens)
        usage = passage.counter.usage
        passage.charge.update(usage, passage.counter.model)
        passage.charge.end(is_answered=is_answered)
        if passage.admitted.is_turn:
            self.last = verdict
        if passage.admitted.is_bounded_by_budget and verdict.stop_reason == MAX_TOKENS:
            self.stop(self._budget.used_up())
        self._note_fault(passage)
        self._check_price(passage)
        model = self._budget.charged_as(passage.admitted.model, passage.counter.model)
        cost = self._budget.cost(model, usage) if model else None
        event = exchanged(passage, cost, self._rooms.recorded)
        passage.kept.release()
        if self._emit is not None:
            await self._emit(event)

    def _check_price(self, passage: Passage) -> None:
        """End the run where another model answered than was asked, and a limit on cost cannot be kept for it."""
        asked, replied = passage.admitted.model, passage.counter.model
        try:
            self._budget.check_charged(asked, replied)
        except UnknownPrice:
            self.stop(
                PolicyRefused(
                    f"the provider answered with the model {replied!r} in place of {asked!r}, and its price is not "
                    "known, so the limit on cost cannot be kept; give the price under `prices:` in "
                    "~/.config/ringfence/ringfence.yaml, or limit tokens instead",
                    rule="cost_limit_needs_price",
                )
            )

    def _note_fault(self, passage: Passage) -> None:
        """Count what is nobody's fault inside."""
        if passage.status == 0 and passage.ended_by == "inside":
            return  # nobody waited to learn whether it is one
        if not passage.fault and passage.status < 500:
            self._faults_in_a_row, self.fault = 0, None
            return
        self.faults += 1
        self._faults_in_a_row += 1
        why = passage.fault or f"the model's API answers with {passage.status}"
        self.fault = InfrastructureFault(f"{why}; try again later")
        if self._faults_in_a_row >= _MOST_FAULTS:
            self.stop(
                InfrastructureFault(f"{_MOST_FAULTS} requests to the model in a row came to nothing ({why})")
            )


def _is_answered(passage: Passage, verdict: Verdict) -> bool:
    """Whether a request was answered: wholly, or as far as the program inside wanted to read it.

    An answer that broke off on the way, or is an error, is asked for again, and is none.
    """
    if verdict.is_failure:
        return False
    return verdict.is_complete or (passage.counter.is_begun and passage.ended_by in ("inside", "limit"))
