"""Finds the address of a container engine: explicit, from the environment, a Docker context, or a usual socket.

The order is the Docker command's own (https://docs.docker.com/reference/cli/docker/context/): an explicit choice,
`DOCKER_HOST`, `DOCKER_CONTEXT`, the context that `config.json` names, the default socket. Podman's service uses a
different variable and different sockets (podman-system-service(1)).
"""

import hashlib
import json
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from ringfence.errors import SandboxStartFailed, UsageError
from ringfence.frozen import frozen

Product = Literal["docker", "podman"]

VARIABLES = {"docker": "DOCKER_HOST", "podman": "CONTAINER_HOST"}
"""The environment variable in which each product's own command looks for the address."""
_SCHEMES = ("unix", "tcp", "ssh", "http", "https")
_JSON_BYTES = 1024 * 1024
_TLS_PORT, _PLAIN_PORT = 2376, 2375


@frozen
class TlsFiles:
    """Certificates for an engine behind TLS."""

    authority: Path | None
    certificate: Path | None
    key: Path | None
    verify: bool = True

    def context(self) -> ssl.SSLContext:
        """Create the SSL context for connections.

        Raises:
            SandboxStartFailed: A file cannot be read or is not a certificate.
        """
        try:
            context = ssl.create_default_context(cafile=str(self.authority) if self.authority else None)
            if not self.verify:
                context.check_hostname = False
                context.verify_mode = ssl.CERT_NONE
            if self.certificate is not None:
                context.load_cert_chain(str(self.certificate), str(self.key) if self.key else None)
        except (OSError, ssl.SSLError) as exc:
            raise SandboxStartFailed(
                f"the engine's certificates ({self.authority}, {self.certificate}) cannot be used: {exc}; "
                "check DOCKER_CERT_PATH or the docker context"
            ) from exc
        return context


@frozen
class Address:
    """One place where an engine may listen."""

    url: str
    origin: str
    """Where the address comes from, for messages: `DOCKER_HOST`, `docker context 'x'`, `default socket`, ..."""
    tls: TlsFiles | None = None

    @property
    def kind(self) -> str:
        """The scheme of the address: `unix`, `tcp` or `ssh`."""
        return urlsplit(self.url).scheme

    @property
    def path(self) -> Path:
        """Path of a Unix socket."""
        return Path(self.url.removeprefix("unix://"))

    @property
    def host(self) -> str:
        """Name or IP address of the machine."""
        return urlsplit(self.url).hostname or ""

    @property
    def port(self) -> int:
        """Port of a TCP address."""
        return urlsplit(self.url).port or (_TLS_PORT if self.tls else _PLAIN_PORT)

    @property
    def authority(self) -> str:
        """Host and port as URLs write them."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    @property
    def shares_files(self) -> bool:
        """Whether the engine sees this machine's files, which is assumed only for a socket on this machine."""
        return self.kind == "unix"

    def __str__(self) -> str:
        return f"{self.url} ({self.origin})"


def find_addresses(
    product: Product, asked: str | None, environ: Mapping[str, str], *, home: Path, uid: int
) -> list[Address]:
    """List the places to look for an engine, in order; with an explicit choice, only that one.

    Args:
        product: The product whose variables and sockets are used.
        asked: An address (`unix://`, `tcp://`, `ssh://`) or the name of a Docker context.
        environ: The environment.
        home: The user's home.
        uid: The user's id, for the sockets of rootless engines.

    Raises:
        UsageError: `asked` or a variable is not an address.
        SandboxStartFailed: The named context does not exist or is damaged.
    """
    folder = Path(environ.get("DOCKER_CONFIG") or home / ".docker")
    if asked:
        if "://" in asked or product == "podman":
            return [_parse(asked, "asked for", _environment_tls(environ, folder))]
        return [_context(folder, asked)]
    variable = VARIABLES[product]
    if environ.get(variable):
        return [_parse(environ[variable], variable, _environment_tls(environ, folder))]
    if product == "docker":
        name = environ.get("DOCKER_CONTEXT") or _read_json(folder / "config.json").get("currentContext")
        if isinstance(name, str) and name not in ("", "default"):
            return [_context(folder, name)]
    runtime = environ.get("XDG_RUNTIME_DIR") or f"/run/user/{uid}"
    return [Address(f"unix://{path}", "default socket") for path in _sockets(product, runtime, home, uid)]


def _sockets(product: Product, runtime: str, home: Path, uid: int) -> tuple[str, ...]:
    if product == "podman":
        own = (f"{runtime}/podman/podman.sock",)
        return ("/run/podman/podman.sock", *own) if uid == 0 else (*own, "/run/podman/podman.sock")
    return ("/var/run/docker.sock", f"{runtime}/docker.sock", f"{home}/.docker/run/docker.sock")


def _parse(text: str, origin: str, tls: TlsFiles | None) -> Address:
    try:
        parts = urlsplit(text)
        _ = parts.port
    except ValueError as exc:
        raise UsageError(f"{text!r} ({origin}) is no address of an engine: {exc}") from exc
    if parts.scheme not in _SCHEMES or not (parts.path if parts.scheme == "unix" else parts.hostname):
        raise UsageError(
            f"{text!r} ({origin}) is no address of an engine; "
            "write unix:///path, tcp://host:port or ssh://user@host"
        )
    if parts.password:
        raise UsageError(f"the address from {origin} holds a password; ssh takes keys, engines certificates")
    if parts.scheme == "unix":
        return Address(f"unix://{parts.netloc}{parts.path}", origin)
    if parts.scheme == "ssh":
        return Address(text, origin)
    secure = tls or (TlsFiles(None, None, None) if parts.scheme == "https" else None)
    return Address(f"tcp://{parts.netloc}", origin, secure)


def _environment_tls(environ: Mapping[str, str], folder: Path) -> TlsFiles | None:
    """Read `DOCKER_TLS_VERIFY`, `DOCKER_TLS` and `DOCKER_CERT_PATH` as the Docker command does."""
    if not environ.get("DOCKER_TLS_VERIFY") and not environ.get("DOCKER_TLS"):
        return None
    return _tls_in(Path(environ.get("DOCKER_CERT_PATH") or folder), bool(environ.get("DOCKER_TLS_VERIFY")))


def _tls_in(folder: Path, verify: bool) -> TlsFiles:
    files = (folder / name for name in ("ca.pem", "cert.pem", "key.pem"))
    authority, certificate, key = (file if file.is_file() else None for file in files)
    return TlsFiles(authority, certificate, key, verify)


def _context(folder: Path, name: str) -> Address:
    """An endpoint of `docker context`; its files are found by the hash of its name."""
    digest = hashlib.sha256(name.encode()).hexdigest()
    file = folder / "contexts" / "meta" / digest / "meta.json"
    if not file.is_file():
        raise SandboxStartFailed(f"there is no docker context {name!r}; `docker context ls` lists them")
    try:
        endpoint = _read_json(file)["Endpoints"]["docker"]
        host, verify = str(endpoint["Host"]), not endpoint.get("SkipTLSVerify", False)
    except (KeyError, TypeError) as exc:
        raise SandboxStartFailed(f"docker context {name!r} ({file}) names no docker endpoint") from exc
    certificates = folder / "contexts" / "tls" / digest / "docker"
    tls = _tls_in(certificates, verify) if certificates.is_dir() or not verify else None
    return _parse(host, f"docker context {name!r}", tls)


def _read_json(file: Path) -> dict[str, Any]:
    try:
        with file.open("rb") as stream:
            found = json.loads(stream.read(_JSON_BYTES))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as exc:
        raise SandboxStartFailed(f"{str(file)!r} cannot be read: {exc}; mend or remove it") from exc
    return found if isinstance(found, dict) else {}
