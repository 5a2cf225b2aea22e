import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from ringfence.sandbox import ExecResult, Sandbox, SandboxSpec
from ringfence.tool import ToolCall, ToolResult, Toolset
from ringfence.tool.shell import ShellTool

pytestmark = pytest.mark.anyio
Call = Callable[..., Awaitable[ToolResult]]


async def shell(call: Call, command: str, **more: Any) -> dict[str, Any]:
    """The fields of a call that is no error."""
    result = await call(ShellTool(), command=command, reasoning="a test", **more)
    assert not result.is_error, result.content
    fields: dict[str, Any] = json.loads(result.content)
    return fields


async def test_result_is_structured(call: Call) -> None:
    """A command that fails is an ordinary result with its output and exit code."""
    assert await shell(call, "echo out; echo err >&2; exit 3") == {
        "stdout": "out\n",
        "stderr": "err\n",
        "exit_code": 3,
        "timed_out": False,
        "ended_by": "exit",
    }


@pytest.mark.parametrize("missing", ["command", "reasoning"])
async def test_command_and_reasoning_are_both_required(call: Call, missing: str) -> None:
    """Without the reason nothing is run."""
    arguments = {"command": "true", "reasoning": "a test"}
    del arguments[missing]
    result = await call(ShellTool(), **arguments)
    assert result.is_error
    assert f"'{missing}' is a required property" in result.content


async def test_the_reasoning_is_in_the_event(call: Call, recorder: Any) -> None:
    """`tool.called` carries the reason in a field of its own."""
    await shell(call, "true")
    assert recorder.events[0].reasoning == "a test"


@pytest.mark.slow
async def test_timeout_is_told_as_in_the_seed(call: Call) -> None:
    """A command that runs too long is killed; what it wrote until then is kept."""
    fields = await shell(call, "echo before; sleep 60", timeout_s=1.5)
    assert fields == {
        "stdout": "before\n",
        "stderr": "Command timed out after 1.5 seconds",
        "exit_code": -1,
        "timed_out": True,
        "ended_by": "timeout",
    }


async def test_bash_is_used_where_there_is_one(call: Call) -> None:
    """Arrays are no syntax of sh."""
    assert (await shell(call, "a=(x y); echo ${a[1]}"))["stdout"] == "y\n"


async def test_sh_is_used_where_there_is_no_bash(recorder: Any) -> None:
    """Each time, and a command that bash would have run otherwise is run once."""
    async with Sandbox.open(SandboxSpec(backend="bubblewrap", env={"PATH": "/tmp/bin"})) as sandbox:
        made = await sandbox.run(["/bin/sh", "-c", "/bin/mkdir /tmp/bin && /bin/ln -s /bin/sh /tmp/bin/sh"])
        assert made.ok, made.stderr
        tools = Toolset([ShellTool()])
        for number in ("1", "2"):
            said = {
                "command": f"echo {number} $0 >> /tmp/said; read line < /tmp/said; echo $line",
                "reasoning": "x",
            }
            (result,) = await tools.call_all([ToolCall(number, "shell", said)], sandbox, recorder)
            assert json.loads(result.content)["stdout"] == "1 sh\n"


async def test_a_command_of_a_new_sandbox_is_one_command(
    call: Call, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What shell there is is not asked first."""
    commands: list[str] = []
    run = sandbox.run

    async def counted(argv: Sequence[str], **more: Any) -> ExecResult:
        commands.append(argv[-1])
        return await run(argv, **more)

    monkeypatch.setattr(sandbox, "run", counted)
    assert (await shell(call, "echo said"))["stdout"] == "said\n"
    assert commands == ["echo said"]


async def test_a_command_longer_than_an_argument_may_be_works(call: Call) -> None:
    """Linux refuses arguments of 128 KiB; such a command goes through a file."""
    fields = await shell(call, f"x='{'a' * 200_000}'; echo ${{#x}}; cat")
    assert fields["stdout"] == "200000\n"


async def test_stdin_is_empty(call: Call) -> None:
    """A command that reads does not wait for ever."""
    assert (await shell(call, "cat; echo done"))["stdout"] == "done\n"


async def test_long_output_is_cut_in_the_middle_and_marked(call: Call) -> None:
    """Head and tail are kept, and the mark counts all that is missing, whatever cut it."""
    stdout = (await shell(call, "echo first; head -c 3000000 /dev/zero | tr '\\0' x; echo; echo last"))[
        "stdout"
    ]
    assert stdout.startswith("first\n")
    assert stdout.endswith("\nlast\n")
    assert len(stdout) < 31_000
    cut = int(stdout.split("[... ")[1].split(" bytes cut")[0])
    assert cut + len(stdout) == pytest.approx(3_000_012, abs=50)


async def test_stderr_keeps_a_share_beside_a_flood_of_stdout(call: Call) -> None:
    """The error message is not lost in the output."""
    fields = await shell(call, "head -c 500000 /dev/zero | tr '\\0' x; echo the cause >&2; exit 1")
    assert fields["stderr"] == "the cause\n"


async def test_binary_output_stays_within_the_budget(call: Call) -> None:
    """Bytes that JSON spells with six characters do not blow up the result."""
    result = await call(ShellTool(), command="head -c 300000 /dev/zero", reasoning="a test")
    assert len(result.content) < 32_000


async def test_nul_in_a_command_is_an_error_result(call: Call) -> None:
    """No shell can take it, and the agent is told so."""
    result = await call(ShellTool(), command="echo \0", reasoning="a test")
    assert result.is_error
    assert "NUL" in result.content


async def test_half_a_surrogate_pair_is_an_error_result(call: Call) -> None:
    """JSON can spell what is no text."""
    result = await call(ShellTool(), command="echo \ud83d", reasoning="a test")
    assert result.is_error
    assert "surrogate" in result.content


async def test_two_runs_give_equal_results(call: Call, sandbox: Sandbox) -> None:
    """Nothing in a result differs from run to run by itself, also for a command from a file."""
    command = f"nonsense-{'a' * 70_000}"
    first, second = await shell(call, command), await shell(call, command)
    assert first == second


async def test_background_processes_go_on(call: Call) -> None:
    """A server that was started stays there for the next call, and does not hold up its own."""
    await shell(call, "sleep 1000 & echo $! > pid", timeout_s=20)
    assert (await shell(call, "kill -0 $(cat pid)"))["exit_code"] == 0
