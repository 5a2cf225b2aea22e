"""Models of the API's requests."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from ringfence.fleet.store.tokens import TokenScope


class Request(BaseModel):
    """The body of a request; a field that it does not have is an error."""

    model_config = ConfigDict(extra="forbid")


class TriggerRequest(Request):
    """A job that a person starts."""

    prompt: Annotated[str, Field(max_length=1024 * 1024)] | None = None
    priority: Annotated[int, Field(ge=-1000, le=1000)] | None = None
    key: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    """Two requests with the same key create one job."""


class RepeatRequest(Request):
    """A job that is run again, or continued."""

    prompt: Annotated[str, Field(max_length=1024 * 1024)] | None = None
    """None: the same task."""


class AnswerRequest(Request):
    """An answer to a question."""

    answer: Literal["allow", "deny"]
    scope: Literal["run", "agent"] = "run"
    """What the rule is granted for: the job that asked, or all later jobs of its agent, too."""
    reply: Annotated[str, Field(max_length=20_000)] = ""
    """A message to the agent; required to `allow` a question of the agent's own."""
    rule: dict[str, Any] | None = None
    """The rule that the person saw; if the question requests another one, the answer is refused with 409."""


class ApplyRequest(Request):
    """How changes are applied, undone or rejected."""

    force: bool = False
    """Whether to overwrite files that were changed since; they are kept, and undoing brings them back."""
    run_id: str | None = None
    """The run whose changes the person saw; if they are not the ones in question, the request is refused with 409."""


class TokenRequest(Request):
    """A token to create."""

    name: Annotated[str, Field(min_length=1, max_length=64)]
    scope: TokenScope
    expires_s: Annotated[float, Field(gt=0, le=10 * 365 * 86400)] | None = None
    """Seconds until it expires; null: never."""
