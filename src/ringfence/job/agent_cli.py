"""Runs an agent CLI on the user's terminal: restores its sessions inside, saves them as they grow, and records them."""

import os
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import replace
from functools import partial
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread

from ringfence.config.names import RuntimeName
from ringfence.config.paths import state_dir
from ringfence.errors import RingfenceError, UsageError
from ringfence.events import Event, Origin
from ringfence.frozen import frozen
from ringfence.job.agent import with_model_granted
from ringfence.job.credentials import with_credentials
from ringfence.job.outcome import Outcome
from ringfence.job.request import CustomWork, Notify, RunRequest
from ringfence.job.resolution import access_of, command_request, is_set
from ringfence.job.state import JobState
from ringfence.job.terminal import run_on_terminal
from ringfence.runtime.agent_cli.base import AgentCli, Program
from ringfence.runtime.agent_cli.program import checked_inside, find_program
from ringfence.runtime.agent_cli.runtime import paths_in
from ringfence.runtime.options import Options, check_options
from ringfence.runtime.registry import agent_cli_of
from ringfence.runtime.session import SessionStore, SessionSync, lock_session, sessions_dir
from ringfence.runtime.transcript.session import read_events, unread
from ringfence.runtime.transcript.translator import CliName
from ringfence.sandbox import Sandbox

if TYPE_CHECKING:
    from ringfence.config import Effective
    from ringfence.events import Emit

OnStart = Callable[[AgentCli, Sandbox, str], None]

_RESTORED_BYTES = 64 * 1024**2
_RESTORED_FILES = 300
"""How many files of earlier sessions are restored inside, the newest first."""
_READ_SESSIONS_S = 60.0
_END_S = 10.0
_AT_ONCE = 100
_READ_S = 0.05
_CHUNK = 1024**2
_PLACES = 10
_TERMINAL = "terminal-"
"""Prefix of the names of homes of sessions on terminals."""
_SESSION_CHARS = 36


@frozen
class _TerminalAgent:
    """An agent CLI on the terminal of stdin and stdout."""

    client: AgentCli
    program: Program
    args: tuple[str, ...]
    """The user's own arguments for it."""
    home: SessionStore
    """The home of its sessions on this workspace."""
    options: Options
    on_start: OnStart


@asynccontextmanager
async def terminal_run(
    name: CliName,
    args: tuple[str, ...],
    workspace: Path,
    effective: "Effective",
    *,
    notify: Notify,
    on_start: OnStart,
) -> AsyncIterator[RunRequest]:
    """Yield the request of a session with an agent CLI on this terminal, with its credentials leased until the end.

    Args:
        name: The name of the agent CLI.
        args: The user's own arguments for it.
        workspace: The directory in which it works.
        effective: The settings. The default limits of time and tokens are for tasks: only limits that were set apply.
        notify: Called with lines for the user.
        on_start: Called with its sandbox and version when it is about to start.

    Raises:
        ConfigurationError: The program does not exist, or is not of a tested version.
        UsageError: It lacks a feature that the settings request, an argument would lead out of the fence, or too many
        terminals run it on this workspace.
        PolicyRefused, AuthenticationFailed, InfrastructureFault: As `command_request` and `with_credentials`.
    """
    settings = effective.settings
    runtime: RuntimeName = "claude-cli" if name == "claude" else "codex-cli"
    client = agent_cli_of(runtime)
    if settings.client.settings_sources:
        check_options(runtime, ["settings_sources"])
    own = settings.client
    options = Options(cli_path=own.path, settings_sources=own.settings_sources, force=own.force)
    request = command_request((name, *args), workspace, effective, purpose="terminal")
    spec = with_model_granted(request.spec)
    program = await find_program(client, spec, options)
    client.check_interactive(args)
    access = replace(
        access_of(settings),
        tokens=settings.limits.tokens if is_set(effective, "limits.tokens") else None,
        provider=client.provider,
        agent_is_inside=True,
    )
    with _locked_sessions(client, request.workspace, state_dir()) as home:
        agent = _TerminalAgent(client, program, args, home, options, on_start)
        request = replace(
            request,
            spec=spec.model_copy(update={"mounts": (*spec.mounts, *program.mounts)}),
            work=CustomWork(request.work.prompt, partial(_run_on_terminal, agent), runtime=name),
            wall_clock_s=settings.limits.wall_clock if is_set(effective, "limits.wall_clock") else None,
            model_access=access,
            session_id=home.id,
        )
        async with with_credentials(request, effective, notify) as complete:
            yield complete


async def _run_on_terminal(agent: _TerminalAgent, sandbox: Sandbox, emit: "Emit") -> Outcome:
    """Run an agent CLI on the terminal until it ends.

    Raises:
        ConfigurationError: The image has no such program, or another version.
        UsageError: An argument that would lead out of the fence.
        SandboxDied: The sandbox is gone.
    """
    client = agent.client
    program = await checked_inside(agent.program, client, sandbox, force=agent.options.force)
    paths = paths_in(sandbox, program)
    launch = client.interactive(paths, agent.args, agent.options)
    folder = client.state_dir(paths)
    for path, data in launch.files.items():
        await sandbox.write_file(path, data, mode=0o600)
    sessions = TerminalSessions(agent.home, sandbox, folder, client.session_files)
    async with sessions.synchronized(emit):
        agent.on_start(client, sandbox, program.version or "")
        outcome = await run_on_terminal(
            launch.argv,
            sys.stdin.fileno(),
            sys.stdout.fileno(),
            sandbox,
            emit,
            env=launch.env,
            suspends=True,
            on_output=sessions.sync.notify,
            name=client.title,
        )
    has_ended = (
        outcome.state in (JobState.SUCCEEDED, JobState.FAILED) and outcome.command_exit_code is not None
    )
    return replace(outcome, state=JobState.ENDED) if has_ended else outcome


@contextmanager
def _locked_sessions(client: AgentCli, workspace: Path, state: Path) -> Iterator[SessionStore]:
    """Lock all sessions of an agent CLI on a workspace that the user has on terminals.

    If another terminal has locked them, lock those of a second terminal, and so on: each terminal writes its own.

    Raises:
        UsageError: The maximum number of terminals is in use.
        InfrastructureFault: The lock cannot be created.
    """
    digest = sha256(str(workspace).encode("utf-8", "surrogateescape")).hexdigest()[:16]
    with ExitStack() as held:
        home = None
        for number in range(_PLACES):
            name = f"{_TERMINAL}{client.name}-{digest}-{number}"
            with suppress(UsageError):
                home = held.enter_context(lock_session(name, by=f"process {os.getpid()}", state=state))
                break
        if home is None:
            raise UsageError(
                f"{_PLACES} terminals have {client.name} on {str(workspace)!r}; close one of them"
            )
        yield home


def terminal_session(reference: str, state: Path) -> tuple[CliName, str] | None:
    """The session on a terminal whose id is, or begins with, `reference`: its agent CLI and its id."""
    homes = sorted(sessions_dir(state).glob(f"{_TERMINAL}*")) if reference else []
    for home in homes:
        for name in filter(_is_session, SessionStore(home).files()):
            # codex puts the time before it
            session = Path(name).stem[-_SESSION_CHARS:]
            if session.startswith(reference):
                return ("claude" if home.name.startswith(f"{_TERMINAL}claude-") else "codex"), session
    return None


class TerminalSessions:
    """Restores and saves all sessions of an agent CLI on a workspace.

    Args:
        home: The directory on the host where they are saved.
        sandbox: The sandbox in which the agent CLI runs.
        folder: Its state directory inside.
        patterns: Patterns of the files there that are sessions.
        read_s: How long it may take to read them into the record.
    """

    def __init__(
        self,
        home: SessionStore,
        sandbox: Sandbox,
        folder: str,
        patterns: Sequence[str],
        *,
        read_s: float = _READ_SESSIONS_S,
    ) -> None:
        self.sync = SessionSync(home, sandbox, folder, patterns)
        self._home = home
        self._read_s = read_s

    @asynccontextmanager
    async def synchronized(self, emit: "Emit") -> AsyncIterator[None]:
        """Restore them inside and save additions to them; at the end, record the additions."""
        before = await anyio.to_thread.run_sync(self._home.files)
        await self._restore(before)
        try:
            async with self.sync.running():
                yield
        finally:
            with anyio.move_on_after(self._read_s + _END_S, shield=True):
                await self._record(before, emit)

    async def _restore(self, known: Mapping[str, int]) -> None:
        """Restore the newest sessions, the oldest of them first, so that the agent CLI recognizes the last one."""
        room = _RESTORED_BYTES
        chosen: list[str] = []
        for name in sorted(known, key=self._written_at, reverse=True)[:_RESTORED_FILES]:
            room -= known[name]
            if room < 0:
                break
            chosen.append(name)
        await self.sync.restore(chosen[::-1])

    def _written_at(self, name: str) -> float:
        return (self._home.files_dir / name).stat().st_mtime

    async def _record(self, before: Mapping[str, int], emit: "Emit") -> None:
        after = await anyio.to_thread.run_sync(self._home.files)
        with anyio.move_on_after(self._read_s) as reading:
            for name in sorted(after, key=self._written_at):
                if after[name] != before.get(name) and _is_session(name):
                    await self._record_session(self._home.files_dir / name, before, emit)
        if reading.cancelled_caught:
            late = f"the record has not all of it: that took longer than {self._read_s:g} s"
            self.sync.problem = self.sync.problem or late
        await self.sync.report(emit)

    async def _record_session(self, session: Path, before: Mapping[str, int], emit: "Emit") -> None:
        events = self._added(session, before)
        try:
            while batch := await anyio.to_thread.run_sync(_next_batch, events):
                for event in batch:
                    await emit(event)
        except RingfenceError as exc:
            await emit(unread(session, session, str(exc)))

    def _added(self, session: Path, before: Mapping[str, int]) -> Iterator[Event]:
        """The events that were added to a session since the start."""
        known: dict[str, int] = {}
        for event in read_events(session):
            origin = event.origin
            if not isinstance(origin, Origin):
                continue
            if origin.file not in known:
                path = session.parent / origin.file
                name = str(path.relative_to(self._home.files_dir))
                known[origin.file] = _lines(path, before.get(name, 0))
            if origin.line > known[origin.file]:
                yield event


def _next_batch(events: Iterator[Event]) -> list[Event]:
    """The next events; few at a time if each is large and takes long to read."""
    found = []
    until = time.monotonic() + _READ_S
    for event in islice(events, _AT_ONCE):
        found.append(event)
        if time.monotonic() > until:
            break
    return found


def _is_session(name: str) -> bool:
    """Whether a file is a session itself; files of sub-agents are read with it."""
    return name.endswith(".jsonl") and "/subagents/" not in name and "/tool-results/" not in name


def _lines(path: Path, size: int) -> int:
    """The number of lines in the first `size` bytes of a file."""
    count = 0
    with path.open("rb") as file:
        while size > 0 and (chunk := file.read(min(size, _CHUNK))):
            count += chunk.count(b"\n")
            size -= len(chunk)
    return count
