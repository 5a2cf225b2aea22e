"""The host's end of the stream against a guest that may send anything, over real pipes."""

import os
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

import anyio
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule
from tests.sandbox.conftest import PipeFence
from tests.sandbox.hostile import PATIENCE_S, HostileGuest, growth_kib, run_guest

from ringfence.descriptor_stream import DescriptorStream
from ringfence.errors import SandboxDied, SandboxFileError, SandboxStartFailed, UsageError
from ringfence.sandbox import Sandbox
from ringfence.sandbox.guest import frames
from ringfence.sandbox.protocol import session

_NUMBERS = [
    "0",
    "1",
    "-1",
    "9",
    "64",
    "65",
    "255",
    "256",
    "9999",
    "nan",
    "inf",
    "-inf",
    "1e400",
    "-0.1",
    "1_0",
    "0x10",
]
_WORDS = ["exit", "signal", "memory", "spawn", "cwd"]
NASTY = st.sampled_from([*_NUMBERS, *_WORDS, "", " 1 ", "1" * 20, "1" * 5000, "\udcff", "\0", "x" * 300])
FIELDS = {
    frames.HELLO: ("version", "uid", "undumpable"),
    frames.EXIT: ("code", "signal", "ended_by", "duration_s"),
    frames.FAIL: ("stage", "errno", "message"),
    frames.STATS_REPLY: ("memory", "cpu_s", "pids"),
    frames.BYE: ("reason",),
}
GOOD_EXIT = {"code": 0, "signal": 0, "ended_by": "exit", "duration_s": "0.5"}


async def died(guest: PipeFence, attack: Callable[[], object], **spec: Any) -> SandboxDied:
    """How a waiting command learns of its sandbox's death after an attack; the command is on channel 1."""
    guest.greet()
    async with guest.open(**spec) as sandbox:
        caught: list[SandboxDied] = []

        async def wait() -> None:
            with pytest.raises(SandboxDied) as info:
                await sandbox.run(["x"])
            caught.append(info.value)

        with anyio.fail_after(PATIENCE_S):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(wait)
                await anyio.lowlevel.checkpoint()
                attack()
    assert guest.is_killed
    return caught[0]


def exit_with(guest: PipeFence, **changes: object) -> Callable[[], object]:
    """An EXIT for channel 1, changed."""
    return lambda: guest.record(frames.EXIT, 1, {**GOOD_EXIT, **changes})


ATTACKS: dict[str, Callable[[PipeFence], Callable[[], object]]] = {
    "unknown kind": lambda g: lambda: g.frame(99, 1),
    "host's own kind": lambda g: lambda: g.frame(frames.OPEN, 1),
    "unknown control kind": lambda g: lambda: g.frame(99, 0),
    "channel nobody opened": lambda g: lambda: g.frame(frames.STDOUT, 2, b"x"),
    "highest channel": lambda g: lambda: g.frame(frames.STDOUT, 2**32 - 1, b"x"),
    "oversized length": lambda g: lambda: g.say(frames.HEADER.pack(frames.MAX_PAYLOAD + 1, 1, frames.STDOUT)),
    "largest length": lambda g: lambda: g.say(frames.HEADER.pack(2**32 - 1, 1, frames.STDOUT)),
    "empty output": lambda g: lambda: g.frame(frames.STDOUT, 1, b""),
    "second greeting": lambda g: g.greet,
    "stats unasked": lambda g: lambda: g.record(frames.STATS_REPLY, 0, {"memory": 1, "cpu_s": 1, "pids": 1}),
    "pong unasked": lambda g: lambda: g.frame(frames.PONG),
    "credit of three bytes": lambda g: lambda: g.frame(frames.CREDIT_IN, 1, b"\0\0\1"),
    "record cut short": lambda g: lambda: g.frame(frames.EXIT, 1, b"\0\0\0\5ab"),
    "key without value": lambda g: lambda: g.frame(frames.EXIT, 1, b"\0\0\0\1a"),
    "record too large": lambda g: lambda: g.record(frames.EXIT, 1, {**GOOD_EXIT, "more": "x" * 70_000}),
    "record of many fields": lambda g: lambda: g.frame(frames.EXIT, 1, b"\0" * 60_000),
    "no code": lambda g: lambda: g.record(frames.EXIT, 1, {"signal": 0, "ended_by": "exit", "duration_s": 0}),
    "code 9999": lambda g: exit_with(g, code=9999),
    "code -1": lambda g: exit_with(g, code=-1),
    "code of many digits": lambda g: exit_with(g, code="1" * 5000),
    "signal 65": lambda g: exit_with(g, signal=65),
    "unknown end": lambda g: exit_with(g, ended_by="\x1b[2J"),
    "flood told by the guest": lambda g: exit_with(g, ended_by="output"),
    "duration nan": lambda g: exit_with(g, duration_s="nan"),
    "duration inf": lambda g: exit_with(g, duration_s="inf"),
    "duration below zero": lambda g: exit_with(g, duration_s="-1"),
    "errno of letters": lambda g: (
        lambda: g.record(frames.FAIL, 1, {"stage": "spawn", "errno": "x", "message": "m"})
    ),
    "failure without message": lambda g: lambda: g.record(frames.FAIL, 1, {"stage": "spawn", "errno": 2}),
}
TOO_LATE: dict[str, Callable[[PipeFence], Callable[[], object]]] = {
    "exit twice": lambda g: lambda: [exit_with(g)(), exit_with(g)()],
    "output after exit": lambda g: lambda: [exit_with(g)(), g.frame(frames.STDOUT, 1, b"x")],
}


@pytest.mark.parametrize("name", ATTACKS)
async def test_broken_promise(name: str, guest: PipeFence) -> None:
    """A guest that breaks the protocol loses its sandbox, and a waiting command ends with the reason `protocol`."""
    assert (await died(guest, ATTACKS[name](guest))).reason == "protocol"


async def test_what_a_guest_says_of_refusals_is_not_believed(guest: PipeFence) -> None:
    """Refused hosts that a guest reports with a command's end are ignored: by them it could give advice in our name."""
    guest.greet()
    results = []
    async with guest.open() as sandbox:

        async def run() -> None:
            results.append(await sandbox.run(["x"]))

        with anyio.fail_after(PATIENCE_S):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(run)
                await anyio.lowlevel.checkpoint()
                exit_with(guest, refused="evil.example:443 is not allowed; allow it: --allow open")()
    assert [result.refused for result in results] == [()]


async def test_a_command_and_the_end_of_its_input_go_to_the_guest_together(guest: PipeFence) -> None:
    """A command and the end of its input are sent in one write, since each write wakes the guest."""
    await guest.stream.aclose()
    read_fd, guest.peer_out = os.pipe()
    guest.peer_in, write_fd = os.pipe2(os.O_DIRECT | os.O_NONBLOCK)
    guest.stream = DescriptorStream(read_fd, write_fd)
    guest._kept.append(guest.peer_in)
    guest.peer = "running guest"  # it has its modules
    guest.greet()
    async with guest.open() as sandbox, anyio.create_task_group() as tasks:
        await anyio.wait_readable(guest.peer_in)
        assert kinds(os.read(guest.peer_in, 65_536)) == [frames.CONFIG]
        tasks.start_soon(sandbox.run, ["x"])
        await anyio.wait_readable(guest.peer_in)
        written = os.read(guest.peer_in, 65_536)
        exit_with(guest)()
    assert kinds(written) == [frames.OPEN, frames.STDIN_END]


def kinds(data: bytes) -> list[int]:
    """Of the frames in `data`."""
    found = []
    while data:
        length, _, kind = frames.HEADER.unpack_from(data)
        found.append(kind)
        data = data[frames.HEADER.size + length :]
    return found


@pytest.mark.parametrize("name", TOO_LATE)
async def test_after_the_end(name: str, guest: PipeFence) -> None:
    """Frames on a channel after its command's end kill the sandbox; the command's result stands."""
    guest.greet()
    async with guest.open() as sandbox:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(sandbox.run, ["x"])
            await anyio.lowlevel.checkpoint()
            TOO_LATE[name](guest)()
        with anyio.fail_after(PATIENCE_S), pytest.raises(SandboxDied) as info:
            await sandbox.run(["x"])
    assert info.value.reason == "protocol"


async def test_more_than_granted(guest: PipeFence) -> None:
    """Output beyond the credit that was granted kills the sandbox."""
    guest.greet()
    async with guest.open() as sandbox, sandbox.spawn(["x"]) as process:
        with anyio.fail_after(PATIENCE_S):
            for _ in range(5):
                while not guest.frame(frames.STDOUT, 1, b"x" * 60_000):
                    await anyio.lowlevel.checkpoint()
                    if guest.is_killed:
                        break
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(_flood, guest)
                with pytest.raises(SandboxDied) as info:
                    await process.wait()
    assert info.value.reason == "protocol"


async def _flood(guest: PipeFence) -> None:
    while not guest.is_killed:
        guest.frame(frames.STDOUT, 1, b"x" * 4000)
        await anyio.lowlevel.checkpoint()


def leaving(guest: PipeFence, reason: str) -> Callable[[], None]:
    """A goodbye, then the end."""

    def leave() -> None:
        guest.record(frames.BYE, 0, {"reason": reason})
        guest.hang_up()

    return leave


@pytest.mark.parametrize("reason", ["ttl", "", "memory", "\x1b]0;x"])
async def test_untrue_goodbye(reason: str, guest: PipeFence) -> None:
    """A reason for leaving that cannot be true is not believed: the guest counts as exited."""
    error = await died(guest, leaving(guest, reason))
    assert (error.reason, error.sandbox_id) == ("exited", "hostile")


async def test_frames_after_goodbye(guest: PipeFence) -> None:
    """Frames after the last one are not read, and a guest that stays is killed."""
    error = await died(
        guest, lambda: [guest.record(frames.BYE, 0, {"reason": "ttl"}), guest.frame(99, 1)], ttl_s=5
    )
    assert error.reason in ("ttl", "protocol")


async def test_cut_off(guest: PipeFence) -> None:
    """A stream that ends within a frame is the guest's end."""

    def attack() -> None:
        guest.say(frames.HEADER.pack(100, 1, frames.STDOUT) + b"x")
        guest.hang_up()

    error = await died(guest, attack)
    assert error.reason == "exited"


async def test_guest_that_does_not_go(guest: PipeFence, monkeypatch: pytest.MonkeyPatch) -> None:
    """A guest that closes the stream and stays is killed."""
    monkeypatch.setattr(session, "_EXIT_S", 0.05)
    guest.leaves_by_itself = False
    assert (await died(guest, guest.hang_up)).reason == "protocol"


async def test_no_greeting(guest: PipeFence, monkeypatch: pytest.MonkeyPatch) -> None:
    """A guest that does not greet in time is a sandbox that did not start."""
    monkeypatch.setattr(session, "_START_S", 0.05)
    with pytest.raises(SandboxStartFailed, match="did not answer"):
        async with guest.open():
            pass
    assert guest.is_killed


@pytest.mark.parametrize("greeting", [{}, {"version": "0"}, {"version": "1" * 5000}])
async def test_wrong_greeting(greeting: dict[str, str], guest: PipeFence) -> None:
    """A guest of another protocol is a sandbox that did not start."""
    guest.record(frames.HELLO, 0, greeting)
    with pytest.raises(SandboxStartFailed, match="protocol"):
        async with guest.open():
            pass
    assert guest.is_killed


@pytest.mark.parametrize(
    "greeting", [{"uid": 1000, "undumpable": 0}, {"uid": 0, "undumpable": 1}, {}], ids=str
)
async def test_a_guest_that_could_not_protect_itself(greeting: dict[str, int], guest: PipeFence) -> None:
    """A guest that processes inside could steer is a sandbox that did not start."""
    guest.facts = replace(guest.facts, is_fence=True)
    guest.record(frames.HELLO, 0, {"version": frames.VERSION, **greeting})
    with pytest.raises(SandboxStartFailed, match="could not protect itself"):
        async with guest.open():
            pass
    assert guest.is_killed


async def test_a_file_beyond_its_limit_is_not_read_on(guest: PipeFence) -> None:
    """A file that exceeds the reader's limit is not read any further: it could be endless."""
    guest.peer = "running guest"  # it has its modules
    guest.greet()
    async with guest.open() as sandbox:

        async def read() -> None:
            with pytest.raises(SandboxFileError, match="is larger than 1000 bytes"):
                await sandbox.read_file("x", limit_bytes=1000)

        with anyio.fail_after(PATIENCE_S):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(read)
                await anyio.lowlevel.checkpoint()
                for _ in range(3):
                    guest.frame(frames.STDOUT, 1, b"x" * 2000)
                exit_with(guest)()
        assert frames.KILL in kinds(os.read(guest.peer_in, 65_536))


@pytest.mark.parametrize("said", [b"\xff" * 100, b"", b"Traceback (most recent call last)\n" * 10])
async def test_no_protocol(said: bytes, guest: PipeFence) -> None:
    """Something that speaks no protocol at all, or nothing, is a sandbox that did not start."""
    guest.say(said)
    guest.hang_up()
    with anyio.fail_after(PATIENCE_S), pytest.raises(SandboxStartFailed):
        async with guest.open():
            pass


async def test_silent_guest(guest: PipeFence, monkeypatch: pytest.MonkeyPatch) -> None:
    """A guest that lets a command run past its deadline loses its sandbox."""
    monkeypatch.setattr(session, "_CLIENT_GRACE_S", 0.05)
    monkeypatch.setattr(session, "_CHECK_INTERVAL_S", 0.02)
    guest.greet()
    async with guest.open() as sandbox:
        with anyio.fail_after(PATIENCE_S), pytest.raises(SandboxDied, match="past its deadline") as info:
            await sandbox.run(["x"], timeout_s=0.05)
    assert info.value.reason == "protocol"


async def test_no_heartbeat(guest: PipeFence, monkeypatch: pytest.MonkeyPatch) -> None:
    """A guest that answers no heartbeat loses its sandbox."""
    monkeypatch.setattr(session, "_HEARTBEAT_S", 0.02)
    monkeypatch.setattr(session, "_CHECK_INTERVAL_S", 0.02)
    monkeypatch.setattr(session, "_SILENCE_S", 0.05)
    assert "not answered" in str(await died(guest, lambda: None))


async def test_guest_that_does_not_read(guest: PipeFence, monkeypatch: pytest.MonkeyPatch) -> None:
    """A guest that does not read its input loses its sandbox."""
    monkeypatch.setattr(session, "_STALL_S", 0.05)
    monkeypatch.setattr(session, "_CHECK_INTERVAL_S", 0.02)
    guest.greet()
    async with guest.open() as sandbox:
        with anyio.fail_after(PATIENCE_S), pytest.raises(SandboxDied, match="has not read"):
            await sandbox.run(["x"], stdin=b"x" * 1_000_000)


@pytest.mark.parametrize(
    "reply",
    [
        {"memory": "x", "cpu_s": 1, "pids": 1},
        {"memory": "1" * 5000, "cpu_s": 1, "pids": 1},
        {"memory": "9" * 30, "cpu_s": 1, "pids": 1},
        {"memory": 1, "cpu_s": "nan", "pids": 1},
        {"memory": 1, "cpu_s": 1, "pids": -1},
        {"memory": 1, "cpu_s": 1},
    ],
    ids=str,
)
async def test_stats_that_are_none(reply: dict[str, object], guest: PipeFence) -> None:
    """Statistics that are no valid numbers kill the sandbox."""
    guest.greet()
    async with guest.open() as sandbox, anyio.create_task_group() as tasks:
        with anyio.fail_after(PATIENCE_S):
            tasks.start_soon(_reply, guest, reply)
            with pytest.raises(SandboxDied) as info:
                await sandbox.stats()
    assert info.value.reason == "protocol"


async def test_stats(guest: PipeFence) -> None:
    """The largest numbers that a guest may report are still numbers."""
    guest.greet()
    async with guest.open() as sandbox, anyio.create_task_group() as tasks:
        with anyio.fail_after(PATIENCE_S):
            tasks.start_soon(_reply, guest, {"memory": 2**63 - 1, "cpu_s": "1.5", "pids": 3})
            used = await sandbox.stats()
    assert (used.memory_bytes, used.cpu_s, used.pids, used.oom_kills) == (2**63 - 1, 1.5, 3, None)


async def _reply(guest: PipeFence, fields: dict[str, object]) -> None:
    guest.record(frames.STATS_REPLY, 0, fields)


async def test_stats_that_do_not_come(guest: PipeFence, monkeypatch: pytest.MonkeyPatch) -> None:
    """A guest that does not answer a request for statistics loses its sandbox."""
    monkeypatch.setattr(session, "_SILENCE_S", 0.05)
    guest.greet()
    async with guest.open() as sandbox:
        with anyio.fail_after(PATIENCE_S), pytest.raises(SandboxDied, match="not answered"):
            await sandbox.stats()


async def test_closed_sandbox_writes_nothing(guest: PipeFence) -> None:
    """After the end nothing is written to descriptors that may be somebody else's by now."""
    guest.greet()
    async with guest.open() as sandbox, sandbox.spawn(["x"]) as process:
        stream = guest.stream
        assert isinstance(stream, DescriptorStream)
        write_fd = stream._write_fd
        await guest.kill()
        sandbox.session.close()
        read, write = os.pipe()
        assert write_fd in (read, write)
        await process.signal(9)
        await process.stdin.aclose()
        with pytest.raises(SandboxDied):
            await sandbox.run(["x"])
        await anyio.lowlevel.checkpoint()
        os.close(write)
        assert os.read(read, 100) == b""
        os.close(read)


class Machine(HostileGuest):
    """Commands are run, files are used and stats are asked for, and the guest answers as it likes."""

    expected = (SandboxDied, SandboxFileError, UsageError)

    def ask(self, act: Callable[[Sandbox], Coroutine[Any, Any, object]]) -> None:
        """Somebody waits for something, once there is a sandbox."""
        if self.opened.is_set():
            self.call(act(self.sandbox))

    @rule(stdin=st.binary(max_size=2000))
    def run_command(self, stdin: bytes) -> None:
        """Somebody runs a command."""
        self.ask(lambda sandbox: sandbox.run(["x"], stdin=stdin, output_limit_bytes=1000))

    @rule()
    def hold_command(self) -> None:
        """Somebody reads a command's output."""

        async def act(sandbox: Sandbox) -> None:
            async with sandbox.spawn(["x"]) as process:
                async for _ in process.stdout:
                    pass
                await process.wait()

        self.ask(act)

    @rule(which=st.sampled_from(["read", "write", "list", "remove", "stats", "stream"]))
    def use_files(self, which: str) -> None:
        """Somebody uses files, or asks for the stats."""

        async def stream(sandbox: Sandbox) -> None:
            async for _ in sandbox.stream_file("f"):
                pass

        acts: dict[str, Callable[[Sandbox], Coroutine[Any, Any, object]]] = {
            "read": lambda sandbox: sandbox.read_file("f", limit_bytes=1000),
            "write": lambda sandbox: sandbox.write_file("f", b"x" * 2000),
            "list": lambda sandbox: sandbox.list_dir("f", limit=10),
            "remove": lambda sandbox: sandbox.remove("f"),
            "stats": lambda sandbox: sandbox.stats(),
            "stream": stream,
        }
        self.ask(acts[which])

    @rule(
        kind=st.sampled_from([frames.STDOUT, frames.STDERR]),
        channel=st.integers(1, 6),
        data=st.sampled_from([b"x", b"file\x0010\0name\0", b"dir\0x\0..\0", b"\0" * 50, b"x" * 3000]),
    )
    def send_output(self, kind: int, channel: int, data: bytes) -> None:
        """The guest sends output."""
        self.guest.frame(kind, channel, data)
        self.step()

    @rule(kind=st.sampled_from(sorted(FIELDS)), channel=st.integers(0, 6), data=st.data())
    def send_record(self, kind: int, channel: int, data: st.DataObject) -> None:
        """The guest sends a record of odd values."""
        self.guest.record(kind, channel, {name: data.draw(NASTY) for name in FIELDS[kind]})
        self.step()

    @rule(channel=st.integers(1, 6))
    def end_well(self, channel: int) -> None:
        """The guest ends a command properly."""
        self.guest.record(frames.EXIT, channel, GOOD_EXIT)
        self.step()

    @rule(
        kind=st.integers(0, 60), channel=st.sampled_from([0, 1, 2, 2**32 - 1]), payload=st.binary(max_size=40)
    )
    def send_any(self, kind: int, channel: int, payload: bytes) -> None:
        """The guest sends any frame."""
        self.guest.frame(kind, channel, payload)
        self.step()

    @rule(data=st.binary(max_size=40))
    def send_bytes(self, data: bytes) -> None:
        """The guest sends any bytes."""
        self.guest.say(data)
        self.step()

    @rule(channel=st.integers(1, 6), credit=st.sampled_from([0, 1, 2**32 - 1]))
    def grant(self, channel: int, credit: int) -> None:
        """The guest grants more than there is."""
        self.guest.frame(frames.CREDIT_IN, channel, frames.U32.pack(credit))
        self.step()

    @precondition(lambda self: self.opened.is_set())
    @rule()
    def hang_up(self) -> None:
        """The guest goes."""
        self.guest.hang_up()
        self.step()


@pytest.mark.parametrize(
    ("count", "steps"), [(60, 25), pytest.param(200, 50, marks=pytest.mark.slow)], ids=["short", "long"]
)
def test_hostile_guest(count: int, steps: int) -> None:
    """No caller sees anything but typed errors, and every caller is woken, whatever the guest does."""
    run_guest(Machine, count=count, steps=steps)


FLOODS = {
    "tiny frames nobody reads": """
async with sandbox.spawn(["x"]):
    await flood(lambda: frame(frames.STDOUT, 1, b"xy") * 5000)
""",
    "two streams nobody reads": """
async with sandbox.spawn(["x"]):
    await flood(lambda: (frame(frames.STDOUT, 1, b"x" * 100) + frame(frames.STDERR, 1, b"x" * 9000)) * 8)
""",
    "a frame without an end": """
async with sandbox.spawn(["x"]):
    guest.say(frames.HEADER.pack(frames.MAX_PAYLOAD, 1, frames.STDOUT))
    await flood(lambda: b"x" * 65536)
""",
    "output of a command": """
await both(sandbox.run(["x"]), flood(lambda: frame(frames.STDOUT, 1, b"x" * 60_000)))
""",
    "a listing of nothing": """
await both(sandbox.list_dir("f"), flood(lambda: frame(frames.STDOUT, 1, b"\\0" * 60_000)))
""",
    "a listing without an end": """
entry = b"file\\x001\\0" + b"n" * 200 + b"\\0"
await both(sandbox.list_dir("f"), flood(lambda: frame(frames.STDOUT, 1, entry * 200)))
""",
    "credit": """
async with sandbox.spawn(["x"]):
    await flood(lambda: frame(frames.CREDIT_IN, 1, b"\\0\\0\\0\\1") * 4000)
""",
    "a file without an end": """
await both(sandbox.read_file("f", limit_bytes=1_000_000), flood(lambda: frame(frames.STDOUT, 1, b"x" * 60_000)))
""",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", FLOODS)
def test_memory_under_attack(name: str) -> None:
    """Whatever the guest floods, the host grows by 32 MB at most."""
    assert growth_kib(FLOODS[name]) <= 32 * 1024
