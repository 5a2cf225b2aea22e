"""Forwards: TCP services of the host that are reachable inside a sandbox. Reads them into canonical spelling."""

from ipaddress import IPv4Address
from typing import Any

from pydantic import BaseModel, ConfigDict, model_validator

from ringfence.config.host import read_host, read_port

_LOWEST_PORT_INSIDE = 1024
_SHAPE = "HOST:PORT, or NAME[:PORT INSIDE]=HOST:PORT"
_RESERVED_NAMES = frozenset({"localhost", "ringfence"})


class Forward(BaseModel):
    """A forwarded service.

    `redis:6379` is reachable at 127.0.0.1:6379 in the sandbox, and as `redis:6379` if the backend supports names.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str | None
    """The service's name in the sandbox; None if the target is an address."""
    port: int
    """The port on the sandbox's loopback interface."""
    host: str
    """The target as the host resolves it: a name in lower case, or an address in its shortest form."""
    target_port: int

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, value: Any) -> Any:
        return read_forward(value) if isinstance(value, str) else value

    @property
    def target(self) -> str:
        """The target's host and port, for messages and for the record."""
        return f"[{self.host}]:{self.target_port}" if ":" in self.host else f"{self.host}:{self.target_port}"

    def __str__(self) -> str:
        if self.name == _own_name(self.host) and self.port == self.target_port:
            return self.target
        return f"{self.name or ''}:{self.port}={self.target}"


def read_forward(text: str) -> dict[str, object]:
    """Return the fields of the `Forward` that `text` describes.

    Raises:
        ValueError: The text is not a forward; the message says how to write one.
    """
    left, equals, right = text.rpartition("=")
    host, target_port = _host_and_port(right, text)
    name, port = _own_name(host), target_port
    if equals:
        word, colon, number = left.partition(":")
        name = _host(word) if word else None
        port = read_port(number, text) if colon else target_port
    if name in _RESERVED_NAMES:
        raise ValueError(f"{text!r} would use the name {name!r}, which means the sandbox itself")
    if name is not None and _own_name(name) is None:
        raise ValueError(f"{text!r} has an address before the '='; write the service's name in the sandbox")
    if port < _LOWEST_PORT_INSIDE:
        raise ValueError(
            f"{text!r} would listen on port {port} in the sandbox, which needs privileges that no process there has; "
            f"write '{name or ''}:{port + 8000}={right}'"
        )
    return {"name": name, "port": port, "host": host, "target_port": target_port}


def check_forwards(forwards: tuple[Forward, ...]) -> tuple[Forward, ...]:
    """Check that no two forwards use the same port or name in the sandbox.

    Raises:
        ValueError: Two forwards do.
    """
    ports: dict[int, Forward] = {}
    names: dict[str, Forward] = {}
    for forward in forwards:
        other = ports.setdefault(forward.port, forward)
        if other is not forward:
            raise ValueError(
                f"'{other}' and '{forward}' both use port {forward.port} in the sandbox; write NAME:PORT=HOST:PORT"
            )
        if forward.name is not None and names.setdefault(forward.name, forward).host != forward.host:
            raise ValueError(f"'{names[forward.name]}' and '{forward}' both use the name {forward.name!r}")
    return forwards


def _host(text: str) -> str:
    """Return a host's canonical spelling; refuse an address in disguise, such as `0x7f.1`."""
    host = read_host(text)
    if not text.isascii():
        raise ValueError(f"{text!r} is not a host name; use letters, digits, '-' and '.'")
    if isinstance(host, IPv4Address) and str(host) != text and not text.startswith("["):
        raise ValueError(f"{text!r} is an unusual spelling of an address; write it as {host}")
    return str(host)


def _host_and_port(text: str, forward: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or not host:
        raise ValueError(f"{forward!r} is not {_SHAPE}")
    if ":" in host and not host.startswith("["):
        raise ValueError(f"{forward!r} has an IPv6 address without brackets; write [{host}]:{port}")
    return _host(host), read_port(port, forward)


def _own_name(host: str) -> str | None:
    """Return the default name of a target in the sandbox: its own name, unless that is an address or reserved."""
    is_address = ":" in host or host.replace(".", "").isdigit()
    return None if is_address or host in _RESERVED_NAMES else host
