from typing import Any

import pytest

from ringfence.errors import UsageError
from ringfence.events import Usage
from ringfence.runtime import Task
from ringfence.runtime.agent_cli.base import AgentCli
from ringfence.runtime.base import FunctionRuntime, RuntimeResult
from ringfence.runtime.prompts import system_prompt
from ringfence.runtime.registry import agent_cli_of, agent_cli_runtimes, check_runtime
from ringfence.tool import toolset_names

TASK = Task(prompt="p", model="m")


@pytest.mark.parametrize("name", agent_cli_runtimes())
def test_every_agent_cli_loads(name: str) -> None:
    """Each runtime of an agent CLI leads to an implementation of the contract."""
    assert isinstance(agent_cli_of(name), AgentCli)


def test_an_unknown_name_lists_the_known_ones() -> None:
    """The next step is in the text."""
    with pytest.raises(UsageError, match="no runtime 'x'; there are: api"):
        check_runtime("x")


@pytest.mark.parametrize("name", toolset_names())
def test_every_toolset_has_a_system_prompt(name: str) -> None:
    """That tells of the fence."""
    assert "There is no network. " in system_prompt(name)


@pytest.mark.parametrize("name", toolset_names())
def test_a_system_prompt_names_what_may_be_reached(name: str) -> None:
    """An agent that was granted hosts is told which, so that it uses them; a long list is cut."""
    prompt = system_prompt(name, reachable=["pypi.org", *(f"h{n}.example" for n in range(60))])
    assert "no network but what was granted: pypi.org; h0.example; " in prompt
    assert "h38.example; 21 more. " in prompt
    assert "{network}" not in prompt


@pytest.mark.parametrize("name", ["nope", "../conftest", ""])
def test_an_unknown_toolset_has_none(name: str) -> None:
    """And the caller is told."""
    with pytest.raises(UsageError, match="no system prompt"):
        system_prompt(name)


@pytest.mark.anyio
async def test_an_async_function_is_a_runtime(bench: Any) -> None:
    """Its text is the final text."""

    async def agent(task: Task, sandbox: Any, emit: Any) -> str:
        return f"{task.prompt}{(await sandbox.run(['echo', '!'])).stdout}"

    result = await FunctionRuntime(agent).run(TASK, bench.sandbox, bench.emit)
    assert (result.ended_by, result.final_text) == ("done", "p!\n")


@pytest.mark.anyio
async def test_a_function_may_give_a_whole_result(bench: Any) -> None:
    """As it is."""
    whole = RuntimeResult("refused", "no", (), Usage(), 1, 0.5)

    async def agent(task: Task, sandbox: Any, emit: Any) -> RuntimeResult:
        return whole

    assert await FunctionRuntime(agent).run(TASK, bench.sandbox, bench.emit) is whole
