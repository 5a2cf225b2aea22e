"""A named TCP service of the host's side that is shown inside: how it is written, and its one spelling."""

import ipaddress
import re
from typing import Any

from pydantic import BaseModel, ConfigDict, model_validator

_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMERIC = re.compile(r"[0-9]+|0x[0-9a-f]*")
_LONGEST_NAME = 253
_HIGHEST_PORT = 65_535
_LOWEST_PORT_INSIDE = 1024
_SHAPE = "HOST:PORT, or NAME[:PORT INSIDE]=HOST:PORT"
_RESERVED_NAMES = frozenset({"localhost", "ringfence"})


class Forward(BaseModel):
    """`redis:6379`: at 127.0.0.1:6379 inside, and by the name `redis` where the backend can."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str | None
    """Its name inside; None for a target that is an address."""
    port: int
    """On the loopback inside."""
    host: str
    """Target as the host's side knows it: a name in lower case, or an address in its shortest form."""
    target_port: int

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, value: Any) -> Any:
        return read_forward(value) if isinstance(value, str) else value

    @property
    def target(self) -> str:
        """Where it leads to, for people and for the record."""
        return f"[{self.host}]:{self.target_port}" if ":" in self.host else f"{self.host}:{self.target_port}"

    def __str__(self) -> str:
        if self.name == _own_name(self.host) and self.port == self.target_port:
            return self.target
        return f"{self.name or ''}:{self.port}={self.target}"


def read_forward(text: str) -> dict[str, object]:
    """The fields of a `Forward` as somebody wrote it.

    Raises:
        ValueError: It is none; with what to write instead.
    """
    left, equals, right = text.rpartition("=")
    host, target_port = _host_and_port(right, text)
    name, port = _own_name(host), target_port
    if equals:
        word, colon, number = left.partition(":")
        name = host_name(word) if word else None
        port = _port(number, text) if colon else target_port
    if name in _RESERVED_NAMES:
        raise ValueError(f"{text!r} would take the name {name!r}, which means the sandbox itself inside")
    if port < _LOWEST_PORT_INSIDE:
        raise ValueError(
            f"{text!r} would listen on port {port} inside, which takes privileges that nobody has there; "
            f"write '{name or ''}:{port + 8000}={right}'"
        )
    return {"name": name, "port": port, "host": host, "target_port": target_port}


def check_forwards(forwards: tuple[Forward, ...]) -> tuple[Forward, ...]:
    """See that no two take the same port or name inside.

    Raises:
        ValueError: Two do.
    """
    ports: dict[int, Forward] = {}
    names: dict[str, Forward] = {}
    for forward in forwards:
        other = ports.setdefault(forward.port, forward)
        if other is not forward:
            raise ValueError(
                f"'{other}' and '{forward}' both take port {forward.port} inside; write NAME:PORT=HOST:PORT"
            )
        if forward.name is not None and names.setdefault(forward.name, forward).host != forward.host:
            raise ValueError(f"'{names[forward.name]}' and '{forward}' both take the name {forward.name!r}")
    return forwards


def host_name(text: str) -> str:
    """A host's name in its one spelling.

    Raises:
        ValueError: It is none, or one that a resolver takes for a number (`0x7f.1`, `2130706433`).
    """
    name = text.lower().removesuffix(".")
    labels = name.split(".")
    if len(name) > _LONGEST_NAME or not all(_LABEL.fullmatch(label) for label in labels):
        raise ValueError(f"{text!r} is no host name; use letters, digits, '-' and '.'")
    if _NUMERIC.fullmatch(labels[-1]):
        raise ValueError(f"{text!r} is an address in a spelling that hides it; write it as a.b.c.d")
    return name


def _host_and_port(text: str, whole: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or not host:
        raise ValueError(f"{whole!r} is not {_SHAPE}")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    try:
        address = ipaddress.ip_address(bare)
    except ValueError:
        return host_name(host), _port(port, whole)
    if address.version == 6 and bare == host:
        raise ValueError(f"{whole!r} has an IPv6 address without brackets; write [{host}]:{port}")
    mapped = getattr(address, "ipv4_mapped", None)
    if getattr(address, "scope_id", None):
        raise ValueError(f"{whole!r} has an address that is only good on one link; name a routed one")
    return str(mapped or address), _port(port, whole)


def _own_name(host: str) -> str | None:
    """What a target is called inside, unless something else is said: its own name, if it has one of use there."""
    is_address = ":" in host or host.replace(".", "").isdigit()
    return None if is_address or host in _RESERVED_NAMES else host


def _port(text: str, whole: str) -> int:
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:6]) <= _HIGHEST_PORT):
        raise ValueError(f"{whole!r} has the port {text!r}; a port is a number from 1 to {_HIGHEST_PORT}")
    return int(text)
