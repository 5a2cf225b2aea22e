"""An error of our own while one connection from a real sandbox is served."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import anyio
import pytest
from tests.egress.proxy.conftest import Record

from ringfence.config.egress import Egress
from ringfence.egress.gate import opened_gate
from ringfence.egress.resolver import Resolved
from ringfence.errors import InfrastructureFault
from ringfence.events import ConnectionFailed, EgressDecided, Event
from ringfence.sandbox import Sandbox, SandboxSpec
from ringfence.testing.conformance.check import python

CONNECT = """
import socket, sys
for host in sys.argv[1:]:
    s = socket.create_connection(("127.0.0.1", 3128), timeout=30)
    s.sendall(f"GET http://{host}/ HTTP/1.1\\r\\nHost: {host}\\r\\n\\r\\n".encode())
    try:
        print(s.recv(12))
    except ConnectionResetError:
        print("reset")
"""
SECRET = "text-that-the-connection-carried"


async def resolve(host: str, _port: int) -> Sequence[Resolved]:
    """Fail in ways that no resolver should."""
    if host.startswith("group"):
        raise ExceptionGroup(SECRET, [ExceptionGroup(SECRET, [KeyError(SECRET), anyio.EndOfStream()])])
    if host.startswith("lost"):
        raise ExceptionGroup(SECRET, [anyio.BrokenResourceError()])
    if host.startswith("disk"):
        raise ExceptionGroup(SECRET, [InfrastructureFault("the disk is full"), KeyError(SECRET)])
    raise ArithmeticError(SECRET)


@asynccontextmanager
async def gated(record: Record) -> AsyncIterator[Sandbox]:
    """A sandbox whose resolver fails."""
    egress = Egress.model_validate({"allow": ["*.fails.example"]})
    spec = SandboxSpec(backend="bubblewrap", egress=egress)
    async with (
        Sandbox.start(spec) as sandbox,
        opened_gate(sandbox, spec, record.emit, resolve=resolve),
    ):
        yield sandbox


async def test_an_unexpected_error_ends_its_connection_only() -> None:
    """Later connections are served; the record has each kind of error once, without the error's text."""
    record = Record()
    async with gated(record) as sandbox:
        hosts = [
            "a.fails.example",
            "b.fails.example",
            "group.fails.example",
            "lost.fails.example",
            "refused.test",
        ]
        result = await python(sandbox, CONNECT, *hosts)
    assert result.stdout.split() == ["reset", "reset", "reset", "reset", "b'HTTP/1.1", "403'"], result.stderr
    failed = record.of(ConnectionFailed)
    assert [(event.listener, event.error) for event in failed] == [
        ("port 3128", "ArithmeticError"),
        ("port 3128", "KeyError"),
    ]
    assert all(event.place.startswith("egress/") for event in failed)
    assert SECRET not in repr(record.events)
    assert [event.host for event in record.of(EgressDecided)] == ["refused.test"]


async def test_the_user_learns_of_it() -> None:
    """The command that caused the error has a note of it in its result."""
    async with gated(Record()) as sandbox:
        result = await python(sandbox, CONNECT, "a.fails.example")
    assert any("internal error of ringfence (ArithmeticError" in line for line in result.refused)


async def _connect(record: Record, host: str) -> None:
    """Connect once, and wait."""
    async with gated(record) as sandbox:
        await python(sandbox, CONNECT, host)
        await anyio.sleep_forever()


def _fails_always(event: Event) -> None:
    raise InfrastructureFault("the record cannot be written: the disk is full")


def _fails_for_failures(event: Event) -> None:
    if isinstance(event, ConnectionFailed):
        _fails_always(event)


@pytest.mark.parametrize(
    ("host", "check"),
    [
        ("refused.test", _fails_always),
        ("a.fails.example", _fails_for_failures),
        ("disk.fails.example", lambda _event: None),
    ],
)
async def test_what_the_run_must_end_for_ends_it(host: str, check: Callable[[Event], None]) -> None:
    """A record that cannot be written is no error of one connection, alone or among others."""
    record = Record()

    async def emit(event: Event) -> None:
        check(event)

    record.emit = emit  # type: ignore[method-assign]
    with pytest.raises(ExceptionGroup) as raised:
        await _connect(record, host)
    assert raised.group_contains(InfrastructureFault, match="the disk is full")


async def test_a_sandbox_that_is_gone_is_no_failed_connection() -> None:
    """Connections that end with it are not recorded as errors."""
    record = Record()
    async with gated(record) as sandbox:
        await sandbox.run(["/bin/sh", "-c", "exec 3<>/dev/tcp/127.0.0.1/3128; true"], timeout_s=30)
    assert record.of(ConnectionFailed) == []
