"""Events about requests to models, their retries and their responses."""

import msgspec

from ringfence.events.event import Event, JSONObject, Usage


class ModelRetried(Event, frozen=True, kw_only=True, tag="model.retried"):
    """A request to the model failed and is retried."""

    attempt: int
    status: int | None
    reason: str
    wait_s: float


class ModelReplied(Event, frozen=True, kw_only=True, tag="model.replied"):
    """A complete reply. `content` has the shape of the Messages API and is unchanged."""

    model: str
    message_id: str
    content: list[JSONObject]
    stop_reason: str
    usage: Usage
    cost_usd: float | None
    duration_ms: float
    request_digest: str
    """SHA-256 of the request's canonical JSON."""


class ModelAsked(Event, frozen=True, kw_only=True, tag="model.asked"):
    """A request to a model's API reached the gateway. It is recorded before any of the response is forwarded."""

    sandbox_id: str
    """The sandbox that sent the request; empty for the agent loop on the host."""
    exchange: int
    """The number of the exchange, counted from 1 in each run."""
    method: str
    path: str
    model: str
    """The model that the request names; empty if it names no allowed model."""
    allowed: bool
    reason: str
    """The reason for a refusal."""
    stripped: list[str] = msgspec.field(default_factory=list)
    """Fields and provider tools that were removed from the request because they are not granted."""
    max_tokens: int | None = None
    """The limit of the reply in the forwarded request."""
    request_digest: str = ""
    """SHA-256 of the forwarded body."""
    request: str | None = None
    """The forwarded body; null if the record holds the conversation as separate events, or nothing was forwarded."""


class ModelExchanged(Event, frozen=True, kw_only=True, tag="model.exchanged"):
    """The response of a model's API was forwarded, completely or in part."""

    sandbox_id: str
    exchange: int
    status: int
    """The HTTP status; 0 if there was no response."""
    ended_by: str
    """`closed` if the response is complete; `inside` or `upstream` if that side closed the connection early; `limit` if
    a limit cut the response off."""
    model: str
    """The model that the response names."""
    usage: Usage
    is_estimated: bool
    """Whether the usage is an estimate, because the response ended before the API reported it."""
    cost_usd: float | None
    first_byte_ms: float
    """The time until the head of the response."""
    duration_ms: float
    answer_bytes: int
    answer_digest: str = ""
    """SHA-256 of the response body, in which the credential is redacted."""
    content_type: str = ""
    answer: str | None = None
    """The response body; null if the record holds the conversation as separate events, or the body is too long."""
    fault: str = ""
    """The reason why the API could not be reached or the response broke off."""
    turn: int | None = None
    """The agent's turn, counted from 1; 0 if the response is not a turn. null in records of version 0.1."""
