"""Why containers ended."""

import secrets
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest

from ringfence.sandbox.container.hardened_container import end_reason
from ringfence.sandbox.docker.client import Engine, open_engine
from ringfence.sandbox.docker.fence import end_state

_GREEDY = ("python3", "-c", "b'x' * 2**30")
_KILLED = ("python3", "-c", "import os; os.kill(os.getpid(), 9)")


@pytest.mark.parametrize(
    ("exit_code", "is_out_of_memory", "reason"),
    [(137, True, "memory"), (137, False, "killed"), (1, True, "exited"), (0, False, "exited")],
)
def test_end_reason(exit_code: int, is_out_of_memory: bool, reason: str) -> None:
    """The engine's state of an ended container is classified as one of the end reasons."""
    assert end_reason(exit_code, is_out_of_memory=is_out_of_memory).reason == reason


@pytest.fixture
async def engine(image: str) -> AsyncIterator[Engine]:
    """The Docker engine that has the image."""
    async with await open_engine() as engine:
        yield engine


async def _ended(engine: Engine, image: str, argv: tuple[str, ...]) -> str:
    """A container whose command has ended; it has an init, since the first process cannot kill itself."""
    host = {"Memory": 2**26, "MemorySwap": 2**26, "NetworkMode": "none", "Init": True}
    container = await engine.create(
        {"Image": image, "Cmd": [*argv], "HostConfig": host}, f"test-{secrets.token_hex(6)}"
    )
    await engine.start(container)
    await engine.wait(container)
    return container


@pytest.mark.docker
@pytest.mark.parametrize(("argv", "reason"), [(_GREEDY, "memory"), (_KILLED, "killed")])
async def test_out_of_memory_is_found_in_events(
    argv: tuple[str, ...], reason: str, engine: Engine, image: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An engine that sees the end first never marks the state of the container as out of memory; its events do."""
    container = await _ended(engine, image, argv)
    inspect = engine.inspect

    async def heard_too_late(container: str) -> Mapping[str, Any]:
        told = await inspect(container)
        return {**told, "State": {**told["State"], "OOMKilled": False}}

    monkeypatch.setattr(engine, "inspect", heard_too_late)
    try:
        assert (await end_state(engine, container))["OOMKilled"] is (reason == "memory")
    finally:
        await engine.remove(container)
