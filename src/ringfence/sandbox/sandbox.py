"""`Sandbox`: everything one can do with an open sandbox, written once on the guest's protocol."""

import math
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Literal, cast
from uuid import uuid4

import anyio

from ringfence.errors import SandboxDied, SandboxFileError, SandboxStartFailed, UsageError
from ringfence.sandbox.base import Death, Facts, Fence, Launch, Placement, ResourceUse
from ringfence.sandbox.guest import frames
from ringfence.sandbox.link import Channel, Exit, Failure, GuestLink, ProtocolError, Sink
from ringfence.sandbox.loader import guest_arguments, guest_payload
from ringfence.sandbox.process import WINDOW, SandboxProcess, errno_name, process_end
from ringfence.sandbox.registry import choose_backend
from ringfence.sandbox.result import BoundedOutput, EndedBy, ExecResult
from ringfence.sandbox.spec import SandboxSpec
from ringfence.sandbox.workspace.ownership import place

_START_S = 20.0
_CLIENT_GRACE_S = 5.0
_HEARTBEAT_S = 10.0
_SILENCE_S = 30.0
_FLOOD_BYTES = 1024**3
_GATHER_WINDOW = 4 * 1024 * 1024

EntryKind = Literal["file", "dir", "link", "other"]


@dataclass(frozen=True)
class DirEntry:
    """One entry of a directory inside."""

    name: str
    kind: EntryKind
    size: int


class Sandbox:
    """An open sandbox. Made by `Sandbox.open`; usable from one event loop, by many tasks at once."""

    def __init__(
        self, spec: SandboxSpec, placement: Placement, fence: Fence, *, sandbox_id: str, why: str
    ) -> None:
        self.id = sandbox_id
        self.spec = spec
        self.placement = placement
        self.chosen_because = why
        self._fence = fence
        self._link = GuestLink(fence.read_fd, fence.write_fd)
        self._oom_kills = 0

    @property
    def facts(self) -> Facts:
        """What the sandbox turned out to be: limits and how they are enforced, environment, notes."""
        return self._fence.facts

    @property
    def workspace(self) -> str:
        """Path of the workspace inside; where relative paths and commands start."""
        return str(self.placement.workspace or self.facts.home)

    @classmethod
    @asynccontextmanager
    async def open(
        cls, spec: SandboxSpec, *, placement: Placement | None = None, sandbox_id: str | None = None
    ) -> AsyncIterator["Sandbox"]:
        """Open a sandbox; leaving the context kills everything inside.

        Args:
            spec: What is asked for.
            placement: Where the workspace comes from, when a run has prepared one; None decides by the table of
                `sandbox.workspace.ownership`.
            sandbox_id: Name of the sandbox; None makes one.

        Raises:
            PolicyRefused: The spec breaks a rule, or a limit that was asked for cannot be enforced.
            SandboxStartFailed: The machine cannot do it; the text says what to install or allow.
        """
        placement = placement or place(spec.workspace, spec.mode)
        backend, why = await choose_backend(spec)
        sandbox_id = sandbox_id or uuid4().hex[:12]
        fence = await backend.start(Launch(sandbox_id, spec, placement, guest_arguments()))
        sandbox = cls(spec, placement, fence, sandbox_id=sandbox_id, why=why)
        error: Exception | None = None
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(sandbox._serve)
                try:
                    await sandbox._greet()
                    await sandbox._set_up()
                    yield sandbox
                except Exception as exc:  # noqa: BLE001 -- kept and raised below, outside of the task group's wrapping
                    error = exc
                tasks.cancel_scope.cancel()
        finally:
            with anyio.CancelScope(shield=True):
                await fence.kill()
        if error is not None:
            raise error

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
    ) -> ExecResult:
        """Run a command to its end and gather its output, bounded.

        Args:
            argv: Program and arguments; never a shell string.
            timeout_s: Then its whole tree is killed (`ended_by="timeout"`). None: no limit.
            cwd: Directory inside, relative to the workspace; None is the workspace.
            env: Added to the sandbox's environment.
            stdin: Given to it, then the end of its input.
            output_limit_bytes: Kept of stdout and of stderr each; half from the head, half from the tail.
            flood_limit_bytes: More than this from one stream kills it (`ended_by="output"`).

        Raises:
            SandboxDied: The sandbox went before the command ended.
            UsageError: `argv` is empty or holds a NUL; `cwd` is not there.
        """
        stdout, stderr = BoundedOutput(output_limit_bytes), BoundedOutput(output_limit_bytes)
        flooded = False

        def gather(kind: int, chunk: bytes) -> None:
            nonlocal flooded
            output = stdout if kind == frames.STDOUT else stderr
            output.add(chunk)
            channel.consumed(kind, len(chunk))
            if output.total > flood_limit_bytes and not flooded:
                flooded = True
                channel.post(frames.KILL)

        channel = self._open(argv, cwd, env, timeout_s, window=_GATHER_WINDOW, sink=gather)
        end = await self._finish(channel, stdin, timeout_s)
        if isinstance(end, Failure):
            return self._not_started(tuple(argv), end, cwd)
        ended = process_end(end)
        return ExecResult(
            argv=tuple(argv),
            stdout_bytes=stdout.value(),
            stderr_bytes=stderr.value(),
            stdout_total=stdout.total,
            stderr_total=stderr.total,
            exit_code=ended.exit_code,
            signal=ended.signal,
            duration_s=ended.duration_s,
            ended_by="output" if flooded else await self._blame(ended.ended_by, ended.signal),
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
        process = SandboxProcess(tuple(argv))
        size = [("rows", tty[0]), ("cols", tty[1])] if tty else []
        channel = self._open(argv, cwd, env, timeout_s, window=WINDOW, sink=process.on_output, extra=size)
        process.attach(channel)
        error: Exception | None = None
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(process.watch)
                try:
                    yield process
                except Exception as exc:  # noqa: BLE001 -- as in open
                    error = exc
                finally:
                    await self._abandon(channel)
                tasks.cancel_scope.cancel()
        except* SandboxDied as group:
            error = error or group.exceptions[0]  # type: ignore[assignment]  # the group holds SandboxDied only
        if error is not None:
            raise error

    async def read_file(self, path: str, *, limit_bytes: int = 64 * 1024**2) -> bytes:
        """The bytes of a file inside.

        Raises:
            SandboxFileError: Absent, a directory, no permission, or larger than `limit_bytes` (`EFBIG`).
        """
        parts: list[bytes] = []
        total = 0
        async for chunk in self.stream_file(path):
            total += len(chunk)
            if total > limit_bytes:
                raise SandboxFileError(
                    f"{path!r} is larger than {limit_bytes} bytes; read it with stream_file",
                    path=path,
                    errno_name="EFBIG",
                )
            parts.append(chunk)
        return b"".join(parts)

    async def stream_file(self, path: str) -> AsyncIterator[bytes]:
        """The bytes of a file inside, in pieces; of any size.

        Raises:
            SandboxFileError: As in `read_file`.
        """
        process = SandboxProcess(("read", path))
        channel = self._operate("read", path, WINDOW, process)
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(process.watch)
                async for chunk in process.stdout:
                    yield chunk
        finally:
            await self._abandon(channel)
        _check(await channel.wait(), "read", path)

    async def write_file(
        self, path: str, data: bytes | AsyncIterator[bytes], *, mode: int | None = None
    ) -> None:
        """Put bytes in a file inside, at once: a reader sees the old file or the new one. Parents are made.

        Args:
            path: Relative to the workspace, or absolute.
            data: Bytes, or an async iterator of them for large ones.
            mode: Permission bits; None keeps those of an existing file, else 0644.

        Raises:
            SandboxFileError: No permission, a directory, a read-only place, disk full.
        """
        process = SandboxProcess(("write", path))
        channel = self._operate("write", path, WINDOW, process, extra=[("mode", mode or 0)])
        is_whole = False
        try:
            if isinstance(data, bytes):
                await channel.send_stdin(data)
            else:
                async for chunk in data:
                    await channel.send_stdin(chunk)
            channel.post(frames.STDIN_END)
            end = await channel.wait()
            is_whole = True
        finally:
            if not is_whole:
                await self._abandon(channel)
        _check(end, "write", path)

    async def list_dir(self, path: str = ".", *, limit: int = 100_000) -> list[DirEntry]:
        """Entries of a directory inside, by name.

        Raises:
            SandboxFileError: Absent, not a directory, or more than `limit` entries.
        """
        found = BoundedOutput(64 * 1024**2)

        def gather(kind: int, chunk: bytes) -> None:
            found.add(chunk)
            channel.consumed(kind, len(chunk))

        channel = self._open_operation("list", path, gather)
        _check(await self._finish(channel, b"", 60.0), "list", path)
        fields = found.value().split(b"\0")[:-1]
        if len(fields) > 3 * limit or len(fields) % 3:
            raise SandboxFileError(f"{path!r} has more than {limit} entries", path=path, errno_name="E2BIG")
        entries = [
            DirEntry(name.decode("utf-8", "surrogateescape"), _kind(kind), int(size))
            for kind, size, name in zip(fields[::3], fields[1::3], fields[2::3], strict=True)
        ]
        return sorted(entries, key=lambda entry: entry.name)

    async def remove(self, path: str) -> None:
        """Remove a file, a link, or a directory with all that is in it.

        Raises:
            SandboxFileError: Absent or no permission.
        """
        channel = self._open_operation("remove", path, lambda _kind, _chunk: None)
        _check(await self._finish(channel, b"", 120.0), "remove", path)

    async def stats(self) -> ResourceUse:
        """What everything inside uses together: by the kernel's account where there is one, else the guest's."""
        kernel = await self._fence.use()
        if None not in (kernel.memory_bytes, kernel.cpu_s, kernel.pids):
            return kernel
        with anyio.fail_after(_SILENCE_S):
            reply = dict(frames.decode_record(await self._link.ask(frames.STATS, frames.STATS_REPLY)))
        return ResourceUse(
            memory_bytes=kernel.memory_bytes if kernel.memory_bytes is not None else int(reply["memory"]),
            cpu_s=kernel.cpu_s if kernel.cpu_s is not None else float(reply["cpu_s"]),
            pids=kernel.pids if kernel.pids is not None else int(reply["pids"]),
            oom_kills=kernel.oom_kills,
        )

    # --- opening channels

    def _open(
        self,
        argv: Sequence[str],
        cwd: str | None,
        env: Mapping[str, str] | None,
        timeout_s: float | None,
        *,
        window: int,
        sink: Sink,
        extra: Sequence[tuple[str, object]] = (),
    ) -> Channel:
        if isinstance(argv, str) or not argv or any("\0" in word for word in argv):
            raise UsageError(f"a command is a list of words without NUL, not {argv!r}")
        environment = {**self.facts.environment, **self.spec.env, **(env or {})}
        fields: list[tuple[str, object]] = [("argv", word) for word in argv]
        fields += [("env", f"{name}={value}") for name, value in environment.items()]
        fields.append(("cwd", self._inside(cwd or ".")))
        fields.append(("disk", self.spec.disk))
        if timeout_s is not None:
            if not timeout_s > 0 or math.isinf(timeout_s):
                raise UsageError(f"a timeout is a number of seconds above zero, not {timeout_s!r}")
            fields.append(("timeout_s", timeout_s))
        return self._link.open([*fields, *extra], window=window, sink=sink)

    def _operate(
        self,
        operation: str,
        path: str,
        window: int,
        process: SandboxProcess,
        extra: Sequence[tuple[str, object]] = (),
    ) -> Channel:
        channel = self._open_operation(operation, path, process.on_output, window=window, extra=extra)
        process.attach(channel)
        return channel

    def _open_operation(
        self,
        operation: str,
        path: str,
        sink: Sink,
        *,
        window: int = WINDOW,
        extra: Sequence[tuple[str, object]] = (),
    ) -> Channel:
        if not path or "\0" in path:
            raise UsageError(f"{path!r} is not a path")
        fields = [
            ("op", operation),
            ("path", self._inside(path)),
            ("cwd", "/"),
            ("disk", self.spec.disk),
            *extra,
        ]
        return self._link.open(fields, window=window, sink=sink)

    def _inside(self, path: str) -> str:
        return path if path.startswith("/") else f"{self.workspace.rstrip('/')}/{path}"

    # --- ends

    async def _finish(self, channel: Channel, stdin: bytes, timeout_s: float | None) -> Exit | Failure:
        """Send stdin and wait for the end; a guest that does not keep the deadline loses its sandbox."""
        try:
            with anyio.move_on_after(None if timeout_s is None else timeout_s + _CLIENT_GRACE_S):
                if stdin:
                    await channel.send_stdin(stdin)
                channel.post(frames.STDIN_END)
                return await channel.wait()
        finally:
            await self._abandon(channel)
        if channel.end is None:
            await self._kill(ProtocolError("let a command run past its deadline"))
        return await channel.wait()

    async def _abandon(self, channel: Channel) -> None:
        """Kill what still runs on a channel and wait a moment for its end."""
        if channel.end is not None or channel.error is not None:
            return
        channel.post(frames.KILL)
        with anyio.move_on_after(_CLIENT_GRACE_S, shield=True), suppress(SandboxDied):
            await channel.wait()

    async def _blame(self, ended_by: EndedBy, signal: int | None) -> EndedBy:
        """A kill that the memory limit did is told as such."""
        if ended_by != "signal" or signal != 9:
            return ended_by
        kills = (await self._fence.use()).oom_kills or 0
        if kills > self._oom_kills:
            self._oom_kills = kills
            return "memory"
        return ended_by

    def _not_started(self, argv: tuple[str, ...], failure: Failure, cwd: str | None) -> ExecResult:
        if failure.stage == "cwd":
            raise UsageError(
                f"working directory {cwd or self.workspace!r} cannot be entered inside: {failure.message}"
            )
        if failure.stage != "spawn":
            raise SandboxDied(
                f"the sandbox could not start {argv[0]!r}: {failure.message}",
                sandbox_id=self.id,
                reason="protocol",
            )
        text = f"ringfence: {failure.message}\n".encode()
        code = 127 if errno_name(failure) == "ENOENT" else 126
        return ExecResult(argv, b"", text, 0, len(text), code, None, 0.0, "exit")

    # --- life

    async def _serve(self) -> None:
        """Read, write and watch until the sandbox is gone; then tell everyone why."""
        reason = ""
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._link.write_forever)
                tasks.start_soon(self._beat)
                await self._link.read_forever()
                tasks.cancel_scope.cancel()
        except* ProtocolError as group:
            reason = str(_first(group))
        await self._die(ProtocolError(reason) if reason else None)

    async def _die(self, broken: ProtocolError | None) -> None:
        with anyio.CancelScope(shield=True):
            if broken is not None:
                await self._fence.kill()
                death = Death("protocol", f"the guest {broken}")
            elif self._link.bye == "ttl":
                death = Death("ttl", f"its time to live ({self.spec.ttl_s:g} s) was up")
            else:
                death = await self._fence.wait()
                if ((await self._fence.use()).oom_kills or 0) > self._oom_kills:
                    death = Death("memory", f"the memory limit ({self.spec.memory} bytes) killed it")
        self._link.fail(
            SandboxDied(f"sandbox {self.id} is gone: {death.detail}", sandbox_id=self.id, reason=death.reason)
        )

    async def _kill(self, broken: ProtocolError) -> None:
        await self._die(broken)

    async def _beat(self) -> None:
        """Ask now and then whether the guest still answers; one that is frozen is dead."""
        while True:
            await anyio.sleep(_HEARTBEAT_S)
            seen = self._link.frames_seen
            with anyio.move_on_after(_SILENCE_S) as silence:
                await self._link.ask(frames.PING, frames.PONG)
            if silence.cancelled_caught and self._link.frames_seen == seen:
                raise ProtocolError(f"has not answered for {_SILENCE_S:g} s")

    async def _greet(self) -> None:
        self._link.post_raw(guest_payload())
        try:
            with anyio.fail_after(_START_S):
                hello = await self._link.wait_for_hello()
        except TimeoutError:
            raise SandboxStartFailed(f"the guest did not answer within {_START_S:g} s") from None
        except SandboxDied as exc:
            detail = await self._fence.last_words()
            raise SandboxStartFailed(f"the sandbox did not start: {detail or exc}") from exc
        if hello.get("version") != frames.VERSION:
            raise SandboxStartFailed(
                f"the guest speaks protocol {hello.get('version')!r}, not {frames.VERSION!r}"
            )
        if self._fence.facts.is_fence and (hello.get("undumpable") != "1" or hello.get("uid") == "0"):
            raise SandboxStartFailed(
                f"the guest could not protect itself (uid {hello.get('uid')!r}, undumpable {hello.get('undumpable')!r})"
            )

    async def _set_up(self) -> None:
        limits: list[tuple[str, object]] = [("disk", self.spec.disk)]
        soft = self.facts.enforced
        limits += [
            (name, int(getattr(self.spec, name))) for name in ("memory", "pids") if soft.get(name) == "soft"
        ]
        if self.spec.ttl_s is not None:
            limits.append(("ttl_s", self.spec.ttl_s))
        limits += [("path", path) for path in self.facts.watched_paths]
        limits += [("tmpfs", path) for path in self.facts.tmpfs_paths]
        self._link.post(frames.CONFIG, 0, frames.encode_record(limits))
        for command in self.spec.setup:
            result = await self.run(["/bin/sh", "-c", command], timeout_s=1800.0)
            if not result.ok:
                raise SandboxStartFailed(
                    f"set-up command {command!r} failed with exit code {result.exit_code}: "
                    f"{(result.stderr or result.stdout)[-500:].strip()}"
                )


def _check(end: Exit | Failure, verb: str, path: str) -> None:
    if isinstance(end, Failure):
        raise SandboxFileError(
            f"could not {verb} {path!r} inside the sandbox: {end.message}",
            path=path,
            errno_name=errno_name(end),
        )
    if end.exit_code or end.ended_by != "exit":
        raise SandboxFileError(
            f"could not {verb} {path!r} inside the sandbox: ended by {end.ended_by}",
            path=path,
            errno_name="EIO",
        )


def _kind(kind: bytes) -> EntryKind:
    text = kind.decode("ascii", "replace")
    return cast(EntryKind, text if text in ("file", "dir", "link") else "other")


def _first(group: BaseExceptionGroup[ProtocolError]) -> BaseException:
    inner = group.exceptions[0]
    return _first(inner) if isinstance(inner, BaseExceptionGroup) else inner
