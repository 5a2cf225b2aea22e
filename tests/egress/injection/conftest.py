"""A real TLS server that echoes, real leases, and sandboxes whose proxy takes the server for the web."""

import ipaddress
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import trustme
from tests.egress.proxy.conftest import Record
from tests.sandbox.conftest import CONTAINERS, image_for

from ringfence.config.egress import Egress
from ringfence.config.secret_reference import SecretReference
from ringfence.egress.environment import environment_for
from ringfence.egress.gate import opened_gate
from ringfence.egress.injection.injector import Injector, prepare_injector
from ringfence.egress.resolver import Resolved
from ringfence.sandbox import Sandbox, SandboxSpec
from ringfence.secret import KnownSecret, Lease, lease_secret

SECRET = "ghp_a-Secret/that+must=stay0utside"
HOST = "api.swap.example"
OTHER = "other.swap.example"
SWAP = {"secret": "github", "host": HOST, "env": "GITHUB_TOKEN"}


@dataclass
class Server:
    """The echo."""

    port: int
    log: Path

    @property
    def requests(self) -> list[dict[str, Any]]:
        """What came, in order."""
        return [json.loads(line) for line in self.log.read_text().splitlines()] if self.log.exists() else []

    async def resolve(self, _host: str, _port: int) -> Sequence[Resolved]:
        """Every name leads here."""
        return [Resolved(ipaddress.ip_address("127.0.0.1"), self.port)]


@pytest.fixture
def record() -> Record:
    """What was told."""
    return Record()


@pytest.fixture
def authority(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> trustme.CA:
    """Whom this machine trusts."""
    authority = trustme.CA()
    place = tmp_path / "system.pem"
    authority.cert_pem.write_to_path(str(place))
    monkeypatch.setenv("SSL_CERT_FILE", str(place))
    return authority


Serving = Callable[..., Any]


@contextmanager
def serving(folder: Path, authority: trustme.CA, *names: str) -> Iterator[Server]:
    """An echo with a certificate for these names."""
    certificate, log = folder / "server.pem", folder / "requests.jsonl"
    authority.issue_cert(*names).private_key_and_cert_chain_pem.write_to_path(str(certificate))
    with subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("echo.py")), str(certificate), str(log)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        yield Server(int(process.stdout.readline()), log)
        process.stdin.close()
        process.wait(timeout=30)


@pytest.fixture
def server(tmp_path: Path, authority: trustme.CA) -> Iterator[Server]:
    """The real host, as it should be."""
    with serving(tmp_path, authority, HOST, OTHER) as found:
        yield found


def secret(value: str = SECRET, name: str = "github", **more: Any) -> KnownSecret:
    """A secret whose source is a program."""
    reference = SecretReference.model_validate({"cmd": ["printf", "%s", value], **more})
    return KnownSecret(name, reference, True)


@dataclass
class Swapped:
    """A sandbox with injected secrets."""

    sandbox: Sandbox
    injector: Injector
    leases: Mapping[str, Lease]

    async def sh(self, command: str) -> str:
        """What a shell command prints, both streams."""
        result = await self.sandbox.run(["/bin/sh", "-c", command], timeout_s=60)
        return result.stdout + result.stderr

    @property
    def placeholder(self) -> str:
        """Of the first swap."""
        return self.injector.environment["GITHUB_TOKEN"]


@pytest.fixture(params=[pytest.param(name, marks=pytest.mark.docker) for name in CONTAINERS])
def container(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Each kind of container, with an image for it."""
    return {"backend": request.param, "image": image_for(request.param)}


OpenSwapped = Callable[..., AbstractAsyncContextManager[Swapped]]


@pytest.fixture
def swapped(record: Record, tmp_path: Path, authority: trustme.CA) -> OpenSwapped:
    """Opens a sandbox with injected secrets, whose proxy takes a server for the web."""

    @asynccontextmanager
    async def open_one(
        server: Server,
        *,
        secrets: Sequence[KnownSecret] = (),
        swap: Sequence[Mapping[str, str]] = (SWAP,),
        allow: Sequence[str] = (HOST, OTHER),
        **fields: Any,
    ) -> AsyncIterator[Swapped]:
        egress = Egress.model_validate({"allow": [*allow, f"127.0.0.1:{server.port}"], "swap": swap})
        async with AsyncExitStack() as stack:
            leases = {
                one.name: await stack.enter_async_context(lease_secret(one, state=tmp_path / "state"))
                for one in secrets or [secret()]
            }
            injector = await prepare_injector(egress, leases)
            assert injector is not None
            asked = SandboxSpec(**{"backend": "bubblewrap", **fields}, egress=egress)
            spec = asked.model_copy(update={"env": environment_for(asked, injector.environment)})
            sandbox = await stack.enter_async_context(Sandbox.start(spec))
            await stack.enter_async_context(
                opened_gate(sandbox, spec, record.emit, resolve=server.resolve, injector=injector)
            )
            yield Swapped(sandbox, injector, leases)

    return open_one
