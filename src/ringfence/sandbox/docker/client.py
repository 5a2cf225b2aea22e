"""Client of a container engine: its HTTP interface, its facts and its errors.

Covers only the part of the Docker Engine API 1.41 that ringfence uses, which Docker and Podman both serve
(docs/adr/0032-own-engine-client.md).
"""

import json
import os
import ssl
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

import aiohttp
import anyio

from ringfence.errors import InfrastructureFault, SandboxStartFailed
from ringfence.frozen import frozen
from ringfence.sandbox.cause import Cause
from ringfence.sandbox.docker.address import VARIABLES, Address, Product, find_addresses
from ringfence.sandbox.docker.failure import classify, plain
from ringfence.sandbox.docker.tunnel import SshTunnel

_CALL_S = 60.0
_CONNECT_S = 10.0
_FACTS_S = 60.0
"""How long an engine's facts are remembered: Docker takes 20 ms to report them, Podman 4.3 a second."""
_REMOVE_TRIES, _REMOVE_PAUSE_S = 10, 0.05
_LINE_BYTES = 1024**2
"""The longest line of a stream: engines send the output of a build step in one piece."""
_LIMITS = {"MemoryLimit": "memory", "CpuCfsQuota": "cpus", "PidsLimit": "pids"}


@frozen
class EngineFacts:
    """Facts that decide how to create a container on this engine, from `/version` and `/info` (Engine API 1.41)."""

    version: str
    api_version: str
    is_podman: bool
    is_rootless: bool
    has_user_namespace: bool
    """Whether the engine's own setting (`userns-remap`) maps uids inside to different uids outside."""
    cgroup_version: int
    limits: frozenset[str]
    """The limits among `memory`, `cpus`, `pids` that it claims to enforce."""
    has_cpuset: bool
    has_apparmor: bool
    runtimes: frozenset[str]
    default_runtime: str
    processors: int
    architecture: str

    @property
    def product(self) -> str:
        """Display name."""
        rootless = "rootless " if self.is_rootless else ""
        return f"{rootless}{'Podman' if self.is_podman else 'Docker'} {self.version}"

    @property
    def shifts_ids(self) -> bool:
        """Whether a uid inside is a different uid outside. Rootless Podman can keep the caller's uid."""
        return self.has_user_namespace or (self.is_rootless and not self.is_podman)

    @property
    def unset_limits(self) -> dict[str, str]:
        """Limits that the engine cannot set, and why."""
        if self.is_rootless and self.cgroup_version == 1:
            # The engine claims that it can set them, and silently does not (Podman 4.3: inspect shows 0).
            reason = "a rootless engine cannot set limits on control groups of version 1"
            return dict.fromkeys(_LIMITS.values(), reason)
        return {
            name: f"{self.product} says it cannot" for name in _LIMITS.values() if name not in self.limits
        }

    def is_gvisor(self, runtime: str | None) -> bool:
        """Whether an OCI runtime, or the default one, is gVisor, by its name."""
        name = runtime or self.default_runtime
        return name.startswith("runsc") or "gvisor" in name


def parse_facts(version: Mapping[str, Any], info: Mapping[str, Any]) -> EngineFacts:
    """Parse the responses of an engine; a feature that they do not mention counts as absent."""
    options = [str(option) for option in info.get("SecurityOptions") or ()]

    def has(name: str) -> bool:
        return any(f"name={name}" in option.split(",") for option in options)

    components = [str(one.get("Name", "")) for one in version.get("Components") or ()]
    return EngineFacts(
        version=str(version.get("Version", "?")),
        api_version=str(version.get("ApiVersion", "")),
        is_podman=any("podman" in name.lower() for name in components),
        is_rootless=has("rootless") or bool(info.get("Rootless")),  # Docker, Podman
        has_user_namespace=has("userns"),
        cgroup_version=2 if str(info.get("CgroupVersion", "1")) == "2" else 1,
        limits=frozenset(name for key, name in _LIMITS.items() if info.get(key)),
        has_cpuset=bool(info.get("CPUSet")),
        has_apparmor=has("apparmor"),
        runtimes=frozenset(info.get("Runtimes") or ()),
        default_runtime=str(info.get("DefaultRuntime") or "runc"),
        processors=int(info.get("NCPU") or 0),
        architecture=str(info.get("Architecture", "")),
    )


class EngineError(InfrastructureFault):
    """An engine refused a request or cannot be reached. The text gives advice where the cause is known.

    Args:
        doing: The operation that failed: "create a container".
        said: The engine's message.
        status: The HTTP status; None if there was no response.
        url: The engine's address, where it could not be reached.
    """

    def __init__(self, doing: str, said: str, *, status: int | None, url: str = "") -> None:
        self.said = said
        self.status = status
        self.cause: Cause | None = classify(f"{url}: {said}" if url else said)
        advice = f"; {self.cause.advice}" if self.cause else ""
        super().__init__(f"could not {doing}: {plain(said)}{advice}")

    @property
    def is_absent(self) -> bool:
        """Whether the engine has no such container, image or volume."""
        return self.status == 404


_known_facts: dict[str, tuple[float, EngineFacts]] = {}


class Engine:
    """A session with one engine: `call` and `stream` send any request, the other methods send common ones.

    The session connects with its first request. Where the engine's facts are known, `open` sends no request.
    """

    facts: EngineFacts

    def __init__(self, address: Address) -> None:
        self.address = address
        self._version = ""
        """The version at the start of every path, empty until it is known."""
        self._http: aiohttp.ClientSession | None = None
        self._tunnel: SshTunnel | None = None
        self._connecting = anyio.Lock()

    @classmethod
    async def open(cls, address: Address) -> "Engine":
        """Query the engine's facts. Call `aclose` to end the session, or use it as a context.

        Raises:
            EngineError: It cannot be reached, or refuses the user.
            SandboxStartFailed: Its certificates cannot be used.
            InfrastructureFault: The ssh tunnel to its machine cannot be made.
        """
        engine = cls(address)
        try:
            engine.facts = await engine._find_facts()
        except BaseException:
            await engine.aclose()
            raise
        engine._version = f"/v{engine.facts.api_version}"
        return engine

    async def _find_facts(self) -> EngineFacts:
        """Query the engine's facts, unless the last response is less than a minute old."""
        known = _known_facts.get(self.address.url)
        if known is not None and time.monotonic() - known[0] < _FACTS_S:
            return known[1]
        doing = f"reach the engine at {self.address}"
        version = await self.call(doing, "GET", "/version", timeout_s=_CONNECT_S)
        facts = parse_facts(version, await self.call(doing, "GET", "/info", timeout_s=_CONNECT_S))
        _known_facts[self.address.url] = time.monotonic(), facts
        return facts

    async def _connect(self) -> aiohttp.ClientSession:
        async with self._connecting:
            if self._http is None:
                address, base_url = self.address, "http://localhost"
                if address.kind == "ssh":
                    self._tunnel = await SshTunnel.start(address.url)
                connector: aiohttp.BaseConnector
                if address.kind == "tcp":
                    base_url = f"{'https' if address.tls else 'http'}://{address.authority}"
                    connector = aiohttp.TCPConnector(ssl=address.tls.context() if address.tls else True)
                else:
                    connector = aiohttp.UnixConnector(str(self.connect_address.path))
                self._http = aiohttp.ClientSession(
                    base_url,
                    connector=connector,
                    timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_S),
                    read_bufsize=_LINE_BYTES,
                )
            return self._http

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """End the session, and the tunnel if there is one."""
        with anyio.CancelScope(shield=True):
            if self._http is not None:
                await self._http.close()
            if self._tunnel is not None:
                await self._tunnel.aclose()

    @property
    def connect_address(self) -> Address:
        """The address for a raw connection: this end of the tunnel if there is one, else the engine's address."""
        if self._tunnel is not None:
            return Address(f"unix://{self._tunnel.socket}", self.address.origin)
        return self.address

    @property
    def unseen(self) -> str | None:
        """Why a host directory cannot be mounted so that the sandbox's user may write it; None if it can."""
        if not self.address.shares_files:
            return f"the engine at {self.address} does not see this machine's files"
        if self.facts.shifts_ids:
            return (
                f"{self.facts.product} runs containers under other uids than ours (rootless, or userns-remap)"
            )
        return None

    # --- requests

    async def call(
        self, doing: str, method: str, path: str, *, timeout_s: float = _CALL_S, **options: Any
    ) -> Any:
        """Send a request and return the parsed response; None if the response has no body.

        Args:
            doing: The purpose of the request, for errors: "create a container".
            method: The HTTP method.
            path: Below the version: `/containers/json`.
            timeout_s: Time limit for the whole response.
            options: As `aiohttp.ClientSession.request` takes them: `params`, `json`, `data`, `headers`.

        Raises:
            EngineError: The engine refuses, or cannot be reached in time.
        """
        async with self.stream(doing, method, path, timeout_s=timeout_s, **options) as content:
            body = await content.read()
            return json.loads(body) if body.strip() else None

    @asynccontextmanager
    async def stream(
        self, doing: str, method: str, path: str, *, timeout_s: float = _CALL_S, **options: Any
    ) -> AsyncIterator[aiohttp.StreamReader]:
        """As `call`, for responses that are read as they arrive. Leaving the context early closes the connection.

        Raises:
            EngineError: As `call`; also for failures while the response is read.
        """
        http = await self._connect()
        try:
            with anyio.fail_after(timeout_s):
                async with http.request(method, f"{self._version}{path}", **options) as response:
                    if response.status >= 400:
                        raise EngineError(doing, error_message(await response.read()), status=response.status)
                    try:
                        yield response.content
                    finally:
                        # Only closing the connection makes an engine notice that no client waits for a build any more.
                        response.close()
        except aiohttp.ClientConnectorError as exc:
            raise EngineError(doing, _reason(exc.os_error), status=None, url=self.address.url) from exc
        except (aiohttp.ClientError, OSError, ValueError) as exc:
            is_late = (
                type(exc) is TimeoutError
            )  # from `fail_after`; the texts of aiohttp's own name the cause
            said = f"no answer within {timeout_s:g} s" if is_late else str(exc) or type(exc).__name__
            raise EngineError(doing, said, status=None) from exc

    async def follow(
        self, doing: str, method: str, path: str, take: Callable[[Mapping[str, Any]], None], **options: Any
    ) -> None:
        """Call `take` with each message of a JSON-lines response as it arrives; raise a message that is an error.

        Raises:
            EngineError: As `stream`.
        """
        async with self.stream(doing, method, path, **options) as lines:
            async for line in lines:
                message = json.loads(line)
                if "error" in message:
                    raise EngineError(doing, str(message["error"]), status=None)
                take(message)

    # --- containers

    async def create(self, configuration: Mapping[str, Any], name: str) -> str:
        """Create a container; return its id. Shielded from cancellation, as the engine would create it anyway."""
        with anyio.CancelScope(shield=True):
            made = await self.call(
                f"create container {name!r}",
                "POST",
                "/containers/create",
                params={"name": name},
                json=configuration,
            )
        return str(made["Id"])

    async def start(self, container: str) -> None:
        """Start a container."""
        await self.call("start the container", "POST", f"/containers/{container}/start")

    async def inspect(self, container: str) -> Mapping[str, Any]:
        """The engine's description of a container."""
        return dict(await self.call("inspect the container", "GET", f"/containers/{container}/json"))

    async def wait(self, container: str) -> int:
        """Wait until a container has ended; return its exit code."""
        path = f"/containers/{container}/wait"
        ended = await self.call("wait for the container", "POST", path, timeout_s=float("inf"))
        return int(ended["StatusCode"])

    async def remove(self, container: str) -> bool:
        """Kill and remove a container with its unnamed volumes; return False if it did not exist.

        Waits a moment for a removal that another client has started, and counts it as done.
        """
        parameters = {"force": "1", "v": "1"}
        for tries_left in reversed(range(_REMOVE_TRIES)):
            try:
                await self.call(
                    "remove the container", "DELETE", f"/containers/{container}", params=parameters
                )
                return True
            except EngineError as exc:
                if exc.is_absent:
                    return False
                is_going = exc.status == 409 and "in progress" in exc.said
                if is_going and not tries_left:
                    return True
                # Podman 4.3 cannot kill a container that ends by itself at this moment.
                if not is_going and ("state improper" not in exc.said or not tries_left):
                    raise
            await anyio.sleep(_REMOVE_PAUSE_S)
        return False

    async def containers(self, labels: Sequence[str]) -> list[Mapping[str, Any]]:
        """Containers, dead ones too, that have all these labels (`name` or `name=value`)."""
        return list(await self._list("containers", "/containers/json", {"label": labels}, all="1"))

    async def _list(self, what: str, path: str, filters: Mapping[str, Sequence[str]], **more: str) -> Any:
        return await self.call(f"list {what}", "GET", path, params={**more, "filters": json.dumps(filters)})

    # --- volumes

    async def volumes(self, labels: Sequence[str]) -> list[Mapping[str, Any]]:
        """Volumes that have all these labels."""
        return list((await self._list("volumes", "/volumes", {"label": labels})).get("Volumes") or ())

    async def remove_volume(self, name: str) -> None:
        """Remove a volume with its contents.

        Raises:
            EngineError: It does not exist (`is_absent`), or a container uses it.
        """
        await self.call(f"remove volume {name!r}", "DELETE", f"/volumes/{name}")

    # --- images

    async def image(self, reference: str) -> Mapping[str, Any]:
        """The engine's description of an image that it has.

        Raises:
            EngineError: It has none of that name (`is_absent`).
        """
        path = f"/images/{quote(reference, safe='/:@')}/json"
        return dict(await self.call(f"use image {reference!r}", "GET", path))

    async def images(self, filters: Mapping[str, Sequence[str]]) -> list[Mapping[str, Any]]:
        """Images by the engine's own filters: `label`, `dangling`."""
        return list(await self._list("images", "/images/json", filters))

    async def remove_image(self, reference: str) -> None:
        """Remove a name of an image; given an id, remove the image and its parents that no other image uses."""
        path = f"/images/{quote(reference, safe='/:@')}"
        await self.call(f"remove image {reference!r}", "DELETE", path)


def error_message(body: bytes) -> str:
    """The message in an engine's response to a failed request."""
    try:
        return str(json.loads(body)["message"])
    except (ValueError, KeyError, TypeError):
        return body.decode("utf-8", "replace")


def _reason(error: OSError) -> str:
    """Why a connection could not be made; asyncio's own text leaves the reason out."""
    if isinstance(error, ssl.SSLError) or not error.errno or error.errno < 0:
        return error.strerror or str(error)
    return os.strerror(error.errno)


async def open_engine(product: Product = "docker", asked: str | None = None) -> Engine:
    """Open the requested engine, or else the first engine that responds at the usual addresses.

    Args:
        product: `docker` or `podman`.
        asked: An address or a docker context; None searches the usual addresses.

    Raises:
        SandboxStartFailed: No engine responds; the text lists the addresses, why each failed, and how to start one.
        UsageError: `asked` is not an address.
    """
    addresses = find_addresses(product, asked, os.environ, home=Path.home(), uid=os.getuid())
    reasons = []
    for address in addresses:
        try:
            return await Engine.open(address)
        except InfrastructureFault as exc:
            reasons.append(_why(exc, address))
    elsewhere = f"set {VARIABLES[product]}" if asked is None else "name another by --engine or sandbox.engine"
    podman = "systemctl start podman.socket" if os.getuid() == 0 else "systemctl --user start podman.socket"
    advice = {
        "docker": f"start it (`systemctl start docker`), install it (`apt-get install docker.io`), or {elsewhere}",
        "podman": f"start its service (`{podman}`), or {elsewhere}",
    }[product]
    raise SandboxStartFailed(f"no {product} engine answers: {'; '.join(reasons)}; {advice}")


def _why(error: InfrastructureFault, address: Address) -> str:
    """The text of an error, without the advice to start an engine: that is given once for all addresses."""
    if isinstance(error, EngineError) and error.cause is not None and error.cause.name == "not-running":
        return f"{address}: {plain(error.said)}"
    return str(error)
