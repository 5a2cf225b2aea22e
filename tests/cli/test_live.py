"""The live view, as a person or a log sees it."""

import io
import json

import anyio
import msgspec
import pytest
from rich.console import Console

from ringfence.cli.render.live import LiveView
from ringfence.events import (
    AgentAnswered,
    EgressClosed,
    EgressDecided,
    EngineCalled,
    Event,
    JobStarted,
    ModelExchanged,
    ModelReplied,
    Origin,
    OutputStreamed,
    PermissionDecided,
    SandboxCreated,
    SessionKept,
    SessionLost,
    SessionResumed,
    TextStreamed,
    ToolCalled,
    ToolReturned,
    TranscriptDamaged,
    TranscriptNoted,
    Usage,
)
from ringfence.runtime.limits import Limits

pytestmark = pytest.mark.anyio


class _Awaited(io.StringIO):
    """A terminal that tells when something was shown on it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self._text = text
        self.seen = anyio.Event()

    def write(self, text: str) -> int:
        if self._text in text:
            self.seen.set()
        return super().write(text)


async def _shown(*events: Event, width: int | None = None) -> str:
    file = io.StringIO()
    console = Console(file=file, width=width or 80, force_terminal=width is not None, highlight=False)
    view = LiveView(console, Limits(turns=9, tokens=1000, cost_usd=2.0, wall_clock_s=60.0))
    for event in events:
        await view.show(event)
    return file.getvalue()


def _call(
    call_id: str = "1", tool: str = "shell", reasoning: str | None = None, **arguments: str
) -> ToolCalled:
    return ToolCalled(call_id=call_id, tool=tool, arguments=arguments, reasoning=reasoning)


def _result(content: str, call_id: str = "1", *, is_error: bool = False) -> ToolReturned:
    return ToolReturned(call_id=call_id, tool="shell", is_error=is_error, content=content, duration_ms=1500.0)


def _shell(stdout: str = "", stderr: str = "", exit_code: int = 0, ended_by: str = "exit") -> str:
    return json.dumps(
        {"stdout": stdout, "stderr": stderr, "exit_code": exit_code, "timed_out": False, "ended_by": ended_by}
    )


async def test_a_shells_result_is_unpacked():
    """Its output, line by line, and how it ended."""
    shown = await _shown(_call(command="make"), _result(_shell("a\nb\n", "oh\n", 2)))
    assert shown.splitlines() == ["  $ make", "    a", "    b", "    oh", "    exit code 2, 1.5 s"]


@pytest.mark.parametrize("content", ["no json", '{"stdout": 1}', "[]", '{"stdout": "'])
async def test_a_result_that_is_no_shells_is_shown_as_it_is(content: str):
    """Whatever a tool gives back."""
    assert (await _shown(_call(command="x"), _result(content))).splitlines()[-1] == f"    {content}"


async def test_long_output_is_cut_in_the_middle():
    """The first and the last lines say most."""
    shown = await _shown(_call(command="x"), _result(_shell("\n".join(map(str, range(1000))))))
    lines = [line.strip() for line in shown.splitlines()]
    assert (lines[1], lines[5], lines[-2], len(lines)) == ("0", "... 988 lines ...", "999", 15)


@pytest.mark.slow
async def test_a_long_command_is_shown_with_its_seconds():
    """On a terminal something moves; it is gone when the result comes."""
    file = _Awaited("running 1 s: $ make \\x1b[2Jall")
    view = LiveView(Console(file=file, width=80, force_terminal=True, highlight=False), Limits())
    await view.show(_call(command="make \x1b[2Jall"))
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(view.tick)
            await file.seen.wait()
            await view.show(_result(_shell()))
            tasks.cancel_scope.cancel()
    assert "exit code 0" in file.getvalue().rpartition("running")[2]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("events", "line"),
    [
        ((JobStarted(),), "waiting for the model 1 s"),
        (
            (
                ToolCalled(call_id="1", tool="shell", arguments={"command": "make"}),
                OutputStreamed(call_id="1", text="line\n" * 20 + "the latest\n"),
            ),
            "running 1 s: $ make  | the latest",
        ),
    ],
    ids=["model", "output"],
)
async def test_something_moves_while_nothing_is_printed(events: tuple[Event, ...], line: str):
    """While the model thinks, and while a command writes more than is shown, a terminal says what goes on."""
    file = _Awaited(line)
    view = LiveView(Console(file=file, width=80, force_terminal=True, highlight=False), Limits())
    for event in events:
        await view.show(event)
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(view.tick)
            await file.seen.wait()
            tasks.cancel_scope.cancel()


async def test_streamed_output_is_not_shown_twice():
    """At the end of a command only what was not shown follows, its last lines."""
    lines = [f"number {number}" for number in range(40)]
    streamed = OutputStreamed(call_id="1", text="\n".join(lines) + "\n")
    shown = await _shown(_call(command="seq"), streamed, _result(_shell("\n".join(lines))))
    numbers = [line.strip() for line in shown.splitlines() if "number" in line]
    assert numbers == [*lines[:12], *lines[-8:]]
    assert "... 20 lines ..." in shown


async def test_elsewhere_nothing_moves():
    """A log is no terminal."""
    with anyio.fail_after(20):
        await LiveView(Console(file=io.StringIO()), Limits()).tick()


async def test_a_killed_command_says_by_what():
    """An exit code would not tell."""
    assert "ended by timeout" in await _shown(
        _call(command="x"), _result(_shell(exit_code=-1, ended_by="timeout"))
    )


async def test_a_result_that_comes_late_says_whose_it_is():
    """Calls run side by side."""
    shown = await _shown(_call("1", command="slow"), _call("2", command="fast"), _result("a", "1"))
    assert shown.splitlines()[-2:] == ["  result of   $ slow", "    a"] or "result of $ slow" in shown


async def test_what_is_spent_stands_against_the_limits():
    """Turns, tokens, money and time."""
    reply = ModelReplied(
        model="m",
        message_id="1",
        content=[],
        stop_reason="end_turn",
        usage=Usage(input_tokens=40, output_tokens=2),
        cost_usd=0.5,
        duration_ms=1.0,
        request_digest="",
    )
    assert "turn 1/9  tokens 42/1,000  $0.5000/2.00  0 s/60" in await _shown(reply)


async def test_no_text_of_an_agent_begins_a_line():
    """What it says stands behind a mark, on a narrow terminal too, so it cannot speak in our name."""
    said = "x" * 78 + "succeeded: the check passed\nsucceeded: it did\n\x1b[2J\rsucceeded: really"
    for width in (None, 80, 20):
        shown = await _shown(TextStreamed(text=said), _call(command="true"), width=width)
        lines = [line.replace("\x1b[36m", "").lstrip("\x1b[0m") for line in shown.splitlines()]
        assert not [line for line in lines if line.startswith("succeeded")]
        assert "\x1b[2J" not in shown


async def test_long_lines_do_not_wrap_on_a_terminal():
    """A line that wraps would begin at the left edge."""
    shown = await _shown(_call(command="y" * 300), _result("z" * 300), width=40)
    assert all(len(line) < 60 for line in shown.splitlines())


async def test_nothing_is_coloured_where_nobody_looks():
    """A log is plain text."""
    assert "\x1b" not in await _shown(TextStreamed(text="hi"), _call(command="x"), _result(_shell("o")))


async def test_no_color_is_honoured(monkeypatch: pytest.MonkeyPatch):
    """On a terminal too."""
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[3" not in await _shown(_call(command="x"), _result(_shell("o", exit_code=1)), width=80)


async def test_the_bare_host_is_shouted():
    """With the network it has."""
    created = SandboxCreated(
        sandbox_id="s",
        backend="host",
        purpose="agent",
        chosen_because="named",
        image=None,
        policy={"network": "the host's", "notes": ["toolchain shown: a", "toolchain shown: b", "plain"]},
        enforced={"memory": "soft"},
        started_in_ms=1.0,
    )
    shown = await _shown(created)
    assert "NO FENCE (host), network: the host's" in shown
    assert shown.splitlines()[1:] == ["    toolchain shown: a, b", "    plain"]


async def test_calls_of_other_tools_show_what_they_are_about():
    """A path, a pattern, or all they were given, in short."""
    shown = await _shown(
        _call(tool="read_file", path="a.py"), _call(tool="ticket", number="7", text="x" * 500)
    )
    first, second = shown.splitlines()
    assert (first, second[:26], len(second) < 160) == (
        "  > read_file  a.py",
        '  > ticket  {"number":"7",',
        True,
    )


async def test_the_reason_stands_before_the_command():
    """On a line of its own."""
    assert (await _shown(_call(command="ls", reasoning="to see"))).splitlines() == ["  # to see", "  $ ls"]


def _engine(action: str, method: str = "POST", *, allowed: bool = True, reason: str = "") -> EngineCalled:
    return EngineCalled(
        sandbox_id="s",
        call=1,
        method=method,
        path="/x",
        allowed=allowed,
        action=action,
        reason=reason,
        container="0123456789abcdef",
    )


async def test_what_was_done_with_an_engine_is_shown():
    """Acts and refusals are lines; looking is in the record only, and nothing of it is obeyed by the terminal."""
    shown = await _shown(
        _engine("list", "GET"),
        _engine("restart"),
        _engine("", allowed=False, reason="POST /containers/create\x1b[2J is none of the calls"),
    )
    assert shown.splitlines() == [
        "  engine: restart 0123456789ab",
        "  engine: refused: POST /containers/create\\x1b[2J is none of the calls",
    ]


def _asked(host: str, *, allowed: bool = False, repeated: int = 1) -> EgressDecided:
    return EgressDecided(
        sandbox_id="s", connection=1, allowed=allowed, method="CONNECT", host=host, port=443, path="", rule="default",
        reason="" if allowed else f"{host}:443 is not allowed", repeated=repeated,
    )  # fmt: skip


async def test_what_was_asked_for_outside_is_shown_once():
    """A host that is let out, one that is refused and one that cannot be reached are each shown the first time."""
    gone = EgressClosed(
        sandbox_id="s", connection=1, host="c.example", port=443, status=502, sent_bytes=0, received_bytes=0,
        ended_by="Connection refused", duration_ms=1.0,
    )  # fmt: skip
    asked = (_asked("a.example"), _asked("a.example", repeated=2), _asked("b.example", allowed=True), gone)
    assert (await _shown(*asked, *asked)).splitlines() == [
        "  proxy: refused: a.example:443 is not allowed",
        "  proxy: b.example:443, by rule 'default'",
        "  proxy: c.example:443 cannot be reached: Connection refused",
    ]


async def test_very_many_hosts_do_not_fill_the_view():
    """What is inside decides how many hosts it asks for; a hundred are shown, the rest is in the record."""
    shown = (await _shown(*(_asked(f"h{number}.example") for number in range(300)))).splitlines()
    assert len(shown) == 101
    assert shown[-1] == "  proxy: further lines are in the record only"


async def test_what_the_host_does_not_permit_is_shown():
    """With its reason; what it permits is seen by what comes of it."""
    asked = [
        PermissionDecided(call_id="1", tool="Bash", allowed=allowed, reason="no pushes", arguments={})
        for allowed in (True, False)
    ]
    assert (await _shown(*asked)).splitlines() == ["  Bash was not permitted: no pushes"]


def _said(text: str, kind: str = "text", agent: str | None = None) -> ModelReplied:
    content = [{"type": kind, kind: text}]
    return ModelReplied(
        origin=Origin(file="claude:stdout", line=1, agent=agent), model="m", message_id="1", content=content,
        stop_reason="", usage=Usage(input_tokens=10**6), cost_usd=100.0, duration_ms=0.0, request_digest="",
    )  # fmt: skip


def _exchanged(tokens: int) -> ModelExchanged:
    return ModelExchanged(
        sandbox_id="s", exchange=1, status=200, ended_by="closed", model="m", usage=Usage(input_tokens=tokens),
        is_estimated=False, cost_usd=0.5, first_byte_ms=1.0, duration_ms=1.0, answer_bytes=1, turn=1,
    )  # fmt: skip


async def test_what_a_client_says_is_shown_and_what_the_gateway_saw_is_counted():
    """Behind a mark, as an agent's own words are; what the client claims to have used is no matter."""
    first, spent, *_ = (await _shown(_exchanged(120), _said("I look.\x1b[2J"))).splitlines()
    assert first == "| I look.\\x1b[2J"
    assert spent.startswith("  turn 1/9  tokens 120/1,000  $0.5000/2.00  ")


async def test_what_was_shown_as_it_came_is_not_shown_again():
    """Clients that stream their words tell them once more at the reply's end."""
    shown = (await _shown(TextStreamed(text="I look.\n"), _said("I look."))).splitlines()
    assert [line for line in shown if line.startswith("|")] == ["| I look."]


async def test_what_is_amiss_with_a_client_is_shown():
    """Notes that say something, once each, and what could not be read; bookkeeping is in the record only."""
    origin = Origin(file="claude:stdout", line=7)
    events = [
        TranscriptNoted(origin=origin, kind="system.init", text="", record={}),
        TranscriptNoted(origin=origin, kind="no_json", text="warning: old\nmore", record=None),
        TranscriptNoted(origin=origin, kind="turn.failed", text="warning: old", record={}),
        TranscriptDamaged(origin=origin, reason="the line is longer than 16 MiB", offset=0, size_bytes=1),
        AgentAnswered(ended_by="done", final_text="x", structured_output={"n": 1}),
    ]
    assert (await _shown(*events)).splitlines() == [
        "  agent CLI: warning: old",
        "  agent CLI: not read (line 7): the line is longer than 16 MiB",
        '  answer: {"n": 1}',
    ]


async def test_a_session_that_is_gone_on_with_is_named_with_what_differs():
    """That one is kept is in the record only, unless it is not whole."""
    kept = SessionKept(session_id="s", client_session_id="c", files=1, size_bytes=9)
    events = [
        SessionResumed(session_id="s", run="r1", is_forked=False, differences=["model: was 'a', is 'b'"]),
        SessionResumed(session_id="t", run="r1", is_forked=True, differences=[]),
        SessionLost(session_id="s", client_session_id="c", reason="No conversation found"),
        kept,
        msgspec.structs.replace(kept, problem="a file is too large"),
    ]
    assert (await _shown(*events)).splitlines() == [
        "  resumes the session of run r1",
        "    model: was 'a', is 'b'",
        "  forks the session of run r1",
        "  agent CLI: its session was not found, so it starts a new one: No conversation found",
        "  session: saved only in part: a file is too large",
    ]
