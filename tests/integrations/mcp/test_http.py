"""The server over HTTP: who may use it, and what belongs to whom."""

import os
import secrets
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import anyio
import httpx2
import pytest
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client
from tests.integrations.mcp.conftest import COMMAND, Caller, ringfence

from ringfence.integrations.mcp.http import TOKEN_VARIABLE, read_tokens

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


class HttpServer:
    """A running server with two tokens."""

    def __init__(self, url: str, tokens: list[str], log: Path) -> None:
        self.url = url
        self.tokens = tokens
        self.log = log

    @asynccontextmanager
    async def client(self, token: int, mode: str = "auto") -> AsyncIterator[Caller]:
        """Connect with one of the tokens."""
        headers = {"Authorization": f"Bearer {self.tokens[token]}"}
        async with (
            httpx2.AsyncClient(headers=headers, timeout=60) as http,
            Client(streamable_http_client(self.url, http_client=http), mode=mode) as client,
        ):
            yield Caller(client)


@contextmanager
def serving(
    workspace: Path, log: Path, *arguments: str, tokens: list[str], **environment: str
) -> Iterator[HttpServer]:
    """Start a server on a free port, and end it."""
    command = [COMMAND, "mcp", "-C", str(workspace), "--http", "0", *arguments]
    with log.open("wb") as stderr:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stderr=stderr, env={**os.environ, **environment}
        )
    try:
        while "http://" not in log.read_text():
            assert process.poll() is None, log.read_text()
        yield HttpServer(log.read_text().split("serving MCP at ")[1].strip(), tokens, log)
        process.terminate()
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def server(workspace: Path, tmp_path: Path) -> Iterator[HttpServer]:
    """A server with two tokens in a file."""
    tokens = [secrets.token_hex(32), secrets.token_hex(32)]
    file = tmp_path / "tokens"
    file.touch(mode=0o600)
    file.write_text("\n".join(tokens))
    with serving(workspace, tmp_path / "log", "--token-file", str(file), tokens=tokens) as started:
        yield started


async def test_the_token_may_be_in_the_environment(workspace: Path, tmp_path: Path):
    """A server that is started with a token in its environment serves who has it."""
    token = secrets.token_hex(32)
    with serving(workspace, tmp_path / "log", tokens=[token], **{TOKEN_VARIABLE: token}) as started:
        async with started.client(0) as client:
            assert (await client.ok("sandbox_list"))["sandboxes"] == []


@pytest.mark.parametrize(("mode", "revision"), [("legacy", "2025-11-25"), ("auto", "2026-07-28")])
async def test_a_token_is_a_session(server: HttpServer, mode: str, revision: str):
    """A handle lasts beyond its connection, and to another token it does not exist: the error is that of any handle."""
    async with server.client(0, mode) as client:
        assert client.client.protocol_version == revision
        sandbox = (await client.ok("sandbox_open"))["sandbox"]
    async with server.client(0, mode) as client:
        assert (await client.ok("command_run", sandbox=sandbox, command="echo hello"))["stdout"] == "hello\n"
    async with server.client(1, mode) as other:
        assert (await other.ok("sandbox_list"))["sandboxes"] == []
        for handle in (sandbox, "sandbox-" + "0" * 32):
            for tool in ("command_run", "sandbox_close", "changes_diff", "changes_apply"):
                more = {"command": "true"} if tool == "command_run" else {}
                error = await other.refused(tool, sandbox=handle, **more)
                assert (
                    error
                    == f"there is no sandbox {handle!r}; sandbox_list lists yours, sandbox_open opens one"
                )
    async with server.client(0, mode) as client:
        run = (await client.ok("sandbox_close", sandbox=sandbox))["run"]
    assert (await ringfence("runs", "verify", run))[0] == 0


async def test_other_requests_are_refused_before_they_are_read(server: HttpServer):
    """Without a token, from a page of another origin, or for a name that leads here: nothing is served."""
    good = f"Bearer {server.tokens[0]}"
    cases = [
        ({}, 401),
        ({"Authorization": "Bearer"}, 401),
        ({"Authorization": f"Bearer {server.tokens[0][:-1]}"}, 401),
        ({"Authorization": f"Basic {server.tokens[0]}"}, 401),
        ({"Authorization": good, "Host": "attacker.example"}, 421),
        ({"Authorization": good, "Host": "127.0.0.1.attacker.example:80"}, 421),
        ({"Authorization": good, "Origin": "https://attacker.example"}, 403),
        ({"Authorization": good, "Origin": "null"}, 403),
        ({"Authorization": good, "Origin": "http://127.0.0.1:1"}, 403),
    ]
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
    accept = {"Accept": "application/json, text/event-stream"}
    async with httpx2.AsyncClient() as client:
        for headers, status in cases:
            response = await client.post(server.url, headers={**accept, **headers}, json=body)
            assert response.status_code == status, headers
            assert "sandbox_open" not in response.text
        response = await client.post(server.url, headers={**accept, "Authorization": good}, json=body)
        assert "sandbox_open" in response.text
    assert not any(token in server.log.read_text() for token in server.tokens)


async def test_an_oversized_body_is_refused(server: HttpServer):
    """A body beyond the limit is not read."""
    host, _, port = server.url.removeprefix("http://").removesuffix("/mcp").rpartition(":")
    head = (
        f"POST /mcp HTTP/1.1\r\nHost: {host}:{port}\r\nAuthorization: Bearer {server.tokens[0]}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {10**12}\r\n\r\n"
    )
    async with await anyio.connect_tcp(host, int(port)) as connection:
        await connection.send(head.encode())
        assert (await connection.receive()).startswith(b"HTTP/1.1 413 ")


@pytest.mark.parametrize(
    "address", ["0.0.0.0:0", "[::]:0", "example.com:80", "127.0.0.1:99999", "127.0.0.1:-1", "x"]
)
async def test_only_the_loopback_is_served(workspace: Path, address: str):
    """An address that others could reach is a mistake on the command line."""
    code, text = await ringfence("mcp", "-C", str(workspace), "--http", address)
    assert (code, text.count("\n")) == (2, text.count("clients need a token") + 1)
    assert f"--http {address!r}" in text


@pytest.mark.parametrize(
    ("content", "mode", "expected"),
    [
        ("x" * 40, 0o644, "can be read by other users"),
        ("short", 0o600, "is no word of at least 32 plain characters"),
        ("", 0o600, "must have from 1 to 100 different tokens"),
        (f"{'x' * 40}\n{'x' * 40}\n", 0o600, "must have from 1 to 100 different tokens"),
    ],
)
async def test_weak_tokens_are_refused(
    workspace: Path, tmp_path: Path, content: str, mode: int, expected: str
):
    """A token that others can read or guess protects nothing. The error does not contain it."""
    file = tmp_path / "token"
    file.write_text(content)
    file.chmod(mode)
    code, text = await ringfence("mcp", "-C", str(workspace), "--http", "0", "--token-file", str(file))
    assert code == 2
    assert expected in text
    assert not content or content.strip() not in text


def test_a_token_is_made_where_none_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """It is kept for the next start, where only its user can read it; one in the environment is used instead."""
    monkeypatch.setenv("RINGFENCE_STATE_DIR", str(tmp_path / "state"))
    made = read_tokens(None, {})
    assert read_tokens(None, {}) == made
    assert [len(token) for token in made] == [64]
    assert (tmp_path / "state" / "mcp-token").stat().st_mode & 0o777 == 0o600
    assert read_tokens(None, {TOKEN_VARIABLE: "x" * 32}) == ["x" * 32]
