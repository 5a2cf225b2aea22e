"""What a sandbox may reach through the gate, in its one spelling, and the credentials that the gate injects."""

import re
from ipaddress import IPv4Address, IPv6Address
from typing import Annotated, Any, Literal, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    SerializerFunctionWrapHandler,
    StringConstraints,
    model_serializer,
    model_validator,
)
from pydantic_core import CoreSchema

from ringfence.config.host import HIGHEST_PORT, read_host, read_port, written
from ringfence.config.secret_reference import SecretName
from ringfence.config.units import ByteCount
from ringfence.config.values import VariableName

PresetName = Literal["packages", "model", "open"]
"""`packages`: the public servers of package managers. `model`: the model's API, by the gateway. `open`: everything."""

ProviderTool = Literal[
    "web_search",
    "web_fetch",
    "code_execution",
    "mcp",
    "files",
    "file_search",
    "image_generation",
    "computer",
    "urls",
]
"""What may be asked of a model's provider beside answers: its tools, files kept there, addresses that it fetches."""

WEB_PORTS = (80, 443)
"""Of an allowed host, where no ports are said."""

_PRESETS: tuple[str, ...] = get_args(PresetName)
_METHOD = re.compile(r"[A-Z]{1,20}")
_NETWORK = re.compile(r"[0-9a-fA-F.:\[\]]+/\d{1,3}", re.ASCII)
_PATH = re.compile(r"/[!-)+-~]{0,1000}\*?", re.ASCII)
_SHAPE = "a preset (packages, model, open), a host such as 'pypi.org', '*.example.com' or 'host:8443', or a mapping"
_SECOND_LEVEL = frozenset(
    {"ac", "co", "com", "edu", "go", "gob", "gov", "gv", "id", "mil", "ne", "net", "nom", "or", "org", "sch"}
)


def _port(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= HIGHEST_PORT:
        raise ValueError(f"{value!r} is no port; a port is a number from 1 to {HIGHEST_PORT}")
    return value


def _method(value: str) -> str:
    if not _METHOD.fullmatch(value.upper()) or value.upper() == "CONNECT":
        raise ValueError(f"{value!r} is no method of HTTP; write GET, HEAD, POST, ...")
    return value.upper()


def _path(value: str) -> str:
    if not _PATH.fullmatch(value) or {".", ".."} & set(value.split("/")) or "%" in value:
        raise ValueError(f"{value!r} is no path; write '/simple/' or, with all below it, '/simple/*'")
    return value


class EgressRule(BaseModel):
    """One rule. Written as text where it only names a preset or a host and a port."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    preset: PresetName | None = None
    """Instead of a host: `packages`, `model` or `open`."""
    host: str | None = None
    """A name, `*.` and a name for everything below it, or an address."""
    ports: tuple[Annotated[int, BeforeValidator(_port)], ...] = ()
    """Empty: 80 and 443 in `allow`, any in `deny`."""
    methods: tuple[Annotated[str, AfterValidator(_method)], ...] = ()
    """Of plain HTTP; a rule with methods or paths opens no TLS, in which they cannot be seen. Empty: any."""
    paths: tuple[Annotated[str, AfterValidator(_path)], ...] = ()
    """Of plain HTTP: a path, or with `*` at its end all that begins so. Empty: any."""
    max_bytes: ByteCount | None = None
    """Both ways together, over the life of a sandbox. null: no bound."""

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, value: Any) -> Any:
        if isinstance(value, str):
            return _read(value)
        if isinstance(value, dict) and isinstance(value.get("host"), str):
            fields = _read_target(value["host"], value["host"])
            if "ports" in value and "ports" in fields:
                raise ValueError(f"host {value['host']!r} names a port, and so does `ports`; leave one out")
            return {**value, **fields}
        return value

    @model_validator(mode="after")
    def _whole(self) -> "EgressRule":
        if (self.preset is None) == (self.host is None):
            raise ValueError("a rule names a preset or a host: one of them; write `host: NAME`")
        if self.preset and (self.ports or self.methods or self.paths or self.max_bytes):
            raise ValueError(f"preset {self.preset!r} takes nothing beside it; name hosts instead")
        return self

    @model_serializer(mode="wrap")
    def _to_text(self, handler: SerializerFunctionWrapHandler) -> Any:
        if self.methods or self.paths or self.max_bytes or len(self.ports) > 1:
            fields = handler(self)
            return {name: value for name, value in fields.items() if value not in (None, (), [])}
        return str(self)

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """The schema for editors: text, or a mapping."""
        fields = handler.resolve_ref_schema(handler(schema))
        return {"anyOf": [{"type": "string", "description": _SHAPE}, dict(fields)]}

    @property
    def is_pattern(self) -> bool:
        """Whether it is about everything below a name."""
        return self.host is not None and self.host.startswith("*.")

    def __str__(self) -> str:
        if self.host is None:
            return str(self.preset)
        shown = written(read_host(self.host)) if ":" in self.host else self.host
        if self.ports:
            shown += ":" + ",".join(str(port) for port in self.ports)
        elif "." not in self.host and ":" not in self.host:
            shown += ":80,443"
        return " ".join(
            (
                shown,
                *([",".join(self.methods)] if self.methods else []),
                *([",".join(self.paths)] if self.paths else []),
            )
        )


def _narrow(rule: EgressRule) -> EgressRule:
    if rule.is_pattern and rule.host is not None and _is_public_suffix(rule.host[2:]):
        raise ValueError(
            f"{rule.host!r} opens names that anybody can register; name hosts below it, "
            "or everything by the preset 'open'"
        )
    return rule


def _no_preset_denied(rule: EgressRule) -> EgressRule:
    if rule.preset is not None:
        raise ValueError(f"preset {rule.preset!r} cannot be denied; leave it out of `allow`")
    return rule


AllowRule = Annotated[EgressRule, AfterValidator(_narrow)]
DenyRule = Annotated[EgressRule, AfterValidator(_no_preset_denied)]
AllowRules = Annotated[tuple[AllowRule, ...], Field(max_length=500)]
DenyRules = Annotated[tuple[DenyRule, ...], Field(max_length=500)]


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


class Egress(BaseModel):
    """Which ways out through the gate a sandbox is granted. Nothing by default."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    allow: AllowRules = ()
    deny: DenyRules = ()
    """Wins over `allow`."""
    swap: Swaps = ()
    """Credentials that the gate adds for one host each; inside are placeholders."""

    @property
    def wants_model(self) -> bool:
        """Whether the model's API is granted, by the gateway."""
        return any(rule.preset == "model" for rule in self.allow)

    @property
    def is_open(self) -> bool:
        """Whether every public host is granted."""
        return any(rule.preset == "open" for rule in self.allow)

    @property
    def wants_proxy(self) -> bool:
        """Whether any host is granted, so that there is a forward proxy inside."""
        return any(rule.preset != "model" for rule in self.allow)

    def lines(self) -> list[str]:
        """What it says, for people."""
        return [
            *(f"allow {rule}" + _cap(rule) for rule in self.allow),
            *(f"deny {rule}" for rule in self.deny),
            *(str(swap) for swap in self.swap),
        ]


def _cap(rule: EgressRule) -> str:
    return "" if rule.max_bytes is None else f" (at most {int(rule.max_bytes)} bytes)"


def _read(text: str) -> dict[str, object]:
    if text in _PRESETS:
        return {"preset": text}
    return _read_target(text, text)


def _read_target(target: str, text: str) -> dict[str, object]:
    """Host and ports of `HOST` or `HOST:PORT`."""
    _refuse_other_shapes(text)
    host, port = _split(target)
    ports = tuple(read_port(one, text) for one in port.split(",")) if port is not None else None
    wildcard = host.startswith("*.")
    bare = host[2:] if wildcard else host
    if host == "*" or "*" in bare or not bare:
        raise ValueError(
            f"{text!r} is no pattern of hosts; write 'example.com', '*.example.com', or the preset 'open' for everything"
        )
    if port is None and not wildcard and re.fullmatch(r"[\w-]+\.?", bare) and not bare.rstrip(".").isdigit():
        raise ValueError(_unknown_preset(text))
    known = read_host(bare)
    if isinstance(known, IPv4Address) and str(known) != bare:
        raise ValueError(f"{text!r} is an address in a spelling that hides it; write it as {known}")
    if wildcard and not isinstance(known, str):
        raise ValueError(f"{text!r} is no pattern of hosts: nothing is below an address")
    if known == "localhost" or str(known).endswith(".localhost"):
        raise ValueError(
            f"{text!r} means the sandbox itself inside; show a service of this machine by "
            "--forward NAME:PORT=127.0.0.1:PORT"
        )
    fields: dict[str, object] = {"host": f"*.{known}" if wildcard else str(known)}
    return fields if ports is None else {**fields, "ports": ports}


def _refuse_other_shapes(text: str) -> None:
    if "://" in text:
        rest = text.split("://", 1)[1].split("/", 1)[0]
        raise ValueError(f"{text!r} has a scheme; write the host alone: {rest!r}")
    if _NETWORK.fullmatch(text):
        raise ValueError(f"{text!r} is a network; name its hosts, or its addresses one by one")
    if "/" in text:
        raise ValueError(
            f"{text!r} has a path; write a mapping: {{host: {text.split('/', 1)[0]}, paths: [/...]}}"
        )
    if "@" in text or any(character.isspace() for character in text) or not text:
        raise ValueError(f"{text!r} is no rule; write {_SHAPE}")


def _split(target: str) -> tuple[str, str | None]:
    """Host and port, if there is one; an IPv6 address has brackets then."""
    if target.startswith("["):
        host, bracket, rest = target.partition("]")
        return host + bracket, rest[1:] if rest.startswith(":") else None
    host, colon, port = target.rpartition(":")
    return (host, port) if colon and ":" not in host else (target, None)


def _unknown_preset(text: str) -> str:
    import difflib

    guess = difflib.get_close_matches(text.lower(), _PRESETS, n=1, cutoff=0.6)
    hint = f"did you mean {guess[0]!r}?" if guess else f"there are {', '.join(_PRESETS)}."
    return f"there is no preset {text!r}; {hint} A host of one label is written with its port: {text}:443"


def _is_public_suffix(name: str) -> bool:
    labels = name.split(".")
    return len(labels) == 1 or (len(labels) == 2 and labels[0] in _SECOND_LEVEL and len(labels[1]) == 2)
