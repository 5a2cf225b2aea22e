"""Describes the outcome of a model request: status, error, stop reason."""

from ringfence.frozen import frozen

MAX_TOKENS, REFUSAL, WINDOW_FULL = "max_tokens", "refusal", "model_context_window_exceeded"
"""Stop reasons of the Messages API that end an agent's work; the other APIs' own names are translated."""


@frozen
class Verdict:
    """The outcome of one request, as the gateway saw it: what the API answered, or that the gateway rejected it."""

    status: int = 0
    """The HTTP status; 0 if there was no response."""
    error: str = ""
    """`error.code` of the body or of an event of the stream, else `error.type`; empty without an error."""
    error_type: str = ""
    """`error.type`."""
    message: str = ""
    """The message of the error, shortened; empty without an error."""
    stop_reason: str = ""
    """Why the model stopped; `MAX_TOKENS`, `REFUSAL` and `WINDOW_FULL` whichever API it was, else the API's own name;
    empty if the API did not say."""
    is_complete: bool = False
    """Whether all of the response arrived."""
    is_rejected_by_gateway: bool = False
    """Whether the gateway rejected the request, so that no API got it."""

    @property
    def is_failure(self) -> bool:
        """Whether the request failed, so that there is no answer of the model."""
        return self.is_rejected_by_gateway or bool(self.error) or not 200 <= self.status < 300
