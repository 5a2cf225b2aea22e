"""`ringfence pool`, and runs that take their sandbox from it."""

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

Cli = Callable[..., Any]
pytestmark = pytest.mark.slow


@pytest.fixture
def command(start: Cli) -> Iterator[Cli]:
    """Runs a command with a pool configured: its exit code and stdout."""
    config = Path(os.environ["XDG_CONFIG_HOME"]) / "ringfence" / "ringfence.yaml"
    config.parent.mkdir(parents=True)
    config.write_text("pool: {size: 1, max_age: 10m}\n")

    def run(*words: str | Path) -> tuple[int, bytes]:
        process = start(*words, stderr=subprocess.DEVNULL)
        out, _ = process.communicate(timeout=60)
        return process.returncode, out

    yield run
    run("pool", "stop")


def status(command: Cli) -> Any:
    """What `pool status --json` says, once all that waits is ready."""
    deadline = time.monotonic() + 40
    while True:
        told = json.loads(command("pool", "status", "--json")[1])
        if all(one["state"] == "ready" for one in told["waiting"]) or time.monotonic() > deadline:
            return told


def test_the_second_run_is_warm(command: Cli, workspace: Path, events: Cli):
    """Its record says so, and what it did is brought out as ever."""
    assert command("exec", "-C", workspace, "--", "true")[0] == 0
    (waiting,) = status(command)["waiting"]
    assert waiting["workspace"] == str(workspace)
    assert command("exec", "-C", workspace, "--", "sh", "-c", "echo new > new; cat app.py") == (
        0,
        b"print('one')\n",
    )
    created = next(event["data"] for event in events() if event["event"] == "sandbox.created")
    assert (created["sandbox_id"], "warm" in created["chosen_because"]) == (waiting["sandbox_id"], True)
    told = status(command)
    assert (told["hits"], told["misses"], told["hit_rate"]) == (1, 1, 0.5)
    assert b"new" in command("diff", "last", "--stat")[1]


def test_set_up_commands_run_when_it_is_taken(command: Cli, workspace: Path, events: Cli):
    """Not before the run's checkpoint: what they write is the run's."""
    words = ("exec", "-C", workspace, "--setup", "echo x >> made", "--", "true")
    assert command(*words)[0] == 0
    status(command)
    assert (workspace / "made").read_text() == "x\n"
    assert command(*words)[0] == 0
    assert (workspace / "made").read_text() == "x\nx\n"
    told = [event["data"]["argv"][-1] for event in events() if event["event"] == "command.ended"]
    assert told == ["echo x >> made", "true"]


def test_stop_ends_what_waits(command: Cli, workspace: Path):
    """And status says that there is nothing."""
    command("exec", "-C", workspace, "--", "true")
    status(command)
    assert command("pool", "stop")[0] == 0
    assert status(command)["waiting"] == []
    assert b"0 waiting" in command("pool", "status")[1]


def test_without_the_setting_nothing_is_kept(start: Cli, workspace: Path, ringfence: Cli):
    """No sandbox that nobody asked for."""
    assert start("exec", "-C", workspace, "--", "true").wait(60) == 0
    assert json.loads(ringfence("pool", "status", "--json").out)["waiting"] == []
    assert "no pool is configured here" in ringfence("pool", "status").err
