"""A run as spans: made of the events that its record gets, after these are in it."""

import time
from collections.abc import Callable

from opentelemetry import trace
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from ringfence.events import (
    Event,
    JobCreated,
    JobEnded,
    ModelAsked,
    ModelExchanged,
    ModelReplied,
    ModelRetried,
    SandboxCreated,
    ToolCalled,
    ToolReturned,
    VerificationEnded,
)
from ringfence.fleet.tracing import conventions
from ringfence.fleet.tracing.conventions import Told
from ringfence.job.state import JobState

_MOST_OPEN = 1000
"""Calls and requests that are begun and not over, of one run."""
GOOD = (JobState.SUCCEEDED, JobState.UNVERIFIED)


class RunTrace:
    """The span of one run, and those below it. Whatever goes wrong here is told, and stops nothing.

    Args:
        tracer: Makes spans.
        span: The run's, begun.
        provider: Whose models are asked.
        with_content: Whether texts of agents, models and tools are in spans.
        log: Is told what went wrong, once.
    """

    def __init__(
        self, tracer: Tracer, span: Span, *, provider: str, with_content: bool, log: Callable[[str], None]
    ) -> None:
        self._tracer = tracer
        self._span = span
        self._context = trace.set_span_in_context(span)
        self._provider = provider
        self._with_content = with_content
        self._log: Callable[[str], None] | None = log
        self._model = ""
        self._calls: dict[str, tuple[int, ToolCalled]] = {}
        self._asked: dict[int, str] = {}

    @property
    def environment(self) -> dict[str, str]:
        """What those inside need to join the trace: `TRACEPARENT`, and `TRACESTATE` if there is any."""
        carrier: dict[str, str] = {}
        TraceContextTextMapPropagator().inject(carrier, self._context)
        return {name.upper(): value for name, value in carrier.items()}

    async def see(self, event: Event) -> None:
        """Take an event of the run."""
        try:
            self._see(event)
        except Exception as exc:  # noqa: BLE001 -- a trace is never worth a job
            self._complain(exc)

    def end(self, state: JobState | None) -> None:
        """End the run's span, and what is open below it. None: nobody knows how the run ended."""
        try:
            for began_ns, called in self._calls.values():
                self._add(
                    conventions.of_tool(called, None, with_content=self._with_content), began_ns=began_ns
                )
            fail(self._span, None if state in GOOD else "unknown" if state is None else state.value)
            self._span.end()
        except Exception as exc:  # noqa: BLE001 -- as above
            self._complain(exc)

    def _complain(self, error: Exception) -> None:
        log, self._log = self._log, None
        if log is not None:
            log(f"its trace is not whole: {error!r}")

    def _see(self, event: Event) -> None:
        with_content = self._with_content
        match event:
            case JobCreated():
                self._begin(event)
            case SandboxCreated():
                self._add(conventions.of_sandbox(event))
            case ModelReplied() if not event.origin:
                told = conventions.of_reply(
                    event, model=self._model, provider=self._provider, with_content=with_content
                )
                self._add(told)
            case ModelAsked() | ModelExchanged() if event.sandbox_id:
                self._exchange(event)
            case ModelRetried():
                status = event.status or 0
                self._span.add_event("model.retried", {"attempt": event.attempt, "status": status})
            case ToolCalled() if not event.origin and len(self._calls) < _MOST_OPEN:
                self._calls[event.call_id] = (time.time_ns(), event)
            case ToolReturned() if event.call_id in self._calls:
                began_ns, called = self._calls.pop(event.call_id)
                self._add(conventions.of_tool(called, event, with_content=with_content), began_ns=began_ns)
            case VerificationEnded():
                self._add(conventions.of_verification(event))
            case JobEnded():
                self._span.set_attributes({**conventions.used(event.usage), "ringfence.turns": event.turns})
            case _:
                pass

    def _begin(self, event: JobCreated) -> None:
        self._model = event.model
        self._span.set_attribute(conventions.CONVERSATION, event.session_id)
        self._span.set_attribute("ringfence.runtime", event.runtime)
        if self._with_content:
            self._span.set_attributes(conventions.asked(event.prompt))

    def _exchange(self, event: ModelAsked | ModelExchanged) -> None:
        if isinstance(event, ModelExchanged):
            model = self._asked.pop(event.exchange, "")
            self._add(conventions.of_exchange(event, model=model, provider=self._provider))
        elif event.allowed and len(self._asked) < _MOST_OPEN:
            self._asked[event.exchange] = event.model

    def _add(self, told: Told, *, began_ns: int | None = None) -> None:
        """A span that is over; its beginning is measured from now, or known."""
        now_ns = time.time_ns()
        span = self._tracer.start_span(
            told.name,
            self._context,
            kind=SpanKind.CLIENT if told.is_client else SpanKind.INTERNAL,
            attributes=told.attributes,
            start_time=began_ns or now_ns - round(told.duration_ms * 1e6),
        )
        fail(span, told.error)
        span.end(now_ns)


def fail(span: Span, error: str | None) -> None:
    """Say of a span that it failed, if it did."""
    if error is not None:
        span.set_attribute(conventions.ERROR_TYPE, error)
        span.set_status(Status(StatusCode.ERROR))
