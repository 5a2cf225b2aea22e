"""The real `claude` with the Claude Agent SDK at its other end, in a sandbox; the scripted model is the API."""

import os
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import anyio
import pytest
from tests.runtime.claude_sdk.conftest import sdk
from tests.sandbox.conftest import image_for

from ringfence.config import Flag, load
from ringfence.config.egress import Egress
from ringfence.egress.gate import opened_gate
from ringfence.egress.gateway.gateway import Gateway
from ringfence.egress.gateway.provider import environment_inside
from ringfence.events import (
    ClientEnded,
    Event,
    HookAnswered,
    MessageSent,
    ModelReplied,
    PermissionDecided,
    ToolCalled,
    ToolReturned,
)
from ringfence.job.model_access import ModelAccess
from ringfence.job.outcome import RunResult
from ringfence.job.resolution import resolved_agent_request
from ringfence.job.run import JobRun
from ringfence.runtime import Limits
from ringfence.runtime.agent_cli.base import Program
from ringfence.runtime.base import Session, Task
from ringfence.runtime.claude_sdk import ClaudeSdkRuntime
from ringfence.runtime.options import Options
from ringfence.sandbox import Mount, Sandbox, SandboxSpec
from ringfence.sandbox.docker.image.recipe import reference
from ringfence.secret import Credential
from ringfence.testing.scripted_model import Script, ScriptedModelServer, in_prompt
from ringfence.tool import tool

from .clients import Client, is_any_version
from .conftest import KEYS
from .test_keyless import LOOKS_EVERYWHERE, edits

pytestmark = [pytest.mark.anyio, pytest.mark.slow, pytest.mark.timeout(240)]

__all__ = ["sdk"]


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def script(*turns: dict[str, Any]) -> str:
    """A prompt that carries its script."""
    return in_prompt(Script.model_validate({"turns": turns}))


@dataclass
class Bench:
    """Runs claude by a runtime's name, and keeps what was told."""

    workspace: Path
    program: Path | None
    spec: SandboxSpec
    server: ScriptedModelServer
    events: list[Event] = field(default_factory=list)
    told: anyio.Event = field(default_factory=anyio.Event)

    async def view(self, event: Event) -> None:
        """Keep an event."""
        self.events.append(event)
        self.told.set()

    async def run(
        self,
        prompt: str,
        *,
        runtime: str = "claude-sdk",
        limits: Limits | None = None,
        options: Options | None = None,
        **more: Any,
    ) -> RunResult:
        """A whole run."""
        settings = {
            "run.runtime": runtime,
            "run.model": "claude-sonnet-5-5",
            "sandbox.backend": self.spec.backend,
            "sandbox.image": self.spec.image,
        }
        effective = load(self.workspace, flags=[Flag(key, key, value) for key, value in settings.items()])
        own = {"cli_path": self.program, "force": is_any_version()}
        options = (options or Options()).model_copy(update=own)
        overrides = {"limits": limits or Limits(), "options": options, **more}
        opened = resolved_agent_request(
            prompt, self.workspace, effective, notify=print, is_checked=True, overrides=overrides
        )
        with anyio.fail_after(120):
            async with opened as request:
                return await JobRun(request, view=self.view).run()

    def of(self, kind: type[Event]) -> list[Any]:
        """The events of one kind."""
        return [event for event in self.events if isinstance(event, kind)]


@pytest.fixture
async def bench(
    sdk: Any, clients: dict[str, Client], workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Bench]:
    """A place to run claude, by the program that `scripts/clients.sh` installed."""
    inside = clients["claude"].inside
    program = Path(os.environ["TEST_CLIENTS"]) / Path(inside).relative_to("/clients")
    async with ScriptedModelServer.serve() as server:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.base_url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", KEYS["ANTHROPIC_API_KEY"])
        yield Bench(workspace, program, SandboxSpec(backend="bubblewrap"), server)


async def test_it_does_its_task_without_a_key(bench: Bench):
    """It edits a file; what it says is its answer."""
    result = await bench.run(f"Say two. {in_prompt(edits('two'))}")
    assert (result.state.value, result.final_text) == ("unverified", "Done."), result
    assert (bench.workspace / "note.txt").read_text() == "two\n"
    assert result.ended.tool_calls == 2
    assert result.ended.usage.total > 0


async def test_hooks_permissions_and_tools_run_on_the_host(bench: Bench, sdk: Any):
    """Each in the record, in order, before the agent has it; what was changed or denied is so inside."""
    before = os.getpid()
    pids = []

    async def may_use(name: str, arguments: dict[str, Any], _context: Any) -> Any:
        pids.append(os.getpid())
        if "rm" in str(arguments):
            return sdk.PermissionResultDeny(message="nothing is removed")
        if name == "Bash":
            return sdk.PermissionResultAllow(updated_input={"command": "echo three >note.txt"})
        return sdk.PermissionResultAllow()

    async def stop(_event: Any, _call_id: str | None, _context: Any) -> Any:
        pids.append(os.getpid())
        return {}

    options = sdk.ClaudeAgentOptions(can_use_tool=may_use, hooks={"Stop": [sdk.HookMatcher(hooks=[stop])]})
    prompt = script(
        {"tools": [{"name": "mcp__host__add", "input": {"a": 2, "b": 3}}]},
        {"expect": {"last_tool_result": "5"}, "tools": [{"run": "echo two >note.txt"}]},
        {"tools": [{"run": "rm note.txt"}]},
        {"expect": {"last_tool_result": "nothing is removed"}, "text": "done"},
    )
    result = await bench.run(prompt, sdk_options=options, functions=[add])
    assert (result.state.value, result.final_text) == ("unverified", "done"), result
    assert (bench.workspace / "note.txt").read_text() == "three\n"
    assert set(pids) == {before}
    told = [event for event in bench.events if isinstance(event, PermissionDecided | HookAnswered)]
    assert [(event.name, getattr(event, "allowed", None)) for event in told] == [
        ("permission.decided", True),
        ("permission.decided", True),
        ("permission.decided", False),
        ("hook.answered", None),
    ]
    [called] = [event for event in bench.of(ToolCalled) if event.tool == "mcp__host__add"]
    [returned] = [event for event in bench.of(ToolReturned) if event.tool == "mcp__host__add"]
    asked = [block["id"] for event in bench.of(ModelReplied) for block in event.content if "id" in block]
    assert called.call_id == returned.call_id == asked[0]
    assert returned.content == "5"


async def test_neither_the_key_nor_the_hosts_environment_is_inside(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
):
    """Not in an environment, a command line or a file that the agent can read."""
    monkeypatch.setenv("SOMETHING_OF_THE_HOST", "zqzq7x-marker")
    monkeypatch.setenv("ANTHROPIC_API_KEY", KEYS["ANTHROPIC_API_KEY"])
    await bench.run(script({"tools": [{"run": LOOKS_EVERYWHERE}]}, {"text": "Done."}))
    assert (bench.workspace / "found").read_text() == "searched\n"


async def test_its_record_is_that_of_the_command_line_client(bench: Bench):
    """The same task by either runtime comes to the same events."""

    def said() -> list[Any]:
        kinds = (ModelReplied, ToolCalled, ToolReturned, MessageSent)
        found = [event for event in bench.events if isinstance(event, kinds)]
        bench.events.clear()
        return [
            (event.name, getattr(event, "tool", ""), getattr(event, "content", ""), event.origin is not None)
            for event in found
        ]

    records = []
    for runtime in ("claude-cli", "claude-sdk"):
        (bench.workspace / "note.txt").write_text("one\n")
        await bench.run(in_prompt(edits("two")), runtime=runtime)
        records.append(said())
    assert len(records[0]) > 6
    assert records[0] == records[1]


async def test_a_limit_on_turns_interrupts_it(bench: Bench):
    """The gateway refuses the request after the last turn, and the run says so."""
    turns = [{"text": str(number), "tools": [{"run": "true"}]} for number in range(9)]
    result = await bench.run(script(*turns), limits=Limits(turns=3))
    assert result.state.value == "limit", result
    assert "limit 'turns' reached: 3 of 3" in result.reason
    [ended] = bench.of(ClientEnded)
    assert ended.ending == "limit"


async def test_an_error_of_the_api_is_the_runs_end(bench: Bench):
    """Though claude calls it a success."""
    result = await bench.run(script({"error": {"status": 403, "times": 9}}, {"text": "never"}))
    assert result.state.value == "authentication", result


async def test_what_it_gives_by_a_schema_comes_out(bench: Bench):
    """As with the command line client."""
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    prompt = script({"tools": [{"name": "StructuredOutput", "input": {"n": 7}}]}, {"text": "done"})
    result = await bench.run(prompt, options=Options(output_schema=schema))
    assert result.structured_output == {"n": 7}, result


async def test_a_long_prompt_comes_through(bench: Bench):
    """It is no argument, whose length is bounded, and no process list shows it."""
    result = await bench.run(f"{'x' * 900_000} {in_prompt(edits('two'))}")
    assert result.state.value == "unverified", result
    assert (bench.workspace / "note.txt").read_text() == "two\n"


@pytest.fixture
def engine() -> str:
    """Docker, where it runs."""
    image_for("docker")
    return "docker"


@pytest.mark.docker
async def test_it_works_in_a_container(engine: str, bench: Bench, sdk: Any):
    """With the claude of the image `agents`, and a hook on the host."""
    told = []

    async def note(event: Any, _call_id: str | None, _context: Any) -> Any:
        told.append(event["tool_input"]["command"])
        return {}

    bench.program, bench.spec = None, SandboxSpec(backend=engine, image=reference("agents"))
    options = sdk.ClaudeAgentOptions(hooks={"PreToolUse": [sdk.HookMatcher(hooks=[note])]})
    result = await bench.run(in_prompt(edits("two")), sdk_options=options, functions=[add])
    assert result.state.value == "unverified", (result.state, result.reason)
    assert (bench.workspace / "note.txt").read_text() == "two\n"
    assert told[0] == "cat note.txt"


async def test_a_session_is_gone_on_with(bench: Bench):
    """The second run hears what the first was asked, and keeps its id; a fork has one of its own."""
    key = Credential("api_key", KEYS["ANTHROPIC_API_KEY"], provider="anthropic")
    access = ModelAccess("claude-sonnet-5-5", credentials=[key])
    assert bench.program is not None
    mount = Mount(source=bench.program, target="/clients/claude")
    env = environment_inside(access.gateway.kinds)
    spec = SandboxSpec(backend="bubblewrap", egress=Egress(allow=("model",)), mounts=(mount,), env=env)
    first, second = str(uuid4()), str(uuid4())
    sessions = (
        Session(first),
        Session(second, resumed_id=first),
        Session(second, resumed_id=first, is_forked=True),
    )
    ids = []
    async with (
        Sandbox.start(spec) as sandbox,
        access.gateway.opened(bench.view),
        opened_gate(sandbox, spec, bench.view, gateway=access.gateway),
    ):
        for number, session in enumerate(sessions):
            runtime = ClaudeSdkRuntime(Program(mount.target, "2.1.329"), Gateway([]))
            task = Task(
                prompt=script({"text": f"answer {number}"}), model="claude-sonnet-5-5", session=session
            )
            with anyio.fail_after(60):
                result = await runtime.run(task, sandbox, bench.view)
            assert result.final_text == f"answer {number}"
            ids.append(result.session_id)
    said = [[each["role"] for each in request.body["messages"]] for request in bench.server.requests]
    assert [roles.count("assistant") for roles in said] == [0, 1, 2]
    assert ids == [first, first, second]
