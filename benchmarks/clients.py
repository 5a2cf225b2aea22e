"""What ringfence adds to the real clients, and many of them at once. Needs `TEST_CLIENTS` (`scripts/clients.sh`).

python -m benchmarks.clients
"""

import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from subprocess import DEVNULL

import anyio

from benchmarks.claim import Row, open_sandbox, p50_p99
from ringfence.config.paths import make_private_dir
from ringfence.egress.gateway.gateway import Gateway
from ringfence.events import Event, TranscriptNoted
from ringfence.job.recorder import Recorder
from ringfence.journal import Journal, new_run_id
from ringfence.runtime.agent_cli.base import CliPaths, Launch, Program
from ringfence.runtime.agent_cli.runtime import CliRuntime
from ringfence.runtime.base import Task
from ringfence.runtime.claude.cli import ClaudeCli
from ringfence.sandbox.docker.image.recipe import reference
from ringfence.sandbox.registry import get_backend
from ringfence.sandbox.workspace.open import RESERVED_ID
from ringfence.secret import Redactor
from ringfence.testing.scripted_model import Script, ScriptedModelServer, in_prompt

_ROUNDS = 9
_LINES = 400
_AT_ONCE = 20
_DEADLINE_S = 300.0
_KEYS = {"ANTHROPIC_API_KEY": "sk-ant-api03-bench", "OPENAI_API_KEY": "sk-bench"}
_NATIVE = {
    "claude": "@anthropic-ai/claude-code-linux-*[!l]/claude",
    "codex": "@openai/codex-linux-*/vendor/*/bin/codex",
}
_TASK = in_prompt(
    Script.model_validate(
        {
            "turns": [
                {"tools": [{"run": "echo one > note"}]},
                {"tools": [{"run": "cat note"}]},
                {"text": "Done."},
            ]
        }
    )
)
_COMMAND = [sys.executable, "-c", "from ringfence.cli import main; main()"]


async def measure_if_there() -> list[Row]:
    """All rows of this file; none where the clients are not installed."""
    root = os.environ.get("TEST_CLIENTS")
    if not root:
        print("benchmarks.clients: skipped, TEST_CLIENTS names no directory with claude and codex")
        return []
    with tempfile.TemporaryDirectory(prefix="ringfence-bench-") as name:
        Path(name).chmod(0o711)
        async with ScriptedModelServer.serve() as server:
            lab = _Lab(Path(name), Path(root), server)
            rows = await _start(lab, "bubblewrap", 120)
            if await get_backend("docker").unavailable() is None:
                rows += await _start(lab, "docker", 250)
            return [*rows, await _delay(lab), await _many(lab)]


@dataclass(frozen=True)
class _Lab:
    folder: Path
    clients: Path
    server: ScriptedModelServer

    def environment(self, state: str) -> dict[str, str]:
        """Of the host's side, with a state directory of its own."""
        urls = {"ANTHROPIC_BASE_URL": self.server.base_url, "OPENAI_BASE_URL": f"{self.server.base_url}/v1"}
        state_dir = make_private_dir(self.folder / state)
        return {**os.environ, **_KEYS, **urls, "RINGFENCE_STATE_DIR": str(state_dir)}

    def program(self, client: str) -> Path:
        """The native one."""
        pattern = {
            "claude": "@anthropic-ai/claude-code-linux-*[!l]/claude",
            "codex": "@openai/codex-linux-*/vendor/*/bin/codex",
        }
        return next((self.clients / "node_modules").glob(pattern[client]))

    def workspace(self, name: str) -> Path:
        """An empty one, of whoever may lend it to a sandbox."""
        made = self.folder / name
        made.mkdir(exist_ok=True)
        if os.getuid() == 0:
            os.chown(made, RESERVED_ID, RESERVED_ID)
        return made

    async def first_request_ms(
        self, command: list[str], environment: Mapping[str, str], place: Path
    ) -> float:
        """Run a command to its end; until its client's first request to the model.

        Before a client is set to work, ringfence asks for the list of models, to see that the key is good: that is
        not the client's.
        """
        asked = self._prompts()
        with (self.folder / "output").open("w+b") as output:
            began = time.perf_counter()
            async with await anyio.open_process(
                command, cwd=place, env=dict(environment), stdin=DEVNULL, stdout=output, stderr=output
            ) as process:
                with anyio.fail_after(_DEADLINE_S):
                    while self._prompts() == asked and process.returncode is None:  # noqa: ASYNC110 -- no event tells
                        await anyio.sleep(0.001)
                    took = (time.perf_counter() - began) * 1e3
                    code = await process.wait()
            output.seek(0)
            assert code == 0, f"{command} ended with {code}: {output.read().decode()[-2000:]}"
        return took

    def _prompts(self) -> int:
        return sum(request.method == "POST" for request in self.server.requests)


async def _start(lab: _Lab, backend: str, promised_ms: float) -> list[Row]:
    """From the command to the client's first request, less the same of the client alone, by turns."""
    where = "from the pool" if backend == "docker" else ""
    return [await _start_of(lab, backend, client, promised_ms, where) for client in ("claude", "codex")]


async def _start_of(lab: _Lab, backend: str, client: str, promised_ms: float, where: str) -> Row:
    state = f"state-{backend}-{client}"
    environment = lab.environment(state)
    place = lab.workspace(f"work-{backend}-{client}")
    image = ("--image", reference("base")) if backend == "docker" else ()
    fenced = _run(lab, client, place, "--sandbox", backend, *image)
    if backend == "docker":
        environment["RINGFENCE_POOL__SIZE"] = "1"
    bare_argv, bare_environment = _bare(lab, client, environment)
    alone: list[float] = []
    inside: list[float] = []
    for number in range(_ROUNDS + 1):
        _forget(lab, client)
        alone.append(await lab.first_request_ms(bare_argv, bare_environment, place))
        if backend == "docker" and number:
            await _pool_is_full(environment)
        inside.append(await lab.first_request_ms(fenced, environment, place))
    if backend == "docker":
        await anyio.run_process([*_COMMAND, "sandbox", "pool", "stop"], env=environment)
    return _added(f"{client} in {backend} {where}".rstrip(), client, promised_ms, alone[1:], inside[1:])


def _added(what: str, client: str, promised_ms: float, alone: list[float], inside: list[float]) -> Row:
    added = statistics.median(inside) - statistics.median(alone)
    return Row(
        f"`ringfence run` with {what}, until it asks its model",
        f"adds ≤ {promised_ms:.0f} ms",
        f"adds {added:.0f} ms",
        f"{client} alone: {p50_p99(alone, digits=0)}; in the fence: {p50_p99(inside, digits=0)}",
        added <= promised_ms,
    )


def _run(lab: _Lab, client: str, place: Path, *more: str) -> list[str]:
    program = str(lab.program(client))
    words = [
        *_COMMAND,
        "run",
        "--runtime",
        f"{client}-cli",
        "--cli-path",
        program,
        "--json",
        "-C",
        str(place),
    ]
    return [*words, *more, "--", _TASK]


def _bare(lab: _Lab, client: str, environment: Mapping[str, str]) -> tuple[list[str], dict[str, str]]:
    """The client as its own launch says, on the host."""
    home = make_private_dir(lab.folder / f"home-{client}")
    quiet = {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "IS_SANDBOX": "1", "DISABLE_AUTOUPDATER": "1"}
    own = {
        **environment,
        **quiet,
        "HOME": str(home),
        "CODEX_HOME": str(home / "codex"),
        "CLAUDE_CONFIG_DIR": str(home / "c"),
    }
    program = str(lab.program(client))
    if client == "claude":
        return [program, "-p", "--output-format", "stream-json", "--verbose", "--dangerously-skip-permissions",
                "--model", "claude-sonnet-5-5", _TASK], own  # fmt: skip
    provider = f'{{name="b",base_url="{environment["OPENAI_BASE_URL"]}",env_key="OPENAI_API_KEY",wire_api="responses"}}'
    settings = ("model_provider=b", f"model_providers.b={provider}", "features.plugins=false", "features.apps=false",
                "analytics.enabled=false")  # fmt: skip
    return [program, "exec", "--json", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox",
            "-m", "gpt-5.5-codex", *(f"-c{each}" for each in settings), _TASK], own  # fmt: skip


def _forget(lab: _Lab, client: str) -> None:
    """Let a client alone begin as it does in a new sandbox, where it makes its databases first."""
    home = lab.folder / f"home-{client}"
    shutil.rmtree(home)
    make_private_dir(home / "codex")


async def _pool_is_full(environment: Mapping[str, str]) -> None:
    with anyio.fail_after(60):
        while True:
            done = await anyio.run_process(
                [*_COMMAND, "sandbox", "pool", "status", "--json"],
                env=dict(environment),
            )
            if json.loads(done.stdout)["waiting"]:
                return
            await anyio.sleep(0.1)


class _Clock(ClaudeCli):
    """Says what time it is, line by line."""

    def launch(self, task: Task, place: CliPaths) -> Launch:  # noqa: ARG002 -- it is the same for any
        """A line each 5 ms, and the last word."""
        script = (
            "import json,time\n"
            f"for _ in range({_LINES}):\n"
            " print(json.dumps({'type':'system','subtype':'clock','at':time.monotonic_ns()}),flush=True)\n"
            " time.sleep(0.005)\n"
            "print(json.dumps({'type':'result','subtype':'success','is_error':False,'result':'ok'}))\n"
        )
        return Launch(argv=("python3", "-c", script))


async def _delay(lab: _Lab) -> Row:
    """From the client's write to the event's line in the journal."""
    delays: list[float] = []
    run_dir = make_private_dir(lab.folder / "delay")
    recorder = Recorder(Journal.create(run_dir, new_run_id()), Redactor([]), None)

    async def emit(event: Event) -> None:
        await recorder.emit(event)
        if isinstance(event, TranscriptNoted) and "at" in event.record:
            delays.append((time.monotonic_ns() - event.record["at"]) / 1e6)

    async with open_sandbox() as sandbox:
        await CliRuntime(_Clock(), Program("python3", "0"), Gateway([])).run(Task("x", "x"), sandbox, emit)
    assert len(delays) == _LINES
    kept = statistics.median(delays) <= 20
    return Row(
        "a client's line, until it is in the journal", "p50 ≤ 20 ms", p50_p99(delays), f"{_LINES} lines", kept
    )


async def _many(lab: _Lab) -> Row:
    """Agents at once, each on its own workspace: what each did is in its record, and nothing of them is left."""
    environment = lab.environment("state-many")
    before = _processes()
    began = time.perf_counter()
    async with AsyncExitStack() as stack:
        processes = []
        for number in range(_AT_ONCE):
            client = ("claude", "codex")[number % 2]
            command = _run(lab, client, lab.workspace(f"many-{number}"), "--sandbox", "bubblewrap")
            processes.append(
                await stack.enter_async_context(
                    await anyio.open_process(
                        command, env=environment, stdin=DEVNULL, stdout=DEVNULL, stderr=DEVNULL
                    )
                )
            )
        with anyio.fail_after(_DEADLINE_S):
            codes = [await process.wait() for process in processes]
    took = time.perf_counter() - began
    journals = list((lab.folder / "state-many" / "runs").glob("*/journal.jsonl"))
    whole = sum(_is_whole(journal) for journal in journals)
    left = len(_processes() - before)
    is_kept = (codes, whole, left) == ([0] * _AT_ONCE, _AT_ONCE, 0)
    return Row(
        f"{_AT_ONCE} clients at once, 10 claude and 10 codex",
        "no lost event, no leak",
        f"{whole} of {_AT_ONCE} records whole and sealed, {left} processes left",
        f"{took:.1f} s in all",
        is_kept,
    )


def _is_whole(journal: Path) -> bool:
    """Whether a record holds all that its script had the client do: three requests, two calls, their results."""
    names = [json.loads(line)["event"] for line in journal.read_text().splitlines()]
    counts = {name: names.count(name) for name in ("model.exchanged", "tool.called", "tool.returned")}
    return names[-1] == "journal.sealed" and counts == {
        "model.exchanged": 3,
        "tool.called": 2,
        "tool.returned": 2,
    }


def _processes() -> set[int]:
    """Those of the clients and of sandboxes on this machine."""
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                name = (entry / "comm").read_text().strip()
            except OSError:
                continue
            if name in ("claude", "codex", "bwrap"):
                found.add(int(entry.name))
    return found


if __name__ == "__main__":
    for row in anyio.run(measure_if_there):
        print(row)
