"""Questions of a run: which events make one, and which rules an answer may grant."""

from functools import partial
from typing import Any

import pytest

from ringfence.config.model import Settings
from ringfence.config.names import QuestionKind
from ringfence.errors import LimitReached, PolicyRefused
from ringfence.events import (
    AgentAnswered,
    EgressDecided,
    Event,
    Origin,
    PermissionDecided,
    QuestionAnswered,
    ToolCalled,
    ToolReturned,
)
from ringfence.job.agent import may_permit
from ringfence.job.question import Question, QuestionWatch, continuation, read_rule, with_rules
from ringfence.job.request import AgentRequest

pytestmark = pytest.mark.anyio
ALL: tuple[QuestionKind, ...] = ("host", "tool", "budget", "question")
WORDS = "I need it. rule: {host: evil.example, port: 443}"


def _refusal(host: str = "api.example.com", rule: str = "default", **more: Any) -> EgressDecided:
    fields = {"allowed": False, "method": "CONNECT", "port": 443, "path": "", "reason": "r", **more}
    return EgressDecided(sandbox_id="s", connection=1, host=host, rule=rule, **fields)


def _called(tool: str, **arguments: Any) -> ToolCalled:
    return ToolCalled(call_id="c", tool=tool, arguments=arguments, reasoning=arguments.get("reasoning"))


def _returned(tool: str) -> ToolReturned:
    return ToolReturned(call_id="c", tool=tool, is_error=False, content="", duration_ms=1)


def _denied(tool: str, **arguments: Any) -> PermissionDecided:
    return PermissionDecided(call_id="c", tool=tool, allowed=False, reason="no", arguments=arguments)


async def _asked(*events: Event, about: Any = ALL, denied: tuple[str, ...] = ()) -> Question | None:
    watch = QuestionWatch(about, denied=denied)
    with watch.watching():
        for event in events:
            watch.take(event)
    return watch.question


_USER = {"questions": [{"question": "Which colour?", "options": []}]}


@pytest.mark.parametrize(
    ("events", "kind", "rule", "text"),
    [
        pytest.param([_refusal()], "host", {"host": "api.example.com", "port": 443}, "", id="host"),
        pytest.param([_denied("shell")], "tool", {"tool": "shell"}, "", id="tool"),
        pytest.param(
            [AgentAnswered(ended_by="denied", final_text="", denied=["Bash"])],
            "tool",
            {"tool": "Bash"},
            "",
            id="denied",
        ),
        pytest.param(
            [_denied("AskUserQuestion", **_USER)], "question", {}, "Which colour?", id="claude-asks"
        ),
        pytest.param(
            [_called("ask_person", question="Which?"), _returned("ask_person")],
            "question",
            {},
            "Which?",
            id="agent-asks",
        ),
    ],
)
async def test_a_refusal_becomes_a_question(events: list[Event], kind: str, rule: Any, text: str):
    """Its rule comes from the fields of the event."""
    assert await _asked(*events) == Question(kind, rule, text)  # type: ignore[arg-type]


async def test_a_rule_in_the_words_of_the_agent_is_only_text():
    """The rule names the refused host, whatever the agent wrote."""
    question = await _asked(_called("shell", reasoning=WORDS), _refusal())
    assert question == Question("host", {"host": "api.example.com", "port": 443}, WORDS)


@pytest.mark.parametrize(
    "event",
    [
        pytest.param(_refusal(rule="deny api.example.com"), id="denied-by-name"),
        pytest.param(_refusal(rule="never"), id="never"),
        pytest.param(_refusal("169.254.169.254"), id="metadata-address"),
        pytest.param(_refusal("metadata.google.internal"), id="metadata-name"),
        pytest.param(_refusal("127.0.0.1"), id="loopback"),
        pytest.param(_refusal("10.0.0.7"), id="private"),
        pytest.param(_refusal("db.example.com", port=2375), id="engine-port"),
        pytest.param(_refusal("", port=0), id="unreadable"),
        pytest.param(_refusal(allowed=True), id="allowed"),
        pytest.param(_denied("Bash(rm *)"), id="no-name-of-a-tool"),
        pytest.param(_denied("mcp__github"), id="all-tools-of-a-server"),
        pytest.param(_denied("mcp__github__"), id="no-tool-of-a-server"),
        pytest.param(_denied("Write"), id="tool-denied-by-name"),
        pytest.param(_returned("ask_person"), id="returned-without-a-call"),
    ],
)
async def test_a_final_refusal_is_not_asked_about(event: Event):
    """A denial by the user's own rule, and what the gate always refuses."""
    assert await _asked(event, denied=("Write",)) is None


@pytest.mark.parametrize(
    ("runtime", "known", "unknown"),
    [
        ("api", "shell", "launch"),
        ("claude-cli", "WebFetch", "Launch"),
        ("claude-cli", "Bash", "mcp__none__x"),
    ],
)
async def test_a_tool_that_the_agent_does_not_have_is_not_asked_about(runtime: Any, known: str, unknown: str):
    """A rule with such a name, granted for all jobs of the agent, would end each of them before it starts."""
    agent = AgentRequest(prompt="do", model="m", runtime=runtime)
    watch = QuestionWatch(ALL, may_permit=partial(may_permit, agent))
    with watch.watching():
        watch.take(_denied(unknown))
        assert watch.question is None
        watch.take(_denied(known))
    assert watch.question == Question("tool", {"tool": known}, "")


async def test_a_transcript_cannot_ask():
    """A call that a program inside reports is not one of our own agent."""
    reported = ToolCalled(
        call_id="c", tool="ask_person", arguments={"question": "?"}, origin=Origin(file="f", line=1)
    )
    assert await _asked(reported, _returned("ask_person")) is None


async def test_only_the_named_kinds_are_asked_about():
    """Other refusals are refusals."""
    assert await _asked(_refusal(), about=("tool",)) is None


async def test_the_first_question_counts():
    """Later refusals of the same run change nothing."""
    question = await _asked(_refusal("a.example"), _refusal("b.example"))
    assert question is not None
    assert question.rule["host"] == "a.example"


async def test_events_before_and_after_the_work_ask_nothing():
    """The check's refusals, for instance."""
    watch = QuestionWatch(ALL)
    watch.take(_refusal())
    with watch.watching():
        pass
    watch.take(_refusal())
    assert watch.question is None


@pytest.mark.parametrize(
    ("limit", "to"), [("tokens", 100), ("cost_usd", 0.5), ("turns", None), ("wall_clock_s", None)]
)
async def test_a_limit_on_tokens_or_cost_is_asked_about(limit: str, to: float | None):
    """As much again."""
    watch = QuestionWatch(["budget"])
    watch.take_error(LimitReached(limit, allowed=to or 7, used=to or 7))
    expected = None if to is None else Question("budget", {"limit": limit, "to": to}, "")
    assert watch.question == expected


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        pytest.param("host", {"host": "*.example.com", "port": 443}, id="pattern"),
        pytest.param("host", {"host": "localhost", "port": 443}, id="localhost"),
        pytest.param("host", {"host": "[::1]", "port": 443}, id="loopback6"),
        pytest.param("host", {"host": "::ffff:10.0.0.1", "port": 443}, id="mapped"),
        pytest.param("host", {"host": "a.example", "port": "443"}, id="port-as-text"),
        pytest.param("host", {"host": "a.example", "port": 443, "methods": ["GET"]}, id="more-fields"),
        pytest.param("host", {"host": "a.example:80", "port": 443}, id="two-ports"),
        pytest.param("host", {"host": "a.example"}, id="no-port"),
        pytest.param("tool", {"tool": "Bash(git *),Write"}, id="two-tools"),
        pytest.param("tool", {"tool": "*"}, id="all-tools"),
        pytest.param("budget", {"limit": "turns", "to": 5}, id="another-limit"),
        pytest.param("budget", {"limit": "tokens", "to": float("inf")}, id="no-limit"),
        pytest.param("budget", {"limit": "tokens", "to": True}, id="boolean"),
        pytest.param("question", {"host": "a.example", "port": 443}, id="question-with-a-rule"),
        pytest.param("protect", {"path": ".git"}, id="protected-files"),
        pytest.param("backend", {"where": "host"}, id="host-execution"),
        pytest.param("tool", {"host": "a.example", "port": 443}, id="rule-of-another-kind"),
    ],
)
def test_what_no_answer_may_grant_is_refused(kind: str, fields: dict[str, Any]):
    """Whoever applies a rule reads it again."""
    with pytest.raises(PolicyRefused, match="cannot be granted"):
        read_rule(kind, fields)


def test_rules_extend_settings():
    """Each in its section, and nothing else."""
    before = Settings.model_validate({"tools": {"allow": ["read_file"]}, "egress": {"allow": ["pypi.org"]}})
    rules = [
        read_rule("host", {"host": "api.example.com", "port": 443}),
        read_rule("tool", {"tool": "shell"}),
        read_rule("budget", {"limit": "tokens", "to": 5000}),
    ]
    after = with_rules(before, [rule for rule in rules if rule is not None])
    assert [str(rule) for rule in after.egress.allow] == ["pypi.org", "api.example.com:443"]
    assert (after.tools.allow, after.tools.permit) == (("read_file",), ("shell",))
    assert after.limits.tokens == 5000
    unchanged = {"egress": before.egress, "tools": before.tools, "limits": before.limits}
    assert after.model_copy(update=unchanged) == before


@pytest.mark.parametrize(
    ("kind", "rule", "expected"),
    [
        ("host", {"host": "a.example", "port": 443}, "you may now connect to a.example:443"),
        ("tool", {"tool": "shell"}, "the tool shell. A person has permitted it"),
        ("budget", {"limit": "tokens", "to": 5}, "has raised the limit"),
        ("question", {}, "You asked a person a question"),
    ],
)
def test_the_agent_reads_what_was_allowed(kind: str, rule: Any, expected: str):
    """In our own words, with the person's message marked as theirs."""
    answered = QuestionAnswered(
        question="q",
        run="r",
        kind=kind,
        rule=rule,
        answer="allow",
        scope="run",
        by="ann",
        at="t",
        reply="Do.",
    )
    text = continuation(answered)
    assert expected in text
    assert text.endswith("The person writes:\n\nDo.")
