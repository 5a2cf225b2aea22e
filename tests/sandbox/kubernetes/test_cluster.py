"""A session with a cluster: what becomes of refusals, credentials and servers that misbehave."""

import gzip
import json
import ssl
import tracemalloc
from pathlib import Path
from typing import Any

import anyio
import pytest
import trustme
from aiohttp import web
from tests.sandbox.kubernetes.api_server import TOKEN, ApiServer, kubeconfig, running, status

from ringfence.errors import AuthenticationFailed, ExitCode, RingfenceError
from ringfence.sandbox.kubernetes.cluster import open_cluster
from ringfence.sandbox.kubernetes.cluster_error import ClusterError

PODS = "/api/v1/namespaces/agents/pods"
POD = f"{PODS}/one"
_FORBIDDEN = (
    'pods is forbidden: User "system:serviceaccount:agents:agent" cannot create resource "pods" in API group "" in '
    'the namespace "agents"'
)
_TERMINATING = (
    'pods "x" is forbidden: unable to create new content in namespace agents because it is being terminated'
)


async def _error(doing: str = "create the pod", method: str = "POST", path: str = PODS) -> RingfenceError:
    async with await open_cluster() as cluster:
        with pytest.raises(RingfenceError) as raised:
            await cluster.call(doing, method, path, body={"metadata": {"name": "x"}})
    text = str(raised.value)
    assert text.isprintable()
    assert len(text) < 1200
    assert TOKEN not in text
    return raised.value


@pytest.mark.parametrize(
    ("code", "answer", "exit_code", "words"),
    [
        pytest.param(
            401,
            status(401, "Unauthorized", "Unauthorized"),
            ExitCode.AUTHENTICATION,
            ["'dev'", "does not accept the credentials", "renew them"],
            id="expired credentials",
        ),
        pytest.param(
            403,
            status(403, "Forbidden", _FORBIDDEN),
            ExitCode.AUTHENTICATION,
            ["create", "pods", "agents", "`ringfence doctor --sandbox kubernetes`"],
            id="forbidden verb",
        ),
        pytest.param(
            403,
            status(
                403,
                "Forbidden",
                'pods "x" is forbidden: exceeded quota: q, requested: pods=1, used: pods=0, limited: pods=0',
            ),
            ExitCode.INFRASTRUCTURE,
            ["exceeded quota: q", "--memory"],
            id="quota",
        ),
        pytest.param(
            404,
            status(404, "NotFound", 'namespaces "agents" not found'),
            ExitCode.INFRASTRUCTURE,
            ["kubectl create namespace agents", "sandbox.kubernetes.namespace"],
            id="no namespace",
        ),
        pytest.param(
            403,
            status(403, "Forbidden", _TERMINATING),
            ExitCode.INFRASTRUCTURE,
            ["is being deleted", "sandbox.kubernetes.namespace"],
            id="namespace ends",
        ),
        pytest.param(
            400,
            status(
                400,
                "BadRequest",
                'admission webhook "policy.example.com" denied the request: no \x1b[31mroot',
            ),
            ExitCode.INFRASTRUCTURE,
            ["policy.example.com", "\\x1b[31mroot", "policy"],
            id="webhook",
        ),
        pytest.param(
            403,
            status(
                403,
                "Forbidden",
                'pods "x" is forbidden: maximum memory usage per Container is 64Mi, but limit is 1Gi',
            ),
            ExitCode.INFRASTRUCTURE,
            ["64Mi", "--memory", "kubectl describe limitrange"],
            id="limit range",
        ),
        pytest.param(
            403,
            status(403, "Forbidden", 'pods "x" is forbidden: pod rejected: RuntimeClass "nope" not found'),
            ExitCode.INFRASTRUCTURE,
            ['"nope"', "kubectl get runtimeclass", "sandbox.runtime"],
            id="runtime class",
        ),
        pytest.param(
            403,
            status(
                403,
                "Forbidden",
                'pods "x" is forbidden: violates PodSecurity "restricted:latest": seccompProfile (...)',
            ),
            ExitCode.INFRASTRUCTURE,
            ["restricted:latest", "sandbox.kubernetes.namespace"],
            id="pod security, newer",
        ),
        pytest.param(
            502, b"<html>\n<b>Bad\x00 Gateway</b>", ExitCode.INFRASTRUCTURE, ["Bad\\x00 Gateway"], id="proxy"
        ),
        pytest.param(500, b"x" * 100_000, ExitCode.INFRASTRUCTURE, ["xxx"], id="long"),
        pytest.param(500, b"[" * 5000, ExitCode.INFRASTRUCTURE, ["[[["], id="deep"),
        pytest.param(500, b"", ExitCode.INFRASTRUCTURE, ["500"], id="nothing"),
        pytest.param(200, ["a list"], ExitCode.INFRASTRUCTURE, ["an object"], id="no object"),
        pytest.param(200, b"{", ExitCode.INFRASTRUCTURE, ["JSON"], id="no JSON"),
        pytest.param(200, b"x" * 9 * 1024**2, ExitCode.INFRASTRUCTURE, ["larger than"], id="too large"),
    ],
)
async def test_refusals_say_what_to_do(
    api_server: ApiServer, code: int, answer: Any, exit_code: ExitCode, words: list[str]
) -> None:
    """One line with the cluster's words, the next step and the exit code. The texts are those of 1.20.2."""
    api_server.answers["POST", PODS] = (code, answer)
    error = await _error()
    assert error.exit_code == exit_code
    assert str(error).startswith("could not create the pod: ")
    assert all(word in str(error) for word in words), error


async def test_an_unreachable_server_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Trying again later may help; the address is in the text."""
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig(tmp_path / "k", "http://127.0.0.1:9")))
    error = await _error()
    assert error.exit_code == ExitCode.INFRASTRUCTURE
    assert "(http://127.0.0.1:9) cannot be reached: " in str(error)
    assert "; check that the cluster runs" in str(error)


async def test_an_untrusted_certificate_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither requests nor streams reach a server that another authority vouches for; the right one is trusted."""
    authority, other = trustme.CA(), trustme.CA()
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(tls)
    with running(tls) as server:
        for trusted in (other, authority):
            file = tmp_path / "ca.pem"
            trusted.cert_pem.write_to_path(str(file))
            made = kubeconfig(
                tmp_path / "k",
                f"https://127.0.0.1:{server.port}",
                cluster={"certificate-authority": "ca.pem"},
            )
            monkeypatch.setenv("KUBECONFIG", str(made))
            if trusted is other:
                assert "certificate" in str(await _error())
                assert server.requests == []
        async with await open_cluster() as cluster:
            assert (await cluster.call("look", "GET", "/version"))["gitVersion"] == "v1.20.2"
            with pytest.raises(ClusterError) as raised:
                await cluster.open_stream("attach", "one", "guest")
        assert raised.value.is_absent


# --- credentials


def _plugin(tmp_path: Path, program: str, version: str = "v1") -> dict[str, Any]:
    file = tmp_path / "plugin"
    file.write_text(f"#!/bin/sh\n{program}\n")
    file.chmod(0o700)
    return {"exec": {"apiVersion": f"client.authentication.k8s.io/{version}", "command": str(file)}}


def _numbered(tmp_path: Path) -> str:
    """A plugin that gives another token each time, in the version that it was asked for."""
    return (
        f"echo x >> {tmp_path}/count; n=$(wc -l < {tmp_path}/count)\n"
        """version=$(echo "$KUBERNETES_EXEC_INFO" | sed 's/.*"apiVersion": "\\([^"]*\\)".*/\\1/')\n"""
        """printf '{"kind": "ExecCredential", "apiVersion": "%s", "status": {"token": "t%d"}}' "$version" $n """
        f"| tee {tmp_path}/last"
    )


@pytest.mark.parametrize("version", ["v1beta1", "v1"])
async def test_a_plugin_renews_the_token(
    api_server: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    """Its token is used until it is refused; then requests and streams take the plugin's next one."""
    user = _plugin(tmp_path, _numbered(tmp_path), version)
    made = kubeconfig(tmp_path / "k", f"http://127.0.0.1:{api_server.port}", user)
    monkeypatch.setenv("KUBECONFIG", str(made))
    api_server.answers["GET", POD] = (200, {"metadata": {"name": "one"}})

    async def talk(websocket: web.WebSocketResponse) -> None:
        await websocket.send_bytes(b"\1hello")

    api_server.websocket = talk
    async with await open_cluster() as cluster:
        for tokens in ({"t1"}, {"t1"}, {"t2"}):
            api_server.tokens = tokens
            await cluster.call("look", "GET", POD)
        api_server.tokens = {"t3"}
        async with await cluster.open_stream("attach", "one", "guest") as stream:
            assert await stream.receive() == b"hello"
    assert (tmp_path / "count").read_text() == "x\n" * 3
    assert json.loads((tmp_path / "last").read_text())["apiVersion"].endswith(f"/{version}")


@pytest.mark.parametrize(
    ("program", "words"),
    [
        pytest.param("printf 'log in\\033[2J' >&2; exit 1", ["log in\\x1b[2J", "returned 1"], id="fails"),
        pytest.param("head -c 100000 /dev/zero | tr '\\0' x >&2; exit 1", ["xxx"], id="talks too much"),
        pytest.param("echo no", ["Expecting value"], id="no JSON"),
        pytest.param("echo '{}'", ["it printed no token"], id="no status"),
        pytest.param("echo '[]'", ["it printed no token"], id="a list"),
    ],
)
async def test_a_plugin_that_fails_is_reported(
    api_server: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, words: list[str]
) -> None:
    """What it said is bounded and harmless; nothing is sent without credentials."""
    made = kubeconfig(
        tmp_path / "k", f"http://127.0.0.1:{api_server.port}", _plugin(tmp_path, program, "v1beta1")
    )
    monkeypatch.setenv("KUBECONFIG", str(made))
    error = await _error()
    assert error.exit_code == ExitCode.AUTHENTICATION
    assert all(word in str(error) for word in [*words, "'dev'", "log in anew"]), error
    assert api_server.requests == []


async def test_a_plugin_that_is_not_there_is_reported(
    api_server: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its path."""
    user = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "/nowhere/plugin"}}
    monkeypatch.setenv(
        "KUBECONFIG", str(kubeconfig(tmp_path / "k", f"http://127.0.0.1:{api_server.port}", user))
    )
    error = await _error()
    assert isinstance(error, AuthenticationFailed)
    assert "/nowhere/plugin" in str(error)


async def test_a_rotated_token_file_is_read_again(
    api_server: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pod's token is replaced by its kubelet while we run; a path in the kubeconfig is relative to that."""
    token = tmp_path / "token"
    token.write_text("old\n")
    made = kubeconfig(tmp_path / "k", f"http://127.0.0.1:{api_server.port}", {"tokenFile": "token"})
    monkeypatch.setenv("KUBECONFIG", str(made))
    api_server.answers["GET", POD] = (200, {})
    async with await open_cluster() as cluster:
        api_server.tokens = {"old"}
        await cluster.call("look", "GET", POD)
        api_server.tokens = {"new"}
        token.write_text("new\n")
        await cluster.call("look", "GET", POD)


# --- streams and watches


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
async def test_redirects_are_not_followed(api_server: ApiServer, code: int) -> None:
    """Neither a request nor a stream goes to another server, which would be given the credentials or the agent."""
    api_server.answers["GET", "/version"] = (code, b"")
    api_server.answers["GET", POD] = (200, {})
    api_server.answers["GET", f"{POD}/attach"] = (code, b"")
    with running() as other:
        api_server.headers["Location"] = f"http://127.0.0.1:{other.port}/version"
        async with await open_cluster() as cluster:
            with pytest.raises(ClusterError) as refused:
                await cluster.call("look", "GET", "/version")
            assert refused.value.status == code
            with pytest.raises(ClusterError, match="redirects"):
                await cluster.open_stream("attach", "one", "guest")
        assert other.requests == []


async def test_nothing_is_decompressed(api_server: ApiServer) -> None:
    """A small answer cannot become a large one in memory: neither an object nor the reason of a refused stream."""
    bomb = gzip.compress(json.dumps({"x": "y" * 50_000_000}).encode())
    api_server.headers["Content-Encoding"] = "gzip"
    api_server.answers["GET", POD] = (200, bomb)
    api_server.answers["GET", f"{POD}/attach"] = (400, bomb)
    tracemalloc.start()
    try:
        async with await open_cluster() as cluster:
            with pytest.raises(ClusterError, match="JSON"):
                await cluster.call("look", "GET", POD)
            api_server.headers.clear()
            api_server.answers["GET", POD] = (200, {})
            await cluster.call("look", "GET", POD)
            api_server.headers["Content-Encoding"] = "gzip"
            tracemalloc.reset_peak()
            before = tracemalloc.get_traced_memory()[0]
            with pytest.raises(ClusterError):
                await cluster.open_stream("attach", "one", "guest")
            assert tracemalloc.get_traced_memory()[1] - before < 4_000_000
    finally:
        tracemalloc.stop()


async def test_a_refused_stream_keeps_the_reason(api_server: ApiServer) -> None:
    """The server's words for why there is no stream, which aiohttp drops."""
    api_server.answers["GET", POD] = (200, {})
    api_server.answers["GET", f"{POD}/exec"] = (
        400,
        status(400, "BadRequest", "container guest is not valid for pod one"),
    )
    async with await open_cluster() as cluster:
        with pytest.raises(ClusterError, match="container guest is not valid for pod one") as raised:
            await cluster.open_stream("look inside", "one", "guest", argv=["true"])
    assert raised.value.status == 400


def _pod(version: str, phase: str, uid: str = "u1") -> dict[str, Any]:
    return {
        "metadata": {"name": "one", "uid": uid, "resourceVersion": version},
        "status": {"phase": phase},
    }


def _event(kind: str, pod: dict[str, Any]) -> bytes:
    return json.dumps({"type": kind, "object": pod}).encode() + b"\n"


async def test_a_pod_is_followed_until_it_is_deleted(api_server: ApiServer) -> None:
    """Through ends of the watch and versions that are no longer known; another pod of the same name is none of it."""
    api_server.answers["GET", POD] = (200, _pod("1", "Pending"))
    watches = [
        _event("MODIFIED", _pod("2", "Pending")) + b"\n" + _event("MODIFIED", _pod("3", "Running")),
        _event("ERROR", {"kind": "Status", "code": 410, "message": "too old"}),
        _event("MODIFIED", _pod("4", "Failed", uid="u2")) + _event("DELETED", _pod("5", "Running")),
    ]
    api_server.answers["GET", PODS] = lambda _: (200, watches.pop(0))
    async with await open_cluster() as cluster:
        with anyio.fail_after(30):
            phases = [pod["status"]["phase"] async for pod in cluster.follow_pod("one")]
    assert phases == ["Pending", "Pending", "Running", "Pending", "Pending"]
    assert watches == []


@pytest.mark.parametrize(
    "garbage",
    [
        pytest.param(b"no json\n", id="no JSON"),
        pytest.param(b"{}\n", id="no event"),
        pytest.param(b"[1]\n", id="a list"),
        pytest.param(b"[" * 5000 + b"\n", id="deep"),
        pytest.param(b"x" * 9 * 1024**2, id="no end"),
    ],
)
async def test_a_pod_is_looked_up_where_the_watch_is_garbage(api_server: ApiServer, garbage: bytes) -> None:
    """A proxy that spoils watches costs time, not the sandbox; what has no end is not collected."""
    phases = ["Pending", "Running", "Failed"]
    api_server.answers["GET", POD] = lambda _: (
        (200, _pod("1", phases.pop(0))) if phases else (404, status(404, "NotFound", "pods one not found"))
    )
    api_server.answers["GET", PODS] = (200, garbage)
    async with await open_cluster() as cluster:
        with anyio.fail_after(60):
            seen = [pod["status"]["phase"] async for pod in cluster.follow_pod("one")]
    assert seen == ["Pending", "Running", "Failed"]
