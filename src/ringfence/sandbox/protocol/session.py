"""The session with one guest: greets it, watches its heartbeat and end, opens channels and ends their commands."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Literal

import anyio

from ringfence.errors import SandboxDied, SandboxStartFailed, UsageError
from ringfence.sandbox.base import EndReason, Fence, Usage
from ringfence.sandbox.guest import frames
from ringfence.sandbox.protocol.command import WINDOW, Channel
from ringfence.sandbox.protocol.link import GuestLink
from ringfence.sandbox.protocol.records import Exit, Failure, Measurement, ProtocolError, parse_record
from ringfence.sandbox.result import EndedBy

if TYPE_CHECKING:
    from ringfence.sandbox.spec import SandboxSpec

_START_S = 20.0
_CLIENT_GRACE_S = 5.0
_HEARTBEAT_S = 10.0
"""Interval of the heartbeat, a fraction of `silence_limit_s`, after which the guest takes a silent host for dead."""
_SILENCE_S = 30.0
_STALL_S = 30.0
_CHECK_INTERVAL_S = 1.0
"""Interval between two checks of the watchdog, which notices a limit at most this much late."""
_EXIT_S = 10.0
_MAX_COMMANDS = 200
"""Commands at once: each takes four of the guest's descriptors, usually 1024 in all."""
_KILLED_CODE = 128 + 9
_ABORTED_CODE = 128 + 6
_FILE_SIZE_CODE = 128 + 25
"""SIGXFSZ: a file would have grown beyond RLIMIT_FSIZE, which each command has as the limit on disk (`guest.shim`)."""

Peer = Literal["new guest", "running guest", "supervisor"]
"""The other end of the stream: a guest that waits for its modules; a guest that has them (the supervisor has sent them,
and forwards its HELLO); or a supervisor that serves the guest to several clients. A supervisor is trusted: it has set
the limits, and reports the cause of a command's end and the requests that the gate refused meanwhile."""


class GuestSession:
    """One guest, from its first frame to its last. `Sandbox` is built on it.

    Args:
        fence: The running fence.
        spec: The spec of the sandbox.
        sandbox_id: The id of the sandbox.
        directory: Where relative paths start, inside.
        peer: The other end of the fence's stream.
    """

    def __init__(
        self,
        fence: Fence,
        spec: "SandboxSpec",
        *,
        sandbox_id: str,
        directory: str,
        peer: Peer = "new guest",
    ) -> None:
        self.fence = fence
        self._spec = spec
        self.on_refused: Callable[[str, str | None], None] | None = None
        """Called with lines on the requests that a supervisor's gate refused while a command ran."""
        self._id = sandbox_id
        self._directory = directory
        self._peer = peer
        self.link = GuestLink(fence.stream)
        self._environment = b""
        self.add_environment({**fence.facts.environment, **spec.env})
        self._oom_kills = 0
        self._deadlines: dict[Channel, float] = {}
        """The latest time at which the guest should have ended each command."""
        self._violation = ""
        self._serving = anyio.CancelScope()

    # --- lifetime

    async def serve(self) -> None:
        """Read, write and watch until the sandbox is gone; then report the reason to all waiting tasks."""
        try:
            with self._serving:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self.link.outgoing.run)
                    tasks.start_soon(self._watch)
                    try:
                        await self.link.read_forever()
                    except ProtocolError as exc:
                        self.abort(str(exc))
                    tasks.cancel_scope.cancel()
            with anyio.CancelScope(shield=True):
                self._report(await self._find_end())
                await self.fence.kill()
        finally:
            self.close()  # if this was cancelled, nothing reads the stream: tasks that wait for a frame get an error

    def abort(self, reason: str) -> None:
        """Kill the sandbox of a guest that violated the protocol or a deadline; `reason` continues "the guest"."""
        self._violation = self._violation or reason
        self._serving.cancel()

    async def _watch(self) -> None:
        """Abort a guest that does not read, does not answer, or does not end a command in time."""
        asked_at, seen = time.monotonic(), -1
        while True:
            await anyio.sleep(_CHECK_INTERVAL_S)
            now = time.monotonic()
            sending_since = self.link.outgoing.sending_since
            if sending_since is not None and now - sending_since > _STALL_S:
                self.abort(f"has not read its input for {_STALL_S:g} s")
            if seen == self.link.frames_seen:
                if now - asked_at > _SILENCE_S:
                    self.abort(f"has not answered for {_SILENCE_S:g} s")
            elif now - asked_at > _HEARTBEAT_S:
                asked_at, seen = now, self.link.frames_seen
                self.link.ask(frames.PING, frames.PONG)
            self._end_late(now)

    def _end_late(self, now: float) -> None:
        """Kill commands whose deadline has passed, and the sandbox if its guest does not comply in time."""
        for channel, deadline in self._deadlines.items():
            if now > deadline + _CLIENT_GRACE_S:
                self.abort("let a command run past its deadline")
            elif now > deadline:
                channel.post(frames.KILL)

    async def _find_end(self) -> EndReason:
        """Why the stream ended. The caller kills a guest that closed the stream and did not exit."""
        if self._violation:
            return EndReason("protocol", f"the guest {self._violation}")
        if self.link.bye == "ttl" and self._spec.ttl_s is not None:
            return EndReason("ttl", f"its time to live ({self._spec.ttl_s:g} s) was up")
        end = EndReason("protocol", "the guest closed the stream and did not go")
        with anyio.move_on_after(_EXIT_S):
            end = await self.fence.wait()
        if ((await self.fence.usage()).oom_kills or 0) > self._oom_kills:
            return EndReason("memory", f"the memory limit ({self._spec.memory} bytes) killed it")
        if end.reason == "memory" and self._oom_kills:
            # An engine's flag also reports earlier kills by the limit, which were reported before.
            return EndReason(
                "killed", "killed from outside, or by the memory limit, which had killed a command before"
            )
        return end

    def _report(self, end: EndReason) -> None:
        text = f"sandbox {self._id} is gone: {end}"
        self.link.fail(SandboxDied(text, sandbox_id=self._id, reason=end.reason))

    def close(self) -> None:
        """End the session: waiting and later calls raise an error that says that the sandbox was closed."""
        self._report(EndReason("killed", "it was closed"))

    def check_open(self) -> None:
        """Raise the reason if the sandbox is gone."""
        if self.link.error is not None:
            raise self.link.error

    async def ping(self) -> None:
        """Wait until the guest has answered.

        Raises:
            SandboxDied: The sandbox is gone.
        """
        await self._ask(frames.PING, frames.PONG)

    async def _ask(self, question: int, answer: int) -> bytes:
        return await self.link.wait_for_answer(answer, self.link.ask(question, answer))

    async def greet(self) -> None:
        """Send the guest its modules and wait for its first frame.

        Raises:
            SandboxStartFailed: It did not come up, or cannot protect itself.
        """
        if self._peer == "new guest":
            from ringfence.sandbox.protocol.loader import guest_payload

            self.link.outgoing.append(guest_payload())
        try:
            with anyio.fail_after(_START_S):
                await self.link.wait_for_answer(frames.HELLO, 1)
        except TimeoutError:
            raise SandboxStartFailed(f"the guest did not answer within {_START_S:g} s") from None
        except SandboxDied as exc:
            said = (
                await self.fence.wait()
            ).stderr  # the message of bwrap, an engine or an interpreter is more precise than `exc`
            raise SandboxStartFailed(f"the sandbox did not start: {said or exc}") from exc
        hello = self.link.hello
        if hello.get("version") != frames.VERSION:
            raise SandboxStartFailed(
                f"the guest speaks protocol {hello.get('version')!r}, not {frames.VERSION!r}"
            )
        if self.fence.facts.is_fence and (hello.get("undumpable") != "1" or hello.get("uid") == "0"):
            raise SandboxStartFailed(
                f"the guest could not protect itself (uid {hello.get('uid')!r}, "
                f"undumpable {hello.get('undumpable')!r})"
            )
        if self.fence.facts.filters_guest and hello.get("filtered") != "1":
            raise SandboxStartFailed(
                "the sandbox did not start: the guest could not put the system call filter on itself, so commands "
                "would have run without it; the engine's kernel or runtime has no seccomp filters, or python3 in "
                "the image has no ctypes: use another engine or image"
            )
        if self.fence.facts.masks_guest and hello.get("masked") != "1":
            raise SandboxStartFailed(
                "the sandbox did not start: in this version of the container's runtime every command can open the "
                "guest's descriptors in /proc/1/fd, and so forge what others came to; install gVisor's runsc of "
                "2024 or later, or use `--sandbox docker`"
            )

    def configure(self) -> None:
        """Send the guest the limits that it enforces. A supervisor ignores these, as it has sent its own."""
        limits: list[tuple[str, object]] = [("disk", self._spec.disk)]
        facts = self.fence.facts
        limits += [
            (name, int(getattr(self._spec, name)))
            for name in ("memory", "pids")
            if facts.enforced.get(name) == "soft"
        ]
        if self._spec.ttl_s is not None:
            limits.append(("ttl_s", self._spec.ttl_s))
        if facts.silence_limit_s is not None:
            limits.append(("silence_s", facts.silence_limit_s))
        limits += [("path", path) for path in facts.watched_paths]
        limits += [("tmpfs", path) for path in facts.tmpfs_paths]
        self.link.post(frames.CONFIG, 0, frames.encode_record(limits))

    async def measure(self) -> Usage:
        """Query the guest for the usage inside.

        Raises:
            SandboxDied: It did not answer in time, or with a malformed record; the sandbox was killed.
        """
        reason = f"has not answered for {_SILENCE_S:g} s"
        try:
            with anyio.move_on_after(_SILENCE_S):
                answer = await self._ask(frames.STATS, frames.STATS_REPLY)
                use = parse_record(answer, Measurement)
                return Usage(use.memory, use.cpu_s, use.pids, use.oom_kills)
        except ProtocolError as exc:
            reason = str(exc)
        self.abort(reason)
        raise await self.link.death()

    # --- opening channels

    def open(
        self,
        argv: Sequence[str],
        cwd: str | None,
        env: Mapping[str, str] | None,
        timeout_s: float | None,
        *,
        window: int = WINDOW,
        extra: Sequence[tuple[str, object]] = (),
    ) -> Channel:
        """Open a channel for a command. Arguments and errors as `Sandbox.run`."""
        if isinstance(argv, str) or not argv or not argv[0] or not all(is_word(word) for word in argv):
            raise UsageError(f"a command is a list of words without NUL, not {argv!r}")
        for name, value in (env or {}).items():
            if not name or "=" in name or not is_word(name) or not is_word(value):
                raise UsageError(f"{name!r}={value!r} cannot be a variable of an environment")
        if cwd is not None and not is_word(cwd):
            raise UsageError(f"a path is text without NUL, not {cwd!r}")
        fields: list[tuple[str, object]] = [("argv", word) for word in argv]
        fields.append(("cwd", self.inside(cwd or ".")))
        fields.append(("disk", self._spec.disk))
        if self.fence.facts.process_limit is not None:
            fields.append(("nproc", self.fence.facts.process_limit))
        if timeout_s is not None:
            if not timeout_s > 0 or math.isinf(timeout_s):
                raise UsageError(f"a timeout is a number of seconds above zero, not {timeout_s!r}")
            fields.append(("timeout_s", timeout_s))
        record = frames.encode_record([*fields, *extra])
        return self.open_record(record + self._environment + _encode_environment(env or {}), window=window)

    def add_environment(self, variables: Mapping[str, str]) -> None:
        """Add variables to every command from now on; they replace those of the same name."""
        self._environment += _encode_environment(variables)

    def open_operation(
        self,
        operation: str,
        path: str,
        *,
        timeout_s: float | None = None,
        extra: Sequence[tuple[str, object]] = (),
    ) -> Channel:
        """Open a channel for one of the guest's file operations, which is killed after `timeout_s`."""
        if not path or not is_word(path):
            raise UsageError(f"a path is text without NUL, and not empty; not {path!r}")
        fields = [
            ("op", operation),
            ("path", self.inside(path)),
            ("cwd", "/"),
            ("disk", self._spec.disk),
            *extra,
        ]
        if timeout_s is not None:
            fields.append(("timeout_s", timeout_s))
        return self.open_record(frames.encode_record(fields), window=WINDOW)

    def open_record(self, record: bytes, *, window: int) -> Channel:
        """Open a channel with the fields of an OPEN record.

        Raises:
            UsageError: Too many commands at once.
            SandboxDied: The sandbox is gone.
        """
        if sum(isinstance(one, Channel) for one in self.link.channels.values()) >= _MAX_COMMANDS:
            raise UsageError(
                f"more than {_MAX_COMMANDS} commands at once in one sandbox; wait for some to end"
            )
        channel = Channel(self.link, record, window=window)
        if self._peer == "supervisor":
            channel.on_refused = self.on_refused
        return channel

    def inside(self, path: str) -> str:
        """The absolute path inside for a path that the caller gave."""
        return path if path.startswith("/") else f"{self._directory.rstrip('/')}/{path}"

    # --- ends

    async def finish(self, channel: Channel, stdin: bytes, timeout_s: float | None) -> Exit | Failure:
        """Send stdin and wait for the end; kill the sandbox if its guest does not keep the deadline."""
        if (
            timeout_s is not None
        ):  # one task watches all deadlines: a cancel scope for each takes as long as the rest of this
            self._deadlines[channel] = time.monotonic() + timeout_s + _CLIENT_GRACE_S
        try:
            if stdin:
                await channel.send_stdin(stdin)
            channel.post(frames.STDIN_END)
            return await channel.wait()
        finally:
            self._deadlines.pop(channel, None)
            await self.abandon(channel)

    async def abandon(self, channel: Channel) -> None:
        """Kill the command on a channel if it still runs, and wait a moment for its end."""
        if channel.end is not None or channel.error is not None:
            return
        channel.post(frames.KILL)
        with anyio.move_on_after(_CLIENT_GRACE_S, shield=True), suppress(SandboxDied):
            await channel.wait()

    async def _count_oom_kills(self) -> int:
        """The number of OOM kills, as reported by the fence or else by the guest."""
        use = await self.fence.usage()
        if use.oom_kills is None:
            use = await self.measure()
        return use.oom_kills or 0

    async def find_cause(self, end: Exit) -> EndedBy:
        """Find the cause of a command's end, which may be a limit that the kernel enforces.

        The memory limit kills a process, which a shell reports as code 137. At the limit on processes, a program that
        needs another thread aborts. If a single file grows beyond the limit on disk, the program that writes it ends.

        A supervisor has already found the cause: only it knows which kills were reported before.
        """
        if self._peer == "supervisor" or end.ended_by not in ("signal", "exit"):
            return end.ended_by
        if end.ended_by == "signal" and end.exit_code == _ABORTED_CODE:
            return "pids" if (await self.fence.usage()).forks_refused else end.ended_by
        if end.ended_by == "signal" and end.exit_code == _FILE_SIZE_CODE:
            return "disk"
        if end.exit_code == _KILLED_CODE:
            kills = await self._count_oom_kills()
            if kills > self._oom_kills:
                self._oom_kills = kills
                return "memory"
        return end.ended_by


def _encode_environment(variables: Mapping[str, str]) -> bytes:
    """Fields of an OPEN record; of two with the same name, the later one takes effect."""
    return frames.encode_record([("env", f"{name}={value}") for name, value in variables.items()])


def is_word(text: object) -> bool:
    """Whether the kernel accepts a value as an argument: text without NUL that encodes with `surrogateescape`."""
    try:
        return isinstance(text, str) and b"\0" not in text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return False
