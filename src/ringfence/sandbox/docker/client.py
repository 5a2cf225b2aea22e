"""An engine that answers: a session on its HTTP interface, its facts, and typed errors."""

import json
import os
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import aiodocker
import aiohttp
import anyio

from ringfence.errors import InfrastructureFault, SandboxStartFailed
from ringfence.sandbox.docker.address import Address, Product, find_addresses
from ringfence.sandbox.docker.facts import EngineFacts, parse_facts
from ringfence.sandbox.docker.failure import Cause, classify, explain, plain
from ringfence.sandbox.docker.tunnel import SshTunnel

_CALL_S = 60.0
_CONNECT_S = 10.0
_FACTS_S = 60.0
_REMOVE_TRIES, _REMOVE_PAUSE_S = 10, 0.05
_NOT_REACHED = 900
"""What aiodocker calls the status of a connection that could not be made."""


class EngineError(InfrastructureFault):
    """An engine refused something or cannot be reached. The text says what to do about it, where that is known.

    Args:
        doing: What was tried: "create a container".
        said: The engine's own words.
        status: The HTTP status; None where there was no answer.
    """

    def __init__(self, doing: str, said: str, *, status: int | None) -> None:
        self.said = said
        self.status = status
        self.cause: Cause | None = classify(said)
        super().__init__(f"could not {doing}: {explain(said)}")

    @property
    def is_absent(self) -> bool:
        """Whether the thing is not there."""
        return self.status == 404


@asynccontextmanager
async def engine_errors(doing: str, *, timeout_s: float = _CALL_S) -> AsyncIterator[None]:
    """Translate whatever goes wrong with an engine; nothing takes longer than `timeout_s`.

    Raises:
        EngineError: It went wrong.
    """
    try:
        with anyio.fail_after(timeout_s):
            yield
    except TimeoutError as exc:
        raise EngineError(doing, f"no answer within {timeout_s:g} s", status=None) from exc
    except aiodocker.DockerError as exc:
        status = None if exc.status == _NOT_REACHED else exc.status
        raise EngineError(doing, _said(exc), status=status) from exc
    except (aiohttp.ClientError, OSError, ValueError) as exc:
        raise EngineError(doing, str(exc) or type(exc).__name__, status=None) from exc


def _said(error: aiodocker.DockerError) -> str:
    """Its words; asyncio's for a connection that failed leave out why."""
    said, cause = str(error.message), error.__context__
    if isinstance(cause, aiohttp.ClientConnectorError) and cause.os_error.errno:
        said = said.replace("Connect call failed", os.strerror(cause.os_error.errno))
    return said


_known_facts: dict[str, tuple[float, EngineFacts]] = {}


class Engine:
    """A session on one engine. `docker` is the client for all that has no method here."""

    def __init__(
        self, docker: aiodocker.Docker, address: Address, facts: EngineFacts, tunnel: SshTunnel | None
    ) -> None:
        self.docker = docker
        self.address = address
        self.facts = facts
        self._tunnel = tunnel

    @classmethod
    async def open(cls, address: Address) -> "Engine":
        """Connect to an engine; `aclose` it, or use it as a context.

        Raises:
            EngineError: It is not there, or does not let us.
            SandboxStartFailed: Its certificates cannot be used.
            InfrastructureFault: There is no way to its machine.
        """
        tunnel = await SshTunnel.start(address.url) if address.kind == "ssh" else None
        docker: aiodocker.Docker | None = None
        try:
            async with engine_errors(f"reach the engine at {address}", timeout_s=_CONNECT_S):
                docker = _session(address, tunnel)
                facts = await _facts(docker, address)
        except BaseException:
            with anyio.CancelScope(shield=True):
                if docker is not None:
                    await docker.close()
                if tunnel is not None:
                    await tunnel.aclose()
            raise
        return cls(docker, address, facts, tunnel)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """End the session, and the tunnel if there is one."""
        with anyio.CancelScope(shield=True):
            await self.docker.close()
            if self._tunnel is not None:
                await self._tunnel.aclose()

    @property
    def dialled(self) -> Address:
        """Where a raw connection is made to: the near end of a tunnel, else the engine's own address."""
        if self._tunnel is not None:
            return Address(f"unix://{self._tunnel.socket}", self.address.origin)
        return self.address

    # --- containers

    async def create(self, configuration: Mapping[str, Any], name: str) -> str:
        """Create a container; return its id."""
        async with engine_errors(f"create container {name!r}"):
            return (await self.docker.containers.create(dict(configuration), name=name)).id

    async def start(self, container: str) -> None:
        """Start a container."""
        async with engine_errors("start the container"):
            await self.docker.containers.container(container).start()

    async def inspect(self, container: str) -> Mapping[str, Any]:
        """All that the engine says of a container."""
        async with engine_errors("inspect the container"):
            found: Mapping[str, Any] = await self.docker.containers.container(container).show()
            return found

    async def wait(self, container: str) -> int:
        """Wait until a container does not run; return its exit code."""
        async with engine_errors("wait for the container", timeout_s=float("inf")):
            return int((await self.docker.containers.container(container).wait())["StatusCode"])

    async def has_event(self, container: str, event: str, *, since_s: float, until_s: float) -> bool:
        """Whether something happened to a container between two times of the engine's; waits for one to come."""
        async with engine_errors("ask for the container's events"):
            filters = json.dumps({"container": [container], "event": [event]})
            events: Any = self.docker.events
            told = events.subscribe(since=f"{since_s:.6f}", until=f"{until_s:.6f}", filters=filters)
            try:
                return await told.get() is not None
            finally:
                await events.stop()

    async def remove(self, container: str) -> bool:
        """Kill and remove a container with its unnamed volumes; False if it was not there.

        One that somebody else is removing is waited for, for a while: gone is gone.
        """
        for tries_left in reversed(range(_REMOVE_TRIES)):
            try:
                async with engine_errors("remove the container"):
                    await self.docker.containers.container(container).delete(force=True, v=True)
                return True
            except EngineError as exc:
                if exc.is_absent:
                    return False
                is_going = exc.status == 409 and "in progress" in exc.said
                if is_going and not tries_left:
                    return True
                # Podman 4.3 cannot kill one that ends by itself at this moment.
                if not is_going and ("state improper" not in exc.said or not tries_left):
                    raise
            await anyio.sleep(_REMOVE_PAUSE_S)
        return False

    async def containers(self, labels: Sequence[str]) -> list[Mapping[str, Any]]:
        """Containers, dead ones too, that have all these labels (`name` or `name=value`)."""
        async with engine_errors("list containers"):
            filters = json.dumps({"label": list(labels)})
            found = await self.docker.containers.list(all=True, filters=filters)
            return [dict(one._container) for one in found]  # the answer's row has no public way out

    async def image(self, reference: str) -> Mapping[str, Any]:
        """All that the engine says of an image it has.

        Raises:
            EngineError: It has none of that name (`is_absent`).
        """
        async with engine_errors(f"use image {reference!r}"):
            found: Mapping[str, Any] = await self.docker.images.inspect(reference)
            return found


async def open_engine(
    product: Product = "docker", asked: str | None = None, *, environ: Mapping[str, str] | None = None
) -> Engine:
    """The engine that was asked for, else the first of the usual places that answers.

    Args:
        product: `docker` or `podman`.
        asked: An address or a docker context; None looks.
        environ: Instead of this process's environment.

    Raises:
        SandboxStartFailed: None answers; the text says what was tried, why it failed and how to start one.
        UsageError: `asked` is no address.
    """
    env = os.environ if environ is None else environ
    addresses = find_addresses(product, asked, env, home=Path.home(), uid=os.getuid())
    reasons = []
    for address in addresses:
        if address.kind == "unix" and address.origin == "default socket" and not _is_there(address.path):
            reasons.append(f"{address.url}: no such socket")
            continue
        try:
            return await Engine.open(address)
        except InfrastructureFault as exc:
            reasons.append(_why(exc, address))
    variable = {"docker": "DOCKER_HOST", "podman": "CONTAINER_HOST"}[product]
    elsewhere = f"set {variable}" if asked is None else "name another by --engine or sandbox.engine"
    podman = "systemctl start podman.socket" if os.getuid() == 0 else "systemctl --user start podman.socket"
    advice = {
        "docker": f"start it (`systemctl start docker`), install it (`apt-get install docker.io`), or {elsewhere}",
        "podman": f"start its service (`{podman}`), or {elsewhere}",
    }[product]
    raise SandboxStartFailed(f"no {product} engine answers: {'; '.join(reasons)}; {advice}")


def _why(error: InfrastructureFault, address: Address) -> str:
    """An error's text; where nothing listens, without its advice: that comes once, for all addresses."""
    if isinstance(error, EngineError) and error.cause is not None and error.cause.name == "not-running":
        return f"could not reach the engine at {address}: {plain(error.said)}"
    return str(error)


def _is_there(path: Path) -> bool:
    try:
        return path.is_socket()
    except OSError:
        return True  # hidden from us: the attempt tells why


def _session(address: Address, tunnel: SshTunnel | None) -> aiodocker.Docker:
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_S)
    kept = _known_facts.get(address.url)
    version = f"v{kept[1].api_version}" if kept else "auto"
    if tunnel is not None:
        return aiodocker.Docker(url=f"unix://{tunnel.socket}", timeout=timeout, api_version=version)
    if address.kind == "unix":
        return aiodocker.Docker(url=address.url, timeout=timeout, api_version=version)
    scheme = "https" if address.tls else "http"
    context = address.tls.context() if address.tls else None
    url = f"{scheme}://{address.host}:{address.port}"
    return aiodocker.Docker(url=url, ssl_context=context, timeout=timeout, api_version=version)


async def _facts(docker: aiodocker.Docker, address: Address) -> EngineFacts:
    """What the engine is; asked anew when the last answer is a minute old."""
    kept = _known_facts.get(address.url)
    if kept is not None and time.monotonic() - kept[0] < _FACTS_S:
        return kept[1]
    version = await docker.version()
    facts = parse_facts(version, await docker.system.info())
    _known_facts[address.url] = (time.monotonic(), facts)
    return facts
