"""How the real clients ended, captured with the versions that the files are named after."""

import json
from collections.abc import Iterable
from pathlib import Path
from signal import Signals
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence.egress.gateway.verdict import Verdict
from ringfence.errors import (
    AuthenticationFailed,
    ConfigurationError,
    InfrastructureFault,
    LimitReached,
    RingfenceError,
)
from ringfence.runtime.agent_cli.exit_status import Ended, Ending, Exit, Report, classify_exit, error_of
from ringfence.runtime.claude.exit_status import ClaudeReport
from ringfence.runtime.codex.exit_status import CodexReport
from ringfence.runtime.transcript.translator import CliName

CAPTURES: dict[tuple[CliName, str], dict[str, Any]] = {
    (client, capture["name"]): capture
    for client in get_args(CliName)
    for file in Path(__file__).parent.glob(f"{client}-*.jsonl")
    for capture in map(json.loads, file.read_text().splitlines())
}
"""Each is an output without what does not tell, an exit code, the end of stderr, and the signal that was sent."""

EXPECTED: dict[tuple[CliName, str], Ending] = {
    ("claude", "done"): Ending.DONE,
    ("claude", "denied"): Ending.DENIED,
    ("claude", "no-structured-output"): Ending.NO_STRUCTURED_OUTPUT,
    ("claude", "own-command"): Ending.UNASKED,
    ("claude", "api-error"): Ending.AUTHENTICATION,
    ("claude", "refused-credential"): Ending.AUTHENTICATION,
    ("claude", "no-credential"): Ending.AUTHENTICATION,
    ("claude", "credit"): Ending.QUOTA,
    ("claude", "overloaded"): Ending.API,
    ("claude", "prompt-too-long"): Ending.CONTEXT,
    ("claude", "max-turns"): Ending.LIMIT,
    ("claude", "max-budget"): Ending.LIMIT,
    ("claude", "unknown-session"): Ending.NO_SESSION,
    ("claude", "usage"): Ending.NOT_STARTED,
    ("claude", "root"): Ending.NOT_STARTED,
    ("claude", "interrupted"): Ending.INTERRUPTED,
    ("claude", "terminated"): Ending.INTERRUPTED,
    ("claude", "killed"): Ending.INTERRUPTED,
    ("codex", "done"): Ending.DONE,
    ("codex", "dead-inner-sandbox"): Ending.NO_INNER_SANDBOX,
    ("codex", "api-error"): Ending.REQUEST,
    ("codex", "refused-credential"): Ending.AUTHENTICATION,
    ("codex", "no-credential"): Ending.AUTHENTICATION,
    ("codex", "quota"): Ending.QUOTA,
    ("codex", "overloaded"): Ending.API,
    ("codex", "stream-failed"): Ending.API,
    ("codex", "unknown-session"): Ending.NO_SESSION,
    ("codex", "bad-configuration"): Ending.NOT_STARTED,
    ("codex", "interrupted"): Ending.INTERRUPTED,
    ("codex", "terminated"): Ending.INTERRUPTED,
    ("codex", "killed"): Ending.INTERRUPTED,
}


REPORTS: dict[CliName, type[Report]] = {"claude": ClaudeReport, "codex": CodexReport}


def report_of(client: CliName, lines: Iterable[object] = ()) -> Report:
    """What a whole output tells."""
    report = REPORTS[client]()
    for line in lines:
        if isinstance(line, dict):
            report.take(line)
    return report


def judged(client: CliName, name: str, **changes: Any) -> Ended:
    """What a captured ending is taken for."""
    capture = CAPTURES[client, name]
    signals = [Signals[capture["signal"]]] if capture["signal"] else []
    known = {
        "code": capture["exit_code"],
        "stderr": capture["stderr"],
        "signals": signals,
        "answer_problem": "no structured output" if name == "no-structured-output" else None,
    }
    return classify_exit(report_of(client, capture["lines"]), Exit(**{**known, **changes}))


@pytest.mark.parametrize(("client", "name"), CAPTURES, ids="-".join)
def test_a_captured_ending_has_its_name(client: CliName, name: str):
    """Each real ending is told from the others, with a reason in a line."""
    ended = judged(client, name)
    assert ended.ending == EXPECTED[client, name]
    assert ended.reason
    assert "\n" not in ended.reason


@pytest.mark.parametrize("name", ["terminated", "killed"])
@pytest.mark.parametrize("client", get_args(CliName))
def test_a_signal_of_somebody_else_is_not_ours(client: CliName, name: str):
    """Whether it shows as a negative number or in the way of shells."""
    assert judged(client, name, signals=()).ending == Ending.KILLED


def test_a_client_that_was_done_before_the_signal_is_done():
    """The signal came too late to matter."""
    assert judged("claude", "done", signals=[Signals.SIGINT]).ending == Ending.DONE


@pytest.mark.parametrize("client", get_args(CliName))
def test_a_client_without_the_answer_that_was_asked_for_is_not_done(client: CliName):
    """Whatever it says of itself: neither is sure to keep to a schema."""
    ended = judged(client, "done", answer_problem="no structured output")
    assert ended == Ended(Ending.NO_STRUCTURED_OUTPUT, f"{client} gave no structured output")


@pytest.mark.parametrize("client", get_args(CliName))
def test_an_exit_code_counts_more_than_the_last_word(client: CliName):
    """Which it has said all the same, and the reason does not deny that."""
    ended = judged(client, "done", code=3)
    assert ended == Ended(Ending.BROKEN_OFF, f"{client} ended with 3 after it had reported that it is done")


@pytest.mark.parametrize("reason", ["prompt_too_long", "blocking_limit"])
def test_a_conversation_that_is_too_long_is_that_whoever_says_so(reason: str):
    """The API, or claude 2.1.329 by itself, which then asks nothing: the same again would come to the same."""
    last = {"type": "result", "subtype": "success", "is_error": True, "result": "Prompt is too long"}
    report = report_of("claude", [{**last, "terminal_reason": reason}])
    assert classify_exit(report, Exit(1)) == Ended(Ending.CONTEXT, "Prompt is too long")


def test_a_failure_without_words_has_a_reason():
    """The record says what is known, rather than nothing."""
    last = {"type": "result", "subtype": "success", "is_error": True, "api_error_status": 400, "result": None}
    ended = classify_exit(report_of("claude", [last]), Exit(1))
    assert ended == Ended(Ending.REQUEST, "claude gives no reason but 'request'")


def test_a_denial_does_not_excuse_a_missing_answer():
    """Whoever asked for one goes on without it otherwise, as after a success."""
    ended = judged("claude", "denied", answer_problem="no structured output")
    assert ended.ending == Ending.NO_STRUCTURED_OUTPUT


def test_a_limit_of_ours_comes_before_what_the_client_says():
    """It sees an error of the API; we know better."""
    limit = LimitReached("tokens", allowed=10, used=12)
    ended = judged("codex", "quota", limit=limit)
    assert ended == Ended(Ending.LIMIT, str(limit))
    assert error_of(ended, limit) is limit


def test_silence_is_named():
    """It was ended for that, and the signals that did it are no interruption."""
    ended = judged("codex", "killed", silent_s=300.0)
    assert ended == Ended(Ending.SILENT, "codex printed nothing for 300 s")


def test_success_with_an_exit_code_is_none():
    """The last message is not believed alone."""
    assert judged("claude", "done", code=3).ending == Ending.BROKEN_OFF


def test_half_a_line_is_no_last_word():
    """What cannot be parsed is not guessed at."""
    report = report_of("claude", [*CAPTURES["claude", "done"]["lines"][:-1], '{"type": "resu'])
    assert report.final is None
    assert classify_exit(report, Exit(0)).ending == Ending.BROKEN_OFF


def test_a_result_is_not_the_end_while_work_goes_on():
    """Claude may begin another turn after it: the last result counts, and none if that turn broke off."""
    lines = CAPTURES["claude", "done"]["lines"]
    assert classify_exit(report_of("claude", [*lines, lines[0]]), Exit(0)).ending == Ending.BROKEN_OFF
    assert classify_exit(report_of("claude", [*lines, *lines]), Exit(0)).ending == Ending.DONE


def test_one_command_that_ran_is_a_sandbox():
    """Only where none could run was there none."""
    lines = CAPTURES["codex", "dead-inner-sandbox"]["lines"] + CAPTURES["codex", "done"]["lines"]
    assert classify_exit(report_of("codex", lines), Exit(0)).ending == Ending.DONE


@pytest.mark.parametrize(
    ("client", "name", "error"),
    [
        ("claude", "refused-credential", AuthenticationFailed),
        ("claude", "overloaded", InfrastructureFault),
        ("claude", "usage", ConfigurationError),
        ("codex", "dead-inner-sandbox", ConfigurationError),
    ],
)
def test_an_ending_is_an_error_by_what_to_do_next(client: CliName, name: str, error: type[Exception]):
    """With the client's reason, and the next step."""
    ended = judged(client, name)
    assert type(error_of(ended)) is error
    assert str(error_of(ended)).startswith(f"{ended.reason.rstrip('.')}; ")


@pytest.mark.parametrize(
    ("verdict", "is_about_model"),
    [
        (Verdict(404, "not_found_error"), True),
        (Verdict(400, "model_not_found"), True),
        (Verdict(413, "request_too_large"), False),
        (Verdict(400, "invalid_request_error", message="the model's tools make no sense"), False),
    ],
    ids=["404", "code", "413", "400"],
)
def test_the_models_name_is_doubted_where_the_api_does(verdict: Verdict, is_about_model: bool):
    """The next step is to look at `--model` only where the API says that it does not know the model."""
    ended = classify_exit(report_of("codex"), Exit(1, verdict=verdict))
    assert ("--model" in str(error_of(ended))) is is_about_model


VERDICTS = {
    "401": (Verdict(401, "authentication_error"), Ending.AUTHENTICATION),
    "403": (Verdict(403, "permission_error"), Ending.AUTHENTICATION),
    "402": (Verdict(402, "billing_error"), Ending.QUOTA),
    "credit": (Verdict(400, message="Your credit balance is too low to ..."), Ending.QUOTA),
    "quota": (Verdict(429, "rate_limit_exceeded", "insufficient_quota"), Ending.QUOTA),
    "404": (Verdict(404, "not_found_error"), Ending.REQUEST),
    "413": (Verdict(413, "request_too_large"), Ending.REQUEST),
    "too long": (Verdict(400, message="prompt is too long: 9 > 8"), Ending.CONTEXT),
    "too long, by code": (Verdict(200, "context_length_exceeded"), Ending.CONTEXT),
    "flagged": (Verdict(200, "invalid_prompt"), Ending.REQUEST),
    "429": (Verdict(429, "rate_limit_error"), Ending.API),
    "500": (Verdict(500, "api_error"), Ending.API),
    "503 about billing": (Verdict(503, "server_error", message="billing service timeout"), Ending.API),
    "an error of a stream": (Verdict(200, "overloaded_error"), Ending.API),
    "an unknown error of a stream": (Verdict(200, "of_tomorrow"), Ending.API),
    "a redirect": (Verdict(302), Ending.API),
    "no answer": (Verdict(0, message="connection refused"), Ending.API),
    "half an answer": (Verdict(200), Ending.API),
    "declined": (Verdict(200, stop_reason="refusal", is_complete=True), Ending.DECLINED),
    "cut": (Verdict(200, stop_reason="max_tokens", is_complete=True), Ending.CUT),
    "window": (Verdict(200, stop_reason="model_context_window_exceeded", is_complete=True), Ending.CONTEXT),
    "our policy": (
        Verdict(403, message="the model 'x' is not allowed", is_rejected_by_gateway=True),
        Ending.POLICY,
    ),
    "ours, not there": (Verdict(503, message="gone", is_rejected_by_gateway=True), Ending.API),
    "ours, malformed": (Verdict(400, message="no JSON", is_rejected_by_gateway=True), Ending.REQUEST),
    "a good answer": (Verdict(200, stop_reason="end_turn", is_complete=True), Ending.BROKEN_OFF),
}


@pytest.mark.parametrize("name", VERDICTS)
@pytest.mark.parametrize("client", get_args(CliName))
def test_a_failure_is_what_the_gateway_saw(client: CliName, name: str):
    """Whatever a client says of it, in which words."""
    verdict, ending = VERDICTS[name]
    last: dict[str, Any] = {"error": {"message": "it failed"}, "type": "turn.failed"}
    if client == "claude":
        last = {"type": "result", "subtype": "success", "is_error": True, "result": "it failed"}
    assert classify_exit(report_of(client, [last]), Exit(1, verdict=verdict)).ending == ending


@pytest.mark.parametrize("client", get_args(CliName))
def test_without_a_word_the_gateway_says_why(client: CliName):
    """With what the API said."""
    verdict = Verdict(402, "billing_error", message="pay first")
    ended = classify_exit(report_of(client), Exit(1, stderr="oops", verdict=verdict))
    assert ended == Ended(Ending.QUOTA, "the model's API answered 402: billing_error pay first")


@pytest.mark.parametrize(("reason", "ending"), [("refusal", "refused"), ("max_tokens", "max_tokens")])
@pytest.mark.parametrize("client", get_args(CliName))
def test_the_models_last_answer_counts_more_than_a_success(client: CliName, reason: str, ending: str):
    """A client calls it done when its model has declined, or was cut."""
    verdict = Verdict(200, stop_reason=reason, is_complete=True)
    assert judged(client, "done", verdict=verdict).ending == ending


def test_a_failure_on_the_way_does_not_matter_to_a_success():
    """A request for a title, say, may fail last."""
    assert judged("claude", "done", verdict=Verdict(500, "api_error")).ending == Ending.DONE


@pytest.mark.parametrize(
    ("stopped", "ending"),
    [
        (LimitReached("turns", allowed=2, used=2), Ending.LIMIT),
        (AuthenticationFailed("no key"), Ending.AUTHENTICATION),
        (InfrastructureFault("the API is gone"), Ending.API),
    ],
)
@pytest.mark.parametrize("name", ["refused-credential", "quota", "done"])
def test_why_the_gateway_gave_no_more_comes_before_all(stopped: RingfenceError, ending: Ending, name: str):
    """A client takes our refusal for one of the API's."""
    ended = judged("codex", name, stopped=stopped)
    assert ended == Ended(ending, str(stopped))
    assert error_of(ended, stopped) is stopped


def test_an_end_of_the_clients_own_is_no_error():
    """Whether the work is right is for others to say."""
    assert error_of(judged("claude", "done")) is None
    assert error_of(judged("claude", "denied")) is None


words = st.sampled_from(
    ["result", "success", "error", "turn.completed", "turn.failed", "item.completed", "assistant", "failed"]
)
names = st.sampled_from(
    [
        "type",
        "subtype",
        "is_error",
        "errors",
        "error",
        "message",
        "item",
        "status",
        "permission_denials",
        "result",
    ]
)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | words | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=4),
    max_leaves=10,
)
lines = st.lists(st.dictionaries(names, values, max_size=6) | values, max_size=6)


@given(
    st.sampled_from(get_args(CliName)),
    lines,
    st.integers(-200, 300),
    st.text(),
    st.lists(st.sampled_from(Signals), max_size=2),
)
def test_nothing_that_a_client_says_raises(
    client: CliName, said: list[Any], code: int, stderr: str, signals: list[Signals]
):
    """Output comes from inside: whatever it is, it has a name and one short line."""
    ended = classify_exit(report_of(client, said), Exit(code, stderr, signals))
    assert ended.reason
    assert len(ended.reason) <= 500
    assert len(ended.reason.splitlines()) == 1
