"""Names are looked up once, every answer counts, and what was checked is what is called."""

import ipaddress
import socket
import threading
from collections.abc import Sequence
from typing import Any

import anyio
import anyio.to_thread
import pytest

from ringfence.egress.resolver import (
    Resolved,
    Unreachable,
    connect_first,
    is_own_address,
    resolve_by_system,
    resolve_checked,
)


def at(address: str, port: int) -> Resolved:
    """An answer."""
    return Resolved(ipaddress.ip_address(address), port)


async def test_one_bad_answer_refuses_all() -> None:
    """A refused answer among good ones refuses the name, and nothing else is asked."""
    asked = []

    async def resolve(host: str, port: int) -> Sequence[Resolved]:
        asked.append(host)
        return [at("192.0.2.1", port), at("192.0.2.2", port), at("192.0.2.3", port)]

    def check(one: Resolved) -> str | None:
        return "it is bad" if str(one.address) == "192.0.2.2" else None

    with pytest.raises(Unreachable, match=r"'a.example' resolves to 192.0.2.2: it is bad") as caught:
        await resolve_checked("a.example", 80, check, resolve=resolve)
    assert caught.value.is_refused
    assert asked == ["a.example"]


@pytest.mark.parametrize("error", [OSError(2, "no such name"), UnicodeError("label too long"), None], ids=str)
async def test_unknown_names(error: Exception | None) -> None:
    """A name that cannot be looked up, or has no address, is unreachable and not refused."""

    async def resolve(_host: str, _port: int) -> Sequence[Resolved]:
        if error is not None:
            raise error
        return []

    with pytest.raises(Unreachable, match=r"'a.example'") as caught:
        await resolve_checked("a.example", 80, lambda _one: None, resolve=resolve)
    assert not caught.value.is_refused


async def test_a_lookup_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lookup has a deadline."""
    monkeypatch.setattr("ringfence.egress.resolver.CONNECT_S", 0.05)

    async def resolve(_host: str, _port: int) -> Sequence[Resolved]:
        await anyio.sleep_forever()
        return []

    with pytest.raises(Unreachable, match="was not resolved within"):
        await resolve_checked("a.example", 80, lambda _one: None, resolve=resolve)


async def test_by_the_system() -> None:
    """The system's own resolver gives addresses with the port that was asked for."""
    found = await resolve_by_system("127.0.0.1", 80)
    assert found == [at("127.0.0.1", 80)]
    assert [str(one) for one in await resolve_by_system("::1", 80)] == ["[::1]:80"]


async def test_the_next_address_is_tried() -> None:
    """Where the first address does not answer, the next one is called; where none does, it is told why."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        stream = await connect_first([at("127.0.0.2", port), at("127.0.0.1", port)])
        await stream.aclose()
    with pytest.raises(Unreachable, match="Connection refused"):
        await connect_first([at("127.0.0.1", port), at("127.0.0.2", port)])


@pytest.mark.parametrize(
    ("address", "is_own"), [("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("198.51.100.1", False)]
)
def test_own_addresses(address: str, is_own: bool) -> None:
    """The kernel knows which addresses are this machine's."""
    assert is_own_address(ipaddress.ip_address(address)) is is_own


async def test_names_that_hang_keep_nothing_else_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who serves a name can let every lookup of it last; names of others are looked up meanwhile."""
    real, let_go, begun = socket.getaddrinfo, threading.Event(), threading.Semaphore(0)

    def slow(host: Any, *arguments: Any, **named: Any) -> Any:
        if host == "hangs.example":
            begun.release()
            let_go.wait(30)
            raise socket.gaierror(socket.EAI_AGAIN, "it never answered")
        return real(host, *arguments, **named)

    monkeypatch.setattr(socket, "getaddrinfo", slow)

    async def ask() -> None:
        with pytest.raises(OSError, match="never answered"):
            await resolve_by_system("hangs.example", 443)

    try:
        async with anyio.create_task_group() as tasks:
            for _ in range(64):
                tasks.start_soon(ask)
            for _ in range(6):
                await anyio.to_thread.run_sync(begun.acquire)
            with anyio.fail_after(10):
                assert await anyio.getaddrinfo("127.0.0.1", 443)
            let_go.set()
    finally:
        let_go.set()
