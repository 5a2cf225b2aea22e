"""Environment variables that point programs in a sandbox to its proxy and container engine."""

from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Protocol

from ringfence.config.egress import Egress
from ringfence.config.engine_access import SOCKET_INSIDE, EngineAccess
from ringfence.config.forward import Forward

PROXY_PORT = 3128
"""The port on the sandbox's loopback on which the forward proxy listens."""

USE_PROXY_INSIDE = "/tmp/.ringfence/use_proxy.cjs"  # noqa: S108 -- inside, where /tmp is the sandbox's own
"""A script that every Node.js process inside loads first, because Node.js ignores proxy variables by default."""

_LOOPBACK = ("localhost", "127.0.0.1", "::1")


class Grants(Protocol):
    """The part of a `SandboxSpec` that the gate implements."""

    @property
    def forward(self) -> Sequence[Forward]:
        """Services of the host that are reachable from inside."""

    @property
    def engine_access(self) -> EngineAccess | None:
        """The granted access to a container engine; None if there is none."""

    def writable_directories(self) -> tuple[Path, ...]:
        """Directories of the host in which processes inside may replace files."""

    @property
    def egress(self) -> Egress:
        """The hosts that may be reached through the model gateway and the forward proxy."""


def environment_for(granted: Grants, env: Mapping[str, str], *, with_proxy: bool = False) -> dict[str, str]:
    """Return the environment of every command inside: the gate's variables, overridden by the user's own.

    Args:
        granted: The sandbox's spec.
        env: The user's own variables.
        with_proxy: Whether a proxy listens even if no host may be reached through it.
    """
    has_proxy = granted.egress.wants_proxy or with_proxy
    variables: dict[str, str] = {}
    if granted.engine_access is not None:
        variables["DOCKER_HOST"] = f"unix://{SOCKET_INSIDE}"
    if has_proxy:
        names = [forward.name for forward in granted.forward if forward.name is not None]
        variables |= dict(_proxy_variables(names))
    variables |= env
    if has_proxy and "NODE_OPTIONS" in env:
        variables["NODE_OPTIONS"] = f"{_NODE_OPTIONS} {env['NODE_OPTIONS']}"
    return variables


def read_node_preload() -> bytes:
    """Return the content of the file at `USE_PROXY_INSIDE`."""
    return files("ringfence.egress.proxy.inside").joinpath("use_proxy.cjs").read_bytes()


_NODE_OPTIONS = f"--require={USE_PROXY_INSIDE}"


def _proxy_variables(forward_names: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the variables of the proxy; loopback names and the names of forwards are reached without it."""
    no_proxy = ",".join((*_LOOPBACK, *forward_names))
    address = f"http://127.0.0.1:{PROXY_PORT}"
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        # Some programs read only one of the two spellings; curl reads HTTP_PROXY in lower case only.
        yield name, address
        yield name.lower(), address
    yield "NO_PROXY", no_proxy
    yield "no_proxy", no_proxy
    yield "YARN_HTTP_PROXY", address  # yarn from version 2 on
    yield "YARN_HTTPS_PROXY", address
    # Node.js supports NODE_USE_ENV_PROXY only since 22.21, prints a warning for it, and hides the reasons of refusals.
    yield "NODE_OPTIONS", _NODE_OPTIONS
    # Java reads no proxy variables. JAVA_TOOL_OPTIONS would reach every program, but each then prints a
    # notice on stderr, which breaks programs whose output is parsed.
    options = " ".join(
        f"-D{scheme}.proxy{name}={value}"
        for scheme in ("http", "https")
        for name, value in (("Host", "127.0.0.1"), ("Port", str(PROXY_PORT)))
    )
    options += " -Dhttp.nonProxyHosts=localhost|127.*|[::1]" + "".join(f"|{name}" for name in forward_names)
    yield "MAVEN_OPTS", options
    yield "GRADLE_OPTS", options
