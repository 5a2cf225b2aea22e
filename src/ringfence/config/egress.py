"""Egress rules of a sandbox in canonical spelling, and the credentials that the gate injects."""

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

from ringfence.config.host import HIGHEST_PORT, Host, format_host, read_host, read_port
from ringfence.config.names import nearest
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
"""Services of a model's provider besides replies: its tools, stored files, and addresses that it fetches."""

WEB_PORTS = (80, 443)
"""The ports of an allowed host whose rule names none."""

_PRESETS: tuple[str, ...] = get_args(PresetName)
_METHOD = re.compile(r"[A-Z]{1,20}")
_NETWORK = re.compile(r"[0-9a-fA-F.:\[\]]+/\d{1,3}", re.ASCII)
_PATH = re.compile(r"/[!-)+-~]{0,1000}\*?", re.ASCII)
_SHAPE = "a preset (packages, model, open), a host such as 'pypi.org', '*.example.com' or 'host:8443', or a mapping"
_SECOND_LEVEL = frozenset(
    {"ac", "co", "com", "edu", "go", "gob", "gov", "gv", "id", "mil", "ne", "net", "nom", "or", "org", "sch"}
)
"""Labels below a country code, such as `co` in `co.uk`, under which registries sell names. This short list is a
hand-made substitute for the Public Suffix List: it needs no updates, and it does not know every suffix."""


def _check_port(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= HIGHEST_PORT:
        raise ValueError(f"{value!r} is not a port; a port is a number from 1 to {HIGHEST_PORT}")
    return value


def _check_method(value: str) -> str:
    if not _METHOD.fullmatch(value.upper()) or value.upper() == "CONNECT":
        raise ValueError(f"{value!r} is not an HTTP method; write GET, HEAD, POST, ...")
    return value.upper()


def _check_path(value: str) -> str:
    if not _PATH.fullmatch(value) or {".", ".."} & set(value.split("/")) or "%" in value:
        raise ValueError(f"{value!r} is not a path; write '/simple/', or '/simple/*' for everything below it")
    return value


class EgressRule(BaseModel):
    """One egress rule. A rule that names only a preset, or a host and its ports, is written as text."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    preset: PresetName | None = None
    """`packages`, `model` or `open`, instead of a host."""
    host: str | None = None
    """A host name, an address, or `*.` and a name, which matches every host below that name."""
    ports: tuple[Annotated[int, BeforeValidator(_check_port)], ...] = ()
    """Ports of the host. Empty: 80 and 443 in `allow`, any port in `deny`."""
    methods: tuple[Annotated[str, AfterValidator(_check_method)], ...] = ()
    """Methods of plain HTTP. A rule with methods or paths does not allow TLS, which hides them. Empty: any."""
    paths: tuple[Annotated[str, AfterValidator(_check_path)], ...] = ()
    """Paths of plain HTTP; one that ends with `*` matches every path that starts with it. Empty: any."""
    max_bytes: ByteCount | None = None
    """Limit of the bytes in both directions together, over the life of a sandbox. null: no limit."""

    @model_validator(mode="before")
    @classmethod
    def _from_text(cls, value: Any) -> Any:
        if isinstance(value, str):
            return _read_rule(value)
        if isinstance(value, dict) and isinstance(value.get("host"), str):
            fields = _read_target(value["host"])
            if "ports" in value and "ports" in fields:
                raise ValueError(
                    f"host {value['host']!r} names a port, and so does `ports`; remove one of them"
                )
            return {**value, **fields}
        return value

    @model_validator(mode="after")
    def _check_target(self) -> "EgressRule":
        if (self.preset is None) == (self.host is None):
            raise ValueError("give exactly one of `preset` and `host`, such as `host: NAME`")
        if self.preset and (self.ports or self.methods or self.paths or self.max_bytes):
            raise ValueError(
                f"preset {self.preset!r} cannot be combined with other fields; name hosts instead"
            )
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
        """Return the schema for editors: text, or a mapping."""
        fields = handler.resolve_ref_schema(handler(schema))
        return {"anyOf": [{"type": "string", "description": _SHAPE}, dict(fields)]}

    @property
    def is_pattern(self) -> bool:
        """Whether the rule matches every host below a name."""
        return self.host is not None and self.host.startswith("*.")

    def __str__(self) -> str:
        if self.host is None:
            return str(self.preset)
        shown = format_host(read_host(self.host)) if ":" in self.host else self.host
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


def _reject_public_suffix(rule: EgressRule) -> EgressRule:
    if rule.is_pattern and rule.host is not None and _is_public_suffix(rule.host[2:]):
        raise ValueError(
            f"{rule.host!r} is a public suffix; anybody can register names below it. "
            "Name hosts below it, or use the preset 'open' for everything"
        )
    return rule


def _reject_preset(rule: EgressRule) -> EgressRule:
    if rule.preset is not None:
        raise ValueError(f"preset {rule.preset!r} cannot be denied; remove it from `allow` instead")
    return rule


AllowRule = Annotated[EgressRule, AfterValidator(_reject_public_suffix)]
DenyRule = Annotated[EgressRule, AfterValidator(_reject_preset)]
AllowRules = Annotated[tuple[AllowRule, ...], Field(max_length=500)]
DenyRules = Annotated[tuple[DenyRule, ...], Field(max_length=500)]


_FRAMING_HEADERS = frozenset(
    {
        "host", "content-length", "transfer-encoding", "connection", "keep-alive", "te", "trailer", "upgrade",
        "expect", "range", "if-range", "accept-encoding", "proxy-authorization", "proxy-connection",
    }
)  # fmt: skip


def _check_host_name(value: str) -> str:
    if "*" in value or "/" in value or ":" in value:
        raise ValueError(
            f"{value!r} is not the name of one host; write only the name, such as api.example.com"
        )
    host = read_host(value)
    if isinstance(host, IPv4Address | IPv6Address) or "." not in host or host.endswith(".localhost"):
        raise ValueError(
            f"{value!r} is not accepted: a fully qualified name is required, because TLS certificates are issued for "
            "names"
        )
    return host


def _check_header(value: str) -> str:
    if value.lower() in _FRAMING_HEADERS:
        raise ValueError(f"the header {value!r} cannot carry a credential")
    return value.lower()


class Swap(BaseModel):
    """A credential for one host: the sandbox holds a placeholder, and the gate replaces it by the secret."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    secret: SecretName
    """The secret's name under `secrets`."""
    host: Annotated[str, AfterValidator(_check_host_name)]
    """The only host that receives the secret, on port 443. A rule must allow it."""
    env: VariableName
    """Environment variable in the sandbox that holds the placeholder."""
    header: Annotated[
        str, StringConstraints(pattern=r"^[A-Za-z][A-Za-z0-9-]{0,63}$"), AfterValidator(_check_header)
    ] = "authorization"
    """The only request header in which the placeholder is replaced, also within Basic authentication."""

    def __str__(self) -> str:
        return f"swap {self.secret} into {self.header} for {self.host}, inside ${self.env} is a placeholder"


def _check_distinct_variables(swaps: tuple[Swap, ...]) -> tuple[Swap, ...]:
    names = [swap.env for swap in swaps]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"two swaps use the variable {name!r}; each needs its own")
    return swaps


Swaps = Annotated[tuple[Swap, ...], Field(max_length=50), AfterValidator(_check_distinct_variables)]


class Egress(BaseModel):
    """The egress that a sandbox is granted through the gate. By default there is none."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    allow: AllowRules = ()
    """Presets (`packages`, `model`, `open`), hosts (`pypi.org`, `*.example.com`, `host:8443`), or {host, ...}."""
    deny: DenyRules = ()
    """Hosts that are refused although `allow` matches them. The rules of all layers apply."""
    swap: Swaps = ()
    """Secrets that replace a placeholder in one request header for one host: a list of {secret, host, env, header}.
    In the sandbox, the variable `env` holds the placeholder; the default of `header` is `Authorization`."""

    @property
    def wants_model(self) -> bool:
        """Whether the model's API is granted, through the gateway."""
        return any(rule.preset == "model" for rule in self.allow)

    @property
    def is_open(self) -> bool:
        """Whether every public host is granted."""
        return any(rule.preset == "open" for rule in self.allow)

    @property
    def wants_proxy(self) -> bool:
        """Whether any host is granted, so that the sandbox needs a forward proxy."""
        return any(rule.preset != "model" for rule in self.allow)

    def describe(self) -> list[str]:
        """Return one line of text for each rule and swap."""
        return [
            *(f"allow {rule}" + _format_byte_limit(rule) for rule in self.allow),
            *(f"deny {rule}" for rule in self.deny),
            *(str(swap) for swap in self.swap),
        ]


def _format_byte_limit(rule: EgressRule) -> str:
    return "" if rule.max_bytes is None else f" (at most {int(rule.max_bytes)} bytes)"


def _read_rule(text: str) -> dict[str, object]:
    if text in _PRESETS:
        return {"preset": text}
    return _read_target(text)


def _read_target(target: str) -> dict[str, object]:
    """Return the fields of `HOST`, `*.HOST` or `HOST:PORT`, where PORT may be several ports with commas."""
    _check_shape(target)
    name, port_list = _split_ports(target)
    ports = None if port_list is None else tuple(read_port(word, target) for word in port_list.split(","))
    is_pattern = name.startswith("*.")
    name = name.removeprefix("*.")
    _check_name(name, target, is_word=ports is None and not is_pattern)
    host = read_host(name)
    _check_host(host, name, target, is_pattern=is_pattern)
    fields: dict[str, object] = {"host": f"*.{host}" if is_pattern else str(host)}
    return fields if ports is None else {**fields, "ports": ports}


def _check_name(name: str, target: str, *, is_word: bool) -> None:
    """Refuse wildcards within a name, and a word of one label that may be a misspelled preset."""
    if "*" in name or not name:
        raise ValueError(
            f"{target!r} is not a pattern of hosts; write 'example.com', '*.example.com', or the preset 'open' for "
            "everything"
        )
    if is_word and re.fullmatch(r"[\w-]+\.?", name) and not name.rstrip(".").isdigit():
        raise ValueError(_unknown_preset(target))


def _check_host(host: Host, name: str, target: str, *, is_pattern: bool) -> None:
    """Refuse addresses in disguise, patterns of addresses, and the sandbox's own loopback."""
    if isinstance(host, IPv4Address) and str(host) != name:
        raise ValueError(f"{target!r} is an unusual spelling of an address; write it as {host}")
    if is_pattern and not isinstance(host, str):
        raise ValueError(f"{target!r} is not a pattern of hosts: an address has no names below it")
    if host == "localhost" or str(host).endswith(".localhost"):
        raise ValueError(
            f"{target!r} means the sandbox itself; to make a service of this machine available, use "
            "--forward NAME:PORT=127.0.0.1:PORT"
        )


def _check_shape(text: str) -> None:
    if "://" in text:
        rest = text.split("://", 1)[1].split("/", 1)[0]
        raise ValueError(f"{text!r} has a scheme; write only the host: {rest!r}")
    if _NETWORK.fullmatch(text):
        raise ValueError(f"{text!r} is a network; name its hosts, or its addresses one by one")
    if "/" in text:
        raise ValueError(
            f"{text!r} has a path; write a mapping: {{host: {text.split('/', 1)[0]}, paths: [/...]}}"
        )
    if "@" in text or any(character.isspace() for character in text) or not text:
        raise ValueError(f"{text!r} is not a rule; write {_SHAPE}")


def _split_ports(target: str) -> tuple[str, str | None]:
    """Return the host and the text after its colon, or None; an IPv6 address with ports has brackets."""
    if target.startswith("["):
        host, bracket, rest = target.partition("]")
        return host + bracket, rest[1:] if rest.startswith(":") else None
    host, colon, port = target.rpartition(":")
    return (host, port) if colon and ":" not in host else (target, None)


def _unknown_preset(text: str) -> str:
    guess = nearest(text.lower(), _PRESETS)
    hint = f"did you mean {guess!r}?" if guess else f"choose from {', '.join(_PRESETS)}."
    return (
        f"there is no preset {text!r}; {hint} To allow a host of one label, write its port, too: {text}:443"
    )


def _is_public_suffix(name: str) -> bool:
    labels = name.split(".")
    return len(labels) == 1 or (len(labels) == 2 and labels[0] in _SECOND_LEVEL and len(labels[1]) == 2)
