"""Sends traces and metrics of jobs to a collector, in the background; data that it does not accept is dropped."""

import hashlib
import logging
import threading
import time
from collections.abc import Callable
from datetime import datetime

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import MetricReader
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
from ringfence.fleet.tracing.metrics import Metrics
from ringfence.fleet.tracing.run_trace import SUCCESSES, RunTrace, set_error
from ringfence.runtime.registry import provider_of

_EXPORT_S = 10.0
_FLUSH_S = 3.0
_LOG_INTERVAL_S = 300.0
_MAX_ATTRIBUTE = 64 * 1024
_LOGGER = "opentelemetry"


class Traces:
    """The traces of jobs. The ids of a job's trace are derived from the job, so that all workers add to one trace.

    Args:
        exporter: Sends spans.
        fleet: The name of the fleet.
        with_content: Whether spans contain texts of agents, models and tools.
        log: Logs errors of the exporters, at most one in five minutes.
        metric_reader: Sends metrics; None: there are none.
    """

    def __init__(
        self,
        exporter: SpanExporter,
        *,
        fleet: str,
        with_content: bool,
        log: Callable[[str], None],
        metric_reader: MetricReader | None = None,
    ) -> None:
        self._ids = _JobIdGenerator()
        resource = Resource.create(
            {"service.name": "ringfence", "service.version": __version__, "ringfence.fleet": fleet}
        )
        self._provider = TracerProvider(
            resource=resource,
            id_generator=self._ids,
            span_limits=SpanLimits(max_span_attribute_length=_MAX_ATTRIBUTE),
            shutdown_on_exit=False,
        )
        self._exporter = exporter
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("ringfence", __version__)
        self._meter_provider: MeterProvider | None = None
        self._metrics: Metrics | None = None
        if metric_reader is not None:
            self._meter_provider = MeterProvider([metric_reader], resource, shutdown_on_exit=False)
            self._metrics = Metrics(self._meter_provider.get_meter("ringfence", __version__))
        self._with_content = with_content
        self._log_handler = _ThrottledHandler(log)
        logger = logging.getLogger(_LOGGER)
        logger.addHandler(self._log_handler)
        logger.propagate = False

    def run(
        self, job: Job, attempt: Attempt, settings: AgentSettings, *, log: Callable[[str], None]
    ) -> RunTrace:
        """Return the trace of an attempt that starts now."""
        name, attributes = conventions.run_span(agent=job.agent, model=settings.run.model)
        attributes |= {
            "ringfence.job.id": job.id,
            "ringfence.run.id": attempt.run_id,
            "ringfence.job.attempt": attempt.number,
        }
        return RunTrace(
            self._tracer,
            self._metrics,
            name,
            attributes,
            self._parent(job),
            provider=provider_of(settings.run.runtime),
            with_content=self._with_content,
            log=log,
        )

    def hook(
        self, job: Job, which: tuple[str, int], kind: str, *, began_ns: int, run_id: str | None, is_ok: bool
    ) -> None:
        """Add the span of a hook that has run once.

        Args:
            job: The job of the hook.
            which: The hook's point, and its number among the hooks of that point, from 1.
            kind: `command`, `webhook`, `slack` or `discord`.
            began_ns: The start of the hook, in nanoseconds since 1970.
            run_id: The run of a command; None for a message.
            is_ok: Whether the hook succeeded.
        """
        name, attributes = conventions.hook_span(*which, kind=kind, run_id=run_id)
        attributes |= {"ringfence.job.id": job.id}
        span = self._tracer.start_span(
            name, self._parent(job), kind=SpanKind.INTERNAL, attributes=attributes, start_time=began_ns
        )
        set_error(span, None if is_ok else "hook_failed")
        span.end()

    def ended(self, job: Job) -> None:
        """Add the span of a job that has ended, from its trigger to its end, with the time in the queue."""
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
            start_time=_nanoseconds(job.created_at),
        )
        self._ids.next = None
        set_error(span, None if job.state in SUCCESSES else job.state.value)
        span.end(_nanoseconds(job.ended_at) if job.ended_at is not None else None)

    def close(self) -> None:
        """Send the remaining data, for a few seconds at most. Blocks."""
        # In a thread of its own, since the SDK retries an unreachable collector for longer than its timeout.
        flush = threading.Thread(target=self._shut_down, name="ringfence-traces", daemon=True)
        flush.start()
        flush.join(_FLUSH_S)
        self._log_handler.is_closed = True  # the handler stays, or the last errors would go to stderr
        self._exporter.shutdown()

    def _shut_down(self) -> None:
        self._provider.shutdown()
        if self._meter_provider is not None:
            self._meter_provider.shutdown(timeout_millis=_FLUSH_S * 1000)

    def _parent(self, job: Job) -> Context:
        """Return a context with the span of a job, which is added when the job has ended."""
        trace_id, span_id = _ids_of(job)
        decision = self._provider.sampler.should_sample(None, trace_id, f"job {job.agent}").decision
        is_sampled = decision is Decision.RECORD_AND_SAMPLE
        flags = TraceFlags(TraceFlags.SAMPLED if is_sampled else TraceFlags.DEFAULT)
        span = NonRecordingSpan(SpanContext(trace_id, span_id, is_remote=True, trace_flags=flags))
        return trace.set_span_in_context(span)


def open_collector(settings: TraceSettings, *, fleet: str, log: Callable[[str], None]) -> Traces:
    """Return traces that go to a collector over HTTP. `OTEL_EXPORTER_OTLP_*` set its headers and certificates."""
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    endpoint = settings.endpoint.rstrip("/")
    reader: MetricReader | None = None
    if settings.metrics:
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
        from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

        metric_exporter = OTLPMetricExporter(endpoint=f"{endpoint}/v1/metrics", timeout=_EXPORT_S)
        reader = PeriodicExportingMetricReader(metric_exporter)
    exporter = OTLPSpanExporter(endpoint=f"{endpoint}/v1/traces", timeout=_EXPORT_S)
    return Traces(exporter, fleet=fleet, with_content=settings.content, log=log, metric_reader=reader)


class _JobIdGenerator(RandomIdGenerator):
    """Generates random ids, or those of `next`."""

    next: tuple[int, int] | None = None

    def generate_trace_id(self) -> int:
        return super().generate_trace_id() if self.next is None else self.next[0]

    def generate_span_id(self) -> int:
        return super().generate_span_id() if self.next is None else self.next[1]


class _ThrottledHandler(logging.Handler):
    """Logs errors of the exporters, at most one per interval."""

    def __init__(self, log: Callable[[str], None]) -> None:
        super().__init__(logging.WARNING)
        self._log = log
        self._logged_at_s = float("-inf")
        self.is_closed = False

    def emit(self, record: logging.LogRecord) -> None:
        if not self.is_closed and time.monotonic() - self._logged_at_s > _LOG_INTERVAL_S:
            self._logged_at_s = time.monotonic()
            self._log(f"traces: {record.getMessage()[:300]}")


def _ids_of(job: Job) -> tuple[int, int]:
    digest = hashlib.sha256(f"{job.id}/{job.created_at.timestamp()}".encode()).digest()
    return int.from_bytes(digest[:16]) or 1, int.from_bytes(digest[16:24]) or 1


def _nanoseconds(at: datetime) -> int:
    return round(at.timestamp() * 1e9)
