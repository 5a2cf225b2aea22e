"""A mirror of the web on loopback, with certificates of its own, and a sandbox whose proxy takes it for the web."""

import ipaddress
import json
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import anyio
import pytest
import trustme
from tests.sandbox.conftest import CONTAINERS, image_for

from ringfence.config.egress import Egress
from ringfence.egress.environment import environment_for
from ringfence.egress.gate import opened_gate
from ringfence.egress.resolver import Resolved
from ringfence.events import Event
from ringfence.sandbox import Sandbox, SandboxSpec

NAMES = (
    "pypi.org", "files.pythonhosted.org", "registry.npmjs.org", "repo.maven.apache.org", "deb.debian.org",
    "index.crates.io", "static.crates.io", "git.example", "other.example",
)  # fmt: skip
AUTHORITY_INSIDE = "/tmp/authority.pem"
TRUST = dict.fromkeys(
    (
        "SSL_CERT_FILE",
        "PIP_CERT",
        "npm_config_cafile",
        "NODE_EXTRA_CA_CERTS",
        "GIT_SSL_CAINFO",
        "CURL_CA_BUNDLE",
        "CARGO_HTTP_CAINFO",
    ),
    AUTHORITY_INSIDE,
)
"""How each client is told of the tests' authority."""


BACKENDS = ["bubblewrap", *(pytest.param(name, marks=pytest.mark.docker) for name in CONTAINERS)]


class Record:
    """Events, as a journal would be given them."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._more = anyio.Event()

    async def emit(self, event: Event) -> None:
        """Keep one."""
        self.events.append(event)
        self._more.set()
        self._more = anyio.Event()

    def of(self, kind: type[Event]) -> list[Any]:
        """Those of one kind."""
        return [event for event in self.events if isinstance(event, kind)]

    async def reaches(self, count: int, kind: type[Event] = Event) -> list[Any]:
        """Wait until there are so many of a kind."""
        with anyio.fail_after(30):
            while len(self.of(kind)) < count:
                await self._more.wait()
        return self.of(kind)


@dataclass
class Web:
    """The mirror, and what names lead to it."""

    root: Path
    http: int
    https: int
    authority: trustme.CA
    addresses: dict[str, Sequence[str]] = field(default_factory=dict)
    """Names that lead elsewhere."""
    asked: list[str] = field(default_factory=list)
    """Names that were looked up."""

    async def resolve(self, host: str, port: int) -> Sequence[Resolved]:
        """Every name is on loopback; the ports of the web are the mirror's."""
        self.asked.append(host)
        ports = {80: self.http, 443: self.https}
        return [
            Resolved(ipaddress.ip_address(one), ports.get(port, port))
            for one in self.addresses.get(host, ("127.0.0.1",))
        ]

    def opened(self) -> tuple[str, ...]:
        """Rules without which the mirror, being on loopback, is refused."""
        return (f"127.0.0.1:{self.http},{self.https}",)


@pytest.fixture(scope="session")
def authority() -> trustme.CA:
    """Who vouches for the mirror."""
    return trustme.CA()


@pytest.fixture(scope="session")
def mirror(
    tmp_path_factory: pytest.TempPathFactory, authority: trustme.CA
) -> Iterator[tuple[Path, int, int]]:
    """A directory and the ports that it is served on, one for all: what it serves is only what is there."""
    root = tmp_path_factory.mktemp("web")
    certificate = tmp_path_factory.mktemp("certificate") / "certificate.pem"
    authority.issue_cert(*NAMES).private_key_and_cert_chain_pem.write_to_path(str(certificate))
    script = Path(__file__).with_name("mirror.py")
    with subprocess.Popen(
        [sys.executable, str(script), str(root), str(certificate)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        http, https = json.loads(process.stdout.readline())
        yield root, http, https
        process.stdin.close()
        process.wait(timeout=30)


@pytest.fixture
def web(mirror: tuple[Path, int, int], authority: trustme.CA) -> Iterator[Web]:
    """An empty mirror, running."""
    root, http, https = mirror
    yield Web(root, http, https, authority)
    shutil.rmtree(root)
    root.mkdir()


@pytest.fixture
def record() -> Record:
    """What was told."""
    return Record()


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest, images: Callable[[str], str | None]) -> dict[str, Any]:
    """What says which fence it is tried in."""
    return {"backend": request.param, "image": images(request.param)}


@pytest.fixture(scope="session")
def images() -> Callable[[str], str | None]:
    """An image for each backend."""
    return cache(image_for)


Gated = Callable[..., Any]


@pytest.fixture
def gated(web: Web, record: Record) -> Gated:
    """Opens a sandbox with these rules, whose proxy takes the mirror for the web."""

    @asynccontextmanager
    async def open_one(
        *allow: Any,
        with_mirror: bool = True,
        deny: Sequence[Any] = (),
        env: dict[str, str] | None = None,
        **fields: Any,
    ) -> AsyncIterator[Sandbox]:
        egress = Egress(allow=(*allow, *(web.opened() if with_mirror else ())), deny=tuple(deny))
        asked = SandboxSpec(**{"backend": "bubblewrap", **fields}, egress=egress)
        spec = asked.model_copy(update={"env": environment_for(asked, {**TRUST, **(env or {})})})
        async with (
            Sandbox.start(spec) as sandbox,
            opened_gate(sandbox, spec, record.emit, resolve=web.resolve),
        ):
            await sandbox.write_file(AUTHORITY_INSIDE, web.authority.cert_pem.bytes())
            yield sandbox

    return open_one


def set_proxies(monkeypatch: pytest.MonkeyPatch, environ: Mapping[str, str]) -> None:
    """Let this machine's environment name these proxies and no others."""
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)


async def sh(sandbox: Sandbox, command: str, *, timeout_s: float = 90.0) -> str:
    """What a shell command prints, both streams; with its exit code if that is not 0."""
    result = await sandbox.run(["/bin/sh", "-c", command], timeout_s=timeout_s)
    return result.stdout + result.stderr + (f"\nexit {result.exit_code}" if result.exit_code else "")


def run_here(*argv: str, cwd: Path) -> None:
    """Run a program of this machine that prepares a mirror."""
    env = {
        **os.environ, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_AUTHOR_NAME": "t", "GIT_AUTHOR_EMAIL": "t@example.com",
        "GIT_COMMITTER_NAME": "t", "GIT_COMMITTER_EMAIL": "t@example.com",
    }  # fmt: skip
    subprocess.run(argv, cwd=cwd, env=env, check=True, capture_output=True, timeout=60)
