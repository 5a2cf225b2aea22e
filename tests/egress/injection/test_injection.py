"""A credential that stands outside for a placeholder inside: from real sandboxes, by real TLS, with real clients."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest
import trustme
from cryptography import x509
from tests.cases import slow_after
from tests.egress.injection.conftest import HOST, OTHER, SECRET, SWAP, OpenSwapped, Server, secret, serving
from tests.egress.proxy.conftest import Record

from ringfence.config.egress import Egress
from ringfence.egress.gate import change_egress, opened_gate
from ringfence.egress.injection.authority import outward_context, system_authorities
from ringfence.egress.injection.injector import AUTHORITIES_INSIDE, prepare_injector
from ringfence.errors import AuthenticationFailed, ConfigurationError, PolicyRefused
from ringfence.events import EgressClosed, EgressDecided, EgressIntercepted, PlaceholderStrayed
from ringfence.sandbox import Sandbox, SandboxSpec
from ringfence.secret import lease_secret
from ringfence.testing.conformance.check import python

URLLIB = f"""
import os, urllib.request
request = urllib.request.Request(
    "https://{HOST}/repos?x=1", headers={{"Authorization": "token " + os.environ["GITHUB_TOKEN"]}})
print(urllib.request.urlopen(request, timeout=30).status)
"""
REQUESTS = f"""
import os
from pip._vendor import requests
print(requests.get(
    "https://{HOST}/repos?x=1", headers={{"Authorization": "token " + os.environ["GITHUB_TOKEN"]}}).status_code)
"""
CURL = f"curl -sS -o /dev/null -w '%{{http_code}}' -H \"Authorization: token $GITHUB_TOKEN\" 'https://{HOST}/repos?x=1'"
CLIENTS = {
    "curl": ["/bin/sh", "-c", CURL],
    "urllib": ["python3", "-c", URLLIB],
    "requests": ["python3", "-c", REQUESTS],  # pip brings it
}
RAW = """
import os, socket, ssl, sys
s = socket.create_connection(("127.0.0.1", 3128), timeout=30)
s.sendall(b"CONNECT %s:443 HTTP/1.0\\r\\n\\r\\n" % sys.argv[1].encode())
said = s.recv(4096)
if b" 200 " in said:
    context = ssl.create_default_context(cafile=os.environ["SSL_CERT_FILE"])
    context.set_alpn_protocols(sys.argv[3].split(","))
    t = context.wrap_socket(s, server_hostname=sys.argv[1])
    said = str(t.selected_alpn_protocol()).encode() + b"|"
    t.sendall(bytes.fromhex(sys.argv[2]).replace(b"PLACEHOLDER", os.environ["GITHUB_TOKEN"].encode()))
    try:
        while piece := t.recv(65536):
            said += piece
    except OSError as error:
        said += type(error).__name__.encode()
sys.stdout.write(said.decode("latin-1"))
"""
"""Sends bytes in TLS to a host; prints what was agreed on, and what comes back."""


async def raw(sandbox: Sandbox, data: bytes, *, host: str = HOST, alpn: str = "http/1.1") -> str:
    """What is answered to these bytes in TLS."""
    result = await python(sandbox, RAW, host, data.hex(), alpn)
    assert result.ok, result.stderr
    return result.stdout


@pytest.mark.parametrize("client", slow_after(1, CLIENTS))
async def test_the_secret_is_put_in_outside(
    server: Server, swapped: OpenSwapped, record: Record, client: str
):
    """Real clients send the placeholder and know nothing; the host gets the secret; the record has the name alone."""
    async with swapped(server) as one:
        result = await one.sandbox.run(CLIENTS[client], timeout_s=60)
        said = result.stdout
        inside = await one.sh("echo $GITHUB_TOKEN; env")
        (closed,) = await record.reaches(1, EgressClosed)
    assert said.strip() == "200", result.stderr
    (request,) = server.requests
    assert request["headers"]["authorization"] == f"token {SECRET}"
    assert request["headers"]["host"] == HOST
    assert one.placeholder in inside
    assert SECRET not in inside
    (event,) = record.of(EgressIntercepted)
    assert (event.host, event.method, event.path, event.secrets) == (HOST, "GET", "/repos?x=1", ["github"])
    assert (closed.connection, closed.status, closed.ended_by) == (event.connection, 200, "closed")
    assert SECRET not in repr(record.events)


async def test_in_containers(server: Server, swapped: OpenSwapped, container: dict[str, Any]):
    """The same, with an image's own programs."""
    async with swapped(server, **container) as one:
        said = await one.sandbox.run(CLIENTS["urllib"], timeout_s=60)
    assert said.stdout.strip() == "200", said.stderr
    assert [request["headers"]["authorization"] for request in server.requests] == [f"token {SECRET}"]


@pytest.mark.slow
async def test_in_basic_authentication(server: Server, swapped: OpenSwapped):
    """As curl -u and git send it, which asks without it first: user and password packed in base64."""
    async with swapped(server) as one:
        await one.sh(f'curl -sS -u "x-access-token:$GITHUB_TOKEN" https://{HOST}/')
        await one.sh(f'git ls-remote "https://x-access-token:$GITHUB_TOKEN@{HOST}/repository"')
    wanted = basic(f"x-access-token:{SECRET}")
    said = [request["headers"].get("authorization") for request in server.requests]
    assert said[:3] == [wanted, None, wanted]


def basic(text: str) -> str:
    """User and password as RFC 7617 writes them."""
    return "Basic " + base64.b64encode(text.encode()).decode()


@pytest.mark.parametrize("path", slow_after(1, ["/", "/pieces"]))
async def test_an_echoed_secret_stays_outside(
    server: Server, swapped: OpenSwapped, record: Record, path: str
):
    """Neither in the status line, a header or the body, plain, in base64 or in pieces of one byte."""
    async with swapped(server) as one:
        said = await one.sh(
            f'curl -sSi --suppress-connect-headers -H "Authorization: Bearer $GITHUB_TOKEN" https://{HOST}{path}'
        )
    assert server.requests[0]["headers"]["authorization"] == f"Bearer {SECRET}"
    head, _, body = said.partition("\r\n\r\n")
    assert "OK Bearer [redacted]" in head
    assert "X-Echo: Bearer [redacted]".lower() in head.lower()
    assert json.loads(body)["headers"]["authorization"] == "Bearer [redacted]"
    assert "[redacted]" in json.loads(body)["base64"]
    assert SECRET not in said
    assert SECRET not in repr(record.events)


async def test_a_secret_in_the_name_of_a_header_stays_outside(server: Server, swapped: OpenSwapped):
    """Such a header is dropped, in whatever case the server spells it."""
    plain = "ghp_AbcDefGhiJklMnoPqr0123456789"
    async with swapped(server, secrets=[secret(plain)]) as one:
        said = await one.sh(f'curl -sSi -H "Authorization: Bearer $GITHUB_TOKEN" https://{HOST}/names')
    assert server.requests[0]["headers"]["authorization"] == f"Bearer {plain}"
    assert "x-echo: bearer [redacted]" in said.lower()
    assert plain.lower() not in said.lower()


async def test_a_partial_answer_is_not_passed_on(server: Server, swapped: OpenSwapped):
    """It could begin within an echoed secret; no header that asks for a part, in any spelling, reaches the host."""
    wanted = (
        "Range: bytes=40-", "Request-Range: bytes=40-", "If-Range: x", "A-IM: vcdiff", "Accept-Charset: utf-16",
        "Accept_Encoding: gzip", "X-Range: 1-",
    )  # fmt: skip
    options = " ".join(f"-H '{header}'" for header in wanted)
    async with swapped(server) as one:
        said = await one.sh(f'curl -sSi {options} -H "Authorization: $GITHUB_TOKEN" https://{HOST}/part')
    assert "502" in said
    assert "its response is partial" in said
    (request,) = server.requests
    assert request["headers"].keys() & {header.partition(":")[0].lower() for header in wanted} == set()
    assert request["headers"]["accept-encoding"] == "identity"


WAYS = {
    "redirect to another host": f"curl -sSL --location-trusted {{auth}} 'https://{HOST}/to?https://{OTHER}/'",
    "redirect to plain HTTP": f"curl -sSL --location-trusted {{auth}} 'https://{HOST}/to?http://{OTHER}/'",
    "another host": f"curl -sS {{auth}} https://{OTHER}/",
    "another host by Host": f"curl -sS {{auth}} -H 'Host: {HOST}' https://{OTHER}/",
    "another host by server name": f"curl -skS {{auth}} --connect-to {HOST}:443:{OTHER}:443 https://{HOST}/",
    "plain HTTP": f"curl -sS {{auth}} http://{HOST}/",
    "plain HTTP to the port of TLS": f"curl -sS {{auth}} http://{HOST}:443/",
    "absolute form of plain HTTP": f"curl -sS {{auth}} --request-target http://{HOST}/ http://{OTHER}/",
    "absolute form of TLS": f"curl -sS {{auth}} --request-target https://{HOST}/ http://{HOST}/",
    "absolute form in the tunnel": f"curl -sS {{auth}} --request-target https://{OTHER}/ https://{HOST}/",
    "its own absolute form in the tunnel": f"curl -sS {{auth}} --request-target https://{HOST}/ https://{HOST}/",
    "another Host in the tunnel": f"curl -sS {{auth}} -H 'Host: {OTHER}' https://{HOST}/",
    "another port": f"curl -sS {{auth}} https://{HOST}:8443/",
    "its address": "curl -skS {auth} https://127.0.0.1:{port}/",
}


@pytest.mark.parametrize("way", WAYS)
async def test_no_other_way_leads_to_the_secret(server: Server, swapped: OpenSwapped, way: str):
    """The host gets the secret by its own name, over TLS, in a request for a path, and nothing else does."""
    command = WAYS[way].format(auth='-H "Authorization: Bearer $GITHUB_TOKEN"', port=server.port)
    async with swapped(server) as one:
        said = await one.sh(f"{command} -i --max-time 20")
    for request in server.requests:
        if not request["path"].startswith("/to?"):  # the redirect itself is the host's
            assert SECRET not in repr(request), said
    assert SECRET not in said


async def test_a_packed_answer_is_not_passed_on(server: Server, swapped: OpenSwapped, record: Record):
    """In it nobody would recognise the secret; plain was asked for, and no pieces of the whole."""
    async with swapped(server) as one:
        said = await one.sh(
            f'curl -sSi --suppress-connect-headers --compressed -r 0-9 -H "Authorization: a $GITHUB_TOKEN" https://{HOST}/packed'
        )
    assert "502" in said
    assert "its response is compressed" in said
    headers = server.requests[0]["headers"]
    assert headers["accept-encoding"] == "identity"
    assert "range" not in headers


async def test_the_placeholder_is_replaced_in_its_header_alone(
    server: Server, swapped: OpenSwapped, record: Record
):
    """In a path, a body and other headers it stays what it is; where it can be seen, that is told."""
    async with swapped(server) as one:
        await one.sh(
            f'curl -sS -H "X-Note: $GITHUB_TOKEN" -d "body=$GITHUB_TOKEN" "https://{HOST}/a?t=$GITHUB_TOKEN"'
        )
    (request,) = server.requests
    assert request["path"] == f"/a?t={one.placeholder}"
    assert request["body"] == f"body={one.placeholder}"
    assert request["headers"]["x-note"] == one.placeholder
    assert [event.secrets for event in record.of(EgressIntercepted)] == [[]]
    assert {(event.secret, event.place) for event in record.of(PlaceholderStrayed)} == {
        ("github", "path"),
        ("github", "x-note"),
    }


async def test_another_host_gets_a_useless_string(server: Server, swapped: OpenSwapped, record: Record):
    """By TLS, which for other hosts is not taken apart: the certificate that is seen inside is the host's own."""
    async with swapped(server) as one:
        said = await one.sh(
            f'curl -sSv -H "Authorization: Bearer $GITHUB_TOKEN" https://{OTHER}/ 2>&1 | grep issuer'
        )
        await one.sh(f'curl -sS -H "Authorization: Bearer $GITHUB_TOKEN" http://{OTHER}/')
    assert "trustme" in said
    assert server.requests[0]["headers"]["authorization"] == f"Bearer {one.placeholder}"
    assert record.of(EgressIntercepted) == []
    assert [(event.host, event.place) for event in record.of(PlaceholderStrayed)] == [
        (OTHER, "authorization")
    ]


async def test_each_host_gets_its_own(server: Server, swapped: OpenSwapped, record: Record):
    """The placeholder of one swapped host means nothing at another."""
    second = {"secret": "deploy", "host": OTHER, "env": "DEPLOY_TOKEN", "header": "X-Key"}
    secrets = [secret(), secret("another-secret-value", "deploy")]
    async with swapped(server, swap=[SWAP, second], secrets=secrets) as one:
        await one.sh(f'curl -sS -H "X-Key: $DEPLOY_TOKEN" -H "Authorization: $GITHUB_TOKEN" https://{OTHER}/')
    (request,) = server.requests
    assert request["headers"]["x-key"] == "another-secret-value"
    assert request["headers"]["authorization"] == one.placeholder
    assert [event.secrets for event in record.of(EgressIntercepted)] == [["deploy"]]


@pytest.mark.slow
async def test_http_2(server: Server, swapped: OpenSwapped):
    """A client that could speak HTTP/2 is led to HTTP/1.1; one that speaks it unasked is refused."""
    async with swapped(server) as one:
        agreed = await raw(
            one.sandbox,
            f"GET / HTTP/1.1\r\nHost: {HOST}\r\nAuthorization: PLACEHOLDER\r\n\r\n".encode(),
            alpn="h2,http/1.1",
        )
        refused = await raw(one.sandbox, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", alpn="h2")
    assert agreed.startswith("http/1.1|HTTP/1.1 200")
    assert refused.startswith(("None|HTTP/1.1 400", "None|HTTP/1.1 505"))
    assert len(server.requests) == 1


AUTH = "Authorization: PLACEHOLDER\r\n"
SMUGGLED = {
    "two lengths": f"POST / HTTP/1.1\r\nHost: {HOST}\r\n{AUTH}Content-Length: 4\r\nTransfer-Encoding: chunked"
    "\r\n\r\n0\r\n\r\n",
    "bare line feed": f"GET / HTTP/1.1\r\nHost: {HOST}\n{AUTH}\r\n",
    "folded": f"GET / HTTP/1.1\r\nHost: {HOST}\r\nX: a\r\n b\r\n{AUTH}\r\n",
    "two hosts": f"GET / HTTP/1.1\r\nHost: {HOST}\r\nHost: {OTHER}\r\n{AUTH}\r\n",
    "another host": f"GET / HTTP/1.1\r\nHost: {OTHER}\r\n{AUTH}\r\n",
    "whole address": f"GET https://{OTHER}/ HTTP/1.1\r\nHost: {HOST}\r\n{AUTH}\r\n",
    "tunnel in tunnel": f"CONNECT {OTHER}:443 HTTP/1.1\r\nHost: {HOST}\r\n{AUTH}\r\n",
    "oversized": f"GET / HTTP/1.1\r\nHost: {HOST}\r\n{AUTH}X: {'x' * 40_000}\r\n\r\n",
}


@pytest.mark.slow
async def test_smuggling(server: Server, swapped: OpenSwapped, record: Record):
    """Two requests in one, another host behind this one: refused, and the secret goes nowhere."""
    async with swapped(server) as one:
        for name, request in SMUGGLED.items():
            said = await raw(one.sandbox, request.encode())
            assert said.startswith(("http/1.1|HTTP/1.1 4", "http/1.1|HTTP/1.1 5")), (name, said)
    assert server.requests == []
    assert record.of(EgressIntercepted) == []
    refused = [event for event in record.of(EgressDecided) if not event.allowed]
    assert refused[-1].repeated == len(SMUGGLED)  # of many alike, some are told


async def test_a_second_request_is_not_read(server: Server, swapped: OpenSwapped):
    """One request for each connection."""
    request = f"GET /%d HTTP/1.1\r\nHost: {HOST}\r\n{AUTH}\r\n"
    async with swapped(server) as one:
        said = await raw(one.sandbox, (request % 1 + request % 2).encode())
    assert said.startswith("http/1.1|HTTP/1.1 200")
    assert [one["path"] for one in server.requests] == ["/1"]


async def test_tls_for_another_name(server: Server, swapped: OpenSwapped):
    """A tunnel to the swapped host with TLS for another is refused before anything of it is answered."""
    code = RAW.replace("server_hostname=sys.argv[1]", f"server_hostname={OTHER!r}")
    async with swapped(server) as one:
        result = await python(one.sandbox, code, HOST, b"x".hex(), "http/1.1")
    assert "ACCESS_DENIED" in result.stderr.upper()
    assert server.requests == []


@pytest.mark.parametrize("fault", slow_after(1, ["another authority", "another name"]))
async def test_a_host_that_is_not_who_it_should_be_gets_nothing(
    tmp_path: Path, authority: trustme.CA, swapped: OpenSwapped, record: Record, fault: str
):
    """TLS to the host is verified, with the name; the client is told why it failed."""
    vouching, name = (trustme.CA(), HOST) if fault == "another authority" else (authority, "wrong.example")
    with serving(tmp_path, vouching, name) as server:
        async with swapped(server) as one:
            said = await one.sh(f'curl -sSv -H "Authorization: $GITHUB_TOKEN" https://{HOST}/ 2>&1')
        assert "502 ringfence: " in said
        assert "its certificate is not to be trusted" in said
        assert server.requests == []
    assert record.of(EgressIntercepted) == []


async def test_a_secret_that_ends_meanwhile_is_not_sent(server: Server, swapped: OpenSwapped, record: Record):
    """The request is not sent without it either; the reason is in the record."""
    async with swapped(server) as one:
        await one.leases["github"].release()
        said = await one.sh(
            f'curl -sSi --suppress-connect-headers -H "Authorization: $GITHUB_TOKEN" https://{HOST}/'
        )
        (closed,) = await record.reaches(1, EgressClosed)
    assert said.startswith("HTTP/1.1 502")
    assert "the secret for this host is not available" in said
    assert server.requests == []
    assert "was released" in closed.ended_by


async def test_nothing_of_the_key_is_inside(server: Server, swapped: OpenSwapped):
    """Neither the authority's key nor the secret is in a file, an environment or a command line."""
    look = f"""
import glob, os
seen = found = 0
marks = ["PRIVATE" + " KEY", {SECRET[:9]!r} + {SECRET[9:16]!r}]
places = glob.glob("/proc/[0-9]*/environ") + glob.glob("/proc/[0-9]*/cmdline")
places = [one for one in places if one.split("/")[2] not in (str(os.getpid()), "self")]
for root in (os.path.expanduser("~"), "/tmp", "/run"):
    for folder, _, files in os.walk(root):
        places += [os.path.join(folder, name) for name in files]
for place in places:
    try:
        if place.startswith("/proc") or (os.path.isfile(place) and os.path.getsize(place) < 1 << 20):
            data = open(place, "rb").read()
            seen += 1
            found += any(mark.encode() in data for mark in marks)
    except OSError:
        pass
print(seen > 2, found, oct(os.stat({AUTHORITIES_INSIDE!r}).st_mode & 0o777))
"""
    async with swapped(server) as one:
        await one.sh(CURL)
        looked = await python(one.sandbox, look)
    assert looked.stdout.split() == ["True", "0", "0o444"], looked.stderr


async def test_the_authority_vouches_for_its_hosts_alone(server: Server, swapped: OpenSwapped):
    """Its certificate says so by a critical constraint; each sandbox has its own."""
    async with swapped(server) as one, swapped(server) as two:
        certificate = x509.load_pem_x509_certificate(one.injector.authority.certificate_pem)
        other = two.injector.authority.certificate_pem
    names = certificate.extensions.get_extension_for_class(x509.NameConstraints)
    assert names.critical
    assert names.value.permitted_subtrees == [x509.DNSName(HOST)]
    assert other != one.injector.authority.certificate_pem
    assert one.placeholder != two.placeholder


async def test_no_lease_no_sandbox(authority: trustme.CA):
    """A swap without its secret is an error before anything starts."""
    egress = Egress.model_validate({"allow": [HOST], "swap": [SWAP]})
    with pytest.raises(AuthenticationFailed, match="has not leased"):
        await prepare_injector(egress, {})
    spec = SandboxSpec(backend="bubblewrap", egress=egress)
    async with Sandbox.start(spec) as sandbox:
        with pytest.raises(PolicyRefused, match="no secret was leased"):
            async with opened_gate(sandbox, spec, Record().emit):
                pytest.fail("it was opened")


async def test_an_ended_lease_is_an_error_at_the_start(authority: trustme.CA, tmp_path: Path):
    """As is a secret that cannot stand in a header."""
    egress = Egress.model_validate({"allow": [HOST], "swap": [SWAP]})
    async with lease_secret(secret(), state=tmp_path) as lease:
        assert await prepare_injector(egress, {"github": lease}) is not None
        await lease.release()
        with pytest.raises(AuthenticationFailed, match="was released"):
            await prepare_injector(egress, {"github": lease})
    async with lease_secret(secret("caf\u00e9-caf\u00e9-caf\u00e9"), state=tmp_path) as lease:
        with pytest.raises(AuthenticationFailed, match="printable"):
            await prepare_injector(egress, {"github": lease})


@pytest.mark.parametrize(
    ("allow", "env", "says"),
    [
        ([OTHER], {}, "is not allowed"),
        ([], {}, "is not allowed"),
        ([HOST], {"GITHUB_TOKEN": "mine"}, "both sandbox.env and egress.swap"),
    ],
)
async def test_a_swap_without_effect_is_an_error(allow: list[str], env: dict[str, str], says: str):
    """Its host must be allowed, and its variable free."""
    egress = Egress.model_validate({"allow": allow, "swap": [SWAP]})
    with pytest.raises(PolicyRefused, match=says):
        await prepare_injector(egress, {}, env)


def test_a_change_of_the_rules_leaves_swaps_alone():
    """Whatever is allowed or denied later."""
    egress = Egress.model_validate({"allow": [HOST, OTHER], "swap": [SWAP]})
    for action, rule in (("allow", "third.example"), ("deny", OTHER), ("deny", "fourth.example")):
        assert (
            change_egress(egress, "allow" if action == "allow" else "deny", rule).egress.swap == egress.swap
        )


def test_a_machine_that_trusts_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Told by the name of the variable, before anything starts."""
    (tmp_path / "broken.pem").write_text("-----BEGIN CERTIFICATE-----\nbroken\n-----END CERTIFICATE-----\n")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "none.pem"))
    with pytest.raises(ConfigurationError, match="SSL_CERT_FILE"):
        system_authorities()
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "broken.pem"))
    with pytest.raises(ConfigurationError, match="SSL_CERT_FILE"):
        outward_context(system_authorities())


async def test_without_swaps_nothing_is_taken_apart():
    """The default."""
    assert Egress.model_validate({"allow": [HOST]}).swap == ()
    assert await prepare_injector(Egress.model_validate({"allow": [HOST]}), {}) is None
