"""An API that answers as it did once, from a record: what `Gateway` takes in place of the real one."""

from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256

from ringfence.egress.gateway.upstream import Tell, UpstreamGone
from ringfence.events import Event, ModelAsked, ModelExchanged
from ringfence.frozen import frozen

Alike = Callable[[str], str]
"""What of a body counts in a comparison."""

_MOST_COMPARED = 20
_LONGEST_COMPARED = 4 * 1024 * 1024
_MOST_UNKNOWN = 100


@dataclass
class RecordedAnswer:
    """An answer of the record."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes
    breaks_off: bool = False

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        """The body, event by event: a limit that cut it off then cuts at the same place now."""
        begin = 0
        while begin < len(self.body):
            found = self.body.find(b"\n\n", begin)
            end = len(self.body) if found < 0 else found + 2
            yield self.body[begin:end]
            begin = end
        if self.breaks_off:
            raise UpstreamGone("the answer breaks off here, as recorded")

    async def aclose(self) -> None:
        """There is nothing to let go of."""


@frozen
class RecordedExchange:
    """A request of the record, and what was answered."""

    asked: ModelAsked
    answered: ModelExchanged

    @property
    def is_whole(self) -> bool:
        """Whether its answer came to its end."""
        return self.answered.ended_by == "closed"

    @property
    def is_kept(self) -> bool:
        """Whether its answer is in the record."""
        return self.answered.answer is not None or not self.answered.answer_bytes

    @cached_property
    def key(self) -> tuple[str, str]:
        """A body says what is asked; what has none is known by its path."""
        return self.asked.method, self.asked.request_digest or _bare(self.asked.path)

    def answer(self) -> RecordedAnswer:
        """The answer, once more."""
        event = self.answered
        return RecordedAnswer(
            event.status,
            (("content-type", event.content_type),),
            (event.answer or "").encode(),
            breaks_off=event.ended_by == "upstream",
        )


@frozen
class Asking:
    """A request, beside the exchange of the record that it is held against."""

    method: str
    path: str
    body: bytes
    exchange: RecordedExchange | None
    """For one without an answer: what the record has next. None: nothing any more."""


@dataclass
class RecordedUpstream:
    """Serves the exchanges of a run that came from inside; each one once, to the same request.

    Args:
        events: Of the run, in order; bodies in place.
        alike: What of a body counts; None: all of it, to the byte.
        on_unknown: Called at each request that the record has no answer to, before that is told.
    """

    events: Iterable[Event]
    alike: Alike | None = None
    on_unknown: Callable[[], None] = lambda: None
    served: int = 0
    """How many requests were answered."""
    passed_over: list[Asking] = field(default_factory=list)
    """Answered requests that differ from those of the record, in nothing that counts."""
    unknown: list[Asking] = field(default_factory=list)
    """Requests that the record has no answer to; the first hundred."""
    _waiting: list[RecordedExchange] = field(default_factory=list)

    def __post_init__(self) -> None:
        asked: dict[tuple[str, int], ModelAsked] = {}
        for event in self.events:
            if isinstance(event, ModelAsked) and event.allowed and event.sandbox_id:
                asked[event.sandbox_id, event.exchange] = event
            elif isinstance(event, ModelExchanged):
                question = asked.pop((event.sandbox_id, event.exchange), None)
                if question is not None and event.status:
                    self._waiting.append(RecordedExchange(question, event))
        self._waiting.sort(key=lambda one: one.asked.exchange)

    @property
    def remaining(self) -> tuple[RecordedExchange, ...]:
        """Recorded answers that nobody has asked for."""
        return tuple(self._waiting)

    async def ask(
        self,
        method: str,
        base_url: str,  # noqa: ARG002 -- as `Upstream` has it
        path: str,
        headers: Mapping[str, str],  # noqa: ARG002
        body: bytes,
        *,
        tell: Tell,
    ) -> RecordedAnswer:
        """The recorded answer to this request.

        Raises:
            UpstreamGone: There is none, or none is left.
        """
        await tell()
        found = self._same(method, path, body) or self._alike(method, path, body)
        if found is None or not found.is_kept:
            if len(self.unknown) < _MOST_UNKNOWN:
                self.unknown.append(Asking(method, path, body, found or self._next(method, path)))
            self.on_unknown()
            raise UpstreamGone(f"the record has no answer to this request ({method} {path})", is_final=True)
        self._waiting.remove(found)
        self.served += 1
        return found.answer()

    def _same(self, method: str, path: str, body: bytes) -> RecordedExchange | None:
        key = method, sha256(body).hexdigest() if body else _bare(path)
        return next((one for one in self._waiting if one.key == key), None)

    def _alike(self, method: str, path: str, body: bytes) -> RecordedExchange | None:
        if self.alike is None or not body or len(body) > _LONGEST_COMPARED:
            return None
        counts = self.alike(body.decode("utf-8", "replace"))
        near = [one for one in self._waiting if _is_about(one, method, path) and one.asked.request]
        for one in near[:_MOST_COMPARED]:
            if self.alike(one.asked.request or "") == counts:
                self.passed_over.append(Asking(method, path, body, one))
                return one
        return None

    def _next(self, method: str, path: str) -> RecordedExchange | None:
        """What was to be expected: the next of this call, else the next at all."""
        near = (one for one in self._waiting if _is_about(one, method, path))
        return next(near, None) or next(iter(self._waiting), None)

    async def aclose(self) -> None:
        """There is nothing to close."""


def _is_about(one: RecordedExchange, method: str, path: str) -> bool:
    return one.asked.method == method and _call(one.asked.path) == _call(path)


def _call(path: str) -> str:
    return _bare(path).partition("?")[0]


def _bare(path: str) -> str:
    return path.removeprefix("/v1")
