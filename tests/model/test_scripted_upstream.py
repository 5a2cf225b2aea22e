"""A script asked by the model gateway within the process, without a server."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from ringfence.egress.gateway.gateway import Gateway
from ringfence.egress.gateway.provider import ModelProvider
from ringfence.egress.http.rules import Request
from ringfence.events import Event
from ringfence.model.scripted.upstream import ScriptedUpstream
from ringfence.secret import Credential, Provider

MESSAGES, RESPONSES, CHAT = "/v1/messages", "/v1/responses", "/v1/chat/completions"
BODIES: dict[str, dict[str, Any]] = {
    MESSAGES: {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]},
    RESPONSES: {"model": "m", "input": "hi"},
    CHAT: {"model": "m", "messages": [{"role": "user", "content": "hi"}]},
}


@asynccontextmanager
async def scripted(folder: Path, turns: str) -> AsyncIterator[Gateway]:
    """A gateway before the turns of a script."""
    script = folder / "script.yaml"
    script.write_text(f"turns: {turns}")
    upstream = ScriptedUpstream(script)
    providers: tuple[Provider, ...] = ("anthropic", "openai")
    gateway = Gateway(
        [
            ModelProvider(each, Credential("api_key", "k", provider=each), "api_key", upstream)
            for each in providers
        ]
    )

    async def ignore(event: Event) -> None:
        """What the gateway records is for its own tests."""

    async with gateway.opened(ignore):
        yield gateway


async def ask(gateway: Gateway, path: str = MESSAGES, **changes: Any) -> tuple[int, str]:
    """Status and body of an answer."""
    body = json.dumps({**BODIES[path], **changes}).encode()
    headers = (("anthropic-version", "2023-06-01"),) if path == MESSAGES else ()
    answer = await gateway.handle(Request("POST", path, headers, body))
    try:
        return answer.status, b"".join([piece async for piece in answer.body()]).decode()
    finally:
        await answer.aclose()


async def test_one_script_answers_every_api(tmp_path: Path):
    """The turns are one line, whichever API is asked."""
    async with scripted(tmp_path, "[{text: one}, {text: two}, {text: three}]") as gateway:
        answers = [await ask(gateway, path) for path in (MESSAGES, RESPONSES, CHAT)]
        end = await ask(gateway)
    assert [status for status, _ in answers] == [200] * 3
    assert [word in body for word, (_, body) in zip(("one", "two", "three"), answers, strict=True)] == [
        True
    ] * 3
    assert end[0] == 400
    assert "is exhausted after turn 3" in end[1]


async def test_requests_at_once_get_one_turn_each(tmp_path: Path):
    """The second waits until the first answer is complete."""
    got: list[str] = []

    async def one(gateway: Gateway) -> None:
        _, body = await ask(gateway, stream=True)
        got.append(body)

    turns = "[{text: aa, slow: {}}, {text: bb, slow: {}}]"
    async with scripted(tmp_path, turns) as gateway, anyio.create_task_group() as tasks:
        tasks.start_soon(one, gateway)
        tasks.start_soon(one, gateway)
    assert ["aa" in got[0], "bb" in got[1]] == [True, True]


async def test_a_turn_that_did_not_go_out_whole_is_due_again(tmp_path: Path):
    """As when a client of the server leaves."""
    async with scripted(tmp_path, "[{text: aa, stall: {seconds: 60, after_events: 3}}]") as gateway:
        with anyio.move_on_after(0.2) as scope:
            await ask(gateway, stream=True)
        status, body = await ask(gateway, stream=True)
    assert scope.cancelled_caught
    assert (status, "aa" in body) == (200, True)


@pytest.mark.parametrize("fault", ["error: {status: 307}", "stream_error: {}"])
async def test_what_cannot_be_forwarded_is_a_fault_of_the_api(tmp_path: Path, fault: str):
    """A redirect and a connection that is dropped before the body, as from a server."""
    async with scripted(tmp_path, f"[{{text: aa, {fault}}}, {{text: bb}}]") as gateway:
        status, body = await ask(gateway)
    assert status == 502
    assert "the scripted model" in body


async def test_a_script_begins_anew_with_each_gateway(tmp_path: Path):
    """A gateway that is closed and opened again asks the first turn."""
    async with scripted(tmp_path, "[{text: one}]") as gateway:
        first = await ask(gateway)

    async def ignore(event: Event) -> None:
        """Not of interest."""

    async with gateway.opened(ignore):
        again = await ask(gateway)
    assert (first[0], again[0]) == (200, 200)
