"""`Sandbox`: everything one can do with an open sandbox, written once on the guest's protocol."""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import anyio

from ringfence.background_tasks import background_tasks
from ringfence.errors import RingfenceError, SandboxStartFailed, UsageError
from ringfence.sandbox.base import Fence, Launch, Placement, Usage
from ringfence.sandbox.guest import frames
from ringfence.sandbox.protocol import files
from ringfence.sandbox.protocol.command import Refusals, SandboxProcess, check_size
from ringfence.sandbox.protocol.connection import (
    Connection,
    Listener,
    Serve,
    check_listener,
    check_port,
    dial,
    listening,
)
from ringfence.sandbox.protocol.records import Failure
from ringfence.sandbox.protocol.session import GuestSession, Peer
from ringfence.sandbox.result import CommandOutput, ExecResult, OnOutput

if TYPE_CHECKING:
    from ringfence.events import Event
    from ringfence.sandbox.spec import SandboxSpec
    from ringfence.sandbox.workspace.run import Changes, RunWorkspace
    from ringfence.sandbox.workspace.standalone import SandboxWorkspace
    from ringfence.sandbox.workspace.upload import Upload

_FLOOD_BYTES = 1024**3
_GATHER_WINDOW = 4 * 1024 * 1024
_SETUP_S = 1800.0
_SETUP_BYTES = 64 * 1024
_SETUP_SAID_BYTES = 1000


class Sandbox:
    """An open sandbox. Made by `Sandbox.open`; usable from one event loop, by many tasks at once.

    Attributes:
        id: Its name.
        spec: The requested sandbox.
        facts: Its properties: limits and how they are enforced, environment, notes.
        workspace: Path of the workspace inside; where relative paths and commands start.
        mode: How the workspace is shown: `bind`, `clone` or `read_only`; None without one.
        notes: Notes on the sandbox and its workspace.
        last_notes: Notes on the end of the sandbox.
    """

    def __init__(
        self,
        fence: Fence,
        spec: "SandboxSpec",
        placement: Placement,
        *,
        sandbox_id: str,
        chosen_because: str,
        peer: Peer = "new guest",
        own: "SandboxWorkspace | None" = None,
        upload: "Upload | None" = None,
    ) -> None:
        """Create a sandbox on a fence that was started or connected to; it works within `running`.

        Args:
            fence: The fence.
            spec: The requested sandbox.
            placement: Where its workspace is.
            sandbox_id: Name of the sandbox.
            chosen_because: Why this backend was chosen.
            peer: The other end of the fence's stream.
            own: The workspace, where it was opened for this sandbox alone.
            upload: The workspace, where it was uploaded; it is downloaded when everything inside is dead.
        """
        self.id = sandbox_id
        self.spec = spec
        self.placement = placement
        self.chosen_because = chosen_because
        self.facts = fence.facts
        self.workspace = str(placement.workspace or fence.facts.home)
        self.mode = placement.mode
        self.notes = (*(own.notes if own is not None else ()), *fence.facts.notes)
        self.last_notes: tuple[str, ...] = ()
        self.refusals = Refusals()
        """Lines on requests that the gate refuses while commands run; the gate adds them."""
        self.session = GuestSession(fence, spec, sandbox_id=sandbox_id, directory=self.workspace, peer=peer)
        """The session with its guest, for a supervisor that relays frames."""
        self.session.on_refused = self.refusals.add
        self._own = own
        self._upload = upload
        self._changes: Changes | None = None
        self._is_ended = False

    def add_environment(self, environment: Mapping[str, str]) -> None:
        """Add variables to every command from now on. Unlike the spec's variables, they are never recorded or listed."""
        self.session.add_environment(environment)

    @classmethod
    @asynccontextmanager
    async def open(cls, spec: "SandboxSpec") -> AsyncIterator["Sandbox"]:
        """Open a sandbox with the protection of a run; leaving the context kills everything inside.

        The workspace is locked where it is written, has a private git directory, and its protected files are read-only.
        In mode `clone` the sandbox works on a private copy: see `changes` and `apply`. What the spec grants
        (`egress`, `forward`, `engine_access`) can be reached from inside while the sandbox is open.

        Args:
            spec: The requested sandbox.

        Raises:
            UsageError: It is not a spec; or a field has no effect without a run: the model's API, credentials in
                requests.
            PolicyRefused: The spec breaks a rule, a limit cannot be enforced, or another run writes to the workspace.
            SandboxStartFailed: The machine cannot do it; the text says what to install or allow.
        """
        from ringfence.egress.environment import environment_for
        from ringfence.sandbox.policy import check_effect_without_run
        from ringfence.sandbox.spec import SandboxSpec

        if not isinstance(spec, SandboxSpec):
            raise UsageError(
                f"a sandbox is opened by a SandboxSpec, not by {spec!r}; write SandboxSpec(workspace=...)"
            )
        check_effect_without_run(spec)
        with_proxy = spec.model_copy(update={"env": environment_for(spec, spec.env)})
        async with cls.start(with_proxy) as sandbox, AsyncExitStack() as stack:
            if spec.forward or spec.engine_access is not None or spec.egress.wants_proxy:
                from ringfence.egress.gate import opened_gate

                await stack.enter_async_context(opened_gate(sandbox, spec, sandbox._note_refused_forward))
            async for _result in sandbox.set_up(spec.setup):
                pass
            yield sandbox

    @classmethod
    @asynccontextmanager
    async def start(
        cls,
        spec: "SandboxSpec",
        *,
        placement: Placement | None = None,
        sandbox_id: str | None = None,
        run_id: str | None = None,
    ) -> AsyncIterator["Sandbox"]:
        """Start a sandbox for a run; the caller opens its gate (`egress.gate.opened_gate`) and then sets it up.

        Args:
            spec: The requested sandbox.
            placement: Where the workspace comes from, when a run has prepared one. None: as in `open`.
            sandbox_id: Name of the sandbox; None makes one.
            run_id: The run it is for, if it is for one.

        Raises:
            PolicyRefused, SandboxStartFailed: As `open`.
        """
        from ringfence.config.paths import state_dir
        from ringfence.sandbox.policy import Surroundings, check_spec
        from ringfence.sandbox.protocol.loader import guest_arguments
        from ringfence.sandbox.registry import choose_backend
        from ringfence.sandbox.workspace.standalone import open_for_sandbox

        check_spec(spec, Surroundings(Path.home().resolve(), state_dir().resolve()))
        backend, why = await choose_backend(spec)
        name = sandbox_id or uuid4().hex[:12]
        async with AsyncExitStack() as stack:
            own = None
            if placement is None:
                own = await stack.enter_async_context(open_for_sandbox(spec, name, state_dir()))
                placement = own.placement
            launch = Launch(name, spec, placement, guest_arguments(), run_id)
            upload = None
            if placement.upload != "none":
                from ringfence.sandbox.workspace.upload import uploaded

                upload = await stack.enter_async_context(uploaded(backend, launch))
                launch = replace(launch, volume=upload.volume)
            fence = await backend.start(launch)
            if upload is not None:
                fence.facts = replace(fence.facts, notes=(*fence.facts.notes, *upload.notes))
            sandbox = cls(fence, spec, placement, sandbox_id=name, chosen_because=why, own=own, upload=upload)
            async with sandbox.running():
                yield sandbox

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Sandbox"]:
        """Serve the guest; leaving the context kills the fence, and everything inside.

        Raises:
            SandboxStartFailed: The guest does not come up.
            RingfenceError: The workspace could not be downloaded.
        """
        # Code within the context may need the session to end in order when all this is cancelled, so it ends afterwards.
        serving = anyio.CancelScope(shield=True)

        async def serve() -> None:
            with serving:
                await self.session.serve()

        try:
            async with background_tasks() as tasks:
                tasks.start_soon(serve)
                try:
                    await self.session.greet()
                    self.session.configure()
                    yield self
                finally:
                    self.session.close()
                    serving.cancel()
        except BaseException:
            with suppress(RingfenceError):  # the earlier exception is raised
                await self._end()
            raise
        await self._end()

    async def _note_refused_forward(self, event: "Event") -> None:
        """Do nothing: without a run there is no record, and the proxy and the engine log their own refusals."""
        from ringfence.events import ForwardRefused

        if isinstance(event, ForwardRefused):
            self.refusals.add(f"forward {event.forward}: {event.reason}")

    async def changes(self) -> "Changes":
        """End everything inside, and return the changes in the private copy of mode `clone`.

        The copy must not change during the comparison, so no command can be run afterwards. Commits made inside are lost
        with the copy; the files they hold are among the changes.

        Raises:
            UsageError: The sandbox is not in mode `clone`.
            SandboxDied: The workspace could not be downloaded from the engine.
            InfrastructureFault: Git failed or the disk is full.
        """
        clone = self._private_copy()
        if self._changes is None:
            self.session.close()
            await self._end()
            self._changes = await clone.changes()
        return self._changes

    async def apply(self, *, force: bool = False) -> None:
        """End everything inside, and apply the changes of mode `clone` to the workspace.

        Args:
            force: Also overwrite files that have changed since the sandbox was opened.

        Raises:
            UsageError: The sandbox is not in mode `clone`.
            WorkspaceConflict: Files that would be overwritten have changed; nothing was written.
            PolicyRefused: Another run, sandbox or command is writing to the workspace.
        """
        await self.changes()
        await self._private_copy().apply(force=force)

    def _private_copy(self) -> "RunWorkspace":
        if self._own is None or self._own.clone is None:
            raise UsageError(
                "changes and apply are for SandboxSpec(mode='clone'): in other modes there is no private copy, and what"
                " is written is written to the workspace itself"
            )
        return self._own.clone

    async def _end(self) -> None:
        """Kill everything inside and download an uploaded workspace; raise an error, once, if something was lost."""
        if self._is_ended:
            return
        self._is_ended = True
        with anyio.CancelScope(shield=True):
            left = await self.session.fence.kill()
            self.last_notes = (left,) if left else ()
            if self._upload is None:
                return
            try:
                self.last_notes += await self._upload.download(left)
            except RingfenceError as exc:
                self.last_notes = (f"what was made inside is lost: {exc}",)
                raise

    async def set_up(self, commands: Sequence[str]) -> AsyncIterator[ExecResult]:
        """Run shell commands that prepare the sandbox, one after another; yield the result of each.

        Raises:
            SandboxStartFailed: After the first that failed.
        """
        for command in commands:
            result = await self.run(
                ["/bin/sh", "-c", command], timeout_s=_SETUP_S, output_limit_bytes=_SETUP_BYTES
            )
            yield result
            if not result.ok:
                said = result.excerpt(_SETUP_SAID_BYTES)
                failed = f"set-up command {command!r} failed with exit code {result.exit_code}"
                raise SandboxStartFailed(f"{failed}: {said}" if said else failed)

    async def run(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float | None = 120.0,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        stdin: bytes = b"",
        output_limit_bytes: int = 1_000_000,
        flood_limit_bytes: int = _FLOOD_BYTES,
        on_output: OnOutput | None = None,
    ) -> ExecResult:
        """Run a command to its end and gather its output, bounded.

        Args:
            argv: Program and arguments; never a shell string.
            timeout_s: Time after which its whole process tree is killed (`ended_by="timeout"`). None: no limit.
            cwd: Directory inside, relative to the workspace; None is the workspace.
            env: Added to the sandbox's environment.
            stdin: Its whole input.
            output_limit_bytes: How much is kept of stdout and of stderr each; half from the head, half from the tail.
            flood_limit_bytes: More than this from one stream kills it (`ended_by="output"`).
            on_output: Called with each piece of output as it arrives, and whether it is from stderr; it must not block.

        Raises:
            SandboxDied: The sandbox went before the command ended.
            UsageError: `argv` is empty or contains a NUL; `cwd` does not exist.
        """
        if output_limit_bytes < 0:
            raise UsageError(f"output_limit_bytes is a number of bytes, not {output_limit_bytes!r}")
        output = CommandOutput(output_limit_bytes, flood_limit_bytes, on_output)

        def gather(kind: int, chunk: bytes) -> None:
            channel.consumed(kind, len(chunk))
            if output.add(chunk, is_stderr=kind == frames.STDERR):
                channel.post(frames.KILL)

        with self.refusals.watched() as refused:
            channel = self.session.open(argv, cwd, env, timeout_s, window=_GATHER_WINDOW)
            channel.sink = gather
            end = await self.session.finish(channel, stdin, timeout_s)
        if isinstance(end, Failure):
            if end.stage == "cwd":
                where = cwd or self.workspace
                raise UsageError(f"working directory {where!r} cannot be entered inside: {end.message}")
            return ExecResult.not_started(tuple(argv), end.message, is_absent=end.errno_name == "ENOENT")
        return ExecResult(
            argv=tuple(argv),
            stdout_bytes=output.stdout.value(),
            stderr_bytes=output.stderr.value(),
            stdout_total=output.stdout.total,
            stderr_total=output.stderr.total,
            exit_code=end.exit_code,
            signal=end.signal or None,
            duration_s=end.duration_s,
            ended_by="output" if output.is_flood else await self.session.find_cause(end),
            refused=tuple(refusal.line for refusal in refused),
        )

    @asynccontextmanager
    async def spawn(
        self,
        argv: Sequence[str],
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
        tty: tuple[int, int] | None = None,
    ) -> AsyncIterator[SandboxProcess]:
        """Start a command and hold it as a handle; leaving the context kills what is left of it.

        Args:
            argv: Program and arguments.
            cwd: As in `run`.
            env: As in `run`.
            timeout_s: As in `run`; None is no limit.
            tty: (rows, columns) of a terminal to run it on; then stderr is part of stdout.
        """
        if tty is not None:
            check_size(*tty)
        size = [("rows", tty[0]), ("cols", tty[1])] if tty else []
        channel = self.session.open(argv, cwd, env, timeout_s, extra=size)
        try:
            yield SandboxProcess(
                tuple(argv), channel, has_tty=tty is not None, find_cause=self.session.find_cause
            )
        finally:
            await self.session.abandon(channel)

    @asynccontextmanager
    async def listen(
        self, serve: Serve, *, port: int | None = None, unix: str | None = None, limit: int = 200
    ) -> AsyncIterator[Listener]:
        """Make the guest accept connections of processes inside until the context is left.

        Args:
            serve: Called with each connection, in a separate task. Its exceptions are raised here, except those
            for a connection or a sandbox that is gone.
            port: On the loopback inside; 0 picks a free one.
            unix: Instead of a port: absolute path inside of a socket that only the sandbox's user may use.
                Missing directories are created; an existing file is not replaced.
            limit: Connections at once; further ones are refused.

        Raises:
            SandboxPortError: The port or path is taken or forbidden inside.
            SandboxDied: The sandbox is gone.
        """
        where = check_listener(port, unix, limit)
        async with listening(self.session.link, serve, where, limit=limit) as listener:
            yield listener

    async def connect(self, port: int, *, timeout_s: float = 10.0) -> Connection:
        """Connect to a port on the loopback inside; close the connection when it is no longer needed.

        Raises:
            SandboxPortError: No process answers there, or not in time.
            SandboxDied: The sandbox is gone.
        """
        return await dial(self.session.link, check_port(port, least=1), timeout_s=timeout_s)

    async def read_file(self, path: str, *, limit_bytes: int = 64 * 1024**2) -> bytes:
        """Read a file inside.

        Raises:
            SandboxFileError: Absent, a directory, no permission, or larger than `limit_bytes` (`EFBIG`).
        """
        return await files.read_file(self.session, path, limit_bytes)

    def stream_file(self, path: str, *, offset: int = 0) -> AsyncGenerator[bytes]:
        """Read a file inside from `offset` on, in pieces; it may have any size.

        Raises:
            SandboxFileError: As in `read_file`.
        """
        return files.stream_file(self.session, path, offset)

    async def write_file(
        self, path: str, data: bytes | AsyncIterator[bytes], *, mode: int | None = None
    ) -> None:
        """Write a file inside atomically: a reader sees the old file or the new one. Parent directories are created.

        Args:
            path: Relative to the workspace, or absolute.
            data: Bytes, or an async iterator of them for large ones.
            mode: Permission bits; None keeps those of an existing file, else 0644.

        Raises:
            SandboxFileError: No permission, a directory, a read-only place, disk full.
        """
        await files.write_file(self.session, path, data, mode)

    async def list_dir(self, path: str = ".", *, limit: int = 100_000) -> list[files.DirEntry]:
        """List the entries of a directory inside, by name.

        Raises:
            SandboxFileError: Absent, not a directory, or more than `limit` entries.
        """
        return await files.list_dir(self.session, path, limit)

    async def remove(self, path: str) -> None:
        """Remove a file, a link, or a directory with its contents.

        Raises:
            SandboxFileError: Absent or no permission.
        """
        await files.remove(self.session, path)

    async def ping(self, *, timeout_s: float = 30.0) -> None:
        """Check that the guest responds.

        Raises:
            SandboxDied: The sandbox is gone, or did not respond in time and was killed.
        """
        with anyio.move_on_after(timeout_s):
            await self.session.ping()
            return
        self.session.abort(f"has not answered for {timeout_s:g} s")
        raise await self.session.link.death()

    async def stats(self) -> Usage:
        """The total usage of everything inside, as measured by the kernel or else by the guest."""
        self.session.check_open()
        kernel = await self.session.fence.usage()
        if None not in (kernel.memory_bytes, kernel.cpu_s, kernel.pids):
            return kernel
        return kernel.completed_by(await self.session.measure())
