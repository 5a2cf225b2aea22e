"""Where the address of an engine is looked for."""

import hashlib
import json
from pathlib import Path

import pytest

from ringfence.errors import SandboxStartFailed, UsageError
from ringfence.sandbox.docker.address import Address, find_addresses


def found(home: Path, *, product: str = "docker", asked: str | None = None, **environ: str) -> list[Address]:
    """The addresses for a user with this home and environment."""
    return find_addresses(product, asked, environ, home=home, uid=1000)  # type: ignore[arg-type]


def make_context(home: Path, name: str, host: str, *, tls: bool = False, skip: bool = False) -> None:
    """Write a context as `docker context create` does."""
    digest = hashlib.sha256(name.encode()).hexdigest()
    meta = home / ".docker" / "contexts" / "meta" / digest / "meta.json"
    meta.parent.mkdir(parents=True)
    meta.write_text(
        json.dumps({"Name": name, "Endpoints": {"docker": {"Host": host, "SkipTLSVerify": skip}}})
    )
    if tls:
        folder = home / ".docker" / "contexts" / "tls" / digest / "docker"
        folder.mkdir(parents=True)
        (folder / "ca.pem").write_text("x")


def test_usual_sockets(tmp_path: Path) -> None:
    """Without any setting the usual sockets are tried: the system's, the rootless one, Docker Desktop's."""
    assert [one.url for one in found(tmp_path)] == [
        "unix:///var/run/docker.sock",
        "unix:///run/user/1000/docker.sock",
        f"unix://{tmp_path}/.docker/run/docker.sock",
    ]


def test_podman_sockets(tmp_path: Path) -> None:
    """A user's own Podman comes before the system's."""
    urls = [one.url for one in found(tmp_path, product="podman", XDG_RUNTIME_DIR="/r")]
    assert urls == ["unix:///r/podman/podman.sock", "unix:///run/podman/podman.sock"]


@pytest.mark.parametrize(
    ("environ", "asked", "url"),
    [
        ({"DOCKER_HOST": "unix:///a.sock"}, None, "unix:///a.sock"),
        ({"DOCKER_HOST": "unix:///a.sock", "DOCKER_CONTEXT": "there"}, None, "unix:///a.sock"),
        ({"DOCKER_CONTEXT": "there"}, None, "ssh://me@there"),
        ({}, None, "tcp://far:2376"),
        ({"DOCKER_HOST": "unix:///a.sock"}, "there", "ssh://me@there"),
        ({"DOCKER_HOST": "unix:///a.sock"}, "unix:///b.sock", "unix:///b.sock"),
        ({"DOCKER_CONTEXT": "default"}, None, "unix:///var/run/docker.sock"),
    ],
)
def test_order(tmp_path: Path, environ: dict[str, str], asked: str | None, url: str) -> None:
    """The order is: an explicit choice, DOCKER_HOST, DOCKER_CONTEXT, the current context, the usual sockets."""
    make_context(tmp_path, "there", "ssh://me@there")
    make_context(tmp_path, "far", "tcp://far:2376", tls=True)
    (tmp_path / ".docker" / "config.json").write_text('{"currentContext": "far"}')
    assert found(tmp_path, asked=asked, **environ)[0].url == url


def test_tls_of_a_context(tmp_path: Path) -> None:
    """A context's certificates are used with its address."""
    make_context(tmp_path, "far", "tcp://far:2376", tls=True)
    (address,) = found(tmp_path, asked="far")
    assert address.tls is not None
    assert address.tls.authority is not None
    assert (address.host, address.port, address.tls.verify, address.shares_files) == (
        "far",
        2376,
        True,
        False,
    )


def test_tls_of_the_environment(tmp_path: Path) -> None:
    """DOCKER_TLS_VERIFY and DOCKER_CERT_PATH apply to DOCKER_HOST."""
    (tmp_path / "cert.pem").write_text("x")
    environ = {"DOCKER_HOST": "tcp://far", "DOCKER_TLS_VERIFY": "1", "DOCKER_CERT_PATH": str(tmp_path)}
    (address,) = found(tmp_path, **environ)
    assert address.tls is not None
    assert (address.tls.certificate, address.port) == (tmp_path / "cert.pem", 2376)


@pytest.mark.parametrize("asked", ["ftp://x", "unix://", "tcp://", "tcp://a:port", "ssh://", "tcp://a:99999"])
def test_invalid_address_is_a_usage_error(tmp_path: Path, asked: str) -> None:
    """A text that is no address is a usage error."""
    with pytest.raises(UsageError, match="no address of an engine"):
        found(tmp_path, asked=asked)


def test_password_is_not_repeated(tmp_path: Path) -> None:
    """A password in an address is refused, and not printed."""
    with pytest.raises(UsageError) as caught:
        found(tmp_path, asked="ssh://me:hunter2@far")
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("text", ["{", "[]", '{"Endpoints": {}}', '{"Endpoints": {"docker": 1}}'])
def test_damaged_context(tmp_path: Path, text: str) -> None:
    """A context without an endpoint is reported with its file."""
    make_context(tmp_path, "far", "tcp://far")
    next(tmp_path.glob(".docker/contexts/meta/*/meta.json")).write_text(text)
    with pytest.raises(SandboxStartFailed, match=r"meta\.json"):
        found(tmp_path, asked="far")


def test_absent_context(tmp_path: Path) -> None:
    """A context that does not exist is reported by its name."""
    with pytest.raises(SandboxStartFailed, match="no docker context 'nowhere'"):
        found(tmp_path, asked="nowhere")
