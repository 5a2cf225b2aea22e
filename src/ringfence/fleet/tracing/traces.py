"""Where traces go: a collector, in the background, as far as it takes them."""

import hashlib
import logging
import threading
import time
from collections.abc import Callable
from datetime import datetime

from opentelemetry import trace
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanLimits, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import Decision
from opentelemetry.trace import NonRecordingSpan, SpanContext, SpanKind, TraceFlags

from ringfence import __version__
from ringfence.fleet.config.model import AgentSettings, TraceSettings
from ringfence.fleet.store.attempts import Attempt
from ringfence.fleet.store.job import Job
from ringfence.fleet.tracing import conventions
from ringfence.fleet.tracing.conventions import Attributes
from ringfence.fleet.tracing.run_trace import GOOD, RunTrace, fail
from ringfence.runtime.registry import provider_of

_EXPORT_S = 10.0
_FLUSH_S = 3.0
_TELL_EVERY_S = 300.0
_LONGEST_ATTRIBUTE = 64 * 1024
_LOGGER = "opentelemetry"


class Traces:
    """Traces of jobs. A job's spans are one trace, whichever workers it came to: its ids are made of the job's.

    Args:
        exporter: Sends spans somewhere.
        fleet: The fleet's name.
        with_content: Whether texts of agents, models and tools are in spans.
        log: Is told of faults, at most once in five minutes.
    """

    def __init__(
        self, exporter: SpanExporter, *, fleet: str, with_content: bool, log: Callable[[str], None]
    ) -> None:
        self._ids = _Ids()
        resource = {"service.name": "ringfence", "service.version": __version__, "ringfence.fleet": fleet}
        self._provider = TracerProvider(
            resource=Resource.create(dict(resource)),
            id_generator=self._ids,
            span_limits=SpanLimits(max_span_attribute_length=_LONGEST_ATTRIBUTE),
            shutdown_on_exit=False,
        )
        self._exporter = exporter
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("ringfence", __version__)
        self._with_content = with_content
        self._faults = _Faults(log)
        logger = logging.getLogger(_LOGGER)
        logger.addHandler(self._faults)
        logger.propagate = False

    def run(
        self, job: Job, attempt: Attempt, settings: AgentSettings, *, log: Callable[[str], None]
    ) -> RunTrace:
        """The span of an attempt, which begins now."""
        provider = provider_of(settings.run.runtime)
        name, attributes = conventions.of_run(agent=job.agent, model=settings.run.model, provider=provider)
        attributes |= {
            "ringfence.job.id": job.id,
            "ringfence.run.id": attempt.run_id,
            "ringfence.job.attempt": attempt.number,
        }
        parent = trace.set_span_in_context(NonRecordingSpan(self._context_of(job)))
        span = self._tracer.start_span(name, parent, kind=SpanKind.INTERNAL, attributes=attributes)
        return RunTrace(self._tracer, span, provider=provider, with_content=self._with_content, log=log)

    def hook(
        self, job: Job, which: tuple[str, int], kind: str, *, began_ns: int, run_id: str | None, is_ok: bool
    ) -> None:
        """The span of a hook that has been done once.

        Args:
            job: Around which.
            which: Its moment, and its place among the hooks of that moment, from 1.
            kind: What it is: `command`, `webhook`, `slack`, `discord`.
            began_ns: When it began, in nanoseconds since 1970.
            run_id: The run that it was, if it was one.
            is_ok: Whether it went well.
        """
        name, attributes = conventions.of_hook(*which, kind=kind, run_id=run_id)
        parent = trace.set_span_in_context(NonRecordingSpan(self._context_of(job)))
        attributes |= {"ringfence.job.id": job.id}
        span = self._tracer.start_span(
            name, parent, kind=SpanKind.INTERNAL, attributes=attributes, start_time=began_ns
        )
        fail(span, None if is_ok else "hook_failed")
        span.end()

    def ended(self, job: Job) -> None:
        """Send the span of a job that has ended: from its trigger to its end, waiting included."""
        attributes: Attributes = {
            "ringfence.job.id": job.id,
            "ringfence.job.state": job.state.value,
            "ringfence.job.trigger": job.trigger,
            "ringfence.job.attempts": job.attempt,
            "ringfence.job.tokens": job.tokens,
            "ringfence.job.cost_usd": job.cost_usd,
            conventions.AGENT_NAME: job.agent,
        }
        self._ids.next = _ids_of(job)
        span = self._tracer.start_span(
            f"job {job.agent}",
            trace.set_span_in_context(trace.INVALID_SPAN),
            kind=SpanKind.INTERNAL,
            attributes=attributes,
            start_time=_ns(job.created_at),
        )
        self._ids.next = None
        fail(span, None if job.state in GOOD else job.state.value)
        span.end(_ns(job.ended_at) if job.ended_at is not None else None)

    def close(self) -> None:
        """Send what is left, for a few seconds at most; blocks."""
        # A thread that nobody waits for: the SDK asks a collector that is away for longer than it is told to.
        last = threading.Thread(target=self._provider.shutdown, name="ringfence-traces", daemon=True)
        last.start()
        last.join(_FLUSH_S)
        self._faults.is_over = True  # it stays, or the last complaints would go to stderr
        self._exporter.shutdown()

    def _context_of(self, job: Job) -> SpanContext:
        trace_id, span_id = _ids_of(job)
        decision = self._provider.sampler.should_sample(None, trace_id, f"job {job.agent}").decision
        is_sampled = decision is Decision.RECORD_AND_SAMPLE
        flags = TraceFlags(TraceFlags.SAMPLED if is_sampled else TraceFlags.DEFAULT)
        return SpanContext(trace_id, span_id, is_remote=True, trace_flags=flags)


def to_collector(settings: TraceSettings, *, fleet: str, log: Callable[[str], None]) -> Traces:
    """Traces that go to a collector over HTTP. Headers and certificates are said by OTEL_EXPORTER_OTLP_..., as usual."""
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    exporter = OTLPSpanExporter(endpoint=f"{settings.endpoint.rstrip('/')}/v1/traces", timeout=_EXPORT_S)
    return Traces(exporter, fleet=fleet, with_content=settings.content, log=log)


class _Ids(RandomIdGenerator):
    """Random ids, but for the span that is told which ones it has."""

    next: tuple[int, int] | None = None

    def generate_trace_id(self) -> int:
        return super().generate_trace_id() if self.next is None else self.next[0]

    def generate_span_id(self) -> int:
        return super().generate_span_id() if self.next is None else self.next[1]


class _Faults(logging.Handler):
    """Tells of what the exporter complains of, now and then."""

    def __init__(self, log: Callable[[str], None]) -> None:
        super().__init__(logging.WARNING)
        self._log = log
        self._told_at = float("-inf")
        self.is_over = False

    def emit(self, record: logging.LogRecord) -> None:
        if not self.is_over and time.monotonic() - self._told_at > _TELL_EVERY_S:
            self._told_at = time.monotonic()
            self._log(f"traces: {record.getMessage()[:300]}")


def _ids_of(job: Job) -> tuple[int, int]:
    digest = hashlib.sha256(f"{job.id}/{job.created_at.timestamp()}".encode()).digest()
    return int.from_bytes(digest[:16]) or 1, int.from_bytes(digest[16:24]) or 1


def _ns(at: datetime) -> int:
    return round(at.timestamp() * 1e9)
