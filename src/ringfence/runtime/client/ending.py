"""How a client ended, from its last message, exit code, signals and limits; each way has its own name. Pure.

Neither the exit code nor the last message is enough: claude ends with 0 when it was interrupted and when tools were
denied, and calls its failures `success`; codex ends with 0 when none of its commands could run.
"""

import re
from collections.abc import Collection
from enum import StrEnum
from signal import Signals

from ringfence.errors import (
    AuthenticationFailed,
    ConfigurationError,
    InfrastructureFault,
    LimitReached,
    RequestRefused,
    RingfenceError,
    UsageError,
)
from ringfence.frozen import frozen
from ringfence.runtime.client.seen import ClientName, JSONObject, Seen, text_of


class Ending(StrEnum):
    """Ways to end."""

    DONE = "done"
    """It says so itself; nothing has checked it."""
    DENIED = "denied"
    """It says so, and was not permitted some of what it wanted to do."""
    NO_STRUCTURED_OUTPUT = "no_structured_output"
    """It says so, without the structured output that was asked for."""
    UNASKED = "unasked"
    """It says so, and has asked no model: the task was a command of its own, like `/clear`."""
    NO_INNER_SANDBOX = "no_inner_sandbox"
    """It says so, and no command ran, as the client could not make a sandbox of its own."""
    LIMIT = "limit"
    """A bound was reached: ours, or one that the client was given."""
    SILENT = "silent"
    """It was ended as it had said nothing for too long."""
    INTERRUPTED = "interrupted"
    """We sent a signal, and it ended by that."""
    KILLED = "killed"
    """A signal that we did not send."""
    CONTEXT = "context"
    """The conversation does not fit the model's window."""
    AUTHENTICATION = "authentication"
    """The API does not take the credential, or there is none."""
    QUOTA = "quota"
    """The account has used what it may."""
    REQUEST = "request"
    """The API does not take the request: no such model, say."""
    API = "api"
    """The API is overloaded, broken or cannot be reached."""
    NO_SESSION = "no_session"
    """The session that it was to resume is not there."""
    NOT_STARTED = "not_started"
    """It refused its command line or its configuration."""
    BROKEN_OFF = "broken_off"
    """It ended without a last word, and nothing says why."""


@frozen
class Exit:
    """What is known from outside of the stream."""

    code: int
    """Negative: the number of the signal that ended it."""
    stderr: str = ""
    """Its end."""
    signals: Collection[Signals] = ()
    """That we sent."""
    limit: LimitReached | None = None
    """Of ours, that was reached."""
    silent_s: float | None = None
    """It was ended by us after saying nothing for so long."""
    answer_problem: str | None = None
    """An answer by a schema was asked for, and this is what is wrong with it."""


@frozen
class Ended:
    """A way to end, with the reason in a line."""

    ending: Ending
    reason: str


_FROM_SHELL = 128
_REASON_CHARS = 300
_CLAUDE_SUBTYPES = {
    "error_max_turns": Ending.LIMIT,
    "error_max_budget_usd": Ending.LIMIT,
    "error_max_structured_output_retries": Ending.NO_STRUCTURED_OUTPUT,
}
_CLAUDE_FAULTS = {
    "authentication_failed": Ending.AUTHENTICATION,
    "billing_error": Ending.QUOTA,
    "model_not_found": Ending.REQUEST,
    "invalid_request": Ending.REQUEST,
    "rate_limit": Ending.API,
    "server_error": Ending.API,
}
_REFUSED = (400, 404, 413, 422)
"""Statuses that the same request would get again."""
_ABOUT_MODEL = re.compile(r"\bmodel|deployment", re.IGNORECASE)
_ERROR_LINE = re.compile(r"^error\b", re.IGNORECASE | re.MULTILINE)
_NO_SESSION = re.compile(r"No conversation found|no rollout found|session .* not found", re.IGNORECASE)
_CODEX_FAULTS = (
    (Ending.CONTEXT, re.compile(r"context window|context_length_exceeded", re.IGNORECASE)),
    (Ending.QUOTA, re.compile(r"quota|usage limit|billing", re.IGNORECASE)),
    (Ending.AUTHENTICATION, re.compile(r"unexpected status 40[13]\b|Missing environment variable|log ?in\b")),
    (
        Ending.API,
        re.compile(r"unexpected status (429|5\d\d)\b|disconnected|retry limit|error sending|timed? ?out"),
    ),
    (Ending.REQUEST, re.compile(r"unexpected status 4\d\d\b|invalid_request_error")),
)


_SAID_DONE = (Ending.DONE, Ending.DENIED, Ending.NO_STRUCTURED_OUTPUT, Ending.UNASKED)


def ending_of(client: ClientName, seen: Seen, ended: Exit) -> Ended:
    """How a client ended, and why in a line. What we did ourselves comes before what it says.

    Args:
        client: Which.
        seen: Its output.
        ended: The rest.
    """
    if ended.limit is not None:
        return Ended(Ending.LIMIT, str(ended.limit))
    if ended.silent_s is not None:
        return Ended(Ending.SILENT, f"{client} said nothing for {ended.silent_s:g} s")
    if seen.final is None:
        return _without_word(client, seen, ended)
    judged = _claude(seen, ended) if client == "claude" else _codex(seen, ended)
    is_undone = judged.ending not in _SAID_DONE
    if ended.signals and (is_undone or ended.code < 0):
        return Ended(Ending.INTERRUPTED, _interrupted(client, ended))
    if not is_undone and ended.code != 0:
        return _without_word(client, seen, ended)
    return judged


def _without_word(client: ClientName, seen: Seen, ended: Exit) -> Ended:
    if ended.signals:
        return Ended(Ending.INTERRUPTED, _interrupted(client, ended))
    number = -ended.code if ended.code < 0 else ended.code - _FROM_SHELL
    if number in set(Signals):
        return Ended(Ending.KILLED, f"{client} was ended by {Signals(number).name}, which was not sent by us")
    unknown = _NO_SESSION.search(ended.stderr)
    if unknown is not None:
        return Ended(Ending.NO_SESSION, _one_line(_line_at(ended.stderr, unknown.start())))
    told = _last_words(ended.stderr)
    if ended.code != 0 and seen == Seen() and told:
        return Ended(Ending.NOT_STARTED, told)
    last = "and without a last word" if seen.final is None else "after it had said that it is done"
    what = f"{client} ended with {ended.code} {last}"
    return Ended(Ending.BROKEN_OFF, f"{what}: {told}"[:_REASON_CHARS] if told else what)


def _claude(seen: Seen, ended: Exit) -> Ended:
    final = seen.final or {}
    errors = final.get("errors")
    said = text_of(final.get("result")) or text_of(errors[0] if isinstance(errors, list) and errors else "")
    reason = _one_line(said) or "claude says nothing"
    if final.get("is_error") is not True and final.get("subtype") == "success":
        return _claude_done(final, ended)
    subtype = text_of(final.get("subtype"))
    if subtype in _CLAUDE_SUBTYPES:
        return Ended(_CLAUDE_SUBTYPES[subtype], reason)
    if final.get("terminal_reason") in (
        "prompt_too_long",
        "blocking_limit",
    ):  # the API says so, or it does not ask
        return Ended(Ending.CONTEXT, reason)
    if _NO_SESSION.search(reason):
        return Ended(Ending.NO_SESSION, reason)
    if final.get("terminal_reason") == "api_error":
        is_refused = final.get("api_error_status") in _REFUSED
        return Ended(_CLAUDE_FAULTS.get(seen.fault, Ending.REQUEST if is_refused else Ending.API), reason)
    return Ended(Ending.BROKEN_OFF, reason)


def _claude_done(final: JSONObject, ended: Exit) -> Ended:
    if final.get("num_turns") == 0:
        said = _one_line(text_of(final.get("result"))) or "it said nothing"
        return Ended(Ending.UNASKED, f"claude took the task for a command of its own: {said}")
    if ended.answer_problem is not None:
        return Ended(Ending.NO_STRUCTURED_OUTPUT, _one_line(f"claude gave {ended.answer_problem}"))
    denials = final.get("permission_denials")
    if isinstance(denials, list) and denials:
        names = {text_of(each.get("tool_name")) for each in denials if isinstance(each, dict)}
        return Ended(Ending.DENIED, _one_line(f"claude was not permitted to use {', '.join(sorted(names))}"))
    return Ended(Ending.DONE, "claude says that it is done")


def _codex(seen: Seen, ended: Exit) -> Ended:
    final = seen.final or {}
    if final.get("type") == "turn.completed":
        if seen.commands_without_sandbox and seen.commands_without_sandbox == seen.commands:
            reason = "codex could not make its own sandbox, so no command ran; switch that off inside a fence"
            return Ended(Ending.NO_INNER_SANDBOX, reason)
        if ended.answer_problem is not None:
            return Ended(Ending.NO_STRUCTURED_OUTPUT, _one_line(f"codex gave {ended.answer_problem}"))
        return Ended(Ending.DONE, "codex says that it is done")
    error = final.get("error")
    message = _one_line(text_of(error.get("message")) if isinstance(error, dict) else "")
    for ending, words in _CODEX_FAULTS:
        if words.search(message):
            return Ended(ending, message)
    return Ended(Ending.BROKEN_OFF, message or "codex says nothing")


def _interrupted(client: ClientName, ended: Exit) -> str:
    return f"{client} was ended by us: {', '.join(signal.name for signal in ended.signals)}"


def _last_words(text: str) -> str:
    """What stderr says; where that is long, from the line on that calls itself an error: warnings come before it."""
    if len(text) <= _REASON_CHARS:
        return _one_line(text)
    found = list(_ERROR_LINE.finditer(text))
    return _one_line(text[found[-1].start() :] if found else text[-_REASON_CHARS:])


def _line_at(text: str, position: int) -> str:
    begin = text.rfind("\n", 0, position) + 1
    end = text.find("\n", position)
    return text[begin : end if end >= 0 else len(text)]


def _one_line(text: str) -> str:
    return " ".join(text.split())[:_REASON_CHARS]


def error_of(ended: Ended, limit: LimitReached | None = None) -> RingfenceError | None:
    """The error that an ending is to callers, with what to do next; None where the client came to an end of its own.

    Args:
        ended: The ending.
        limit: Ours, if it was reached.
    """
    if ended.ending is Ending.LIMIT:
        return limit
    known = _ERRORS.get(ended.ending)
    if known is None:
        return None
    kind, advice = known
    if ended.ending is Ending.REQUEST and _ABOUT_MODEL.search(ended.reason):
        advice = "see whether --model names one that the API knows"
    return kind(f"{ended.reason.rstrip('.')}; {advice}")


_ERRORS: dict[Ending, tuple[type[RingfenceError], str]] = {
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
