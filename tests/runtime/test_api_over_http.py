"""The same loop over real HTTP: a gateway, and a scripted server that refuses what the API refuses."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest
from tests.cases import slow_after
from tests.model.conftest import model_of

from ringfence.errors import UsageError
from ringfence.events import ConversationCompacted, ModelRetried, ToolCalled
from ringfence.model.messages_api import MessagesModel
from ringfence.testing.scripted_model import ScriptedModelServer, parse_script

pytestmark = pytest.mark.anyio

Serve = Callable[[str], AbstractAsyncContextManager[MessagesModel]]

TWO_TURNS = """
turns:
  - thinking: I must look first.
    text: Looking.
    tools:
      - {name: shell, input: {command: echo one, reasoning: to see}}
      - {name: shell, input: {command: echo two; exit 3, reasoning: to see more}}
  - expect: {last_tool_result: two, last_tool_is_error: false}
    text: All is well.
"""


@pytest.fixture
def serve() -> Serve:
    """Opens a model over a script."""

    @asynccontextmanager
    async def open_model(script: str) -> AsyncIterator[MessagesModel]:
        async with (
            ScriptedModelServer.serve(parse_script(script)) as server,
            model_of(server.base_url) as model,
        ):
            yield model

    return open_model


async def test_a_run_of_two_turns(bench: Any, serve: Serve) -> None:
    """Thinking, two calls in one turn, the end."""
    async with serve(TWO_TURNS) as model:
        result = await bench.run(model=model)
    assert result.final_text == "All is well."


async def test_a_stream_that_breaks_runs_no_tool_twice(bench: Any, serve: Serve) -> None:
    """The reply is asked for again; its call is made once."""
    script = """
turns:
  - drop: {after_events: 6}
    text: Looking.
    tools:
      - {name: shell, input: {command: echo x >> f, reasoning: once}}
  - {text: Done.}
"""
    async with serve(script) as model:
        await bench.run(model=model)
    assert len(bench.of(ModelRetried)) == 1
    assert len(bench.of(ToolCalled)) == 1
    assert await bench.sandbox.read_file("f") == b"x\n"


@pytest.mark.slow
async def test_a_conversation_that_is_too_long_is_compacted(bench: Any, serve: Serve) -> None:
    """The API says so with a 400, and takes the shorter one."""
    script = """
turns:
  - tools: [{name: shell, input: {command: echo 1, reasoning: r}}]
  - error: {status: 400, message: "prompt is too long: 250000 tokens > 200000 maximum"}
    expect: {last_tool_result: stdout}
  - expect: {last_tool_result: cleared}
    text: Done.
"""
    async with serve(script) as model:
        result = await bench.run(model=model)
    assert result.ended_by == "done"
    assert len(bench.of(ConversationCompacted)) == 1


async def test_what_the_api_refuses_ends_the_run(bench: Any, serve: Serve) -> None:
    """With its own words."""
    async with serve("turns:\n  - error: {status: 400, message: no such thing}\n") as model:
        with pytest.raises(UsageError, match="no such thing"):
            await bench.run(model=model)


@pytest.mark.parametrize("stop", slow_after(1, ["max_tokens", "pause_turn", "refusal", "stop_sequence"]))
async def test_every_stop_reason_leaves_a_conversation_the_api_takes(
    bench: Any, serve: Serve, stop: str
) -> None:
    """The server refuses empty messages, roles that do not alternate and calls without results."""
    script = f"turns:\n  - {{text: so far, stop_reason: {stop}}}\n  - {{text: Done.}}\n  - {{text: Again.}}\n"
    async with serve(script) as model:
        result = await bench.run(model=model)
        task = type(bench).task_after(result)
        assert (await bench.run(model=model, task=task)).ended_by == "done"
