"""The tool `shell`, which runs any command in the sandbox and emits its output as events while it runs.

Commands are neither checked nor quoted: the sandbox is the safety boundary, not a list of allowed words.
"""

import codecs
import hashlib
import json
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial

import anyio

from ringfence.background_tasks import background_tasks
from ringfence.events import JSONObject, OutputStreamed
from ringfence.sandbox import ExecResult, Sandbox
from ringfence.sandbox.result import OnOutput
from ringfence.tool.base import Tool, ToolContext, ToolResult, ToolSpec
from ringfence.tool.text import cut_json_text

EmitOutput = Callable[[OutputStreamed], Awaitable[None]]

DEFAULT_TIMEOUT_S = 120.0
MAX_TIMEOUT_S = 3600.0

_ARGUMENT_LIMIT_BYTES = 64 * 1024
"""Linux rejects a single argument of 128 KiB; commands longer than half of that are passed in a file."""
_KEPT_BYTES = 256 * 1024
_RESULT_CHARS = 30_000
"""The limit for stdout and stderr together in a result."""
_STDERR_SHARE = 3
_NOT_FOUND = 127

_DESCRIPTION = """\
Run a shell command in the sandbox and get back a JSON object with stdout, stderr, exit_code, timed_out, \
ended_by; and refused, where it asked for something outside that is not granted. It runs in the workspace, with \
bash where there is one, else sh; stdin is empty and there is no terminal. Each call is a shell of its own: \
variables and cd do not carry over, files do, and so do processes left in the background. A command that runs \
longer than timeout_s (default 120) is killed with everything it started. Long output is cut in the middle."""

_SCHEMA: JSONObject = {
    "type": "object",
    "properties": {
        "command": {"type": "string", "minLength": 1, "description": "The shell command to run."},
        "reasoning": {
            "type": "string",
            "minLength": 1,
            "description": "Why this command is needed now. It is kept in the record.",
        },
        "timeout_s": {
            "type": "number",
            "exclusiveMinimum": 0,
            "maximum": MAX_TIMEOUT_S,
            "description": "Seconds after which the command is killed. Default 120.",
        },
    },
    "required": ["command", "reasoning"],
    "additionalProperties": False,
}


class ShellTool(Tool):
    """`shell(command, reasoning, timeout_s?)`."""

    has_valid_schema = True
    spec = ToolSpec(name="shell", description=_DESCRIPTION, input_schema=_SCHEMA)

    def __init__(self) -> None:
        self._without_bash: set[str] = set()

    async def call(self, arguments: JSONObject, context: ToolContext) -> ToolResult:
        """Run the command; a command that fails or is killed has an ordinary result."""
        command: str = arguments["command"]
        timeout_s = float(arguments.get("timeout_s", DEFAULT_TIMEOUT_S))
        if "\0" in command:
            return ToolResult(
                "the command holds a NUL character, which no shell can take; remove it", is_error=True
            )
        if context.emit is None:
            result = await self._run(context.sandbox, command, timeout_s)
        else:
            async with output_feed(context.emit, context.call_id) as feed:
                result = await self._run(context.sandbox, command, timeout_s, feed.take)
        return ToolResult(_render(result, timeout_s))

    async def _run(
        self, sandbox: Sandbox, command: str, timeout_s: float, on_output: OnOutput | None = None
    ) -> ExecResult:
        """Run the command with bash, or with sh in a sandbox that is known to have no bash."""
        if sandbox.id not in self._without_bash:
            result = await _run_by("bash", sandbox, command, timeout_s, on_output)
            if result.is_started or result.exit_code != _NOT_FOUND:
                return result
            self._without_bash.add(sandbox.id)
        return await _run_by("sh", sandbox, command, timeout_s, on_output)


async def _run_by(
    shell: str, sandbox: Sandbox, command: str, timeout_s: float, on_output: OnOutput | None
) -> ExecResult:
    run = partial(sandbox.run, timeout_s=timeout_s, output_limit_bytes=_KEPT_BYTES, on_output=on_output)
    encoded = command.encode()
    if len(encoded) <= _ARGUMENT_LIMIT_BYTES:
        return await run([shell, "-c", command])
    # The name is derived from the content: error messages of the shell quote it, and results hold no random names.
    script = f"/tmp/command-{hashlib.sha256(encoded).hexdigest()[:12]}.sh"  # noqa: S108 - private /tmp of the sandbox
    await sandbox.write_file(script, encoded)
    return await run([shell, script])


def _render(result: ExecResult, timeout_s: float) -> str:
    timed_out = result.ended_by == "timeout"
    stderr_chars = min(
        len(result.stderr), max(_RESULT_CHARS // _STDERR_SHARE, _RESULT_CHARS - len(result.stdout))
    )
    stdout = cut_json_text(result.stdout, _RESULT_CHARS - stderr_chars, total_bytes=result.stdout_total)
    stderr = cut_json_text(result.stderr, stderr_chars, total_bytes=result.stderr_total)
    if timed_out:
        separator = "\n" if stderr and not stderr.endswith("\n") else ""
        stderr += f"{separator}Command timed out after {_seconds(timeout_s)} seconds"
    fields = {
        "stdout": stdout,
        "stderr": stderr,
        "exit_code": -1 if timed_out else result.exit_code,
        "timed_out": timed_out,
        "ended_by": result.ended_by,
    }
    if result.refused:
        fields["refused"] = list(result.refused)
    return json.dumps(fields, ensure_ascii=False)


def _seconds(timeout_s: float) -> str:
    return str(math.trunc(timeout_s)) if timeout_s == math.trunc(timeout_s) else f"{timeout_s:g}"


# --- output while the command runs

_FORWARDED_BYTES = 64 * 1024
"""The most output that is forwarded for one command."""
_INTERVAL_S = 0.1
"""The minimum time between two events, so that many small writes become one event."""


class OutputFeed:
    """Collects output without blocking; `output_feed` forwards it.

    Args:
        emit: Emits an event.
        call_id: The id of the call that runs the command.
    """

    def __init__(self, emit: EmitOutput, call_id: str) -> None:
        self._emit = emit
        self._call_id = call_id
        self._left = _FORWARDED_BYTES
        self._waiting: list[tuple[bytes, bool]] = []
        self._changed = anyio.Event()
        decoder = codecs.getincrementaldecoder("utf-8")
        self._decoders = {is_stderr: decoder("replace") for is_stderr in (False, True)}

    def take(self, chunk: bytes, is_stderr: bool) -> None:
        """Add the next piece; output beyond the limit is dropped."""
        if self._left > 0:
            self._waiting.append((chunk[: self._left], is_stderr))
            self._left -= len(chunk)
            self._changed.set()

    async def forward(self) -> None:
        """Emit collected output at intervals until cancelled."""
        while True:
            await self._changed.wait()
            await self.flush()
            await anyio.sleep(_INTERVAL_S)

    async def flush(self) -> None:
        """Emit all output that is waiting."""
        self._changed = anyio.Event()
        while self._waiting:  # one piece at a time, so that a cancellation loses no more than one
            chunk, is_stderr = self._waiting.pop(0)
            await self._emit_text(self._decoders[is_stderr].decode(chunk), is_stderr)

    async def finish(self) -> None:
        """Emit all output that is waiting, and the rest of a character that was cut."""
        await self.flush()
        for is_stderr, decoder in self._decoders.items():
            await self._emit_text(decoder.decode(b"", final=True), is_stderr)

    async def _emit_text(self, text: str, is_stderr: bool) -> None:
        if text:
            await self._emit(OutputStreamed(call_id=self._call_id, text=text, is_stderr=is_stderr))


@asynccontextmanager
async def output_feed(emit: EmitOutput, call_id: str) -> AsyncIterator[OutputFeed]:
    """Forward a command's output while the context is open, and flush the rest on exit."""
    feed = OutputFeed(emit, call_id)
    async with background_tasks() as tasks:
        tasks.start_soon(feed.forward)
        yield feed
    await feed.finish()
