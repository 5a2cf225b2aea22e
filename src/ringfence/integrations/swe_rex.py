"""A deployment of SWE-ReX whose runtime is a sandbox: nothing of SWE-ReX is installed or listens inside.

Bash sessions are real ones on a terminal. A command's text goes to a file that the session sources, so that lines,
here-documents and quotes are bash's own affair; the end of a command is a prompt with a random word and its exit code.
It needs the extra `swe-rex`.
"""

import logging
import os
import re
import secrets
import shlex
import stat
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Literal, Self

import anyio

try:
    from swerex import exceptions as swerex_errors
    from swerex.deployment.abstract import AbstractDeployment
    from swerex.deployment.hooks.abstract import CombinedDeploymentHook, DeploymentHook
    from swerex.runtime import abstract as api
    from swerex.utils.log import get_logger
except ImportError as exc:
    from ringfence.errors import UsageError

    raise UsageError(
        f"SWE-ReX cannot be imported ({exc}); install it: pip install 'ringfence[swe-rex]'"
    ) from exc

from ringfence.errors import RingfenceError, SandboxFileError, UsageError
from ringfence.frozen import frozen
from ringfence.integrations.evaluation_sandbox import (
    MERGED_STREAMS,
    EvaluationSandbox,
    HeldSandbox,
    evaluation_spec,
    os_error,
)
from ringfence.sandbox import ExecResult, Sandbox, SandboxProcess

__all__ = ["RingfenceDeployment", "RingfenceDeploymentConfig", "RingfenceRuntime"]

_TERMINAL_SIZE = (50, 4000)
"""Rows and columns of a session's terminal: wide enough that no line of output is wrapped."""
_OUTPUT_BYTES = 10 * 1024**2
_WINDOW_CHARACTERS = 4096
"""How far back an awaited text is searched for in output that was there before."""
_CHUNK_BYTES = 256 * 1024
_CONTROL = re.compile(r"\x1B[@-_][0-?]*[ -/]*[@-~]")
_QUIT_S = 5.0


class RingfenceDeploymentConfig(EvaluationSandbox):
    """The configuration of a deployment: fields of the sandbox."""

    type: Literal["ringfence"] = "ringfence"
    """Tells deployments apart. Do not change."""

    def get_deployment(self) -> "RingfenceDeployment":
        """Make the deployment."""
        return RingfenceDeployment.from_config(self)


class RingfenceDeployment(AbstractDeployment):
    """A sandbox that `start` opens and `stop` ends, with everything in it."""

    def __init__(self, *, logger: logging.Logger | None = None, **arguments: Any) -> None:
        """Create the deployment; the arguments are fields of `RingfenceDeploymentConfig`."""
        self._runtime: RingfenceRuntime | None = None
        self._held: HeldSandbox | None = None  # first: its `__del__` stops it, also after an error
        self._config = RingfenceDeploymentConfig(**arguments)
        self._hooks = CombinedDeploymentHook()
        self.logger = logger or get_logger("rex-deploy")

    @classmethod
    def from_config(cls, config: RingfenceDeploymentConfig) -> Self:
        """Make a deployment of its configuration."""
        return cls(**config.model_dump(exclude_unset=True))

    def add_hook(self, hook: DeploymentHook) -> None:
        """Add a hook that is called when the deployment starts."""
        self._hooks.add_hook(hook)

    async def is_alive(self, *, timeout: float | None = None) -> Any:
        """Whether the sandbox answers."""
        if self._runtime is None:
            return api.IsAliveResponse(is_alive=False, message="the deployment is not started")
        return await self._runtime.is_alive(timeout=timeout)

    async def start(self) -> None:
        """Open the sandbox.

        Raises:
            RingfenceError: It cannot be opened.
        """
        if self._held is None:
            self._hooks.on_custom_step("Starting runtime")
            self._held = await HeldSandbox.open(evaluation_spec(self._config))
            self._runtime = RingfenceRuntime(self._held.sandbox, logger=self.logger)

    async def stop(self) -> None:
        """End the sandbox. A second call does nothing."""
        held, self._held, self._runtime = self._held, None, None
        if held is not None:
            await held.close()

    @property
    def runtime(self) -> "RingfenceRuntime":
        """The runtime.

        Raises:
            DeploymentNotStartedError: The deployment is not started.
        """
        if self._runtime is None:
            raise swerex_errors.DeploymentNotStartedError
        return self._runtime


class RingfenceRuntime(api.AbstractRuntime):
    """Commands, sessions and files of a sandbox as SWE-ReX uses them."""

    def __init__(self, sandbox: Sandbox, *, logger: logging.Logger | None = None) -> None:
        """Wrap an open sandbox, which its opener closes."""
        self.logger = logger or get_logger("rex-runtime")
        self._sandbox = sandbox
        self._sessions: dict[str, _BashSession] = {}

    async def is_alive(self, *, timeout: float | None = None) -> Any:
        """Whether the sandbox answers."""
        try:
            await self._sandbox.ping(timeout_s=timeout or 30.0)
        except RingfenceError as exc:
            return api.IsAliveResponse(is_alive=False, message=str(exc))
        return api.IsAliveResponse(is_alive=True)

    async def create_session(self, request: Any) -> Any:
        """Start a bash on a terminal.

        Raises:
            SessionExistsError: There is one of this name.
        """
        if request.session in self._sessions:
            raise swerex_errors.SessionExistsError(f"session {request.session!r} already exists")
        session = _BashSession(self._sandbox)
        output = await session.start(request.startup_source, request.startup_timeout)
        self._sessions[request.session] = session
        return api.CreateBashSessionResponse(output=output)

    async def run_in_session(self, action: Any) -> Any:
        """Run a command, or interrupt one.

        Raises:
            SessionDoesNotExistError: There is no session of this name.
            BashIncorrectSyntaxError: bash does not accept the command.
            CommandTimeoutError: It has not ended in time; it still runs, and can be interrupted.
            NonZeroExitCodeError: It failed, and `check` is `raise`.
            SandboxDied: The sandbox is gone.
        """
        session = self._session(action.session)
        if isinstance(action, api.BashInterruptAction):
            return await session.interrupt(action)
        if action.is_interactive_command or action.is_interactive_quit:
            return await session.run_interactive(action)
        return await session.run(action)

    async def close_session(self, request: Any) -> Any:
        """End a session, with everything that runs in it.

        Raises:
            SessionDoesNotExistError: There is no session of this name.
        """
        await self._session(request.session).close()
        del self._sessions[request.session]
        return api.CloseBashSessionResponse()

    async def execute(self, command: Any) -> Any:
        """Run a command by itself.

        Raises:
            CommandTimeoutError: It has not ended in time; it was killed with everything that it started.
            NonZeroExitCodeError: It failed, and `check` is set.
            FileNotFoundError, PermissionError: There is no such program, or it may not be executed.
            SandboxDied: The sandbox is gone.
        """
        words = [command.command] if isinstance(command.command, str) else list(command.command)
        words = ["/bin/sh", "-c", *words] if command.shell else words
        argv = [*MERGED_STREAMS, *words] if command.merge_output_streams else words
        result = await self._sandbox.run(
            argv,
            timeout_s=command.timeout,
            cwd=command.cwd,
            env=command.env,
            output_limit_bytes=_OUTPUT_BYTES,
            flood_limit_bytes=10 * _OUTPUT_BYTES,
        )
        if result.ended_by == "timeout":
            raise swerex_errors.CommandTimeoutError(f"{words!r} has not ended after {command.timeout} s")
        if not result.is_started:
            kind = FileNotFoundError if result.exit_code == 127 else PermissionError
            raise kind(result.stderr.strip())
        if command.check and result.exit_code != 0:
            raise swerex_errors.NonZeroExitCodeError(
                f"{command.error_msg or 'command failed'}: {_describe_result(words, result)}"
            )
        return api.CommandResponse(
            stdout=result.stdout_bytes.decode(errors="backslashreplace"),
            stderr=result.stderr_bytes.decode(errors="backslashreplace"),
            exit_code=result.exit_code,
        )

    async def read_file(self, request: Any) -> Any:
        """Read a text file inside.

        Raises:
            OSError: Its subclass says why, such as `FileNotFoundError`.
        """
        try:
            content = await self._sandbox.read_file(request.path)
        except SandboxFileError as exc:
            raise os_error(exc, request.path) from exc
        text = content.decode(request.encoding or "utf-8", request.errors or "strict")
        return api.ReadFileResponse(content=text)

    async def write_file(self, request: Any) -> Any:
        """Write a text file inside; parent directories are created.

        Raises:
            OSError: Its subclass says why, such as `PermissionError`.
        """
        try:
            await self._sandbox.write_file(request.path, request.content.encode())
        except SandboxFileError as exc:
            raise os_error(exc, request.path) from exc
        return api.WriteFileResponse()

    async def upload(self, request: Any) -> Any:
        """Copy a file or directory of this machine into the sandbox. Links are copied as links.

        Raises:
            UsageError: The source has something else than files, directories and links.
            OSError: It cannot be read, or the target not be written.
        """
        target = request.target_path
        try:
            for entry in await anyio.to_thread.run_sync(_entries, Path(request.source_path)):
                await self._upload_one(
                    entry, target if entry.name == "." else f"{target.rstrip('/')}/{entry.name}"
                )
        except SandboxFileError as exc:
            raise os_error(exc, target) from exc
        return api.UploadResponse()

    async def _upload_one(self, entry: "_Entry", target: str) -> None:
        if entry.link is not None:
            await _expect_ok(self._sandbox, ["ln", "-sfn", "--", entry.link, target])
        elif entry.is_directory:
            await _expect_ok(self._sandbox, ["mkdir", "-p", "--", target])
        else:
            await self._sandbox.write_file(target, _chunks(entry.path), mode=entry.mode)

    async def close(self) -> Any:
        """End all sessions."""
        while self._sessions:
            await self._sessions.popitem()[1].close()
        return api.CloseResponse()

    def _session(self, name: str) -> "_BashSession":
        if name not in self._sessions:
            raise swerex_errors.SessionDoesNotExistError(f"session {name!r} does not exist")
        return self._sessions[name]


class _BashSession:
    """A bash on a terminal inside. Its prompt is a random word with the exit code of what ran before."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox
        self._prompt_word = f"ringfence-{secrets.token_hex(12)}"
        self._prompt = re.compile(rf"{self._prompt_word}:(\d+):")
        self._stack = AsyncExitStack()
        self._unread = ""
        self._process: SandboxProcess

    async def start(self, sources: Sequence[str], timeout_s: float) -> str:
        """Start bash, source files, and return their output."""
        self._directory = (await _expect_ok(self._sandbox, ["mktemp", "-d"])).stdout.strip()
        spawned = self._sandbox.spawn(
            ["bash", "--noediting"], tty=_TERMINAL_SIZE, env={"TERM": "dumb", "PS1": "", "PS2": ""}
        )
        self._process = await self._stack.enter_async_context(spawned)
        lines = ["stty -echo", *(f"source {shlex.quote(path)}" for path in sources)]
        # Set by pieces, so that the terminal's echo of this line is no prompt.
        prompt = f"unset PROMPT_COMMAND PS0; PS2=; PS1='{self._prompt_word}:'\\$?':'"
        await self._send("; ".join([*lines, prompt]) + "\n")
        try:
            output, _ = await self._expect([], max(timeout_s, 1.0) + _QUIT_S)
        except BaseException:
            await self.close()
            raise
        return output

    async def run(self, action: Any) -> Any:
        """Run a command to its end."""
        script = f"{self._directory}/command"
        await self._sandbox.write_file(script, action.command.encode())
        checked = await self._sandbox.run(["bash", "-n", script])
        if not checked.ok:
            details = {"bash_stdout": checked.stdout, "bash_stderr": checked.stderr}
            raise swerex_errors.BashIncorrectSyntaxError(
                f"bash does not accept {action.command!r}: {checked.stderr.strip()}", extra_info=details
            )
        await self._send(f". {script}\n")
        output, found = await self._expect(action.expect, action.timeout, action.command)
        code = int(found[1]) % 256 if found.re is self._prompt and action.check != "ignore" else None
        if action.check == "raise" and code != 0:
            what = swerex_errors.NoExitCodeError if code is None else swerex_errors.NonZeroExitCodeError
            raise what(
                f"{action.error_msg or 'command failed'}: {action.command!r}, exit code {code}: {output[-2000:]!r}"
            )
        return api.BashObservation(output=output, exit_code=code, expect_string=self._shown(found))

    async def run_interactive(self, action: Any) -> Any:
        """Type a line for the program that runs, and wait for what is expected of it."""
        await self._send(f"{action.command}\n")
        output, found = await self._expect(action.expect, action.timeout, action.command)
        if action.is_interactive_quit:
            await self._send("stty -echo\n")
            await self._expect([], _QUIT_S)
        else:  # programs with an editor of lines echo what is typed
            output = output.lstrip().removeprefix(action.command).strip()
        return api.BashObservation(output=output, exit_code=0, expect_string=self._shown(found))

    async def interrupt(self, action: Any) -> Any:
        """Type Ctrl-C until there is a prompt; else stop what runs, and kill it."""
        for keys in (*("\x03",) * action.n_retry, "\x1a"):
            await self._send(keys)
            try:
                output, found = await self._expect(action.expect, max(action.timeout, 0.2))
            except swerex_errors.CommandTimeoutError:
                continue
            if keys == "\x1a":
                await self._send("kill -9 %1; wait %1\n")
                killed, found = await self._expect(action.expect, _QUIT_S)
                output += killed
            return api.BashObservation(output=output.strip(), exit_code=0, expect_string=self._shown(found))
        raise swerex_errors.CommandTimeoutError("what runs in the session could not be interrupted")

    async def close(self) -> None:
        """End bash, with everything that it started."""
        await self._stack.aclose()

    async def _send(self, text: str) -> None:
        await self._process.stdin.send(text.encode())

    def _shown(self, found: "re.Match[str]") -> str:
        return "" if found.re is self._prompt else found.re.pattern

    async def _expect(
        self, patterns: Sequence[str], timeout_s: float | None, command: str = ""
    ) -> "tuple[str, re.Match[str]]":
        """Read until the prompt or a pattern is there; return the output before it, and what was found.

        Raises:
            CommandTimeoutError: None of them came in time.
            SessionNotInitializedError: bash has ended.
        """
        wanted = [*(re.compile(pattern, re.DOTALL) for pattern in patterns), self._prompt]
        searched = 0
        with anyio.move_on_after(timeout_s):
            while True:
                start = max(0, searched - _WINDOW_CHARACTERS)
                matches = [match for each in wanted if (match := each.search(self._unread, start))]
                if matches:
                    found = min(matches, key=lambda match: match.start())
                    output, self._unread = self._unread[: found.start()], self._unread[found.end() :]
                    return _CONTROL.sub("", output).replace("\r\n", "\n"), found
                searched = len(self._unread)
                chunk = await anext(self._process.stdout, None)
                if chunk is None:
                    raise swerex_errors.SessionNotInitializedError(
                        f"the session's bash has ended, after {command!r}"
                    )
                self._unread = (self._unread + chunk.decode(errors="backslashreplace"))[-_OUTPUT_BYTES:]
        raise swerex_errors.CommandTimeoutError(f"{command!r} has not ended after {timeout_s} s")


def _describe_result(words: Sequence[str], result: ExecResult) -> str:
    return f"{words!r}, exit code {result.exit_code}: {result.excerpt(2000)}"


async def _expect_ok(sandbox: Sandbox, argv: Sequence[str]) -> ExecResult:
    result = await sandbox.run(argv)
    if not result.ok:
        raise OSError(f"could not prepare the sandbox: {_describe_result(argv, result)}")
    return result


@frozen
class _Entry:
    """A file, directory or link to be uploaded."""

    path: Path
    name: str
    """Its path below the source; `.` is the source itself."""
    mode: int
    is_directory: bool
    link: str | None
    """Where it leads, if it is a link."""


def _entries(source: Path) -> list[_Entry]:
    """A file, or a directory with what is in it, each after its directory. Links below it are not followed.

    Raises:
        UsageError: There is something else.
        OSError: There is no source.
    """
    top = source.resolve(strict=True)
    found: list[_Entry] = []
    for path in (top, *sorted(top.rglob("*"))):
        mode = path.lstat().st_mode
        link = str(path.readlink()) if stat.S_ISLNK(mode) else None
        if link is None and not (stat.S_ISDIR(mode) or stat.S_ISREG(mode)):
            raise UsageError(
                f"{str(path)!r} cannot be uploaded: it is no file, directory or link; leave it out"
            )
        name = str(path.relative_to(top))
        found.append(_Entry(path, name, 0o755 if mode & 0o100 else 0o644, stat.S_ISDIR(mode), link))
    return found


async def _chunks(path: Path) -> AsyncIterator[bytes]:
    # Neither a link nor a pipe that was put in its place meanwhile is followed or waited for.
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    async with await anyio.open_file(path, "rb", opener=lambda name, _: os.open(name, flags)) as file:
        while chunk := await file.read(_CHUNK_BYTES):
            yield chunk
