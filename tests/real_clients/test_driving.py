"""The real clients as agents of a run: stopped, bounded, and what they are not permitted to do."""

import json
import os
import signal
from pathlib import Path

import anyio
import pytest

from ringfence.testing.scripted_model import Script, in_prompt, parse_script

from .clients import Client, task_of
from .conftest import Lab

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]
CLIENTS = pytest.mark.parametrize("name", ["claude", "codex"])


def does(command: str, then: str = "done") -> str:
    """A prompt that has one command run."""
    return "Do it. " + in_prompt(
        parse_script(f"turns: [{{tools: [{{run: '{command}'}}]}}, {{text: {then}}}]")
    )


@CLIENTS
async def test_one_interrupt_ends_a_client_in_order(
    lab: Lab, clients: dict[str, Client], workspace: Path, name: str
):
    """Ctrl-C while it runs a command: cancelled, its work brought out, told by an interrupt and no more."""
    command = task_of(clients, name, does("touch begun; sleep 60"), workspace)
    async with await anyio.open_process(command, env={**os.environ, **lab.environment}) as process:
        assert process.stdout is not None
        with anyio.fail_after(90):
            while not (workspace / "begun").exists():  # noqa: ASYNC110 -- another process writes it
                await anyio.sleep(0.05)
        process.send_signal(signal.SIGINT)
        out = b"".join([chunk async for chunk in process.stdout])
        code = await process.wait()
    events = [json.loads(line) for line in out.splitlines()]
    [ended] = [event for event in events if event["event"] == "client.ended"]
    assert (code, events[-1]["state"]) == (130, "cancelled")
    assert (ended["ending"], ended["signals"]) == ("interrupted", ["SIGINT"])
    assert [event["files_changed"] for event in events if event["event"] == "work.exported"] == [1]


@CLIENTS
async def test_turns_are_bounded_from_outside(lab: Lab, workspace: Path, name: str):
    """The request after the last turn is refused, and the run ends with the limit."""
    ended = await lab.task(name, does("touch one"), workspace, "--max-turns", "1")
    last = ended.named("job.ended")[0]
    assert (ended.code, last["state"], last["turns"]) == (5, "limit", 1), last
    assert "turns" in last["reason"]


@CLIENTS
async def test_tokens_are_bounded_by_the_gateway(lab: Lab, workspace: Path, name: str):
    """Whatever the client says of them; it is refused, and ends or is ended."""
    ended = await lab.task(name, does("touch one"), workspace, "--max-tokens", "100")
    last = ended.named("job.ended")[0]
    assert (ended.code, last["state"]) == (5, "limit")
    assert "tokens" in last["reason"]


async def test_codex_rejects_no_command_by_itself(lab: Lab, workspace: Path):
    """It may do all that the fence allows, though it rejects some commands by itself elsewhere."""
    commands = ["rm -f note.txt", "X=made; touch $X; for each in $X; do rm -rf $each; done | cat"]
    turns = [{"tools": [{"run": command}]} for command in commands]
    script = Script.model_validate({"turns": [*turns, {"text": "Done."}]})
    ended = await lab.task("codex", f"Do it. {in_prompt(script)}", workspace)
    left = [name for name in ("note.txt", "made") if (workspace / name).exists()]
    assert (ended.code, left) == (0, []), ended
    assert [event["is_error"] for event in ended.named("tool.returned")] == [False, False]


async def test_what_claude_was_not_permitted_is_told(lab: Lab, workspace: Path):
    """It ends with 0 and reports that it is done; the outcome names what it could not use."""
    ended = await lab.task("claude", does("touch one"), workspace, "--permission-mode", "deny")
    last = ended.named("job.ended")[0]
    assert (ended.code, last["state"]) == (0, "unverified")
    assert "not permitted to use Bash" in last["reason"]
    assert ended.named("agent.answered")[0]["denied"] == ["Bash"]


@CLIENTS
async def test_usage_is_what_the_gateway_saw(lab: Lab, workspace: Path, name: str):
    """Tool calls by the client's word, turns and tokens by the exchanges."""
    ended = await lab.task(name, does("touch one"), workspace)
    last = ended.named("job.ended")[0]
    seen = [event["usage"] for event in ended.named("model.exchanged")]
    assert (ended.code, last["turns"], last["tool_calls"]) == (0, 2, 1)
    assert last["usage"]["input_tokens"] == sum(usage["input_tokens"] for usage in seen)
    assert all(reply["usage"] == {} for reply in ended.named("model.replied"))
