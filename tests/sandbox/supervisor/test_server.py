"""How long a supervised sandbox lives, and what a hostile or dead client can do to it."""

import os
import socket
import time
from contextlib import ExitStack, suppress
from pathlib import Path

import anyio
import msgspec
import pytest
from tests.sandbox.conftest import PipeFence
from tests.sandbox.supervisor.conftest import Served, served, until

from ringfence.errors import SandboxDied, SandboxFileError
from ringfence.events import CommandEnded
from ringfence.process import run_process
from ringfence.sandbox.guest import frames
from ringfence.sandbox.supervisor.connection import CHANGE_EGRESS, END
from ringfence.sandbox.supervisor.copy import copy_out
from ringfence.sandbox.supervisor.directory import SandboxDirectory
from ringfence.sandbox.supervisor.server import ServiceEnd

pytestmark = pytest.mark.anyio


async def ended(service: Served) -> object:
    """How it ended, once it has."""
    await until(lambda: service.end)
    return service.end


def left_over(folder: Path) -> list[Path]:
    """Directories that a copy unpacked in."""
    return list(folder.glob(".ringfence-*"))


class Client:
    """A client that speaks in bytes."""

    def __init__(self, directory: SandboxDirectory) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(str(directory.path / "socket"))
        self.socket.setblocking(False)

    def say(self, kind: int, channel: int = 0, payload: bytes = b"", *, length: int | None = None) -> None:
        """Send a frame, perhaps one that lies about its length."""
        header = frames.HEADER.pack(len(payload) if length is None else length, channel, kind)
        self.socket.send(header + payload)

    def open(self, channel: int, *argv: str, window: int = 1000) -> None:
        """Open a command's channel."""
        fields = [("argv", word) for word in argv]
        more = [("env", "PATH=/usr/bin:/bin"), ("cwd", "/"), ("disk", str(10**9)), ("window", str(window))]
        self.say(frames.OPEN, channel, frames.encode_record([*fields, *more]))

    async def flood(self, channel: int) -> None:
        """Send more input than the windows and a pipe together take."""
        frame = frames.HEADER.pack(100_000, channel, frames.STDIN) + b"x" * 100_000
        rest = memoryview(frame * 20)
        with suppress(ConnectionError):
            while rest:
                await anyio.wait_writable(self.socket)
                rest = rest[self.socket.send(rest) :]

    async def is_cut_off(self) -> bool:
        """Whether the server ends the connection."""
        with anyio.move_on_after(20):
            while True:
                await anyio.wait_readable(self.socket)
                try:
                    if not self.socket.recv(1 << 20):
                        return True
                except ConnectionResetError:
                    return True
        return False


@pytest.mark.slow
async def test_an_idle_sandbox_ends(short_dir: Path):
    """A sandbox ends when no client was attached for the idle time, counted from the last client's end."""
    async with served(short_dir, idle_s=0.3) as service:
        async with service.attached() as sandbox:
            await sandbox.run(["sleep", "0.6"])
            assert service.end is None
        end = await ended(service)
    assert isinstance(end, ServiceEnd)
    assert end.reason == "idle"


@pytest.mark.slow
async def test_an_attached_client_resets_the_idle_time(short_dir: Path):
    """A client that attaches within the idle time keeps the sandbox alive."""
    async with served(short_dir, idle_s=3.0) as service:
        began = time.monotonic()
        while time.monotonic() - began < 4:
            async with service.attached() as sandbox:
                assert (await sandbox.run(["sleep", "0.1"])).ok
        assert service.end is None


async def test_several_clients_at_once(short_dir: Path):
    """Clients that use the same channel numbers at the same time each get the output of their own commands."""
    async with served(short_dir) as service:
        told: dict[int, str] = {}

        async def use(number: int) -> None:
            async with service.attached() as sandbox:
                told[number] = (await sandbox.run(["sh", "-c", f"sleep 0.1; echo {number}"])).stdout

        async with anyio.create_task_group() as tasks:
            for number in range(5):
                tasks.start_soon(use, number)
    assert told == {number: f"{number}\n" for number in range(5)}


async def test_clients_are_bounded(short_dir: Path):
    """64 are served at once; one more is cut off."""
    async with served(short_dir) as service:
        with ExitStack() as sockets:
            for _ in range(64):
                await anyio.wait_readable(sockets.enter_context(Client(service.directory).socket))
            more = Client(service.directory)
            sockets.enter_context(more.socket)
            assert await more.is_cut_off()


async def test_a_command_is_recorded_before_its_client_learns_of_its_end(short_dir: Path):
    """When a client learns that its command ended, the record has the command and its output, without secrets."""
    async with (
        served(short_dir) as service,
        service.attached(env={"API_TOKEN": "very-secret-value"}) as sandbox,
    ):
        await sandbox.run(["sh", "-c", "echo $API_TOKEN; exit 3"])
        (event,) = service.recorded
    assert isinstance(event, CommandEnded)
    assert (event.exit_code, event.stdout) == (3, "[redacted]\n")


async def test_file_operations_are_not_recorded(short_dir: Path):
    """Reading and writing files is not recorded; a copy is recorded as a command, without its bytes."""
    async with served(short_dir) as service, service.attached() as sandbox:
        await sandbox.write_file("/tmp/a", b"x" * 1000)
        await sandbox.read_file("/tmp/a")
        await copy_out(sandbox, "/tmp/a", short_dir / "a")
    assert [
        (event.argv[0], event.stdout) for event in service.recorded if isinstance(event, CommandEnded)
    ] == [("tar", "")]


async def test_a_command_whose_client_vanished_is_killed(short_dir: Path):
    """If a client disconnects, its command is killed and recorded as cancelled; the sandbox goes on."""
    async with served(short_dir) as service:
        client = Client(service.directory)
        client.open(1, "sh", "-c", "echo started; exec sleep 1000")
        await anyio.wait_readable(client.socket)
        client.socket.close()
        await until(lambda: service.recorded)
        async with service.attached() as sandbox:
            assert (await sandbox.run(["true"])).ok
    assert [getattr(event, "ended_by", None) for event in service.recorded[:1]] == ["cancel"]


@pytest.mark.parametrize("how", ["frame", "kind", "credit", "stdin", "twice", "window", "record", "request"])
async def test_a_client_that_breaks_the_protocol_is_disconnected(short_dir: Path, how: str):
    """Only the client that breaks the protocol is disconnected; the sandbox serves others."""
    async with served(short_dir) as service:
        client = Client(service.directory)
        if how in ("credit", "stdin", "twice"):
            client.open(1, "sleep", "1000")
        if how == "frame":
            client.say(frames.STDIN, 1, length=1 << 30)
        elif how == "kind":
            client.say(200)
        elif how == "credit":
            client.say(frames.CREDIT_OUT, 1, frames.U32.pack(1 << 31))
        elif how == "stdin":
            await client.flood(1)
        elif how == "twice":
            client.open(1, "true")
        elif how == "window":
            client.say(frames.OPEN, 1, frames.encode_record([("argv", "true")]))
        elif how == "record":
            client.say(frames.OPEN, 1, b"\0\0\0\xffno record")
        elif how == "request":
            client.say(CHANGE_EGRESS, 0, b"\0\0\0\xffno record")
        assert await client.is_cut_off()
        client.socket.close()
        async with service.attached() as sandbox:
            assert (await sandbox.run(["true"])).ok


async def test_what_a_guest_says_of_a_failure_is_recorded(short_dir: Path, guest: PipeFence):
    """A failure is recorded and reported as text, whatever bytes a guest gives as its reason."""
    guest.greet()
    async with served(short_dir, opened=guest.open()) as service:

        async def fail() -> None:
            await until(lambda: service.sandbox.session.link.channels)
            guest.record(frames.FAIL, 1, {"errno": 2, "message": "not \udcff text"})

        async with anyio.create_task_group() as tasks, service.attached() as sandbox:
            tasks.start_soon(fail)
            result = await sandbox.run(["x"])
    assert "not ? text" in result.stderr
    assert [msgspec.json.decode(msgspec.json.encode(one))["stderr"] for one in service.recorded] == [
        "not ? text"
    ]


async def test_credit_of_nothing_is_not_passed_on(short_dir: Path, guest: PipeFence):
    """A guest that floods with grants of no bytes fills no queue of a client's."""
    guest.greet()
    async with served(short_dir, opened=guest.open()) as service:
        client = Client(service.directory)
        client.open(1, "x")
        await until(lambda: service.sandbox.session.link.channels)
        for count in (0, 5, 0):  # nobody has sent anything that five bytes could be granted for
            guest.frame(frames.CREDIT_IN, 1, frames.U32.pack(count))
        guest.record(frames.FAIL, 1, {"errno": 2, "message": "it is over"})
        seen = b""
        with anyio.fail_after(20):
            while b"it is over" not in seen:
                await anyio.wait_readable(client.socket)
                seen += client.socket.recv(65536)
        client.socket.close()
    assert frames.HEADER.pack(frames.U32.size, 1, frames.CREDIT_IN) not in seen


async def test_a_window_that_is_too_large_is_refused(short_dir: Path):
    """A command with too large a window is refused: the supervisor would have to buffer as much."""
    async with served(short_dir) as service:
        client = Client(service.directory)
        client.open(1, "true", window=1 << 30)
        seen = b""
        with anyio.fail_after(20):
            while b"window" not in seen:
                await anyio.wait_readable(client.socket)
                seen += client.socket.recv(65536)
        client.socket.close()


async def test_a_client_that_does_not_read_delays_no_other(short_dir: Path):
    """If a client does not read its command's output, that command waits; other clients' commands run."""
    async with served(short_dir) as service:
        client = Client(service.directory)
        client.open(1, "yes", window=1 << 20)
        async with service.attached() as sandbox:
            for _ in range(10):
                assert (await sandbox.run(["true"])).ok
        client.socket.close()


@pytest.mark.slow
async def test_removing_a_sandbox_ends_its_clients(short_dir: Path):
    """When a sandbox is removed, its clients' calls raise `SandboxDied`."""
    async with served(short_dir) as service:

        async def use() -> None:
            async with service.attached() as sandbox:
                client = Client(service.directory)
                client.say(END)
                client.socket.close()
                await sandbox.run(["sleep", "1000"])
                await sandbox.run(["true"])

        with pytest.raises(SandboxDied):
            await use()
        end = await ended(service)
    assert isinstance(end, ServiceEnd)
    assert end.reason == "removed"


@pytest.mark.skipif(os.getuid() != 0, reason="only root can be another user, too")
async def test_another_user_is_turned_away(short_dir: Path):
    """A client of another user id, which the kernel reports, is disconnected even if it could open the socket."""
    code = (
        "import socket, sys; s = socket.socket(1); s.settimeout(20); s.connect(sys.argv[1]); print(s.recv(1))"
    )
    async with served(short_dir) as service:
        path = service.directory.path / "socket"
        for folder in (service.directory.path, short_dir):
            folder.chmod(0o711)
        path.chmod(0o666)
        told = await run_process(["/usr/bin/python3", "-c", code, path], user=12345, group=12345)
    assert (told.stdout, told.stderr) == (b"b''\n", b"")


async def test_a_client_that_reads_nothing_is_disconnected(short_dir: Path):
    """A client is disconnected as soon as more output waits for it than the bound allows."""
    async with served(short_dir) as service:
        client = Client(service.directory)
        for channel in range(1, 21):
            client.open(channel, "yes", window=4 * 1024**2)
        await until(lambda: len(service.recorded) == 20)
        client.socket.close()
    assert {getattr(event, "ended_by", None) for event in service.recorded} == {"cancel"}


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/tmp/none", "No such file"),
        ("/tmp/fifo", "neither a file nor a directory"),
        ("/tmp/link", r"neither a file nor a directory: .*\(a link\)"),
        ("/tmp/big", "--limit"),
    ],
)
async def test_what_cannot_be_copied_out_is_refused(short_dir: Path, path: str, said: str):
    """What is absent, no file or directory, or larger than the limit is refused, and nothing is left on the host."""
    async with served(short_dir) as service, service.attached() as sandbox:
        await sandbox.run(
            ["sh", "-c", "mkfifo /tmp/fifo; ln -s big /tmp/link; head -c 2000000 /dev/zero > /tmp/big"]
        )
        with pytest.raises(SandboxFileError, match=said):
            await copy_out(sandbox, path, short_dir / "out", limit_bytes=1_000_000)
        assert (await sandbox.run(["true"])).ok
    assert not (short_dir / "out").exists()
    assert not left_over(short_dir)
