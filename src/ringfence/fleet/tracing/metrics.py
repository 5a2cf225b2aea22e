"""Metrics of agents, models and tools with the names of OpenTelemetry's conventions for generative AI, version 0.1.0."""

from opentelemetry.metrics import Histogram, Meter

from ringfence.events import Usage
from ringfence.fleet.tracing import conventions
from ringfence.fleet.tracing.conventions import Attributes, EndedSpan

AGENT_DURATION = "gen_ai.invoke_agent.duration"
AGENT_INFERENCE_CALLS = "gen_ai.invoke_agent.inference_calls"
AGENT_TOOL_CALLS = "gen_ai.invoke_agent.tool_calls"
TOOL_DURATION = "gen_ai.execute_tool.duration"
INFERENCE_DURATION = "gen_ai.client.inference.duration"
OPERATION_TOKENS = "gen_ai.client.inference.operation"
USAGE_TOKENS = "gen_ai.client.inference.usage"
MODALITY = "gen_ai.token.modality"

_CALLS = [2.0**power for power in range(8)]
_SECONDS = [0.01 * 2**power for power in range(14)]
_AGENT_SECONDS = [0.1 * 2**power for power in range(13)]
_TOKENS = [4.0**power for power in range(14)]
_DIMENSIONS = (
    conventions.OPERATION,
    conventions.PROVIDER,
    conventions.REQUEST_MODEL,
    conventions.RESPONSE_MODEL,
    conventions.AGENT_NAME,
    conventions.TOOL_NAME,
    conventions.TOOL_TYPE,
)
"""The attributes of spans that metrics have as well; ids and texts are excluded."""


class Metrics:
    """The instruments of a process.

    Args:
        meter: Creates the instruments.
    """

    def __init__(self, meter: Meter) -> None:
        self._histograms: dict[str, Histogram] = {}

        def histogram(name: str, unit: str, boundaries: list[float]) -> None:
            self._histograms[name] = meter.create_histogram(
                name, unit, explicit_bucket_boundaries_advisory=boundaries
            )

        histogram(AGENT_DURATION, "s", _AGENT_SECONDS)
        histogram(AGENT_INFERENCE_CALLS, "{inference_call}", _CALLS)
        histogram(AGENT_TOOL_CALLS, "{tool_call}", _CALLS)
        histogram(TOOL_DURATION, "s", _SECONDS)
        histogram(INFERENCE_DURATION, "s", _SECONDS)
        for direction in ("input_tokens", "output_tokens"):
            histogram(f"{OPERATION_TOKENS}.{direction}", "{token}", _TOKENS)
        kinds = ("input_tokens", "output_tokens", "cache_read.input_tokens", "cache_write.input_tokens")
        self._counters = {kind: meter.create_counter(f"{USAGE_TOKENS}.{kind}", "{token}") for kind in kinds}

    def record_span(self, span: EndedSpan) -> None:
        """Record a tool call or a model request; other spans have no metrics."""
        dimensions = _dimensions(span.attributes, span.error)
        if span.usage is not None:
            self._record(INFERENCE_DURATION, span.duration_ms / 1000, dimensions)
            self._record_tokens(span.usage, dimensions)
        elif span.attributes.get(conventions.OPERATION) == "execute_tool":
            self._record(TOOL_DURATION, span.duration_ms / 1000, dimensions)

    def record_run(
        self,
        attributes: Attributes,
        error: str | None,
        *,
        duration_s: float,
        inference_calls: int,
        tool_calls: int,
    ) -> None:
        """Record a run of an agent."""
        dimensions = _dimensions(attributes, error)
        del dimensions[conventions.OPERATION]
        self._record(AGENT_DURATION, duration_s, dimensions)
        self._record(AGENT_INFERENCE_CALLS, inference_calls, dimensions)
        self._record(AGENT_TOOL_CALLS, tool_calls, dimensions)

    def _record_tokens(self, usage: Usage, dimensions: Attributes) -> None:
        tokens = {
            "input_tokens": conventions.input_tokens(usage),
            "output_tokens": usage.output_tokens,
            "cache_read.input_tokens": usage.cache_read_input_tokens,
            "cache_write.input_tokens": usage.cache_creation_input_tokens,
        }
        for direction in ("input_tokens", "output_tokens"):
            self._record(f"{OPERATION_TOKENS}.{direction}", tokens[direction], dimensions)
        # No provider reports the modality of tokens in the events of a run.
        without_error = {key: value for key, value in dimensions.items() if key != conventions.ERROR_TYPE}
        for kind, count in tokens.items():
            self._counters[kind].add(count, {**without_error, MODALITY: "unknown"})

    def _record(self, name: str, value: float, dimensions: Attributes) -> None:
        self._histograms[name].record(value, dimensions)


def _dimensions(attributes: Attributes, error: str | None) -> Attributes:
    found = {key: attributes[key] for key in _DIMENSIONS if key in attributes}
    return found if error is None else {**found, conventions.ERROR_TYPE: error}
