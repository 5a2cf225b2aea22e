"""The way to the real API: TLS, proxies, base URLs."""

from pathlib import Path

import pytest
import trustme
from tests.egress.gateway.conftest import MESSAGE, OpenGateway, answer, request, serving, whole
from tests.egress.proxy.conftest import set_proxies

from ringfence.egress.gateway.upstream import check_base_url
from ringfence.egress.host_proxy import find_proxy
from ringfence.egress.http.client import HttpClient, UpstreamError, origin_of
from ringfence.errors import UsageError


@pytest.fixture
def authority() -> trustme.CA:
    """Who vouches for the API."""
    return trustme.CA()


async def test_an_api_that_nobody_vouches_for_gets_no_key(gateway_at: OpenGateway, authority: trustme.CA):
    """And no client asks again in vain."""
    async with serving(answer(MESSAGE), authority) as api, gateway_at(api.url) as gateway:
        got = await gateway.handle(request())
    assert got.status == 502
    assert b"is not trusted" in (got.content or b"")
    assert b"SSL_CERT_FILE" in (got.content or b"")
    assert got.headers["x-should-retry"] == "false"
    assert api.seen == []


async def test_ones_own_authority_is_named_by_the_variable(
    gateway_at: OpenGateway, authority: trustme.CA, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """As for every program here."""
    file = tmp_path / "authority.pem"
    authority.cert_pem.write_to_path(str(file))
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
    async with serving(answer(MESSAGE), authority) as api, gateway_at(api.url) as gateway:
        status, _ = await whole(gateway, request())
    assert status == 200
    assert len(api.seen) == 1


async def test_a_certificate_of_another_name_is_none(
    gateway_at: OpenGateway, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, authority: trustme.CA
):
    """Somebody vouches for it, but not for this one."""
    file = tmp_path / "authority.pem"
    authority.cert_pem.write_to_path(str(file))
    monkeypatch.setenv("SSL_CERT_FILE", str(file))
    async with (
        serving(answer(MESSAGE), authority, host="127.0.0.2") as api,
        gateway_at(api.url) as gateway,
    ):
        got = await gateway.handle(request())
    assert got.status == 502
    assert b"is not trusted" in (got.content or b"")
    assert api.seen == []


async def test_a_proxy_of_the_host_is_used(gateway_at: OpenGateway, monkeypatch: pytest.MonkeyPatch):
    """Also for names that only it can look up."""
    async with serving(answer(MESSAGE)) as proxy:
        monkeypatch.setenv("http_proxy", proxy.url)
        async with gateway_at("http://model.invalid") as gateway:
            status, _ = await whole(gateway, request())
    assert status == 200
    assert proxy.seen[0].target == "http://model.invalid/v1/messages"


PROXIES = {
    "none": ({}, "https://a.example", None),
    "of the scheme": ({"HTTPS_PROXY": "http://p:1"}, "https://a.example", "http://p:1"),
    "of the other scheme": ({"HTTP_PROXY": "http://p:1"}, "https://a.example", None),
    "for all": ({"ALL_PROXY": "http://p:1"}, "https://a.example", "http://p:1"),
    "without a scheme": ({"https_proxy": "p:1"}, "https://a.example", "http://p:1"),
    "excepted": ({"HTTPS_PROXY": "http://p:1", "NO_PROXY": ".example"}, "https://a.example", None),
    "this machine": ({"HTTP_PROXY": "http://p:1"}, "http://127.0.0.1:80", None),
}


@pytest.mark.parametrize("name", PROXIES)
def test_proxies_are_those_of_the_environment(name: str, monkeypatch: pytest.MonkeyPatch):
    """But never for this machine."""
    environ, url, proxy = PROXIES[name]
    set_proxies(monkeypatch, environ)
    assert find_proxy(url) == proxy


async def test_a_proxy_that_is_not_spoken_is_told(monkeypatch: pytest.MonkeyPatch):
    """Rather than going round it."""
    set_proxies(monkeypatch, {"ALL_PROXY": "socks5://p:1"})
    client = HttpClient()
    with pytest.raises(UpstreamError, match="socks5"):
        await client.send("GET", "https://a.example", headers={})
    await client.aclose()


@pytest.mark.parametrize(
    "url", ["", "api.example", "ftp://a.example", "http://", "http://a:port", "unix:///x"]
)
def test_what_is_no_base_url_is_told(url: str):
    """With how one looks."""
    with pytest.raises(UsageError, match="https://host"):
        check_base_url(url)


def test_a_password_of_a_base_url_is_not_told():
    """Errors name the origin only."""
    assert origin_of("https://user:password@a.example:8443/x") == "https://a.example:8443"
