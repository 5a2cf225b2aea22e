"""A fleet whose traces go to a collector over HTTP."""

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from tests.fleet.conftest import Make
from tests.fleet.fleet_files import FleetFiles
from tests.fleet.receiver import Receiver, receiver

pytestmark = pytest.mark.slow
SHELL = {
    "text": "a look",
    "tools": [{"name": "shell", "input": {"command": "echo at $TRACEPARENT", "reasoning": "r"}}],
}

FINE = {"type": "command", "command": "echo fine"}
WRONG = {"type": "command", "command": "echo wrong; exit 3"}


@pytest.fixture(scope="module")
def collector() -> Iterator[Receiver]:
    """A collector that refuses the first request, and accepts the others."""
    with receiver(503) as running:
        yield running


def _write(crew: FleetFiles, endpoint: str, **traces: object) -> None:
    crew.write(
        fleet={"name": "c", "drain": "1s", "traces": {"endpoint": endpoint, **traces}},
        run={"model": crew.script("looks", SHELL, {"text": "the answer"})},
        agents={
            "a": {"prompt": "do it", "workspace": ".", "sandbox": {"mode": "clone"}},
            "hooked": {
                "prompt": "do it",
                "workspace": ".",
                "sandbox": {"mode": "clone"},
                "hooks": {"before_run": [FINE], "after_run": [WRONG]},
            },
        },
    )


@pytest.fixture(scope="module")
def works(make_crew: Make, collector: Receiver) -> FleetFiles:
    """A fleet whose collector requires a secret."""
    crew = make_crew()
    crew.environment["OTEL_EXPORTER_OTLP_HEADERS"] = "x-key=letmein"
    _write(crew, collector.url.removesuffix("/told"))
    crew.up()
    return crew


def _spans(collector: Receiver, agent: str, *wanted: str) -> tuple[dict[str, Any], dict[str, str]]:
    """Wait for an agent's trace with the wanted spans; return its spans by name, and the last request's headers."""
    traces: dict[bytes, dict[str, Any]] = {}
    while True:
        headers, body = collector.take()
        asked = ExportTraceServiceRequest.FromString(_unpacked(headers, body))
        for span in (span for one in asked.resource_spans for of in one.scope_spans for span in of.spans):
            traces.setdefault(span.trace_id, {})[span.name] = span
        for found in traces.values():
            if {f"job {agent}", *wanted} <= found.keys():
                return found, headers


def _unpacked(headers: dict[str, str], body: bytes) -> bytes:
    import gzip

    return gzip.decompress(body) if headers.get("content-encoding") == "gzip" else body


def test_a_job_comes_to_a_collector_as_a_trace(works: FleetFiles, collector: Receiver):
    """A job's trace reaches the collector, even if that was busy at first; processes inside know the trace's id."""
    job = works.run("fleet", "trigger", "a", "--wait", "--json").json
    wanted = {"invoke_agent a", "chat scripted", "execute_tool shell", "start sandbox bubblewrap"}
    found, headers = _spans(collector, "a", *wanted)
    assert headers["x-key"] == "letmein"
    assert found.keys() == {"job a", *wanted}
    run = found["invoke_agent a"]
    traceparent = f"at 00-{run.trace_id.hex()}-{run.span_id.hex()}-01"
    record = works.does("runs", "logs", "--json", job["run_id"]).out
    assert traceparent in record


def test_metrics_go_to_the_collector(crew: FleetFiles):
    """With `metrics: true` a worker sends the metrics of agents and models, at the latest when it stops."""
    with receiver() as collector:
        _write(crew, collector.url.removesuffix("/told"), metrics=True)
        crew.up()
        crew.run("fleet", "trigger", "a", "--wait", "--json")
        crew.does("fleet", "down")
        names: set[str] = set()
        while "gen_ai.invoke_agent.duration" not in names:
            headers, body = collector.take()
            if headers[":path"] != "/v1/metrics":
                continue
            request = ExportMetricsServiceRequest.FromString(_unpacked(headers, body))
            scopes = [scope for resource in request.resource_metrics for scope in resource.scope_metrics]
            names |= {metric.name for scope in scopes for metric in scope.metrics}
    assert "gen_ai.client.inference.usage.input_tokens" in names


def test_hooks_are_in_the_trace(works: FleetFiles, collector: Receiver):
    """Each hook is one span below its job, with the id of its run; a failed hook is an error."""
    job = works.run("fleet", "trigger", "hooked", "--wait", "--json").json
    found, _ = _spans(collector, "hooked", "hook before_run", "hook after_run")
    spans = [found["hook before_run"], found["hook after_run"]]
    assert {(span.trace_id, span.parent_span_id) for span in spans} == {
        (found["job hooked"].trace_id, found["job hooked"].span_id)
    }
    told = [{each.key: each.value for each in span.attributes} for span in spans]
    runs = [works.does("runs", "logs", "--json", each["ringfence.run.id"].string_value).out for each in told]
    assert [hook["command"] in run for hook, run in zip((FINE, WRONG), runs, strict=True)] == [True, True]
    assert [each.get("error.type") and each["error.type"].string_value for each in told] == [
        None,
        "hook_failed",
    ]
    assert {each["ringfence.job.id"].string_value for each in told} == {job["id"]}


def test_a_collector_that_is_away_harms_no_job(crew: FleetFiles):
    """When the collector is unreachable, jobs and the daemon end as usual."""
    _write(crew, "http://127.0.0.1:9")
    crew.up()
    ended = crew.run("fleet", "trigger", "a", "--wait", "--json").json
    crew.does("fleet", "down")
    assert ended["state"] == "unverified"


def test_without_the_extra_a_crew_with_traces_does_not_start(crew: FleetFiles):
    """With `traces` but without the extra, the fleet exits with code 78 and says what to install."""
    _write(crew, "http://127.0.0.1:9")
    program = "import sys; sys.modules['opentelemetry.sdk'] = None\nfrom ringfence.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", program, "fleet", "up"],
        cwd=crew.project, env=crew.environment, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, "pip install 'ringfence[otel]'" in done.stderr) == (78, True)
