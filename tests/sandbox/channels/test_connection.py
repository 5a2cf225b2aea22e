"""Listeners and connections against a guest that may send anything, over real pipes."""

import asyncio
import textwrap
from collections.abc import Callable
from contextlib import suppress

import anyio
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import rule
from tests.sandbox.conftest import PipeFence
from tests.sandbox.hostile import PATIENCE_S, HostileGuest, growth_kib, run_guest

from ringfence.errors import SandboxDied, SandboxPortError
from ringfence.sandbox import Connection, Sandbox
from ringfence.sandbox.guest import frames

FIRST = frames.GUEST_NUMBERS + 1
LISTENER = 1
"""The first channel that a sandbox opens."""


async def echo(connection: Connection) -> None:
    """Send back what comes."""
    while True:
        await connection.send(await connection.receive())


def opened(guest: PipeFence) -> None:
    """The guest listens, and has taken one connection."""
    guest.record(frames.LISTENING, LISTENER, {"port": 6379})
    accept(guest, FIRST)


def accept(guest: PipeFence, number: int) -> bool:
    """The guest takes a connection."""
    return guest.frame(frames.ACCEPTED, LISTENER, frames.U32.pack(number))


def several(guest: PipeFence, *sent: tuple[int, int, bytes]) -> None:
    """The guest sends frames at once."""
    guest.say(b"".join(frames.HEADER.pack(len(data), channel, kind) + data for kind, channel, data in sent))


DATA, END, CREDIT, CLOSE = frames.DATA, frames.DATA_END, frames.CREDIT, frames.CLOSE
FULL = bytes(frames.CONNECTION_WINDOW)
ATTACKS: dict[str, Callable[[PipeFence], object]] = {
    "number of the host's": lambda g: accept(g, 7),
    "number in use": lambda g: accept(g, FIRST),
    "more than the limit": lambda g: [accept(g, FIRST + 1 + number) for number in range(3)],
    "accepted on a connection": lambda g: g.frame(frames.ACCEPTED, FIRST, frames.U32.pack(FIRST + 1)),
    "accepted without a number": lambda g: g.frame(frames.ACCEPTED, LISTENER, b""),
    "listening twice": lambda g: g.record(frames.LISTENING, LISTENER, {"port": 1}),
    "failure after all": lambda g: g.record(frames.FAIL, LISTENER, {"errno": 1, "message": "m"}),
    "listener closed by the guest": lambda g: g.frame(CLOSE, LISTENER),
    "data on a listener": lambda g: g.frame(DATA, LISTENER, b"x"),
    "data on no connection": lambda g: g.frame(DATA, FIRST + 1, b"x"),
    "empty data": lambda g: g.frame(DATA, FIRST),
    "more than was granted": lambda g: several(g, (DATA, FIRST, FULL), (DATA, FIRST, b"x")),
    "data after its end": lambda g: several(g, (END, FIRST, b""), (DATA, FIRST, b"x")),
    "end twice": lambda g: several(g, (END, FIRST, b""), (END, FIRST, b"")),
    "end with bytes": lambda g: g.frame(END, FIRST, b"x"),
    "data after close": lambda g: several(g, (CLOSE, FIRST, b""), (DATA, FIRST, b"x")),
    "close twice": lambda g: several(g, (CLOSE, FIRST, b""), (CLOSE, FIRST, b"")),
    "close with bytes": lambda g: g.frame(CLOSE, FIRST, b"xyz"),
    "credit of three bytes": lambda g: g.frame(CREDIT, FIRST, b"\0\0\1"),
    "connected unasked": lambda g: g.frame(frames.CONNECTED, FIRST),
    "exit of a connection": lambda g: g.record(frames.EXIT, FIRST, {"code": 0}),
}


@pytest.mark.parametrize("name", ATTACKS)
async def test_broken_promise(name: str, guest: PipeFence) -> None:
    """A guest that sends what it must not on a connection loses its sandbox."""
    guest.greet()
    async with guest.open() as sandbox:
        opened(guest)
        with anyio.fail_after(PATIENCE_S):
            async with sandbox.listen(_idle, port=6379, limit=3):
                ATTACKS[name](guest)
                error = await sandbox.session.link.death()
    assert isinstance(error, SandboxDied)
    assert error.reason == "protocol"


async def _idle(connection: Connection) -> None:
    await anyio.sleep_forever()


@pytest.mark.parametrize("port", ["x", "", "-1", "65536", "1" * 5000, "\u0663"])
async def test_port_that_is_none(port: str, guest: PipeFence) -> None:
    """A guest that listens on what is no port loses its sandbox."""
    guest.greet()
    async with guest.open() as sandbox:
        guest.record(frames.LISTENING, LISTENER, {"port": port})
        with anyio.fail_after(PATIENCE_S), pytest.raises(SandboxDied):
            await sandbox.listen(_idle, port=0).__aenter__()


async def test_cut_short_is_no_end(guest: PipeFence) -> None:
    """A connection that the guest closes without its end is broken, after the bytes that came before."""
    guest.greet()
    seen: list[object] = []
    done = anyio.Event()

    async def serve(connection: Connection) -> None:
        seen.append(await connection.receive())
        with pytest.raises(anyio.BrokenResourceError):
            await connection.receive()
        done.set()

    async with guest.open() as sandbox:
        opened(guest)
        several(guest, (DATA, FIRST, b"abc"), (CLOSE, FIRST, b""))
        with anyio.fail_after(PATIENCE_S):
            async with sandbox.listen(serve, port=6379):
                await done.wait()
    assert seen == [b"abc"]


async def test_number_is_free_again(guest: PipeFence) -> None:
    """A number can be used again once both sides have closed it, and not before."""
    guest.greet()
    served: list[int] = []
    both = anyio.Event()

    async def serve(connection: Connection) -> None:
        served.append(connection.number)
        if len(served) == 1:
            several(guest, (CLOSE, FIRST, b""))
            with pytest.raises(anyio.BrokenResourceError):
                await connection.receive()
            asyncio.get_running_loop().call_soon(accept, guest, FIRST)
        else:
            both.set()

    async with guest.open() as sandbox:
        opened(guest)
        with anyio.fail_after(PATIENCE_S):
            async with sandbox.listen(serve, port=6379, limit=1):
                await both.wait()
    assert served == [FIRST, FIRST]


async def test_serving_that_fails(guest: PipeFence) -> None:
    """An exception of the serving function is raised where the listener is held."""
    guest.greet()

    async def serve(connection: Connection) -> None:
        raise ArithmeticError(connection.number)

    async with guest.open() as sandbox:
        opened(guest)
        with anyio.fail_after(PATIENCE_S), pytest.raises(ExceptionGroup) as info:
            async with sandbox.listen(serve, port=6379):
                await anyio.sleep_forever()
    assert isinstance(info.value.exceptions[0], ArithmeticError)


async def test_nobody_answers_a_call(guest: PipeFence) -> None:
    """A call that the guest does not answer in time fails, and its late answer has no effect."""
    guest.greet()
    async with guest.open() as sandbox:
        with anyio.fail_after(PATIENCE_S), pytest.raises(SandboxPortError, match=r"within 0\.05 s") as info:
            await sandbox.connect(80, timeout_s=0.05)
        several(guest, (frames.CONNECTED, 1, b""), (CLOSE, 1, b""))
        with anyio.fail_after(PATIENCE_S):
            while sandbox.session.link.channels:
                await anyio.lowlevel.checkpoint()
    assert info.value.errno_name == "ETIMEDOUT"


async def test_guest_that_only_sends(guest: PipeFence, monkeypatch: pytest.MonkeyPatch) -> None:
    """While a guest does not take our answers, nothing more of it is read, and in the end it dies."""
    monkeypatch.setattr("ringfence.sandbox.protocol.session._STALL_S", 0.3)
    monkeypatch.setattr("ringfence.sandbox.protocol.session._CHECK_INTERVAL_S", 0.1)
    monkeypatch.setattr("ringfence.sandbox.protocol.link._OUTGOING_HIGH", 64 * 1024)
    guest.greet()
    sent = 0
    with anyio.fail_after(PATIENCE_S):
        async with guest.open() as sandbox:
            opened(guest)
            with suppress(SandboxDied):
                async with sandbox.listen(_answer, port=6379):
                    while not guest.is_killed:
                        sent += guest.say(_one_connection(FIRST + 1 + sent))
                        assert sandbox.session.link.outgoing.size < 1024 * 1024
                        await anyio.lowlevel.checkpoint()


async def test_many_that_send_hold_little_together(guest: PipeFence, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is on its way to a guest that does not read is bounded for all connections, not for each."""
    monkeypatch.setattr("ringfence.sandbox.protocol.link._FULL", len(FULL))
    guest.greet()
    begun = 0

    async def flood(connection: Connection) -> None:
        nonlocal begun
        begun += 1
        await connection.send(FULL)

    with anyio.fail_after(PATIENCE_S):
        async with guest.open() as sandbox:
            opened(guest)
            async with sandbox.listen(flood, port=6379, limit=20):
                for number in range(FIRST + 1, FIRST + 20):
                    accept(guest, number)
                while begun < 20:
                    await anyio.lowlevel.checkpoint()
                assert sandbox.session.link.outgoing.size < 3 * len(FULL)


async def _answer(connection: Connection) -> None:
    await connection.send(bytes(1000))


def _one_connection(number: int) -> bytes:
    """Accepted and closed."""
    return (
        frames.HEADER.pack(4, LISTENER, frames.ACCEPTED)
        + frames.U32.pack(number)
        + frames.HEADER.pack(0, number, CLOSE)
    )


NUMBERS = st.sampled_from([1, 2, 3, FIRST, FIRST + 1, FIRST + 2, 2**32 - 1])
KINDS = st.sampled_from(
    [DATA, END, CREDIT, CLOSE, frames.ACCEPTED, frames.CONNECTED, frames.LISTENING, frames.FAIL]
)
PAYLOADS = st.one_of(
    st.sampled_from([b"", b"\1", b"x" * 3000, FULL, frames.U32.pack(2**32 - 1), frames.U32.pack(FIRST + 2)]),
    st.binary(max_size=20),
)


class Machine(HostileGuest):
    """Listeners are served and ports are called, and the guest answers as it likes."""

    expected = (SandboxDied, SandboxPortError, anyio.BrokenResourceError, anyio.EndOfStream)
    holder_waits = True

    async def hold(self) -> None:
        """Listen until the end."""
        self.guest.record(frames.LISTENING, LISTENER, {"port": 6379})
        async with self.sandbox.listen(echo, port=6379, limit=2):
            await self.over.wait()

    @rule()
    def call_port(self) -> None:
        """Somebody calls a port inside, and talks."""

        async def talk(sandbox: Sandbox) -> None:
            connection = await sandbox.connect(80, timeout_s=0.5)
            await connection.send(bytes(100_000))
            await connection.receive()
            await connection.aclose()

        if self.opened.is_set():
            self.call(talk(self.sandbox))

    @rule(kind=KINDS, number=NUMBERS, payload=PAYLOADS)
    def send(self, kind: int, number: int, payload: bytes) -> None:
        """The guest sends a frame."""
        self.guest.frame(kind, number, payload)
        self.step()

    @rule(number=st.sampled_from([FIRST, FIRST + 1]))
    def accept(self, number: int) -> None:
        """The guest takes a connection, as it may."""
        accept(self.guest, number)
        self.step()

    @rule(number=st.sampled_from([FIRST, FIRST + 1]), data=st.binary(min_size=1, max_size=50))
    def talk(self, number: int, data: bytes) -> None:
        """The guest sends bytes, as it may."""
        self.guest.frame(DATA, number, data)
        self.step()

    @rule(number=st.sampled_from([2, 3, 4]))
    def answer(self, number: int) -> None:
        """The guest answers a call, as it may."""
        self.guest.frame(frames.CONNECTED, number)
        self.step()


@pytest.mark.parametrize(
    ("count", "steps"), [(50, 20), pytest.param(150, 50, marks=pytest.mark.slow)], ids=["short", "long"]
)
def test_hostile_guest(count: int, steps: int) -> None:
    """Callers and servers see only typed errors and are always woken, whatever the guest does."""
    run_guest(Machine, count=count, steps=steps)


FLOODS = {
    "many connections, nobody reads": """
for number in range(200):
    guest.say(accepted(number))
await flood(lambda: b"".join(frame(DATA, FIRST + number, b"xy") for number in range(200)))
""",
    "opened and closed without an end": """
counter = itertools.count()
await flood(lambda: b"".join(accepted(n) + frame(CLOSE, FIRST + n, b"") for n in itertools.islice(counter, 1000)))
""",
    "credit": """
guest.say(accepted(0))
await flood(lambda: frame(frames.CREDIT, FIRST, b"\\0\\0\\0\\1") * 4000)
""",
}
DEFINITIONS = """
DATA, CLOSE, FIRST = frames.DATA, frames.CLOSE, frames.GUEST_NUMBERS + 1

def accepted(number):
    return frame(frames.ACCEPTED, 1, frames.U32.pack(FIRST + number))

async def serve(connection):
    await anyio.sleep_forever()
"""
LISTENING = """
guest.record(frames.LISTENING, 1, {"port": 1})
async with sandbox.listen(serve, port=1, limit=200):
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", FLOODS)
def test_memory_under_attack(name: str) -> None:
    """Whatever the guest floods, the host grows by 32 MB at most."""
    assert growth_kib(LISTENING + textwrap.indent(FLOODS[name], "    "), DEFINITIONS) <= 32 * 1024
