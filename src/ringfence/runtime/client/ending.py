"""How a client ended, from what was seen of it and of its model; each way has its own name. Pure.

Neither the exit code nor the last message is enough: claude ends with 0 when it was interrupted and when tools were
denied, and calls its failures `success`; codex ends with 0 when none of its commands could run, or the model declined.
So what we did ourselves comes first, then fields and codes: those of the client, and what the gateway saw of the model's
API. Message text decides only where there is no code: a session that is missing, an account without credit, a prompt
that is too long, and codex where no API was asked. What is not known is a failure.
"""

import re
from collections.abc import Collection, Mapping
from enum import StrEnum
from signal import Signals

from ringfence.egress.gateway.verdict import MAX_TOKENS, REFUSAL, WINDOW_FULL, Verdict, verdict_of_body
from ringfence.errors import (
    AuthenticationFailed,
    LimitReached,
    RingfenceError,
)
from ringfence.frozen import frozen
from ringfence.model.failure import is_out_of_credit, is_too_long
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
    CUT = "max_tokens"
    """The model's last reply was cut, as it had all the tokens that one may have."""
    DECLINED = "refused"
    """The model declined the task."""
    POLICY = "policy"
    """The model gateway refused the request by the run's own rules."""
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
    stopped: RingfenceError | None = None
    """Why the model gateway gives no more: a limit, a credential that is not to be had, an API that is gone."""
    verdict: Verdict | None = None
    """What was said of its last request to the model, as the gateway saw it; None: it made none."""


@frozen
class Ended:
    """A way to end, with the reason in a line."""

    ending: Ending
    reason: str
    is_unknown_model: bool = False
    """Whether the API does not know the model that it was asked for."""


_FROM_SHELL = 128
_REASON_CHARS = 300
_CLAUDE_SUBTYPES = {
    "error_max_turns": Ending.LIMIT,
    "error_max_budget_usd": Ending.LIMIT,
    "error_max_structured_output_retries": Ending.NO_STRUCTURED_OUTPUT,
}
_CLAUDE_TOO_LONG = ("prompt_too_long", "blocking_limit")
"""Terminal reasons: the API says so, or claude does not ask it."""

_CLAUDE_FAULTS = {
    "authentication_failed": Ending.AUTHENTICATION,
    "billing_error": Ending.QUOTA,
    "model_not_found": Ending.REQUEST,
    "invalid_request": Ending.REQUEST,
    "rate_limit": Ending.API,
    "server_error": Ending.API,
}
_CODES: Mapping[str, Ending] = {
    **dict.fromkeys(
        (
            "billing_error", "insufficient_quota", "billing_hard_limit_reached", "usage_limit_reached",
            "usage_not_included",
        ),
        Ending.QUOTA,
    ),
    **dict.fromkeys(("context_length_exceeded", "context_too_large"), Ending.CONTEXT),
    **dict.fromkeys(
        ("authentication_error", "permission_error", "invalid_api_key", "account_deactivated"),
        Ending.AUTHENTICATION,
    ),
    **dict.fromkeys(
        (
            "rate_limit_error", "rate_limit_exceeded", "overloaded_error", "api_error", "server_error",
            "timeout_error", "slow_down", "server_is_overloaded",
        ),
        Ending.API,
    ),
    **dict.fromkeys(
        (
            "not_found_error", "model_not_found", "invalid_request_error", "request_too_large", "invalid_prompt",
            "cyber_policy", "content_policy_violation",
        ),
        Ending.REQUEST,
    ),
}  # fmt: skip
"""Codes of errors of both makers' APIs that mean one thing whatever the status; platform.claude.com, "Errors";
platform.openai.com, "Error codes"."""

_STOPS: Mapping[str, tuple[Ending, str]] = {
    MAX_TOKENS: (Ending.CUT, "its last reply had all the tokens that one may have"),
    REFUSAL: (Ending.DECLINED, "the model's last reply is a refusal"),
    WINDOW_FULL: (Ending.CONTEXT, "the model's window was full before its reply was whole"),
}
_RETRYABLE_STATUSES = (408, 409, 425, 429)
_NOT_FOUND = 404
_ERROR_LINE = re.compile(r"^error\b", re.IGNORECASE | re.MULTILINE)
_NO_SESSION = re.compile(r"No conversation found|no rollout found|session .* not found", re.IGNORECASE)
_CODEX_STATUS = re.compile(r"unexpected status (\d{3})\b")
_CODEX_WORDS = (
    (Ending.CONTEXT, re.compile(r"context window|context_length_exceeded", re.IGNORECASE)),
    (Ending.QUOTA, re.compile(r"^quota exceeded|exceeded your current quota|usage limit", re.IGNORECASE)),
    (Ending.AUTHENTICATION, re.compile(r"Missing environment variable|not logged in", re.IGNORECASE)),
    (Ending.API, re.compile(r"disconnected|retry limit|error sending|timed? ?out", re.IGNORECASE)),
)
"""Of failures in which no API was asked, and codex names no code."""

_SAID_DONE = (Ending.DONE, Ending.DENIED, Ending.NO_STRUCTURED_OUTPUT, Ending.UNASKED)


def ending_of(client: ClientName, seen: Seen, ended: Exit) -> Ended:
    """How a client ended, and why in a line.

    Args:
        client: Which.
        seen: Its output.
        ended: The rest.
    """
    ours = _by_us(client, ended)
    if ours is not None:
        return ours
    is_done = _says_done(client, seen)
    if ended.signals and (not is_done or ended.code < 0):
        return Ended(Ending.INTERRUPTED, _interrupted(client, ended))
    killed = _killed(client, ended)
    if killed is not None:
        return killed
    return _done(client, seen, ended) if is_done else _failed(client, seen, ended)


def _by_us(client: ClientName, ended: Exit) -> Ended | None:
    """What ended it from outside."""
    if ended.limit is not None:
        return Ended(Ending.LIMIT, str(ended.limit))
    if ended.stopped is not None:
        kinds = ((LimitReached, Ending.LIMIT), (AuthenticationFailed, Ending.AUTHENTICATION))
        found = (ending for kind, ending in kinds if isinstance(ended.stopped, kind))
        return Ended(next(found, Ending.API), _one_line(str(ended.stopped)))
    if ended.silent_s is not None:
        return Ended(Ending.SILENT, f"{client} said nothing for {ended.silent_s:g} s")
    return None


def _killed(client: ClientName, ended: Exit) -> Ended | None:
    number = -ended.code if ended.code < 0 else ended.code - _FROM_SHELL
    if number not in set(Signals):
        return None
    return Ended(Ending.KILLED, f"{client} was ended by {Signals(number).name}, which was not sent by us")


# --- done, as it says


def _says_done(client: ClientName, seen: Seen) -> bool:
    final = seen.final or {}
    if client == "codex":
        return final.get("type") == "turn.completed"
    is_failure = final.get("is_error") is True or final.get("api_error_status")
    return final.get("subtype") == "success" and not is_failure


def _done(client: ClientName, seen: Seen, ended: Exit) -> Ended:
    """An end that the client calls a success: unless the model's last answer, or the exit code, says otherwise."""
    stopped = _STOPS.get(ended.verdict.stop_reason) if ended.verdict is not None else None
    if stopped is not None:
        return Ended(*stopped)
    if ended.code != 0:
        return _broken_off(client, ended, "after it had said that it is done")
    return _claude_done(seen.final or {}, ended) if client == "claude" else _codex_done(seen, ended)


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


def _codex_done(seen: Seen, ended: Exit) -> Ended:
    if seen.commands_without_sandbox and seen.commands_without_sandbox == seen.commands:
        reason = "codex could not make its own sandbox, so no command ran; switch that off inside a fence"
        return Ended(Ending.NO_INNER_SANDBOX, reason)
    if ended.answer_problem is not None:
        return Ended(Ending.NO_STRUCTURED_OUTPUT, _one_line(f"codex gave {ended.answer_problem}"))
    return Ended(Ending.DONE, "codex says that it is done")


# --- failed, as it says, or without a word


def _failed(client: ClientName, seen: Seen, ended: Exit) -> Ended:
    """The first of these that knows: the client's own fields, the gateway, the client's codes, words."""
    said = _one_line(_said(client, seen))
    own = _claude_fields(seen) if client == "claude" else None
    if own is not None:
        return Ended(own, said or f"claude says nothing but {own.value!r}")
    lost = _NO_SESSION.search(said) or _NO_SESSION.search(ended.stderr)
    if lost is not None:
        return Ended(Ending.NO_SESSION, _one_line(_line_at(lost.string, lost.start())))
    if ended.verdict is not None:
        seen_outside = _by_verdict(ended.verdict)
        if seen_outside is not None:
            is_unknown_model = ended.verdict.status == _NOT_FOUND or ended.verdict.error == "model_not_found"
            return Ended(seen_outside, said or _verdict_line(ended.verdict), is_unknown_model)
    known = _by_codes(seen) if client == "claude" else _by_words(said)
    if known is not None:
        return Ended(known, said, _status_said(client, seen, said) == _NOT_FOUND)
    if seen.final is None and ended.code != 0 and seen == Seen() and ended.stderr.strip():
        return Ended(Ending.NOT_STARTED, _last_words(ended.stderr))
    if seen.final is not None:
        return Ended(Ending.BROKEN_OFF, said or f"{client} says nothing")
    return _broken_off(client, ended, "and without a last word")


def _claude_fields(seen: Seen) -> Ending | None:
    """What claude says of itself, where it is not about its model's API."""
    final = seen.final or {}
    if final.get("terminal_reason") in _CLAUDE_TOO_LONG:
        return Ending.CONTEXT
    return _CLAUDE_SUBTYPES.get(text_of(final.get("subtype")))


def _by_verdict(verdict: Verdict) -> Ending | None:
    """What the API's last answer means; None if it was a good one."""
    if verdict.is_rejected_by_gateway:
        return _GATEWAY_REJECTIONS.get(
            verdict.status, Ending.API if verdict.status >= 500 else Ending.REQUEST
        )
    if not verdict.is_failure:
        stopped = _STOPS.get(verdict.stop_reason)
        return stopped[0] if stopped is not None else None if verdict.is_complete else Ending.API
    code = _CODES.get(verdict.error)
    for known in (code, _CODES.get(verdict.error_type)):
        if known in (Ending.QUOTA, Ending.CONTEXT):
            return known
    if verdict.status == 400 and is_out_of_credit(verdict.message):
        return Ending.QUOTA
    if verdict.status in (200, 400) and is_too_long(verdict.message):
        return Ending.CONTEXT
    return _by_status(verdict.status) if verdict.status >= 400 else code or Ending.API


_GATEWAY_REJECTIONS = {403: Ending.POLICY, 429: Ending.LIMIT}


def _by_status(status: int) -> Ending:
    if status in (401, 403):
        return Ending.AUTHENTICATION
    if status == 402:
        return Ending.QUOTA
    return Ending.API if status >= 500 or status in _RETRYABLE_STATUSES else Ending.REQUEST


def _verdict_line(verdict: Verdict) -> str:
    if verdict.is_rejected_by_gateway:
        return _one_line(f"the model gateway refused the request: {verdict.message}")
    if verdict.stop_reason in _STOPS:
        return _STOPS[verdict.stop_reason][1]
    answered = f"answered {verdict.status}" if verdict.status else "gave no answer"
    what = " ".join(part for part in (verdict.error, verdict.message) if part)
    return _one_line(f"the model's API {answered}{f': {what}' if what else ''}")


def _by_codes(seen: Seen) -> Ending | None:
    """What claude says that the API said."""
    status = (seen.final or {}).get("api_error_status")
    if seen.fault in _CLAUDE_FAULTS:
        return _CLAUDE_FAULTS[seen.fault]
    if isinstance(status, int) and 400 <= status < 600:
        return _by_status(status)
    return Ending.API if (seen.final or {}).get("terminal_reason") == "api_error" else None


def _status_said(client: ClientName, seen: Seen, said: str) -> int | None:
    """The status that the client says the API answered with."""
    if client == "claude":
        status = (seen.final or {}).get("api_error_status")
        return status if isinstance(status, int) else None
    found = _CODEX_STATUS.search(said)
    return int(found[1]) if found is not None else None


def _by_words(said: str) -> Ending | None:
    """What codex says, which has no fields for codes: the body of the API's answer, its status, or words."""
    code = verdict_of_body(said.encode("utf-8", "replace")).error
    if code in _CODES:
        return _CODES[code]
    status = _CODEX_STATUS.search(said)
    if status is not None:
        return _by_status(int(status[1]))
    return next((ending for ending, words in _CODEX_WORDS if words.search(said)), None)


def _said(client: ClientName, seen: Seen) -> str:
    """The client's last words."""
    final = seen.final or {}
    if client == "codex":
        error = final.get("error")
        return text_of(error.get("message")) if isinstance(error, dict) else ""
    errors = final.get("errors")
    return text_of(final.get("result")) or text_of(errors[0] if isinstance(errors, list) and errors else "")


def _broken_off(client: ClientName, ended: Exit, when: str) -> Ended:
    told = _last_words(ended.stderr)
    what = f"{client} ended with {ended.code} {when}"
    return Ended(Ending.BROKEN_OFF, f"{what}: {told}"[:_REASON_CHARS] if told else what)


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
