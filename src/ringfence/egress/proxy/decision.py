"""Decides whether a request may leave, and by which rule: pure functions for the gate and `config policy explain`."""

import re
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.resources import files
from typing import Any, Literal

from ringfence.config.egress import WEB_PORTS, Egress, EgressRule
from ringfence.config.host import HIGHEST_PORT, Host, format_host, read_host
from ringfence.egress.address import Address, embedded, is_public, refused_address, refused_target
from ringfence.frozen import frozen

TLS_PORT = 443
HTTP_PORT = 80
_TWO_PATH_METHODS = frozenset({"COPY", "MOVE", "BIND", "REBIND"})
"""Methods of WebDAV (RFC 4918, RFC 5842) with a second path in the header `Destination`, which no rule sees."""
_URL = re.compile(
    r"((?P<scheme>[A-Za-z][A-Za-z0-9+.-]*)://)?(?P<host>\[[^\]]*\]|[^/:?#\[\]@]+)(:(?P<port>[0-9]{1,5}))?(?P<path>[/?].*)?"
)


@frozen
class Target:
    """The target of a request from inside."""

    host: Host
    port: int
    method: str = "CONNECT"
    path: str = ""
    """The path; empty for CONNECT, where it is encrypted."""

    @property
    def is_tunnel(self) -> bool:
        """Whether it is a tunnel rather than one request."""
        return self.method == "CONNECT"

    @property
    def authority(self) -> str:
        """Host and port, as they are written."""
        return f"{format_host(self.host)}:{self.port}"


Grant = Literal["", "allow", "undeny"]
"""The change that would allow a refused request: a new rule in `allow`, a rule removed from `deny`; empty: none."""


@frozen
class Decision:
    """Whether a request is allowed, and why."""

    is_allowed: bool
    rule: str
    """The text of the rule that decided, or the name of a fixed rule."""
    reason: str = ""
    """Why it is refused; empty if it is allowed."""
    remedy: str = ""
    """Advice on how to allow it; empty if nothing can."""
    grant: Grant = ""
    """The remedy in a form for programs: the list of rules to change."""
    max_bytes: int | None = None
    """The rule's limit on bytes, which all connections that it allows share."""


@frozen
class _Named:
    """A rule and its name in decisions."""

    rule: EgressRule
    name: str


class Rules:
    """The rules of one sandbox, with presets expanded."""

    def __init__(self, egress: Egress) -> None:
        self._allow = tuple(_expand(egress.allow))
        self._deny = tuple(_Named(rule, f"deny {rule}") for rule in egress.deny)
        self._is_open = egress.is_open

    def decide(self, target: Target) -> Decision:
        """Decide as far as is possible before the name is resolved."""
        reason = refused_target(str(target.host), target.port)
        if reason is not None:
            return Decision(False, "never", reason)
        for named in self._deny:
            if _is_denied(named.rule, target):
                return _denied(named, f"{target.authority} is denied by name")
        if target.port == TLS_PORT and not target.is_tunnel:
            return Decision(
                False, "tls-only", "port 443 requires TLS, and this request is plain HTTP", "use https://"
            )
        decision = self._allowed(target)
        if decision.is_allowed and not isinstance(target.host, str):
            return self.check_address(target.host, target.port, is_own=False) or decision
        return decision

    def _allowed(self, target: Target) -> Decision:
        mismatches: list[tuple[_Named, str]] = []
        for named in self._allow:
            if not _names_host(named.rule, target.host):
                continue
            mismatch = _mismatch(named.rule, target)
            if mismatch is None:
                return Decision(True, named.name, max_bytes=named.rule.max_bytes)
            mismatches.append((named, mismatch))
        if self._is_open:
            return Decision(True, "open")
        if mismatches:
            named, mismatch = mismatches[0]
            return not_allowed(target, named.name, mismatch)
        return not_allowed(target, "default", f"{target.authority} is not allowed")

    def check_address(self, address: Address, port: int, *, is_own: bool) -> Decision | None:
        """Return the refusal of an address that a name resolves to; None if it is allowed.

        Args:
            address: The address.
            port: The port on it.
            is_own: Whether it belongs to this machine.
        """
        reason = refused_address(address) or refused_target(str(address), port)
        if reason is not None:
            return Decision(False, "never", reason)
        plain = embedded(address)
        for named in self._deny:
            if _names_host(named.rule, plain) and _has_port(named.rule, port, any_port=True):
                return _denied(named, f"{plain} is denied")
        if is_public(address) and not is_own:
            return None
        if any(_names_host(named.rule, plain) and _has_port(named.rule, port) for named in self._allow):
            return None
        what = "an address of this machine" if is_own else "in a private or special network"
        return Decision(
            False,
            "private-address",
            f"{plain} is {what}, and only a rule that names the address allows it",
            f"name it: --allow {format_host(plain)}:{port}",
        )


def _expand(rules: Iterable[EgressRule]) -> Iterator[_Named]:
    for rule in rules:
        if rule.preset is None:
            yield _Named(rule, str(rule))
        else:
            yield from (_Named(one, f"{rule.preset}: {one}") for one in preset_rules(rule.preset))


def _is_denied(rule: EgressRule, target: Target) -> bool:
    if not (_names_host(rule, target.host) and _has_port(rule, target.port, any_port=True)):
        return False
    if not (rule.methods or rule.paths):
        return True
    if target.is_tunnel:
        # A denied request could hide in TLS. Port 80 is read as HTTP, and each of its requests is judged.
        return target.port != HTTP_PORT
    is_unclear = bool(rule.paths) and target.method in _TWO_PATH_METHODS
    return is_unclear or not _is_plain(_path_of(target)) or _fits_request(rule, target)


def _names_host(rule: EgressRule, host: Host) -> bool:
    if rule.host is None:
        return False
    if isinstance(host, str):
        return host.endswith(rule.host[1:]) if rule.is_pattern else host == rule.host
    if rule.is_pattern:
        return False
    known = read_host(rule.host)
    return not isinstance(known, str) and embedded(known) == embedded(host)


def _has_port(rule: EgressRule, port: int, *, any_port: bool = False) -> bool:
    return port in rule.ports if rule.ports else any_port or port in WEB_PORTS


def _mismatch(rule: EgressRule, target: Target) -> str | None:
    """Return why a rule for this host does not allow a target; None if it does."""
    if not _has_port(rule, target.port):
        ports = [str(port) for port in rule.ports or WEB_PORTS]
        named = f"port {ports[0]}" if len(ports) == 1 else f"ports {', '.join(ports[:-1])} and {ports[-1]}"
        return f"{format_host(target.host)} is allowed on {named}, not {target.port}"
    if not (rule.methods or rule.paths):
        return None
    if target.is_tunnel:
        # Port 80 is read as HTTP even in a tunnel, and each of its requests is judged.
        return None if target.port == HTTP_PORT else "its method and path cannot be seen in a tunnel"
    if _fits_request(rule, target):
        return None
    return f"no rule for this host allows {target.method} {target.path}"


def _fits_request(rule: EgressRule, target: Target) -> bool:
    if rule.methods and target.method not in rule.methods:
        return False
    if not rule.paths:
        return True
    path = _path_of(target)
    return (
        target.method not in _TWO_PATH_METHODS
        and _is_plain(path)
        and any(_is_path(pattern, path) for pattern in rule.paths)
    )


def _path_of(target: Target) -> str:
    return target.path.partition("?")[0]


def _is_path(pattern: str, path: str) -> bool:
    return path.startswith(pattern[:-1]) if pattern.endswith("*") else path == pattern


def _is_plain(path: str) -> bool:
    """Whether every server reads a path in the same way."""
    segments = path.split("/")[1:]
    return not (
        {".", ".."} & set(segments) or "%" in path or "\\" in path or ";" in path or "" in segments[:-1]
    )


def not_allowed(target: Target, rule: str, reason: str) -> Decision:
    """Return the refusal of a target that a rule in `allow` would let through."""
    host = format_host(target.host)
    is_short = isinstance(target.host, str) and "." not in target.host
    port = f":{target.port}" if target.port not in WEB_PORTS or is_short else ""
    remedy = f"allow it: --allow {host}{port}, or egress.allow in ringfence.yaml"
    return Decision(False, rule, reason, remedy, "allow")


def _denied(named: _Named, reason: str) -> Decision:
    return Decision(False, named.name, reason, "remove the rule from egress.deny", "undeny")


@cache
def preset_rules(name: str) -> tuple[EgressRule, ...]:
    """Return the rules of a preset in order; empty for presets that are not lists of hosts."""
    return tuple(EgressRule.model_validate(one) for one in _data().get(name, ()))


@cache
def _data() -> dict[str, Any]:
    from ruamel.yaml import YAML  # takes 80 ms, and few runs need it

    text = files("ringfence.egress.proxy").joinpath("presets.yaml").read_text(encoding="utf-8")
    return dict(YAML(typ="safe", pure=True).load(text))


def parse_target(url: str, method: str = "GET") -> Target:
    """Return the target that a client inside would request from the proxy to reach `url`.

    Args:
        url: `https://host/path`, `http://...`, `host` or `host:port`; the last two mean TLS.
        method: The method of the request. It matters for http:// only, because it cannot be seen in TLS.

    Raises:
        ValueError: `url` has another form.
    """
    match = _URL.fullmatch(url)
    scheme = (match["scheme"] or "https").lower() if match else ""
    if match is None or scheme not in ("http", "https"):
        raise ValueError(f"{url!r} is no address; write https://host/path, http://host/path or host:port")
    is_plain = scheme == "http"
    port = int(match["port"] or (HTTP_PORT if is_plain else TLS_PORT))
    if not 1 <= port <= HIGHEST_PORT:
        raise ValueError(f"{url!r} has the port {port}; a port is a number from 1 to {HIGHEST_PORT}")
    host = read_host(match["host"])
    if not is_plain:
        return Target(host, port)
    path = (match["path"] or "/").partition("#")[0]
    return Target(host, port, method.upper(), path if path.startswith("/") else f"/{path}")
