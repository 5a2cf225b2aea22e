"""How `claude` is started for the SDK."""

import json
from typing import Any

import pytest

from ringfence.errors import UsageError
from ringfence.runtime.agent_cli.base import CliPaths, Launch
from ringfence.runtime.base import Task
from ringfence.runtime.claude.cli import ClaudeCli
from ringfence.runtime.claude_sdk.runtime import ClaudeSdkCli
from ringfence.runtime.options import Options

PLACE = CliPaths("/ringfence/claude/claude", "/home/agent", "/work", "http://127.0.0.1:1")


def launched(client: ClaudeCli, **options: Any) -> Launch:
    """How it is started on a task."""
    return client.launch(Task(prompt="secret plans", model="m", options=Options(**options)), PLACE)


def value(launch: Launch, flag: str) -> str:
    """The value of an argument that is there once."""
    [found] = [word for word in launch.argv if word.partition("=")[0] == flag]
    return found.partition("=")[2]


def test_it_is_started_as_the_command_line_client_is():
    """What disarms a hostile workspace and keeps the client quiet is the same."""
    ours, theirs = launched(ClaudeSdkCli()), launched(ClaudeCli())
    assert ours.argv[: len(theirs.argv)] == theirs.argv
    assert theirs.env.items() <= ours.env.items()


def test_the_task_comes_by_the_control_protocol():
    """No process list and no file has it."""
    launch = launched(ClaudeSdkCli())
    assert value(launch, "--input-format") == "stream-json"
    assert launch.stdin == b""
    assert "secret plans" not in str(launch)


def test_servers_in_this_process_are_named_and_nothing_else():
    """The client asks the host for what they offer."""
    launch = launched(ClaudeSdkCli(["host"]))
    assert json.loads(value(launch, "--mcp-config")) == {
        "mcpServers": {"host": {"type": "sdk", "name": "host"}}
    }


@pytest.mark.parametrize("options", [{}, {"tools_allowed": ("Read",)}], ids=["all tools", "some tools"])
def test_where_the_host_decides_the_client_asks(options: dict[str, Any]):
    """Nothing is permitted beforehand but what is named."""
    launch = launched(ClaudeSdkCli(asks=True), **options)
    assert value(launch, "--permission-prompt-tool") == "stdio"
    assert value(launch, "--permission-mode") == "default"
    assert "--dangerously-skip-permissions" not in launch.argv


def test_a_mode_that_was_chosen_stays():
    """What it permits is not asked for."""
    launch = launched(ClaudeSdkCli(asks=True), permission_mode="accept_edits")
    assert value(launch, "--permission-mode") == "acceptEdits"


@pytest.mark.parametrize("mode", ["bypass", "deny"])
def test_a_mode_in_which_nobody_is_asked_is_refused(mode: str):
    """Rather than leaving a callback that is never called."""
    with pytest.raises(UsageError, match="never asks the host"):
        launched(ClaudeSdkCli(asks=True), permission_mode=mode)
