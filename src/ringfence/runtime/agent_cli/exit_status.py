"""Classifies how an agent CLI ended, from its output, its process and the model gateway's observations. Pure.

Neither the exit code nor the last message is enough: claude ends with 0 when it was interrupted and when tools were
denied, and calls its failures `success`; codex ends with 0 when none of its commands could run, or the model declined.
So Ringfence's own actions take precedence, then fields and codes of the agent CLI and of the model's API as the gateway
saw them. Message text decides only if there is no code: a session that is missing, an account without credit, a prompt
that is too long, and codex if no request reached an API. An unknown end is a failure.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from enum import StrEnum
from functools import partial
from signal import Signals
from typing import ClassVar

from ringfence.egress.gateway.verdict import MAX_TOKENS, REFUSAL, WINDOW_FULL, Verdict
from ringfence.errors import (
    AuthenticationFailed,
    ConfigurationError,
    InfrastructureFault,
    LimitReached,
    PolicyRefused,
    RequestRefused,
    RingfenceError,
    UsageError,
)
from ringfence.events import JSONObject
from ringfence.frozen import frozen
from ringfence.model.failure import is_out_of_credit, is_too_long
from ringfence.runtime.transcript.translator import CliName, text_of


class Ending(StrEnum):
    """Ways to end."""

    DONE = "done"
    """It reports success; the work is not checked yet."""
    DENIED = "denied"
    """It reports success, but was not permitted some of the actions that it requested."""
    NO_STRUCTURED_OUTPUT = "no_structured_output"
    """It reports success, but without an answer that matches the given schema."""
    UNASKED = "unasked"
    """It reports success, but made no request to a model: the task was one of its own commands, such as `/clear`."""
    NO_INNER_SANDBOX = "no_inner_sandbox"
    """It reports success, but no command ran, since it could not create its own sandbox."""
    LIMIT = "limit"
    """A limit was reached: one of ringfence, or one that was passed to the agent CLI."""
    SILENT = "silent"
    """It was terminated because it had printed nothing for too long."""
    INTERRUPTED = "interrupted"
    """A signal that ringfence sent terminated it."""
    KILLED = "killed"
    """A signal that ringfence did not send terminated it."""
    CONTEXT = "context"
    """The conversation does not fit the model's window."""
    CUT = "max_tokens"
    """The model's last reply was cut at the limit on output tokens."""
    DECLINED = "refused"
    """The model declined the task."""
    POLICY = "policy"
    """The model gateway refused the request by the run's own rules."""
    AUTHENTICATION = "authentication"
    """The API rejects the credential, or there is none."""
    QUOTA = "quota"
    """The account has used up its quota or credit."""
    REQUEST = "request"
    """The API rejects the request, for example because there is no such model."""
    API = "api"
    """The API is overloaded, fails or cannot be reached."""
    NO_SESSION = "no_session"
    """The session to resume does not exist."""
    NOT_STARTED = "not_started"
    """It rejected its command line or its configuration."""
    BROKEN_OFF = "broken_off"
    """It ended without a last message, for an unknown reason."""


@frozen
class Exit:
    """Information about an end besides the output."""

    code: int
    """The exit code; negative: the number of the signal that terminated the process."""
    stderr: str = ""
    """The end of stderr."""
    signals: Collection[Signals] = ()
    """The signals that Ringfence sent."""
    limit: LimitReached | None = None
    """The limit of Ringfence that was reached."""
    silent_s: float | None = None
    """The seconds without output after which the process was terminated."""
    answer_problem: str | None = None
    """The problem of the answer, if a schema was given for it."""
    stopped: RingfenceError | None = None
    """Why the model gateway stopped serving: a limit, a missing credential, an API that is gone."""
    verdict: Verdict | None = None
    """The outcome of the last request to the model, as the gateway saw it; None: there was no request."""


@frozen
class Ended:
    """A way to end, with the reason in one line."""

    ending: Ending
    reason: str
    is_unknown_model: bool = False
    """Whether the API does not know the requested model."""


class Report(ABC):
    """Collects an agent CLI's output about itself, line by line. The output is hostile: any field can have any value."""

    cli: ClassVar[CliName]
    session_id: str | None = None
    """The id of the CLI's session, once it is known."""
    final_text: str = ""
    """The last text that the agent wrote."""
    structured_output: object = None
    final: JSONObject | None = None
    """The message that ended the last turn; None during a turn."""

    @abstractmethod
    def take(self, value: JSONObject) -> None:
        """Note one record of the output."""

    @property
    @abstractmethod
    def is_success(self) -> bool:
        """Whether the CLI reports its end as a success."""

    @property
    @abstractmethod
    def has_worked(self) -> bool:
        """Whether anything but a final message shows that the CLI began to work."""

    @property
    @abstractmethod
    def message(self) -> str:
        """The CLI's own message about its failure."""

    @property
    @abstractmethod
    def api_status(self) -> int | None:
        """The HTTP status of the API's response, as the CLI reports it."""

    @abstractmethod
    def contradict_success(self) -> Ended | None:
        """Return how the CLI ended if its output contradicts the success that it reports; else None."""

    def own_failure(self) -> Ending | None:
        """Return a failure that the CLI names by a field and that is not about the model's API."""
        return None

    @abstractmethod
    def api_failure(self) -> Ending | None:
        """Return a failure of the API, as the CLI describes it."""

    def note_session(self, value: object) -> None:
        """Note the id of the CLI's session, if `value` is one and none is known."""
        if self.session_id is None and isinstance(value, str) and _SESSION.fullmatch(value):
            self.session_id = value

    @property
    def denied_tools(self) -> tuple[str, ...]:
        """The tools that the agent was not permitted to use, each once."""
        return ()


_SESSION = re.compile(r"[0-9A-Za-z][0-9A-Za-z-]{0,99}")
_SHELL_SIGNAL_BASE = 128
_REASON_CHARS = 300
_FIELD_CHARS = 500
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
"""Error codes of both makers' APIs that have one meaning regardless of the status; platform.claude.com, "Errors";
platform.openai.com, "Error codes"."""
_STOPS: Mapping[str, tuple[Ending, str]] = {
    MAX_TOKENS: (Ending.CUT, "its last reply reached the limit on output tokens"),
    REFUSAL: (Ending.DECLINED, "the model's last reply is a refusal"),
    WINDOW_FULL: (Ending.CONTEXT, "the model's context window was full before its reply was complete"),
}
_GATEWAY_REJECTIONS = {403: Ending.POLICY, 429: Ending.LIMIT}
_RETRYABLE_STATUSES = (408, 409, 425, 429)
_NOT_FOUND = 404
_ERROR_LINE = re.compile(r"^error\b", re.IGNORECASE | re.MULTILINE)
_NO_SESSION = re.compile(r"No conversation found|no rollout found|session .* not found", re.IGNORECASE)


def classify_exit(report: Report, ended: Exit) -> Ended:
    """Return how an agent CLI ended, and the reason in one line.

    Args:
        report: The report from its output.
        ended: Further information about its end.
    """
    ours = _ended_by_us(report.cli, ended)
    if ours is not None:
        return ours
    if ended.signals and (not report.is_success or ended.code < 0):
        names = ", ".join(signal.name for signal in ended.signals)
        return Ended(Ending.INTERRUPTED, f"{report.cli} was ended by ringfence: {names}")
    number = -ended.code if ended.code < 0 else ended.code - _SHELL_SIGNAL_BASE
    if number in set(Signals):
        name = Signals(number).name
        return Ended(Ending.KILLED, f"{report.cli} was ended by {name}, which ringfence did not send")
    return _success(report, ended) if report.is_success else _failure(report, ended)


def _ended_by_us(cli: CliName, ended: Exit) -> Ended | None:
    if ended.limit is not None:
        return Ended(Ending.LIMIT, str(ended.limit))
    if ended.stopped is not None:
        kinds = ((LimitReached, Ending.LIMIT), (AuthenticationFailed, Ending.AUTHENTICATION))
        found = (ending for kind, ending in kinds if isinstance(ended.stopped, kind))
        return Ended(next(found, Ending.API), one_line(str(ended.stopped)))
    if ended.silent_s is not None:
        return Ended(Ending.SILENT, f"{cli} printed nothing for {ended.silent_s:g} s")
    return None


def _success(report: Report, ended: Exit) -> Ended:
    """Return how the CLI ended if it reports success, which the model's last reply or the exit code may contradict."""
    stopped = _STOPS.get(ended.verdict.stop_reason) if ended.verdict is not None else None
    if stopped is not None:
        return Ended(*stopped)
    if ended.code != 0:
        return _broken_off(report.cli, ended, "after it had reported that it is done")
    found = report.contradict_success()
    if ended.answer_problem is not None and (found is None or found.ending is Ending.DENIED):
        return Ended(Ending.NO_STRUCTURED_OUTPUT, one_line(f"{report.cli} gave {ended.answer_problem}"))
    return found or Ended(Ending.DONE, f"{report.cli} reports that it is done")


def _failure(report: Report, ended: Exit) -> Ended:
    """Return the result of the first source that has one: the CLI's own fields, the gateway, the CLI's codes, text."""
    message = one_line(report.message)
    own = report.own_failure()
    if own is not None:
        return Ended(own, message or f"{report.cli} gives no reason but {own.value!r}")
    lost = _NO_SESSION.search(message) or _NO_SESSION.search(ended.stderr)
    if lost is not None:
        return Ended(Ending.NO_SESSION, one_line(_line_at(lost.string, lost.start())))
    if ended.verdict is not None:
        seen_outside = _by_verdict(ended.verdict)
        if seen_outside is not None:
            is_unknown_model = ended.verdict.status == _NOT_FOUND or ended.verdict.error == "model_not_found"
            return Ended(seen_outside, message or _verdict_line(ended.verdict), is_unknown_model)
    known = report.api_failure()
    if known is not None:
        reason = message or f"{report.cli} gives no reason but {known.value!r}"
        return Ended(known, reason, report.api_status == _NOT_FOUND)
    if report.final is not None:
        return Ended(Ending.BROKEN_OFF, message or f"{report.cli} gives no reason")
    if ended.code != 0 and not report.has_worked and ended.stderr.strip():
        return Ended(Ending.NOT_STARTED, _last_error(ended.stderr))
    return _broken_off(report.cli, ended, "and without a last message")


def _by_verdict(verdict: Verdict) -> Ending | None:
    """Return the meaning of the API's last response; None if it was a success."""
    if verdict.is_rejected_by_gateway:
        return _GATEWAY_REJECTIONS.get(
            verdict.status, Ending.API if verdict.status >= 500 else Ending.REQUEST
        )
    if not verdict.is_failure:
        stopped = _STOPS.get(verdict.stop_reason)
        return stopped[0] if stopped is not None else None if verdict.is_complete else Ending.API
    code = ending_of_code(verdict.error)
    for known in (code, ending_of_code(verdict.error_type)):
        if known in (Ending.QUOTA, Ending.CONTEXT):
            return known
    if verdict.status == 400 and is_out_of_credit(verdict.message):
        return Ending.QUOTA
    if verdict.status in (200, 400) and is_too_long(verdict.message):
        return Ending.CONTEXT
    return ending_of_status(verdict.status) if verdict.status >= 400 else code or Ending.API


def ending_of_code(code: str) -> Ending | None:
    """Return the meaning of an API's error code; None if it is unknown."""
    return _CODES.get(code)


def ending_of_status(status: int) -> Ending:
    """Return the meaning of an HTTP status of 400 or more."""
    if status in (401, 403):
        return Ending.AUTHENTICATION
    if status == 402:
        return Ending.QUOTA
    return Ending.API if status >= 500 or status in _RETRYABLE_STATUSES else Ending.REQUEST


def _verdict_line(verdict: Verdict) -> str:
    if verdict.is_rejected_by_gateway:
        return one_line(f"the model gateway refused the request: {verdict.message}")
    if verdict.stop_reason in _STOPS:
        return _STOPS[verdict.stop_reason][1]
    answered = f"answered {verdict.status}" if verdict.status else "gave no answer"
    what = " ".join(part for part in (verdict.error, verdict.message) if part)
    return one_line(f"the model's API {answered}{f': {what}' if what else ''}")


def _broken_off(cli: CliName, ended: Exit, when: str) -> Ended:
    what, error = f"{cli} ended with {ended.code} {when}", _last_error(ended.stderr)
    return Ended(Ending.BROKEN_OFF, f"{what}: {error}"[:_REASON_CHARS] if error else what)


def _last_error(text: str) -> str:
    """Return stderr in one line; if it is long, from the last line marked as an error, as warnings come before."""
    if len(text) <= _REASON_CHARS:
        return one_line(text)
    found = list(_ERROR_LINE.finditer(text))
    return one_line(text[found[-1].start() :] if found else text[-_REASON_CHARS:])


def _line_at(text: str, position: int) -> str:
    begin = text.rfind("\n", 0, position) + 1
    end = text.find("\n", position)
    return text[begin : end if end >= 0 else len(text)]


def one_line(text: str) -> str:
    """Return a text of bounded length in one line."""
    return " ".join(text.split())[:_REASON_CHARS]


def bounded(value: object) -> str:
    """Return a string of hostile origin, bounded; "" for anything else."""
    return text_of(value)[:_FIELD_CHARS]


def error_of(ended: Ended, limit: RingfenceError | None = None) -> RingfenceError | None:
    """Return the error for an ending, with the next step; None if the ending is a result (done, declined, cut).

    Args:
        ended: The ending.
        limit: The limit of Ringfence that was reached, or the reason why the model gateway stopped serving. Without
        one, a limit that the agent CLI enforced itself is a result.
    """
    if ended.ending is Ending.LIMIT or limit is not None:
        return limit
    known = _ERRORS.get(ended.ending)
    if known is None:
        return None
    kind, advice = known
    if ended.ending is Ending.REQUEST and ended.is_unknown_model:
        advice = "check that --model names one that the API knows"
    return kind(f"{ended.reason.rstrip('.')}; {advice}")


_ERRORS: dict[Ending, tuple[Callable[[str], RingfenceError], str]] = {
    Ending.POLICY: (
        partial(PolicyRefused, rule="model-gateway"),
        "see egress.models and egress.provider_tools in ringfence.yaml",
    ),
    Ending.NO_INNER_SANDBOX: (
        ConfigurationError,
        "ringfence isolates it already, so leave out the arguments that turn its own sandbox on (--cli-arg)",
    ),
    Ending.AUTHENTICATION: (
        AuthenticationFailed,
        "the credential stays on the host: check it with `ringfence config secrets ls`, and provide a valid one",
    ),
    Ending.QUOTA: (AuthenticationFailed, "raise the account's quota, or use another account"),
    Ending.REQUEST: (RequestRefused, "the API would reject the same request again"),
    Ending.NO_SESSION: (UsageError, "leave out --continue and --resume to start a new session"),
    Ending.NOT_STARTED: (
        ConfigurationError,
        "check --cli-arg, and `client:` and `tools.mcp` in ringfence.yaml",
    ),
    Ending.API: (InfrastructureFault, "try again later"),
    Ending.SILENT: (InfrastructureFault, "try again, or allow a longer silence with --idle-timeout"),
    Ending.INTERRUPTED: (InfrastructureFault, "try again"),
    Ending.KILLED: (InfrastructureFault, "try again"),
    Ending.BROKEN_OFF: (InfrastructureFault, "try again; the record has all of its output"),
}
