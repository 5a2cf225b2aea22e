"""Traces of jobs, as the SDK's in-memory exporter receives them."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, MetricReader
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.semconv._incubating.attributes import error_attributes, gen_ai_attributes
from opentelemetry.trace import StatusCode

from ringfence.events import (
    Event,
    JobCreated,
    JobEnded,
    ModelAsked,
    ModelExchanged,
    ModelReplied,
    SandboxCreated,
    ToolCalled,
    ToolReturned,
    Usage,
    VerificationEnded,
)
from ringfence.fleet.config.model import AgentSettings
from ringfence.fleet.store.attempts import Attempt
from ringfence.fleet.store.job import Job
from ringfence.fleet.tracing import conventions
from ringfence.fleet.tracing.traces import Traces
from ringfence.job.state import JobState

pytestmark = pytest.mark.anyio
NOW = datetime.now(UTC)
SETTINGS = AgentSettings.model_validate({"prompt": "p", "run": {"model": "claude-x"}})
USAGE = Usage(input_tokens=10, output_tokens=5, cache_creation_input_tokens=3, cache_read_input_tokens=4)
CREATED = JobCreated(
    job_id="r", session_id="s", prompt="the task", model="claude-x", runtime="api", toolset="", workspace="/w",
    version="1",
)  # fmt: skip
SANDBOX = SandboxCreated(
    sandbox_id="b", backend="bubblewrap", purpose="agent", chosen_because="", image=None, policy={}, enforced={},
    started_in_ms=20.0,
)  # fmt: skip
REPLIED = ModelReplied(
    model="claude-x-1", message_id="m1", content=[{"type": "text", "text": "the answer"}], stop_reason="end_turn",
    usage=USAGE, cost_usd=None, duration_ms=500.0, request_digest="",
)  # fmt: skip
CALLED = ToolCalled(call_id="c1", tool="shell", arguments={"command": "make secret-thing"})
RETURNED = ToolReturned(call_id="c1", tool="shell", is_error=True, content="it failed", duration_ms=7.0)
CHECKED = VerificationEnded(
    command="make", passed=False, exit_code=2, ended_by="exit", output="", duration_ms=1.0
)
ASKED = ModelAsked(
    sandbox_id="b", exchange=1, method="POST", path="/v1/messages", model="claude-y", allowed=True, reason=""
)
EXCHANGED = ModelExchanged(
    sandbox_id="b", exchange=1, status=529, ended_by="closed", model="", usage=Usage(), is_estimated=False,
    cost_usd=None, first_byte_ms=1.0, duration_ms=2.0, answer_bytes=0,
)  # fmt: skip
ENDED = JobEnded(state="unverified", exit_code=0, reason="", turns=1, usage=USAGE)
EVENTS = (CREATED, SANDBOX, REPLIED, CALLED, RETURNED, ASKED, EXCHANGED, CHECKED, ENDED)


def a_job(**changes: object) -> Job:
    """Return a job that has ended."""
    times = {"created_at": NOW - timedelta(minutes=1), "started_at": NOW, "ended_at": NOW, "not_before": None}
    ids = {"worker": "w", "run_id": "r", "session_id": None, "parent": None, "workspace": "", "reason": ""}
    counts = {"priority": 0, "admissions": 1, "attempt": 1, "tokens": 22, "cost_usd": 0.5}
    more = {"title": "p", "placement": "", "changed_at": NOW, "host": "h"}
    rest = {"is_cancel_asked": False, "is_ready_to_apply": False, "allowed_tokens": None, "allowed_usd": None}
    told = {
        "id": "j",
        "agent": "mender",
        "state": JobState.UNVERIFIED,
        "trigger": "manual",
        "trigger_name": "",
    }
    return Job(**{**times, **ids, **counts, **rest, **more, **told, **changes})  # type: ignore[arg-type]


class Kept:
    """Traces, and the lines that they log."""

    def __init__(
        self, exporter: SpanExporter, *, with_content: bool = False, metric_reader: MetricReader | None = None
    ) -> None:
        self.told: list[str] = []
        self.traces = Traces(
            exporter, fleet="c", with_content=with_content, log=self.told.append, metric_reader=metric_reader
        )

    async def attempt(
        self, *events: Event, number: int = 1, state: JobState | None = JobState.UNVERIFIED
    ) -> None:
        """Trace an attempt with these events."""
        run = self.traces.run(a_job(), Attempt("j", number, "w", "r"), SETTINGS, log=self.told.append)
        for event in events:
            await run.see(event)
        run.end(state)


async def spans(*events: Event, with_content: bool = False, **options: object) -> dict[str, ReadableSpan]:
    """Return the spans of a job with one attempt, by name."""
    exporter = InMemorySpanExporter()
    kept = Kept(exporter, with_content=with_content)
    await kept.attempt(*events, **options)  # type: ignore[arg-type]
    kept.traces.ended(a_job())
    kept.traces.close()
    assert kept.told == []
    return {span.name: span for span in exporter.get_finished_spans()}


async def test_a_job_is_one_trace():
    """A job is one trace: the run is below the job, and sandbox, model, tool and check are below the run."""
    found = await spans(*EVENTS)
    job, run = found.pop("job mender"), found.pop("invoke_agent mender")
    assert {
        "start sandbox bubblewrap",
        "chat claude-x",
        "execute_tool shell",
        "chat claude-y",
        "verify",
    } == found.keys()
    assert job.context is not None
    assert run.context is not None
    assert (job.parent, run.parent and run.parent.span_id) == (None, job.context.span_id)
    assert {span.parent.span_id for span in found.values() if span.parent} == {run.context.span_id}
    assert {span.context.trace_id for span in found.values() if span.context} == {job.context.trace_id}


async def test_attempts_on_other_machines_join_the_jobs_trace():
    """Two workers that know nothing of each other contribute to one trace of a job."""
    exporters = [InMemorySpanExporter(), InMemorySpanExporter()]
    for number, exporter in enumerate(exporters, start=1):
        kept = Kept(exporter)
        await kept.attempt(number=number)
        kept.traces.close()
    first, second = (exporter.get_finished_spans()[0] for exporter in exporters)
    assert first.parent == second.parent
    assert first.context != second.context


async def test_tokens_are_told_as_the_conventions_say():
    """Input tokens include cached ones; the requested model and the responding model are separate attributes."""
    chat = (await spans(*EVENTS))["chat claude-x"].attributes or {}
    assert chat == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "anthropic",
        "gen_ai.request.model": "claude-x",
        "gen_ai.response.model": "claude-x-1",
        "gen_ai.response.id": "m1",
        "gen_ai.response.finish_reasons": ("end_turn",),
        "gen_ai.usage.input_tokens": 17,
        "gen_ai.usage.output_tokens": 5,
        "gen_ai.usage.cache_write.input_tokens": 3,
        "gen_ai.usage.cache_read.input_tokens": 4,
    }


async def test_what_failed_is_an_error():
    """Failed tools, requests, checks and runs have an error type, and so have calls that were interrupted."""
    found = await spans(*EVENTS, unanswered(CALLED), state=JobState.TIMED_OUT)
    errors = {
        name: (span.attributes or {}).get("error.type")
        for name, span in found.items()
        if span.status.status_code is StatusCode.ERROR
    }
    assert errors == {
        "execute_tool shell": "tool_error",
        "execute_tool other": "interrupted",
        "chat claude-y": "529",
        "verify": "check_red",
        "invoke_agent mender": "timed_out",
    }


def unanswered(called: ToolCalled) -> ToolCalled:
    """Return another call, which never returns."""
    return ToolCalled(call_id="c2", tool="other", arguments=called.arguments)


@pytest.mark.parametrize("with_content", [False, True])
async def test_content_is_there_only_if_asked_for(with_content: bool):
    """No span contains prompts, answers, arguments or results, unless the setting asks for them."""
    found = await spans(*EVENTS, with_content=with_content)
    text = repr([dict(span.attributes or {}) for span in found.values()])
    words = ("the task", "the answer", "secret-thing", "it failed")
    assert [word in text for word in words] == [with_content] * 4


async def test_those_inside_can_join():
    """`TRACEPARENT` names the trace and the run's span in the format of W3C's Trace Context."""
    exporter = InMemorySpanExporter()
    kept = Kept(exporter)
    run = kept.traces.run(a_job(), Attempt("j", 1, "w", "r"), SETTINGS, log=kept.told.append)
    run.end(None)
    kept.traces.close()
    (span,) = exporter.get_finished_spans()
    assert span.context is not None
    ids = f"{span.context.trace_id:032x}-{span.context.span_id:016x}"
    assert run.environment == {"TRACEPARENT": f"00-{ids}-01"}


@given(st.text(alphabet=st.characters(exclude_categories=()), max_size=400))
def test_text_of_agents_can_be_sent(text: str):
    """A tool name of any form is cut and encodable, since one that is not would lose a whole batch of spans."""
    called = ToolCalled(call_id=text, tool=text, arguments={text: text})
    told = conventions.tool_span(called, None, agent="a", duration_ms=0.0, with_content=True)
    sent = [told.name, *(value for value in told.attributes.values() if isinstance(value, str))]
    assert all(len(each.encode()) <= 4 * 16 * 1024 for each in sent)
    assert len(told.name) <= 300


NEW_NAMES = {"gen_ai.usage.cache_write.input_tokens"}
"""Names of version 0.1.0 of the conventions that the SDK's list does not have yet."""


def test_names_are_those_of_the_conventions():
    """Each name that spans use is in OpenTelemetry's own list, or new in the version that we follow."""
    known = {
        value
        for module in (gen_ai_attributes, error_attributes)
        for value in vars(module).values()
        if isinstance(value, str)
    }
    ours = {value for name, value in vars(conventions).items() if name.isupper() and isinstance(value, str)}
    assert len(ours) > 15
    assert ours - known == NEW_NAMES


async def test_a_run_has_the_attributes_of_an_agent_in_this_process():
    """Its span has neither provider, id nor cached tokens, as of version 0.1.0; its tools name the agent."""
    found = await spans(*EVENTS)
    run = found["invoke_agent mender"].attributes or {}
    assert {name: value for name, value in run.items() if not name.startswith("ringfence.")} == {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": "mender",
        "gen_ai.request.model": "claude-x",
        "gen_ai.conversation.id": "s",
        "gen_ai.usage.input_tokens": 17,
        "gen_ai.usage.output_tokens": 5,
    }
    assert (found["execute_tool shell"].attributes or {})["gen_ai.agent.name"] == "mender"


async def test_metrics_are_those_of_the_conventions():
    """Agents, model requests and tool calls are measured, without ids and texts, if a reader takes the metrics."""
    reader = InMemoryMetricReader()
    kept = Kept(InMemorySpanExporter(), metric_reader=reader)
    await kept.attempt(*EVENTS, state=JobState.TIMED_OUT)
    data = reader.get_metrics_data()
    kept.traces.close()
    assert data is not None
    points = {
        metric.name: metric.data.data_points
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }
    assert points.keys() == {
        "gen_ai.invoke_agent.duration",
        "gen_ai.invoke_agent.inference_calls",
        "gen_ai.invoke_agent.tool_calls",
        "gen_ai.execute_tool.duration",
        "gen_ai.client.inference.duration",
        "gen_ai.client.inference.operation.input_tokens",
        "gen_ai.client.inference.operation.output_tokens",
        "gen_ai.client.inference.usage.input_tokens",
        "gen_ai.client.inference.usage.output_tokens",
        "gen_ai.client.inference.usage.cache_read.input_tokens",
        "gen_ai.client.inference.usage.cache_write.input_tokens",
    }
    agent = {"gen_ai.agent.name": "mender", "gen_ai.request.model": "claude-x", "error.type": "timed_out"}
    (calls,) = points["gen_ai.invoke_agent.inference_calls"]
    assert (calls.sum, dict(calls.attributes or {})) == (2, agent)  # type: ignore[union-attr]
    (tools,) = points["gen_ai.invoke_agent.tool_calls"]
    assert tools.sum == 1  # type: ignore[union-attr]
    tokens = {
        (point.attributes or {}).get("gen_ai.request.model"): point.value  # type: ignore[union-attr]
        for point in points["gen_ai.client.inference.usage.input_tokens"]
    }
    assert tokens == {"claude-x": 17, "claude-y": 0}
    errors = {
        (point.attributes or {}).get("error.type") for point in points["gen_ai.client.inference.duration"]
    }
    assert errors == {None, "529"}
    (tool,) = points["gen_ai.execute_tool.duration"]
    assert dict(tool.attributes or {}) == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.agent.name": "mender",
        "gen_ai.tool.name": "shell",
        "gen_ai.tool.type": "function",
        "error.type": "tool_error",
    }


class Broken(SpanExporter):
    """An exporter that fails."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Raise an unexpected error."""
        raise RuntimeError("away")


async def test_an_exporter_that_breaks_harms_nothing():
    """When the exporter fails, the run continues without traces, and the fault is logged once."""
    kept = Kept(Broken())
    await kept.attempt(*EVENTS)
    await kept.attempt(*EVENTS)
    kept.traces.close()
    assert [line.startswith("traces: ") for line in kept.told] == [True]
