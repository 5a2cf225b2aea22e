"""The sandboxes of all sessions: their owners, their number, and the directories that they may work on."""

import os
import secrets
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread
from anyio.abc import TaskGroup

from ringfence.config.paths import state_dir
from ringfence.errors import PolicyRefused, RingfenceError, UsageError
from ringfence.escape import visible
from ringfence.events import Emit
from ringfence.frozen import frozen
from ringfence.integrations.mcp.arguments import OpenArguments
from ringfence.integrations.mcp.sandbox import ClientSandbox
from ringfence.job.credentials import with_credentials
from ringfence.job.interrupted_runs import recover_runs
from ringfence.job.outcome import Outcome, outcome_of
from ringfence.job.request import CustomWork, RunRequest
from ringfence.job.resolution import command_request
from ringfence.job.run import JobRun
from ringfence.sandbox import Sandbox
from ringfence.sandbox.workspace.lock import BUSY, workspaces_above
from ringfence.sandbox.workspace.record import load_record

if TYPE_CHECKING:
    from ringfence.config import Effective

_MAX_ENDED = 100
"""Ended sandboxes that a session can still name."""
_MAX_CLIENT_CHARS = 100


@frozen
class ServerOptions:
    """What the command line allows the clients of a server."""

    workspace: Path
    """The directory of a sandbox for which the client names none."""
    allowed: Sequence[Path]
    """Directories below which a client may name a workspace, resolved."""
    load: Callable[[Path], "Effective"]
    """Loads the configuration for a workspace."""
    max_sandboxes: int = 8
    """Open sandboxes of one session."""
    max_processes: int = 16
    """Running processes of one sandbox."""
    max_record_bytes: int = 256 * 1024**2
    """What is recorded of the calls and processes of one sandbox."""
    idle_s: float = 1800.0
    allows_apply: bool = False
    """Whether a client may apply changes to the workspace itself, without a person."""


class SandboxRegistry:
    """Opens sandboxes and finds them by handle.

    Args:
        options: What is allowed.
        tasks: The task group of the sandboxes' runs.
    """

    def __init__(self, options: ServerOptions, tasks: TaskGroup) -> None:
        self.options = options
        self._tasks = tasks
        self._held: dict[str, ClientSandbox] = {}
        self._applying = 0

    def of(self, owner: str) -> list[ClientSandbox]:
        """All sandboxes that a session opened, the oldest first; of those that have ended, the last hundred."""
        return [held for held in self._held.values() if held.owner == owner]

    def find(self, handle: str, owner: str) -> ClientSandbox:
        """Find a sandbox of a session.

        Raises:
            UsageError: The session has none of this handle. A handle of another session gives the same error.
        """
        held = self._held.get(handle)
        if held is None or held.owner != owner:
            raise UsageError(
                f"there is no sandbox {handle!r}; sandbox_list lists yours, sandbox_open opens one"
            )
        return held

    async def open(self, owner: str, client: str, arguments: OpenArguments) -> ClientSandbox:
        """Open a sandbox for a session, and return it when it can be used.

        Raises:
            UsageError: The session has as many as it may have, or the workspace cannot be used.
            PolicyRefused: The workspace is in no allowed directory, or the configuration is refused.
            RingfenceError: The sandbox could not be started.
        """
        held = self._reserve(owner, arguments)
        try:
            await _check_place(held.workspace, opened=str(held.workspace))
            request, effective = await self._request(held.workspace, client, arguments)
        except BaseException:
            self._held.pop(held.handle)
            raise
        self._tasks.start_soon(self._run, held, request, effective)
        try:
            await held.ready.wait()
        except anyio.get_cancelled_exc_class():
            held.close("its client no longer waits for it")
            raise
        if not held.is_open:
            self._held.pop(held.handle, None)
            raise held.failure or RingfenceError(f"the sandbox could not be opened: {held.end_reason}")
        return held

    def _reserve(self, owner: str, arguments: OpenArguments) -> ClientSandbox:
        """Add a sandbox to the registry. Nothing is awaited between the check of the limit and the addition."""
        options, mine = self.options, self.of(owner)
        if sum(not held.over.is_set() for held in mine) >= options.max_sandboxes:
            raise UsageError(
                f"{options.max_sandboxes} sandboxes are open, the most that a session may have; close one first"
            )
        ended = [held for held in mine if held.over.is_set()]
        for held in ended[: max(0, len(ended) - _MAX_ENDED + 1)]:
            del self._held[held.handle]
        workspace = self._workspace(arguments.workspace)
        self._check_undisturbed(workspace)
        idle_s = min(arguments.idle_s or options.idle_s, options.idle_s)
        held = ClientSandbox(
            f"sandbox-{secrets.token_hex(16)}",
            owner,
            workspace,
            idle_s=idle_s,
            max_processes=options.max_processes,
            max_record_bytes=options.max_record_bytes,
        )
        self._held[held.handle] = held
        return held

    def _check_undisturbed(self, workspace: Path) -> None:
        """Refuse to open a sandbox while another call could replace a directory on the way by a link, or begins to.

        Raises:
            UsageError: A sandbox above or in the workspace is being opened, or changes are being applied.
        """
        opening = [each.workspace for each in self._held.values() if not each.ready.is_set()]
        if self._applying or any(
            workspace != each and (workspace.is_relative_to(each) or each.is_relative_to(workspace))
            for each in opening
        ):
            raise UsageError(
                f"another call changes {str(workspace)!r}, or opens a sandbox above or in it; try again when it ends"
            )

    @contextmanager
    def applying(self) -> Iterator[None]:
        """While changes are applied for a client, no sandbox is opened.

        Raises:
            UsageError: One is being opened.
        """
        if any(not each.ready.is_set() for each in self._held.values()):
            raise UsageError("a sandbox is being opened; apply the changes when that has ended")
        self._applying += 1
        try:
            yield
        finally:
            self._applying -= 1

    def _workspace(self, named: str | None) -> Path:
        """The directory to work on, without links.

        Raises:
            PolicyRefused: It is in no allowed directory.
            UsageError: It does not exist.
        """
        if named is None:
            return self.options.workspace
        try:
            found = Path(os.path.realpath(self.options.workspace / named, strict=True))
        except (OSError, ValueError):
            found = None
        allowed = self.options.allowed
        if (
            found is None
            or not found.is_dir()
            or not any(found.is_relative_to(directory) for directory in allowed)
        ):
            # One answer for both, so that a client cannot learn which directories exist.
            raise PolicyRefused(
                f"workspace {named!r} is not a directory in {', '.join(map(repr, map(str, allowed)))}; "
                "`ringfence mcp --allow-dir DIR` allows another one",
                rule="mcp-workspace",
            )
        return found

    async def _request(
        self, workspace: Path, client: str, arguments: OpenArguments
    ) -> "tuple[RunRequest, Effective]":
        """The request of a sandbox's run; the arguments of the client only tighten it."""
        effective = await anyio.to_thread.run_sync(self.options.load, workspace)
        request = command_request(("mcp",), workspace, effective, purpose="exec")
        limit_s = min(
            (each for each in (request.wall_clock_s, arguments.timeout_s) if each is not None), default=None
        )
        mode = request.spec.mode or "clone"
        if arguments.read_only and mode == "clone":
            raise PolicyRefused(
                "read_only would show files that git ignores, such as '.env', which a private copy leaves out; open the "
                "sandbox without it, or start the server by `ringfence mcp --mode read_only`",
                rule="mcp-read-only",
            )
        mode = "read_only" if arguments.read_only else mode
        name = visible(client, one_line=True)[:_MAX_CLIENT_CHARS]
        return (
            replace(
                request,
                work=CustomWork(f"sandbox of the MCP client {name}", runtime="mcp"),
                spec=request.spec.model_copy(update={"mode": mode}),
                wall_clock_s=limit_s,
            ),
            effective,
        )

    async def _run(self, held: ClientSandbox, request: RunRequest, effective: "Effective") -> None:
        """The run of a sandbox, from its start to its sealed record."""
        result = failure = None
        try:
            store = await recover_runs(log)
            async with with_credentials(request, effective, log) as complete:
                held.job = JobRun(complete.running(partial(_hold, held)), store=store)
                result = await held.job.run()
        except RingfenceError as exc:
            failure = exc
        except Exception as exc:  # noqa: BLE001 -- the boundary of a sandbox: the others go on
            failure = RingfenceError(outcome_of(exc).reason)
        finally:
            held.finish(result, failure)
        for line in result.problems if result is not None else (str(failure),):
            log(line)

    async def close_all(self, reason: str, owner: str | None = None) -> None:
        """Close all sandboxes, or those of a session, and wait until their records are sealed."""
        held = [each for each in self._held.values() if owner in (None, each.owner)]
        for each in held:
            each.close(reason)
        for each in held:
            await each.over.wait()

    def stop_at_once(self) -> None:
        """Stop all runs without keeping more of their work; their records are sealed all the same."""
        for held in self._held.values():
            if held.job is not None and not held.over.is_set():
                held.job.cancel()  # the work inside
                held.job.cancel()  # and its delivery


async def _hold(held: ClientSandbox, sandbox: Sandbox, emit: Emit) -> Outcome:
    """Hold a sandbox that was opened on the directory that was checked, and on no other.

    Raises:
        PolicyRefused: It may be another.
    """
    assert held.job is not None
    await _check_place(held.workspace, opened=load_record(held.job.dir).workspace)
    return await held.hold(sandbox, emit)


async def _check_place(workspace: Path, *, opened: str) -> None:
    """Check that no directory on the way to a workspace is a link now, nor can be made one from inside a sandbox.

    Args:
        workspace: The directory that was found in an allowed one.
        opened: The directory that was opened.

    It holds before and after a sandbox is opened, and no sandbox above was opened in between: so the directory that
    was found in an allowed one is the one that was opened.

    Raises:
        PolicyRefused: One is, or can be.
    """
    above = await anyio.to_thread.run_sync(workspaces_above, workspace, state_dir())
    if above:
        raise PolicyRefused(
            f"{str(workspace)!r} lies in {str(above[0])!r}, on which a run works that could replace it by a link; "
            "wait for the end of that run",
            rule=BUSY,
        )
    if {os.path.realpath(workspace), opened} != {str(workspace)}:  # noqa: ASYNC240 -- short
        raise PolicyRefused(
            f"{str(workspace)!r} was replaced while a sandbox was being opened on it; nothing was opened",
            rule="mcp-workspace",
        )


def log(line: str) -> None:
    """Write a line to the log of the server, which is its stderr: stdout is for the protocol alone."""
    sys.stderr.write(f"ringfence: {visible(line, one_line=True)}\n")
    sys.stderr.flush()
