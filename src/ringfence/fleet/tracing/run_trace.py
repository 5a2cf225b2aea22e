"""Records a run as spans and metrics, from the events that its journal has recorded."""

import time
from collections.abc import Callable

from opentelemetry import trace
from opentelemetry.context import Context
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
from ringfence.fleet.tracing.conventions import Attributes, EndedSpan
from ringfence.fleet.tracing.metrics import Metrics
from ringfence.job.state import JobState

_MAX_OPEN = 1000
"""The most unfinished tool calls of one run, and the most unfinished model requests."""
SUCCESSES = (JobState.SUCCEEDED, JobState.UNVERIFIED)


class RunTrace:
    """The span of one run and the spans below it. An error here is logged once and never reaches the run.

    Args:
        tracer: Creates spans.
        metrics: Takes metrics; None if there are none.
        name: The name of the run's span.
        attributes: The attributes of the run's span.
        parent: The context of the job's span.
        provider: The provider of the run's models.
        with_content: Whether spans contain texts of agents, models and tools.
        log: Logs an error.
    """

    def __init__(
        self,
        tracer: Tracer,
        metrics: Metrics | None,
        name: str,
        attributes: Attributes,
        parent: Context,
        *,
        provider: str,
        with_content: bool,
        log: Callable[[str], None],
    ) -> None:
        self._tracer = tracer
        self._metrics = metrics
        self._attributes = attributes
        self._span = tracer.start_span(name, parent, kind=SpanKind.INTERNAL, attributes=attributes)
        self._started_s = time.monotonic()
        self._context = trace.set_span_in_context(self._span)
        self._provider = provider
        self._with_content = with_content
        self._log: Callable[[str], None] | None = log
        self._model = ""
        self._calls: dict[str, tuple[int, ToolCalled]] = {}
        self._requests: dict[int, str] = {}
        self._counts = {"inference_calls": 0, "tool_calls": 0}

    @property
    def environment(self) -> dict[str, str]:
        """The variables by which programs in the sandbox join the trace, such as `TRACEPARENT`."""
        carrier: dict[str, str] = {}
        TraceContextTextMapPropagator().inject(carrier, self._context)
        return {name.upper(): value for name, value in carrier.items()}

    async def see(self, event: Event) -> None:
        """Record an event of the run."""
        try:
            self._see(event)
        except Exception as exc:  # noqa: BLE001 -- a trace must not end a job
            self._log_error(exc)

    def end(self, state: JobState | None) -> None:
        """End the run's span, and the spans of tool calls that have not ended.

        Args:
            state: The state in which the run ended; None if it is not known.
        """
        try:
            for call_id in list(self._calls):
                self._end_call(call_id, None)
            error = None if state in SUCCESSES else "unknown" if state is None else state.value
            set_error(self._span, error)
            self._span.end()
            if self._metrics is not None:
                duration_s = time.monotonic() - self._started_s
                self._metrics.record_run(self._attributes, error, duration_s=duration_s, **self._counts)
        except Exception as exc:  # noqa: BLE001 -- as above
            self._log_error(exc)

    def _log_error(self, error: Exception) -> None:
        log, self._log = self._log, None
        if log is not None:
            log(f"its trace is incomplete: {error!r}")

    def _see(self, event: Event) -> None:
        match event:
            case JobCreated():
                self._start(event)
            case SandboxCreated():
                self._add(conventions.sandbox_span(event))
            case ModelReplied() if not event.origin:
                span = conventions.reply_span(
                    event, model=self._model, provider=self._provider, with_content=self._with_content
                )
                self._add(span)
            case ModelAsked() | ModelExchanged() if event.sandbox_id:
                self._see_exchange(event)
            case ModelRetried():
                status = event.status or 0
                self._span.add_event("model.retried", {"attempt": event.attempt, "status": status})
            case ToolCalled() if not event.origin and len(self._calls) < _MAX_OPEN:
                self._calls[event.call_id] = (time.time_ns(), event)
            case ToolReturned() if event.call_id in self._calls:
                self._end_call(event.call_id, event)
            case VerificationEnded():
                self._add(conventions.verification_span(event))
            case JobEnded():
                self._span.set_attributes(
                    {**conventions.usage_attributes(event.usage), "ringfence.turns": event.turns}
                )
            case _:
                pass

    def _start(self, event: JobCreated) -> None:
        self._model = event.model
        self._span.set_attribute(conventions.CONVERSATION, event.session_id)
        self._span.set_attribute("ringfence.runtime", event.runtime)
        if self._with_content:
            self._span.set_attributes(conventions.prompt_attributes(event.prompt))

    def _see_exchange(self, event: ModelAsked | ModelExchanged) -> None:
        if isinstance(event, ModelExchanged):
            model = self._requests.pop(event.exchange, "")
            self._add(conventions.exchange_span(event, model=model, provider=self._provider))
        elif event.allowed and len(self._requests) < _MAX_OPEN:
            self._requests[event.exchange] = event.model

    def _end_call(self, call_id: str, returned: ToolReturned | None) -> None:
        started_ns, called = self._calls.pop(call_id)
        span = conventions.tool_span(
            called,
            returned,
            agent=str(self._attributes[conventions.AGENT_NAME]),
            duration_ms=(time.time_ns() - started_ns) / 1e6,
            with_content=self._with_content,
        )
        self._counts["tool_calls"] += 1
        self._add(span)

    def _add(self, ended: EndedSpan) -> None:
        """Add a span that ends now."""
        now_ns = time.time_ns()
        is_request = ended.usage is not None
        self._counts["inference_calls"] += is_request
        span = self._tracer.start_span(
            ended.name,
            self._context,
            kind=SpanKind.CLIENT if is_request else SpanKind.INTERNAL,
            attributes=ended.attributes,
            start_time=now_ns - round(ended.duration_ms * 1e6),
        )
        set_error(span, ended.error)
        span.end(now_ns)
        if self._metrics is not None:
            self._metrics.record_span(ended)


def set_error(span: Span, error: str | None) -> None:
    """Mark a span as failed, unless `error` is None."""
    if error is not None:
        span.set_attribute(conventions.ERROR_TYPE, error)
        span.set_status(Status(StatusCode.ERROR))
