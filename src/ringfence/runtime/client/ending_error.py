"""Maps how an agent CLI ended to the exception that callers get, with the next step."""

from collections.abc import Callable
from functools import partial

from ringfence.errors import (
    AuthenticationFailed,
    ConfigurationError,
    InfrastructureFault,
    PolicyRefused,
    RequestRefused,
    RingfenceError,
    UsageError,
)
from ringfence.runtime.client.ending import Ended, Ending


def error_of(ended: Ended, limit: RingfenceError | None = None) -> RingfenceError | None:
    """Return the error for an ending, with the next step; None where the ending is a result (done, declined, cut).

    Args:
        ended: The ending.
        limit: The limit of ringfence's that was reached, or the reason why the model gateway stopped serving. Without
            one, a limit that the agent CLI kept itself is a result.
    """
    if ended.ending is Ending.LIMIT or limit is not None:
        return limit
    known = _ERRORS.get(ended.ending)
    if known is None:
        return None
    kind, advice = known
    if ended.ending is Ending.REQUEST and ended.is_unknown_model:
        advice = "see whether --model names one that the API knows"
    return kind(f"{ended.reason.rstrip('.')}; {advice}")


_ERRORS: dict[Ending, tuple[Callable[[str], RingfenceError], str]] = {
    Ending.POLICY: (
        partial(PolicyRefused, rule="model-gateway"),
        "see egress.models and egress.provider_tools in ringfence.yaml",
    ),
    Ending.NO_INNER_SANDBOX: (
        ConfigurationError,
        "the fence is around it already, so leave out what turns its own sandbox on (--cli-arg)",
    ),
    Ending.AUTHENTICATION: (
        AuthenticationFailed,
        "the credential is on the host's side of the gate: see `ringfence secret ls`, and give a valid one",
    ),
    Ending.QUOTA: (AuthenticationFailed, "raise what the account may use, or take another one"),
    Ending.REQUEST: (RequestRefused, "the API would refuse the same again"),
    Ending.NO_SESSION: (UsageError, "leave out --continue and --resume to begin anew"),
    Ending.NOT_STARTED: (
        ConfigurationError,
        "see --cli-arg, and `client:` and `tools.mcp` in ringfence.yaml",
    ),
    Ending.API: (InfrastructureFault, "try again later"),
    Ending.SILENT: (InfrastructureFault, "try again, or let it be silent longer by --idle-timeout"),
    Ending.INTERRUPTED: (InfrastructureFault, "try again"),
    Ending.KILLED: (InfrastructureFault, "try again"),
    Ending.BROKEN_OFF: (InfrastructureFault, "try again; the record has all that it said"),
}
