"""Credentials of the host that requests of those inside are given: which, for which host, in which header."""

from ipaddress import IPv4Address, IPv6Address
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints

from ringfence.config.host import read_host
from ringfence.config.secret_reference import SecretName
from ringfence.config.values import VariableName

_FRAMING = frozenset(
    {
        "host", "content-length", "transfer-encoding", "connection", "keep-alive", "te", "trailer", "upgrade",
        "expect", "range", "if-range", "accept-encoding", "proxy-authorization", "proxy-connection",
    }
)  # fmt: skip


def _host(value: str) -> str:
    if "*" in value or "/" in value or ":" in value:
        raise ValueError(f"{value!r} is not the name of one host; write it alone, such as api.example.com")
    known = read_host(value)
    if isinstance(known, IPv4Address | IPv6Address) or "." not in known or known.endswith(".localhost"):
        raise ValueError(f"{value!r} is not the full name of a host; certificates vouch for names")
    return known


def _header(value: str) -> str:
    if value.lower() in _FRAMING:
        raise ValueError(f"{value!r} is no header that a credential stands in")
    return value.lower()


class Swap(BaseModel):
    """One credential: inside is a placeholder, and the gate puts the secret in its place, for one host."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    secret: SecretName
    """Name under `secrets`."""
    host: Annotated[str, AfterValidator(_host)]
    """The one host that gets it, on port 443; it must be allowed."""
    env: VariableName
    """Variable inside that holds the placeholder."""
    header: Annotated[
        str, StringConstraints(pattern=r"^[A-Za-z][A-Za-z0-9-]{0,63}$"), AfterValidator(_header)
    ] = "authorization"
    """The one request header in which the placeholder is replaced; in Basic authentication, too."""

    def __str__(self) -> str:
        return f"swap {self.secret} into {self.header} for {self.host}, inside ${self.env} is a placeholder"


def _distinct(swaps: tuple[Swap, ...]) -> tuple[Swap, ...]:
    names = [swap.env for swap in swaps]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"two swaps have the variable {name!r}; each needs its own")
    return swaps


Swaps = Annotated[tuple[Swap, ...], Field(max_length=50), AfterValidator(_distinct)]
