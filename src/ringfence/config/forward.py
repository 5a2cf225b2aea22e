"""A named TCP service of the host's side that is shown inside: how it is written, and its one spelling."""

from ipaddress import IPv4Address
from typing import Any

from pydantic import BaseModel, ConfigDict, model_validator

from ringfence.config.host import read_host, read_port

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
        name = _host(word) if word else None
        port = read_port(number, text) if colon else target_port
    if name in _RESERVED_NAMES:
        raise ValueError(f"{text!r} would take the name {name!r}, which means the sandbox itself inside")
    if name is not None and _own_name(name) is None:
        raise ValueError(f"{text!r} names an address before the '='; write the name that it has inside")
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


def _host(text: str) -> str:
    """A host's name or address in its one spelling, which must not hide that it is an address (`0x7f.1`)."""
    known = read_host(text)
    if not text.isascii():
        raise ValueError(f"{text!r} is no host name; use letters, digits, '-' and '.'")
    if isinstance(known, IPv4Address) and str(known) != text and not text.startswith("["):
        raise ValueError(f"{text!r} is an address in a spelling that hides it; write it as {known}")
    return str(known)


def _host_and_port(text: str, whole: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or not host:
        raise ValueError(f"{whole!r} is not {_SHAPE}")
    if ":" in host and not host.startswith("["):
        raise ValueError(f"{whole!r} has an IPv6 address without brackets; write [{host}]:{port}")
    return _host(host), read_port(port, whole)


def _own_name(host: str) -> str | None:
    """What a target is called inside, unless something else is said: its own name, if it has one of use there."""
    is_address = ":" in host or host.replace(".", "").isdigit()
    return None if is_address or host in _RESERVED_NAMES else host
