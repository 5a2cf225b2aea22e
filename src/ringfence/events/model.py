"""Events about models: asked, answered, asked again."""

import msgspec

from ringfence.events.event import Event, JSONObject, Usage


class ModelRetried(Event, frozen=True, kw_only=True, tag="model.retried"):
    """A request to the model failed and is made again."""

    attempt: int
    status: int | None
    reason: str
    wait_s: float


class ModelReplied(Event, frozen=True, kw_only=True, tag="model.replied"):
    """A whole reply. `content` is in the Messages API's shape, untouched."""

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
    """A model's API was asked through the gateway, or was not. In the journal before anything of the answer is told."""

    sandbox_id: str
    """Whose process asked; empty for the agent's own loop on the host."""
    exchange: int
    """Counted from 1 for each run."""
    method: str
    path: str
    model: str
    """As the request names it; empty if it names none that is allowed."""
    allowed: bool
    reason: str
    """Why it was refused."""
    stripped: list[str] = msgspec.field(default_factory=list)
    """What was taken out of the request as it is not granted: fields, and tools of the provider."""
    max_tokens: int | None = None
    """Of the answer, as the request was passed on."""
    request_digest: str = ""
    """SHA-256 of the body as it was passed on."""
    request: str | None = None
    """That body; null where the conversation is in the record by itself, or nothing was passed on."""


class ModelExchanged(Event, frozen=True, kw_only=True, tag="model.exchanged"):
    """The answer of a model's API was passed on, or what there was of it."""

    sandbox_id: str
    exchange: int
    status: int
    """Of HTTP; 0 if there was no answer."""
    ended_by: str
    """`closed` when it came to its end; `inside` or `upstream`, who went first; `limit`, when a bound cut it off."""
    model: str
    """As the answer names it."""
    usage: Usage
    is_estimated: bool
    """Whether the answer ended before the API told its usage."""
    cost_usd: float | None
    first_byte_ms: float
    """Until the head of the answer."""
    duration_ms: float
    answer_bytes: int
    answer_digest: str = ""
    """SHA-256 of the body, without the credential if it was in there."""
    content_type: str = ""
    answer: str | None = None
    """The body; null where the conversation is in the record by itself, or it was too long to be kept."""
    fault: str = ""
    """Why the API could not be asked, or broke off."""
    turn: int | None = None
    """Which turn of the agent the answer was, from 1; 0: none. null in records of 0.1, which did not count here."""
