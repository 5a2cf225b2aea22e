"""`run --continue`: the conversation goes on, and the work with it."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from ringfence.job.agent import work_of
from ringfence.job.request import RunRequest
from ringfence.job.run import JobRun
from ringfence.journal import run_dirs
from ringfence.runtime import Task
from ringfence.sandbox import Sandbox, SandboxSpec

Cli = Callable[..., Any]
pytestmark = pytest.mark.slow


@pytest.fixture
def run(ringfence: Cli, workspace: Path) -> Cli:
    """Run a task in the workspace."""
    return lambda model, *options: ringfence(
        "run", "go", "-C", workspace, "--no-verify", "--model", model, *options
    )


@pytest.fixture
def cloned(run: Cli, script: Cli, says: Cli) -> Any:
    """A first run, on a clone, that made a file."""
    return run(script(says("x", "echo 1 > made"), says()), "--mode", "clone")


def test_a_command_of_the_users_own_is_not_gone_on_with(
    run: Cli, ringfence: Cli, workspace: Path, script: Cli, says: Cli
):
    """`exec` is no conversation."""
    run(script(says("first")))
    ringfence("exec", "-C", workspace, "--", "true")
    assert run(script(says(expect={"messages": 3})), "--continue").code == 0


def test_an_agent_of_ones_own_is_not_gone_on_with(run: Cli, workspace: Path, script: Cli, says: Cli):
    """Nobody knows how."""

    async def agent(task: Task, sandbox: Sandbox, emit: object) -> str:
        return "done"

    task = Task(prompt="p", model="")
    request = RunRequest(
        work_of(agent, task),
        workspace,
        SandboxSpec(workspace=workspace, mode="clone"),
        wall_clock_s=60,
    )
    assert anyio.run(lambda: JobRun(request).run()).final_text == "done"
    ended = run(script(says()), "--continue")
    assert (ended.code, "to go on with" in ended.err) == (2, True), ended


def test_of_a_session_on_the_terminal_it_is_told_what_goes_on_with_it(
    run: Cli, workspace: Path, script: Cli, says: Cli
):
    """The program that it was of."""

    async def agent(task: Task, sandbox: Sandbox, emit: object) -> str:
        return "done"

    spec = SandboxSpec(workspace=workspace, mode="clone")
    work = replace(work_of(agent, Task(prompt="p", model="")), runtime="claude")
    request = RunRequest(work, workspace, spec, wall_clock_s=60)
    anyio.run(lambda: JobRun(request).run())
    ended = run(script(says()), "--resume", run_dirs()[0].name)
    assert (ended.code, "go on by `ringfence claude`" in ended.err) == (2, True), ended


def test_without_an_earlier_run_it_is_refused(run: Cli, script: Cli, says: Cli):
    """There is nothing to go on with."""
    ended = run(script(says()), "--continue")
    assert (ended.code, "--continue" in ended.err) == (2, True)


@pytest.mark.usefixtures("cloned")
def test_a_clone_goes_on_where_the_earlier_one_ended(
    run: Cli, ringfence: Cli, script: Cli, says: Cli, workspace: Path
):
    """What was not applied yet is there, and applying the last run brings in both runs' work."""
    model = script(says("x", "cat made && echo 2 >> made"), says(expect={"last_tool_result": r'"1\n"'}))
    assert run(model, "--continue", "--mode", "clone").code == 0
    assert (ringfence("apply", "last").code, (workspace / "made").read_text()) == (0, "1\n2\n")


@pytest.mark.parametrize("mode", ["bind", "read_only"])
@pytest.mark.usefixtures("cloned")
def test_another_mode_refuses_to_lose_a_clone(run: Cli, script: Cli, says: Cli, mode: str):
    """The way to bring the changes in is named."""
    ended = run(script(says()), "--continue", "--mode", mode)
    assert (ended.code != 0, "ringfence apply" in ended.err) == (True, True)


@pytest.mark.usefixtures("cloned")
def test_a_changed_workspace_refuses_to_lose_a_clone(run: Cli, script: Cli, says: Cli, workspace: Path):
    """So is it where the user went on too."""
    (workspace / "app.py").write_text("print('two')\n")
    ended = run(script(says()), "--continue", "--mode", "clone")
    assert (ended.code != 0, "ringfence apply" in ended.err) == (True, True)


@pytest.mark.usefixtures("cloned")
def test_after_apply_it_goes_on_as_usual(run: Cli, ringfence: Cli, script: Cli, says: Cli):
    """What was brought in is in the workspace."""
    ringfence("apply", "last")
    model = script(says("x", "cat made"), says(expect={"last_tool_result": r'"1\n"'}))
    assert run(model, "--continue", "--mode", "clone").code == 0
