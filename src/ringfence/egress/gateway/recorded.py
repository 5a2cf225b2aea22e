"""An API that answers as it did once, from a record: what `Gateway` takes in place of the real one."""

from collections import deque
from collections.abc import AsyncGenerator, Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256

from ringfence.egress.gateway.upstream import UpstreamGone
from ringfence.events import Event, ModelAsked, ModelExchanged


@dataclass
class RecordedAnswer:
    """An answer of the record."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes
    breaks_off: bool = False

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        """The body, in one piece."""
        if self.body:
            yield self.body
        if self.breaks_off:
            raise UpstreamGone("the answer breaks off here, as recorded")

    async def aclose(self) -> None:
        """There is nothing to let go of."""


@dataclass
class RecordedUpstream:
    """Serves the exchanges of a run that came from inside; each one once, to the very same request.

    Args:
        events: Of the run, in order; bodies in place.
    """

    events: Iterable[Event]
    served: int = 0
    """How many requests were answered."""
    unknown: list[str] = field(default_factory=list)
    """Requests that the record has no answer to: method, path and digest of the body."""
    _answers: dict[tuple[str, str], deque[RecordedAnswer]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        asked: dict[tuple[str, int], ModelAsked] = {}
        for event in self.events:
            if isinstance(event, ModelAsked) and event.allowed and event.sandbox_id:
                asked[event.sandbox_id, event.exchange] = event
            elif isinstance(event, ModelExchanged):
                question = asked.pop((event.sandbox_id, event.exchange), None)
                if question is not None and event.status:
                    self._answers.setdefault(_key(question), deque()).append(_answer(event))

    @property
    def remaining(self) -> int:
        """How many recorded answers nobody has asked for."""
        return sum(len(answers) for answers in self._answers.values())

    async def ask(
        self,
        method: str,
        base_url: str,  # noqa: ARG002 -- as `Upstream` has it
        path: str,
        headers: Mapping[str, str],  # noqa: ARG002
        body: bytes,
    ) -> RecordedAnswer:
        """The recorded answer to this request.

        Raises:
            UpstreamGone: There is none, or none is left.
        """
        digest = sha256(body).hexdigest() if body else ""
        answers = self._answers.get((method, digest if body else path.removeprefix("/v1")))
        if not answers:
            self.unknown.append(f"{method} {path} {digest[:12]}")
            raise UpstreamGone(f"the record has no answer to this request ({method} {path})", is_final=True)
        self.served += 1
        return answers.popleft()

    async def aclose(self) -> None:
        """There is nothing to close."""


def _key(asked: ModelAsked) -> tuple[str, str]:
    """A body says what is asked; what has none is known by its path."""
    return asked.method, asked.request_digest or asked.path.removeprefix("/v1")


def _answer(event: ModelExchanged) -> RecordedAnswer:
    body = (event.answer or "").encode()
    return RecordedAnswer(
        event.status, (("content-type", event.content_type),), body, breaks_off=event.ended_by == "upstream"
    )
