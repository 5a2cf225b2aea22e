"""From inside a real sandbox: the real SDK, no key anywhere, no way round."""

import json
import sys
import sysconfig
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from tests.egress.gateway.conftest import KEY, OpenGateway, Record

from ringfence.config.egress import Egress
from ringfence.egress.gate import opened_gate
from ringfence.egress.gateway.budget import Budget
from ringfence.egress.gateway.gateway import Gateway
from ringfence.egress.gateway.provider import PORT_INSIDE, SOCKET_INSIDE, environment_inside
from ringfence.errors import LimitReached
from ringfence.sandbox import Mount, Sandbox, SandboxSpec
from ringfence.testing.conformance.check import python
from ringfence.testing.scripted_model import ScriptedModelServer, parse_script

PACKAGES = "/packages"
ASK = """
import anthropic
reply = anthropic.Anthropic(max_retries=0).messages.create(
    model="scripted", max_tokens=500, messages=[{"role": "user", "content": "hi"}])
print(reply.content[0].text)
"""
STREAM = """
import anthropic
with anthropic.Anthropic(max_retries=0).messages.stream(
    model="scripted", max_tokens=500, messages=[{"role": "user", "content": "hi"}]) as stream:
    print("".join(stream.text_stream))
"""
PLAIN = """
import http.client, json, sys
connection = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]))
body = json.dumps({"model": "scripted", "max_tokens": 50, "messages": [{"role": "user", "content": "hi"}]})
connection.request("POST", "/v1/messages", body, {"anthropic-version": "1", "x-api-key": "mine"})
answer = connection.getresponse()
print(answer.status, answer.read().decode())
"""


def spec(**fields: Any) -> SandboxSpec:
    """A sandbox that is granted the model."""
    return SandboxSpec(backend="bubblewrap", egress=Egress.model_validate({"allow": ["model"]}), **fields)


@asynccontextmanager
async def gated(gateway: Gateway, record: Record, **fields: Any):
    """A sandbox with this gateway."""
    asked = spec(env=environment_inside(gateway.kinds), **fields)
    async with (
        Sandbox.start(asked) as sandbox,
        opened_gate(sandbox, asked, record.emit, gateway=gateway),
    ):
        yield sandbox


@asynccontextmanager
async def scripted(*texts: str):
    """A scripted model."""
    turns = "".join(f"- text: {json.dumps(text)}\n" for text in texts)
    async with ScriptedModelServer.serve(parse_script(f"turns:\n{turns}")) as server:
        yield server


@pytest.mark.slow
@pytest.mark.parametrize("code", [ASK, STREAM], ids=["whole", "stream"])
async def test_the_sdk_works_inside(gateway_at: OpenGateway, record: Record, code: str):
    """With nothing but the variables that it knows anyway; the key is the host's."""
    mounts = [Mount(source=sysconfig.get_paths()["purelib"], target=PACKAGES)]
    async with (
        scripted("hello from outside") as server,
        gateway_at(server.base_url) as gateway,
        gated(gateway, record, mounts=mounts) as sandbox,
    ):
        minor = await python(sandbox, "import sys; print(sys.version_info[:2])")
        if minor.stdout.strip() != str(sys.version_info[:2]):
            pytest.skip("the Python inside is another than that of the tests, and cannot load their packages")
        result = await sandbox.run(["python3", "-c", code], env={"PYTHONPATH": PACKAGES}, timeout_s=60)
    assert result.stdout.strip() == "hello from outside", result.stderr
    assert server.requests[0].headers["x-api-key"] == KEY
    assert record.exchanged[0].sandbox_id == sandbox.id


async def test_the_key_is_nowhere_inside(gateway_at: OpenGateway, record: Record):
    """Not in the environment of any process, on any command line, nor in any file; not even as a part."""
    look = f"""
import glob, os, sys
part = {KEY[8:22]!r}.encode()
seen = found = 0
for name in glob.glob("/proc/[0-9]*/environ") + glob.glob("/proc/[0-9]*/cmdline"):
    try:
        data = open(name, "rb").read()
    except OSError:
        continue
    seen += 1
    found += part in data.replace(repr(part).encode(), b"") and str(os.getpid()) not in name
for root in (os.path.expanduser("~"), "/tmp", "/run", "/etc"):
    for folder, _, files in os.walk(root):
        for name in files:
            path = os.path.join(folder, name)
            if os.path.isfile(path) and os.path.getsize(path) < 1 << 20 and os.access(path, os.R_OK):
                seen += 1
                found += part in open(path, "rb").read()
print(seen > 5, found)
"""
    async with (
        scripted("hello", "more") as server,
        gateway_at(server.base_url) as gateway,
        gated(gateway, record) as sandbox,
    ):
        answered = await python(sandbox, PLAIN, str(PORT_INSIDE))
        looked = await python(sandbox, look)
    assert answered.stdout.startswith("200"), answered.stderr
    assert looked.stdout.split() == ["True", "0"], looked.stderr


async def test_the_gateway_is_at_a_socket_too(gateway_at: OpenGateway, record: Record):
    """For clients that need no loopback."""
    code = f"""
import socket
s = socket.socket(socket.AF_UNIX)
s.connect({SOCKET_INSIDE!r})
s.sendall(b"GET /v1/models HTTP/1.1\\r\\nHost: x\\r\\nanthropic-version: 1\\r\\nConnection: close\\r\\n\\r\\n")
data = b""
while piece := s.recv(4096):
    data += piece
print(data.decode())
"""
    async with (
        scripted("hello") as server,
        gateway_at(server.base_url) as gateway,
        gated(gateway, record) as sandbox,
    ):
        result = await python(sandbox, code)
    assert '"id":"scripted"' in result.stdout, result.stderr


@pytest.mark.slow
async def test_two_gateways_are_never_mixed_up(gateway_at: OpenGateway, record: Record):
    """Each sandbox reaches its own, at the same address."""
    async with (
        scripted("one") as first,
        scripted("two") as second,
        gateway_at(first.base_url) as one,
        gateway_at(second.base_url) as two,
        gated(one, record) as inside_one,
        gated(two, record) as inside_two,
    ):
        said = [(await python(each, PLAIN, str(PORT_INSIDE))).stdout for each in (inside_one, inside_two)]
    assert '"text":"one"' in said[0]
    assert '"text":"two"' in said[1]
    assert [each.sandbox_id for each in record.exchanged] == [inside_one.id, inside_two.id]


async def test_without_a_grant_there_is_nothing(gateway_at: OpenGateway, record: Record):
    """No port, no socket."""
    async with scripted("hello") as server, gateway_at(server.base_url) as gateway:
        bare = SandboxSpec(backend="bubblewrap")
        async with (
            Sandbox.start(bare) as sandbox,
            opened_gate(sandbox, bare, record.emit, gateway=gateway),
        ):
            result = await python(sandbox, PLAIN, str(PORT_INSIDE))
            socket = await sandbox.run(["test", "-e", SOCKET_INSIDE])
    assert "ConnectionRefusedError" in result.stderr
    assert socket.exit_code == 1
    assert record.events == []


@pytest.mark.slow
async def test_a_gateway_that_is_killed_leaves_nothing_open(gateway_at: OpenGateway, record: Record):
    """Connections fail from then on, and lead nowhere else."""
    async with scripted("hello", "more") as server, gateway_at(server.base_url) as gateway:
        asked = spec()
        async with Sandbox.start(asked) as sandbox:
            is_open, is_over = anyio.Event(), anyio.Event()

            async def gate() -> None:
                try:
                    async with opened_gate(sandbox, asked, record.emit, gateway=gateway):
                        is_open.set()
                        await anyio.sleep_forever()
                finally:
                    is_over.set()

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(gate)
                await is_open.wait()
                before = await python(sandbox, PLAIN, str(PORT_INSIDE))
                tasks.cancel_scope.cancel()
            after = await python(sandbox, PLAIN, str(PORT_INSIDE))
    assert before.stdout.startswith("200")
    assert is_over.is_set()
    assert "ConnectionRefusedError" in after.stderr
    assert len(server.requests) == 1


@pytest.mark.slow
async def test_a_budget_that_is_used_is_told_inside_and_ends_the_run(gateway_at: OpenGateway, record: Record):
    """As an error that no client asks again after; whatever the command then makes of it."""
    said = []
    async with (
        scripted("hello", "more") as server,
        gateway_at(server.base_url, budget=Budget(tokens=5)) as gateway,
    ):

        async def work() -> None:
            async with gated(gateway, record) as sandbox:
                said.extend([await python(sandbox, PLAIN, str(PORT_INSIDE)) for _ in range(2)])

        with pytest.raises(LimitReached, match="tokens"):
            await work()
    assert [each.stdout[:3] for each in said] == ["200", "403"]
    assert "limit 'tokens' reached" in said[1].stdout
    assert len(server.requests) == 1


async def test_what_goes_on_without_a_budget_is_stopped(
    gateway_at: OpenGateway, record: Record, monkeypatch: pytest.MonkeyPatch
):
    """After a time in which clients can tell of it."""
    monkeypatch.setattr("ringfence.egress.gateway.server._GRACE_S", 0.01)
    async with scripted("hello") as server, gateway_at(server.base_url) as gateway:

        async def work() -> None:
            async with gated(gateway, record):
                gateway.stop(LimitReached("tokens", allowed=1, used=2))
                await anyio.sleep_forever()

        with pytest.raises(LimitReached, match="tokens"):
            await work()
