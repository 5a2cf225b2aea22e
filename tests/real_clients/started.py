"""Real clients, started as their launches say, without a runtime: what the launch means to the client is tried."""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ringfence.config.egress import Egress
from ringfence.egress.gate import opened_gate
from ringfence.egress.gateway.provider import environment_inside
from ringfence.events import Event
from ringfence.job.model_access import ModelAccess
from ringfence.runtime.agent_cli.base import AgentCli, CliPaths, Output
from ringfence.runtime.agent_cli.exit_status import Ended, Exit, classify_exit
from ringfence.runtime.agent_cli.program import checked_inside, find_program, shown_plugins
from ringfence.runtime.agent_cli.runtime import paths_in
from ringfence.runtime.base import Session, Task
from ringfence.runtime.claude.cli import ClaudeCli
from ringfence.runtime.codex.cli import CodexCli
from ringfence.runtime.options import Options
from ringfence.runtime.transcript.record import LineSplitter, parse
from ringfence.runtime.transcript.translator import CliName
from ringfence.sandbox import ExecResult, Sandbox, SandboxSpec
from ringfence.secret import Credential
from ringfence.testing.scripted_model import ScriptedModelServer

from .clients import is_any_version

CLIENTS: dict[str, AgentCli] = {"claude": ClaudeCli(), "codex": CodexCli()}
MODELS = {"claude": "claude-opus-4-5", "codex": "gpt-5.5"}
_DEADLINE_S = 90.0
_OUTPUT_BYTES = 4_000_000


@dataclass(frozen=True)
class Run:
    """What a client did."""

    client: CliName
    result: ExecResult
    output: Output
    events: list[Event]
    asked: list[str]
    """Bodies of its requests to the model."""

    @property
    def ended(self) -> Ended:
        """How it ended, as a runtime would tell."""
        done = Exit(self.result.exit_code or 0, self.result.stderr)
        return classify_exit(self.output.report, done)

    def kept(self, kind: type[Event]) -> list[Any]:
        """Its events of a kind."""
        return [event for event in self.events if isinstance(event, kind)]


@dataclass
class Fence:
    """A sandbox with a client in it."""

    client: AgentCli
    sandbox: Sandbox
    paths: CliPaths
    server: ScriptedModelServer
    options: Options

    async def run(
        self,
        prompt: str,
        *,
        session: Session | None = None,
        more: dict[str, Any] | None = None,
        model: str | None = None,
    ) -> Run:
        """Let it work on a prompt."""
        options = self.options.model_copy(update=more or {})
        task = Task(prompt, model=model or MODELS[self.client.name], options=options, session=session)
        launch = self.client.launch(task, self.paths)
        for path, data in launch.files.items():
            await self.sandbox.write_file(path, data)
        before = len(self.server.requests)
        result = await self.sandbox.run(
            launch.argv,
            env=launch.env,
            stdin=launch.stdin,
            timeout_s=_DEADLINE_S,
            output_limit_bytes=_OUTPUT_BYTES,
        )
        output = self.client.output()
        lines = LineSplitter()
        events = [
            event for line in lines.feed(result.stdout.encode()) for event in output.take(line, parse(line))
        ]
        asked = [json.dumps(request.body, ensure_ascii=False) for request in self.server.requests[before:]]
        return Run(self.client.name, result, output, [*events, *output.end()], asked)


@asynccontextmanager
async def fenced(
    client: AgentCli,
    workspace: Path,
    *,
    options: Options | None = None,
    backend: str = "bubblewrap",
    image: str | None = None,
    env: dict[str, str] | None = None,
) -> AsyncIterator[Fence]:
    """A client in a sandbox, with the scripted model behind the gateway."""
    options = (options or Options()).model_copy(update={"force": is_any_version()})
    spec = SandboxSpec(backend=backend, workspace=workspace, image=image, egress=Egress(allow=("model",)))
    program = await find_program(client, spec, options)
    plugins, options = shown_plugins(options, spec)
    async with ScriptedModelServer.serve() as server:
        access = _access(server)
        variables = {**environment_inside(access.gateway.kinds), **(env or {})}
        spec = spec.model_copy(update={"mounts": (*program.mounts, *plugins), "env": variables})
        async with (
            Sandbox.start(spec) as sandbox,
            access.gateway.opened(_ignore),
            opened_gate(sandbox, spec, _ignore, gateway=access.gateway),
        ):
            program = await checked_inside(program, client, sandbox, force=options.force)
            yield Fence(
                client,
                sandbox,
                replace(paths_in(sandbox, program), workspace=str(workspace)),
                server,
                options,
            )


def _access(server: ScriptedModelServer) -> ModelAccess:
    credentials: Sequence[Credential] = (
        Credential("api_key", "sk-ant-api03-zqzq7x-5e1f0c", provider="anthropic"),
        Credential("api_key", "sk-zqzq7x-77aa0d", provider="openai"),
    )
    base_urls: Any = {"anthropic": server.base_url, "openai": f"{server.base_url}/v1"}
    return ModelAccess("claude-opus-4-5", credentials=credentials, base_urls=base_urls)


async def _ignore(_event: Event) -> None:
    pass
