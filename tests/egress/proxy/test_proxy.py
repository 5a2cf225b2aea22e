"""What the proxy carries, records and lets be changed, from real sandboxes."""

import json
import os
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import anyio
import pytest
from anyio.abc import SocketStream
from tests.egress.proxy.conftest import Gated, Record, Web, sh

from ringfence.config.egress import Egress
from ringfence.egress.environment import environment_for
from ringfence.egress.gate import opened_gate
from ringfence.egress.proxy.proxy import ForwardProxy, HalfOpen
from ringfence.egress.resolver import Resolved
from ringfence.errors import PolicyRefused, UsageError
from ringfence.events import EgressChanged, EgressClosed, EgressDecided, Event
from ringfence.sandbox import Sandbox, SandboxSpec
from ringfence.testing.conformance.check import python
from ringfence.tool.base import ToolContext
from ringfence.tool.shell import ShellTool

HOLD = """
import socket, sys
s = socket.create_connection(("127.0.0.1", 3128))
s.sendall(b"CONNECT git.example:%d HTTP/1.0\\r\\n\\r\\n" % int(sys.argv[1]))
print(s.recv(4096).split()[1].decode(), flush=True)
try:
    print(s.recv(1))
except OSError:
    print("cut off")
"""


async def test_counted_and_recorded(web: Web, gated: Gated, record: Record) -> None:
    """A request's decision, address and bytes each way are in the record."""
    (web.root / "file").write_text("x" * 1000)
    async with gated("git.example") as sandbox:
        await sh(sandbox, "curl -sS http://git.example/file?q=1")
        (closed,) = await record.reaches(1, EgressClosed)
    (decided,) = record.of(EgressDecided)
    assert (decided.method, decided.host, decided.port, decided.path) == (
        "GET",
        "git.example",
        80,
        "/file?q=1",
    )
    assert (decided.rule, decided.address) == ("git.example", f"127.0.0.1:{web.http}")
    assert (closed.status, closed.ended_by) == (200, "closed")
    assert closed.received_bytes > 1000 > closed.sent_bytes > 0


async def test_recorded_before_the_host_is_called(web: Web) -> None:
    """What cannot be recorded is not done."""

    async def refuse(event: Event) -> None:
        raise anyio.BrokenResourceError

    spec = SandboxSpec(
        backend="bubblewrap", egress=Egress.model_validate({"allow": ["git.example", *web.opened()]})
    )
    async with (
        Sandbox.start(spec) as sandbox,
        opened_gate(sandbox, spec, refuse, resolve=web.resolve),
    ):
        said = await sh(
            sandbox, "curl -sS -x http://127.0.0.1:3128 -T /etc/hostname http://git.example/called"
        )
    assert "exit " in said
    assert not (web.root / "called").exists()


async def test_own_ports(web: Web, gated: Gated, record: Record) -> None:
    """A port that ringfence itself listens on is reached under no name and by no rule."""
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=0)
    port = listener.extra(anyio.abc.SocketAttribute.local_port)
    async with listener, gated(f"127.0.0.1:{port}") as sandbox:
        said = await sh(sandbox, f"curl -sS --noproxy '' http://127.0.0.1:{port}/")
    assert "is one that ringfence itself listens on" in said
    assert [event.rule for event in record.of(EgressDecided)] == ["never"]


async def test_unreachable(web: Web, gated: Gated, record: Record) -> None:
    """What is allowed and does not answer is 502 with the reason, and recorded as such."""
    web.http = 9
    async with gated("git.example", "127.0.0.1:9") as sandbox:
        said = await sh(sandbox, "curl -sS -w '%{http_code}' http://git.example/")
        (closed,) = await record.reaches(1, EgressClosed)
    assert said == "ringfence: git.example:80: Connection refused\n502"
    assert (closed.status, closed.ended_by) == (502, "Connection refused")


async def test_commands_are_told(web: Web, gated: Gated) -> None:
    """A command whose client does not say why it failed has the reasons in its result, and in the shell tool's."""
    async with gated("git.example", "127.0.0.1:9") as sandbox:
        web.https = 9
        asked = "for host in other git other; do curl -s https://$host.example/; done"
        result = await sandbox.run(["sh", "-c", asked])
        call = {"command": asked, "reasoning": "r"}
        shown = await ShellTool().call(call, ToolContext(sandbox, "1"))
        quiet = await sandbox.run(["true"])
    assert result.refused == (
        "other.example:443 is not allowed; allow it: --allow other.example, or egress.allow in ringfence.yaml",
        "git.example:443 cannot be reached: Connection refused",
    )
    assert json.loads(shown.content)["refused"] == list(result.refused)
    assert quiet.refused == ()


async def test_upload(web: Web, gated: Gated) -> None:
    """A body comes through, with a length or in chunks, and to who asks before he sends."""
    async with gated("git.example") as sandbox:
        await sandbox.write_file("body", os.urandom(300_000))
        for option in ("", "-H 'Transfer-Encoding: chunked'", "-H 'Expect: 100-continue'"):
            said = await sh(sandbox, f"curl -sS {option} --data-binary @body http://git.example/")
            assert '"size": 300000' in said, (option, said)


async def test_head(web: Web, gated: Gated) -> None:
    """An answer without a body ends where it should."""
    (web.root / "file").write_text("x" * 1000)
    async with gated("git.example") as sandbox:
        said = await sh(sandbox, "curl -sSI http://git.example/file; curl -sSI http://other.example/")
    assert "HTTP/1.1 200" in said
    assert "content-length: 1000" in said
    assert "HTTP/1.1 403" in said


async def test_refusal_tells_what_would_allow_it(gated: Gated) -> None:
    """A refusal says in words what was asked, which rule decided, and what would allow it; in the status line too."""
    async with gated("git.example") as sandbox:
        said = await sh(sandbox, "curl -sSv https://other.example/ 2>&1; curl -sS http://other.example/")
    assert "403 ringfence: other.example:443 is not allowed" in said
    assert said.endswith(
        "ringfence: refused: other.example:80 is not allowed\ndecided by: default\n"
        "allow it: --allow other.example, or egress.allow in ringfence.yaml\n"
    )


async def test_change(web: Web, record: Record) -> None:
    """What is allowed later holds from then on; what is denied later is cut off at once. Each change is recorded."""
    (web.root / "file").write_text("the mirror")
    asked = SandboxSpec(backend="bubblewrap", egress=Egress.model_validate({"allow": web.opened()}))
    spec = asked.model_copy(update={"env": environment_for(asked, {})})
    async with (
        Sandbox.start(spec) as sandbox,
        opened_gate(sandbox, spec, record.emit, resolve=web.resolve) as gate,
    ):
        assert "is not allowed" in await sh(sandbox, "curl -sS http://git.example/file")
        await gate.change("allow", "git.example", by="test")
        assert await sh(sandbox, "curl -sS http://git.example/file") == "the mirror"
        await gate.change("allow", f"git.example:{web.http}", by="test")
        async with sandbox.spawn(["python3", "-c", HOLD, str(web.http)]) as process:
            said = b""
            async for piece in process.stdout:
                if not said:
                    await gate.change("deny", f"git.example:{web.http}", by="test")
                said += piece
        assert said.decode().split("\n")[:2] == ["200", "cut off"]
        assert "is allowed on ports 80 and 443" in await sh(
            sandbox, f"curl -sSv https://git.example:{web.http}/ 2>&1"
        )
    changes = [(event.action, event.rule, event.is_loosening) for event in record.of(EgressChanged)]
    assert changes == [
        ("allow", "git.example", True),
        ("allow", f"git.example:{web.http}", True),
        ("deny", f"git.example:{web.http}", False),
    ]


@pytest.mark.parametrize(
    ("rule", "error", "reason"),
    [
        ("*.com", UsageError, "anybody can register"),
        ("pakages", UsageError, "did you mean"),
        ("169.254.169.254", PolicyRefused, "credentials"),
        ("a.example:2375", PolicyRefused, "container engine"),
        ("model", PolicyRefused, "made at the start"),
    ],
)
async def test_changes_that_are_refused(
    record: Record, rule: str, error: type[Exception], reason: str
) -> None:
    """A change that is no rule, or opens what nothing opens, is refused and not recorded."""
    spec = SandboxSpec(backend="bubblewrap")
    async with (
        Sandbox.start(spec) as sandbox,
        opened_gate(sandbox, spec, record.emit, with_proxy=True) as gate,
    ):
        with pytest.raises(error, match=reason):
            await gate.change("allow", rule, by="test")
    assert record.events == []


async def test_no_proxy_without_a_grant(record: Record) -> None:
    """Nothing listens where nothing is granted, and no variable says so."""
    spec = SandboxSpec(backend="bubblewrap")
    assert environment_for(spec, {}) == {}
    async with Sandbox.start(spec) as sandbox, opened_gate(sandbox, spec, record.emit):
        result = await python(sandbox, "import socket; socket.create_connection(('127.0.0.1', 3128))")
    assert "ConnectionRefusedError" in result.stderr


async def test_gate_that_dies(web: Web, gated: Gated) -> None:
    """When the gate closes, connections fail; nothing opens."""
    async with gated("git.example") as sandbox:
        spec = sandbox.spec
    async with Sandbox.start(spec) as sandbox:
        async with opened_gate(sandbox, spec, Record().emit, resolve=web.resolve):
            assert "Directory listing" in await sh(sandbox, "curl -sS http://git.example/")
        assert "exit 7" in await sh(sandbox, "curl -sS http://git.example/")


def test_users_variables_win() -> None:
    """The user's own variables win; his options for Node.js are added to ours."""
    spec = SandboxSpec(egress=Egress.model_validate({"allow": ["packages"]}), forward=("db:5432",))
    env = environment_for(spec, {"HTTP_PROXY": "http://own", "NODE_OPTIONS": "--trace-warnings"})
    assert env["HTTP_PROXY"] == "http://own"
    assert env["http_proxy"] == env["HTTPS_PROXY"] == env["https_proxy"] == "http://127.0.0.1:3128"
    assert env["NO_PROXY"] == env["no_proxy"] == "localhost,127.0.0.1,::1,db"
    assert env["NODE_OPTIONS"].endswith(".cjs --trace-warnings")


async def test_oldest_half_open_goes() -> None:
    """Of those that have not said what they want, the one that has waited longest is given up for one more."""
    half_open = HalfOpen(2)
    given_up = []

    async def wait(name: str) -> None:
        with half_open.waiting() as scope:
            await anyio.sleep_forever()
        given_up.append((name, scope.cancelled_caught))

    async with anyio.create_task_group() as tasks:
        for name in ("first", "second", "third"):
            tasks.start_soon(wait, name)
        await anyio.wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()
    assert given_up == [("first", True)]


async def test_half_open_connections_are_bounded() -> None:
    """A sandbox has 64 connections that have not said what they want, whatever it opens."""
    half_open = HalfOpen()
    given_up: list[int] = []

    async def wait(number: int) -> None:
        with half_open.waiting():
            await anyio.sleep_forever()
        given_up.append(number)

    async with anyio.create_task_group() as tasks:
        for number in range(66):
            tasks.start_soon(wait, number)
        await anyio.wait_all_tasks_blocked()
        tasks.cancel_scope.cancel()
    assert given_up == [0, 1]


async def test_rules_are_those_of_now(web: Web, record: Record) -> None:
    """A change takes what is granted as a whole; asking for it gives what holds."""
    proxy = ForwardProxy(Egress(), sandbox_id="x", emit=record.emit, resolve=web.resolve)
    egress = Egress.model_validate({"allow": ["packages"], "deny": ["pypi.org"]})
    await proxy.change(egress)
    assert proxy.egress == egress


@asynccontextmanager
async def asking(proxy: ForwardProxy) -> AsyncIterator[SocketStream]:
    """A client's end of a connection to a proxy."""
    one, other = socket.socketpair()
    client, near = await SocketStream.from_socket(one), await SocketStream.from_socket(other)

    async def serve() -> None:
        async with near:
            try:
                await proxy.serve(near)
            except anyio.BrokenResourceError:
                return

    async with client, anyio.create_task_group() as tasks:
        tasks.start_soon(serve)
        yield client
        tasks.cancel_scope.cancel()


async def test_a_slow_lookup_outlives_no_change(web: Web, record: Record) -> None:
    """Who serves a name can make its lookup last; what is denied meanwhile is denied all the same."""
    asked, go = anyio.Event(), anyio.Event()

    async def resolve(host: str, port: int) -> Sequence[Resolved]:
        asked.set()
        await go.wait()
        return await web.resolve(host, port)

    allow = ["git.example", *web.opened()]
    egress = Egress.model_validate({"allow": allow})
    proxy = ForwardProxy(egress, sandbox_id="s", emit=record.emit, resolve=resolve)
    async with asking(proxy) as client:
        await client.send(b"GET http://git.example/ HTTP/1.1\r\nHost: git.example\r\n\r\n")
        await asked.wait()
        await proxy.change(Egress.model_validate({"allow": allow, "deny": ["git.example"]}))
        go.set()
        said = await client.receive()
    assert b"403 ringfence: git.example:80 is denied by name" in said
    assert record.of(EgressClosed) == []


async def test_an_address_that_is_denied_is_cut_off_whatever_it_was_called(web: Web, record: Record) -> None:
    """A change is about names and addresses alike."""
    allow = [f"git.example:{web.http}", *web.opened()]
    egress = Egress.model_validate({"allow": allow})
    proxy = ForwardProxy(egress, sandbox_id="s", emit=record.emit, resolve=web.resolve)
    async with asking(proxy) as client:
        await client.send(b"CONNECT git.example:%d HTTP/1.1\r\nHost: x\r\n\r\n" % web.http)
        assert b" 200 " in await client.receive()
        await proxy.change(Egress.model_validate({"allow": allow, "deny": ["127.0.0.1"]}))
        (closed,) = await record.reaches(1, EgressClosed)
    assert closed.ended_by == "denied"
