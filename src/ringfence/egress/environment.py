"""The environment variables by which programs inside find the ways out that are granted."""

from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from typing import Protocol

from ringfence.config.egress import Egress
from ringfence.config.engine_access import SOCKET_INSIDE, EngineAccess
from ringfence.config.forward import Forward

PROXY_PORT = 3128
"""Of the loopback inside, where the forward proxy listens."""

USE_PROXY_INSIDE = "/tmp/.ringfence/use_proxy.cjs"  # noqa: S108 -- inside, where /tmp is the sandbox's own
"""What every Node.js inside loads first, since it does not look at proxy variables by itself."""

_NEAR = ("localhost", "127.0.0.1", "::1")


class Grants(Protocol):
    """The part of a `SandboxSpec` that the gate implements."""

    @property
    def forward(self) -> Sequence[Forward]:
        """Services shown inside."""

    @property
    def engine_access(self) -> EngineAccess | None:
        """What may be done with a container engine."""

    @property
    def egress(self) -> Egress:
        """What may be reached by the model gateway and the forward proxy."""


def environment_for(granted: Grants, env: Mapping[str, str], *, with_proxy: bool = False) -> dict[str, str]:
    """The variables of every command inside: those of the ways out, and the user's own, which win.

    Args:
        granted: The spec.
        env: The user's own.
        with_proxy: Whether there is a proxy even if it is granted nothing.
    """
    has_proxy = granted.egress.wants_proxy or with_proxy
    found: dict[str, str] = {}
    if granted.engine_access is not None:
        found["DOCKER_HOST"] = f"unix://{SOCKET_INSIDE}"
    if has_proxy:
        near = [forward.name for forward in granted.forward if forward.name is not None]
        found |= dict(_of_the_proxy((*_NEAR, *near)))
    found |= env
    if has_proxy and "NODE_OPTIONS" in env:
        found["NODE_OPTIONS"] = f"{_NODE_OPTIONS} {env['NODE_OPTIONS']}"
    return found


def use_proxy() -> bytes:
    """What is put at `USE_PROXY_INSIDE`."""
    return files("ringfence.egress.proxy.inside").joinpath("use_proxy.cjs").read_bytes()


_NODE_OPTIONS = f"--require={USE_PROXY_INSIDE}"


def _of_the_proxy(near: Sequence[str]) -> Iterator[tuple[str, str]]:
    address = f"http://127.0.0.1:{PROXY_PORT}"
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        # Some programs read the one, some the other; curl reads HTTP_PROXY in small letters only.
        yield name, address
        yield name.lower(), address
    yield "NO_PROXY", ",".join(near)
    yield "no_proxy", ",".join(near)
    yield "YARN_HTTP_PROXY", address  # yarn from version 2 on
    yield "YARN_HTTPS_PROXY", address
    # NODE_USE_ENV_PROXY is known to Node.js from 22.21 on only, warns there, and hides the reasons of refusals.
    yield "NODE_OPTIONS", _NODE_OPTIONS
    # Java reads no proxy variables. JAVA_TOOL_OPTIONS would reach every program, but each then says so on stderr,
    # which breaks those whose output is read.
    options = " ".join(
        f"-D{scheme}.proxy{what}={value}"
        for scheme in ("http", "https")
        for what, value in (("Host", "127.0.0.1"), ("Port", str(PROXY_PORT)))
    )
    options += " -Dhttp.nonProxyHosts=localhost|127.*|[::1]" + "".join(
        f"|{name}" for name in near[len(_NEAR) :]
    )
    yield "MAVEN_OPTS", options
    yield "GRADLE_OPTS", options
