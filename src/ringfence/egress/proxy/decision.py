"""Whether a request may go out, and by which rule. Pure: used by the gate and by `config policy explain`."""

from collections.abc import Iterable, Iterator
from functools import cache
from importlib.resources import files
from typing import Any

from ringfence.config.egress import WEB_PORTS, Egress, EgressRule
from ringfence.config.host import Host, read_host, written
from ringfence.egress.address import Address, embedded, is_public, refused_address, refused_target
from ringfence.frozen import frozen

TLS_PORT = 443
HTTP_PORT = 80


@frozen
class Wanted:
    """What a process inside asks for."""

    host: Host
    port: int
    method: str = "CONNECT"
    path: str = ""
    """Empty for CONNECT, in which it cannot be seen."""

    @property
    def is_tunnel(self) -> bool:
        """Whether it is a connection rather than one request."""
        return self.method == "CONNECT"

    @property
    def target(self) -> str:
        """Host and port, for people."""
        return f"{written(self.host)}:{self.port}"


@frozen
class Decision:
    """What was decided."""

    is_allowed: bool
    rule: str
    """The rule that decided, as it is written; or the name of one that always holds."""
    reason: str = ""
    """Why it is refused."""
    remedy: str = ""
    """What would allow it; empty if nothing does."""
    max_bytes: int | None = None
    """Bound of the rule, which all connections by it share."""


@frozen
class _Named:
    """A rule, and where it comes from."""

    rule: EgressRule
    name: str


class Rules:
    """The rules of one sandbox, presets taken apart."""

    def __init__(self, egress: Egress) -> None:
        self._allow = tuple(_taken_apart(egress.allow))
        self._deny = tuple(_Named(rule, f"deny {rule}") for rule in egress.deny)
        self._is_open = egress.is_open

    def decide(self, wanted: Wanted) -> Decision:
        """Whether it is allowed, as far as can be said before its name is resolved."""
        reason = refused_target(str(wanted.host), wanted.port)
        if reason is not None:
            return Decision(False, "never", reason)
        for named in self._deny:
            if _is_denied(named.rule, wanted):
                return Decision(
                    False, named.name, f"{wanted.target} is denied by name", "take it out of egress.deny"
                )
        if wanted.port == TLS_PORT and not wanted.is_tunnel:
            return Decision(False, "tls-only", "plain HTTP to port 443 is no TLS", "use https://")
        decision = self._allowed(wanted)
        if decision.is_allowed and not isinstance(wanted.host, str):
            return self.check_address(wanted.host, wanted.port, is_own=False) or decision
        return decision

    def _allowed(self, wanted: Wanted) -> Decision:
        near: list[tuple[_Named, str]] = []
        for named in self._allow:
            if not _is_about(named.rule, wanted.host):
                continue
            lacks = _what_does_not_fit(named.rule, wanted)
            if lacks is None:
                return Decision(True, named.name, max_bytes=named.rule.max_bytes)
            near.append((named, lacks))
        if self._is_open:
            return Decision(True, "open")
        if near:
            named, lacks = near[0]
            return Decision(False, named.name, lacks, remedy_for(wanted))
        return Decision(False, "default", f"{wanted.target} is not allowed", remedy_for(wanted))

    def check_address(self, address: Address, port: int, *, is_own: bool) -> Decision | None:
        """Why nothing may be sent to an address that a name was resolved to; None if it may.

        Args:
            address: The answer.
            port: Where on it.
            is_own: Whether it is one of this machine's.
        """
        reason = refused_address(address) or refused_target(str(address), port)
        if reason is not None:
            return Decision(False, "never", reason)
        plain = embedded(address)
        for named in self._deny:
            if _is_about(named.rule, plain) and _has_port(named.rule, port, any_port=True):
                return Decision(False, named.name, f"{plain} is denied", "take it out of egress.deny")
        if is_public(address) and not is_own:
            return None
        if any(_is_about(named.rule, plain) and _has_port(named.rule, port) for named in self._allow):
            return None
        what = "this machine's own" if is_own else "of a private or special network"
        return Decision(
            False,
            "private-address",
            f"{plain} is {what}, and only a rule that names the address opens it",
            f"name it: --allow {written(plain)}:{port}",
        )


def _taken_apart(rules: Iterable[EgressRule]) -> Iterator[_Named]:
    for rule in rules:
        if rule.preset is None:
            yield _Named(rule, str(rule))
        else:
            yield from (_Named(one, f"{rule.preset}: {one}") for one in preset_rules(rule.preset))


def _is_denied(rule: EgressRule, wanted: Wanted) -> bool:
    if not (_is_about(rule, wanted.host) and _has_port(rule, wanted.port, any_port=True)):
        return False
    if not (rule.methods or rule.paths):
        return True
    if wanted.is_tunnel:
        # What cannot be seen in TLS could be what is denied. Port 80 is judged again by its request.
        return wanted.port != HTTP_PORT
    return not _is_plain(_path_of(wanted)) or _fits_request(rule, wanted)


def _is_about(rule: EgressRule, host: Host) -> bool:
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


def _what_does_not_fit(rule: EgressRule, wanted: Wanted) -> str | None:
    """Why a rule about this host does not allow it; None if it does."""
    if not _has_port(rule, wanted.port):
        ports = [str(port) for port in rule.ports or WEB_PORTS]
        named = f"port {ports[0]}" if len(ports) == 1 else f"ports {', '.join(ports[:-1])} and {ports[-1]}"
        return f"{written(wanted.host)} is allowed on {named}, not {wanted.port}"
    if not (rule.methods or rule.paths):
        return None
    if wanted.is_tunnel:
        # Port 80 is read as HTTP, tunnel or not, and judged again by its request.
        return None if wanted.port == HTTP_PORT else "its method and path cannot be seen in a tunnel"
    if _fits_request(rule, wanted):
        return None
    return f"{wanted.method} {wanted.path} is not among what is allowed there"


def _fits_request(rule: EgressRule, wanted: Wanted) -> bool:
    if rule.methods and wanted.method not in rule.methods:
        return False
    if not rule.paths:
        return True
    path = _path_of(wanted)
    return _is_plain(path) and any(_is_path(pattern, path) for pattern in rule.paths)


def _path_of(wanted: Wanted) -> str:
    return wanted.path.partition("?")[0]


def _is_path(pattern: str, path: str) -> bool:
    return path.startswith(pattern[:-1]) if pattern.endswith("*") else path == pattern


def _is_plain(path: str) -> bool:
    """Whether every reader takes a path for the same one."""
    segments = path.split("/")[1:]
    return not (
        {".", ".."} & set(segments) or "%" in path or "\\" in path or ";" in path or "" in segments[:-1]
    )


def remedy_for(wanted: Wanted) -> str:
    """What would allow it, for people."""
    host = written(wanted.host)
    is_short = isinstance(wanted.host, str) and "." not in wanted.host
    port = f":{wanted.port}" if wanted.port not in WEB_PORTS or is_short else ""
    return f"allow it: --allow {host}{port}, or egress.allow in ringfence.yaml"


@cache
def preset_rules(name: str) -> tuple[EgressRule, ...]:
    """The rules of a preset, in order; none for those that are no list of hosts."""
    return tuple(EgressRule.model_validate(one) for one in _data().get(name, ()))


@cache
def _data() -> dict[str, Any]:
    from ruamel.yaml import YAML  # takes 80 ms, and few runs want it

    text = files("ringfence.egress.proxy").joinpath("presets.yaml").read_text(encoding="utf-8")
    return dict(YAML(typ="safe", pure=True).load(text))
