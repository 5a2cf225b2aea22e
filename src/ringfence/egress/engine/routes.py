"""Which calls of the engine's API there are for those inside. Pure: a method and a target to a call or a refusal.

The paths are those of https://docs.docker.com/reference/api/engine/version/v1.41/; what is not in the table is
refused, whatever it is.
"""

import re
from collections.abc import Mapping
from dataclasses import field
from urllib.parse import parse_qsl, unquote, urlencode

from ringfence.config.engine_access import EngineAct
from ringfence.frozen import frozen

_VERSION = re.compile(r"v1\.\d{1,3}")
_REFERENCE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")
_NUMBER = re.compile(r"\d{1,12}(\.\d{1,9})?")
_SWITCH = re.compile(r"0|1|true|false|True|False", re.ASCII)
_SECONDS = re.compile(r"\d{1,3}")
_TAIL = re.compile(r"all|\d{1,9}")
_SIDE = re.compile(r"\d{1,5}")
_ANY = re.compile(r"[^\x00-\x1f\x7f]{0,8192}")
_LONGEST_TARGET = 16 * 1024

_LOGS = {
    **dict.fromkeys(("follow", "stdout", "stderr", "timestamps", "details"), _SWITCH),
    **dict.fromkeys(("since", "until"), _NUMBER),
    "tail": _TAIL,
}


@frozen
class Route:
    """One call that there is. `{}` in the path stands for a container, `{exec}` for a command in one."""

    method: str
    path: str
    action: str
    needs: EngineAct | None = None
    """What must be granted; None for what only reads."""
    query: Mapping[str, re.Pattern[str]] = field(default_factory=dict)
    """Parameters that are passed on, and what they must look like."""
    streams: bool = False
    """Whether the answer may go on for long."""


ROUTES: tuple[Route, ...] = (
    Route("GET", "_ping", "ping"),
    Route("HEAD", "_ping", "ping"),
    Route("GET", "version", "version"),
    Route("GET", "info", "info"),
    Route(
        "GET",
        "containers/json",
        "list",
        query={"all": _SWITCH, "limit": _SIDE, "size": _SWITCH, "filters": _ANY},
    ),
    Route("GET", "images/json", "images", query={"all": _SWITCH, "digests": _SWITCH, "filters": _ANY}),
    Route("GET", "containers/{}/json", "inspect", query={"size": _SWITCH}),
    Route("GET", "containers/{}/logs", "logs", query=_LOGS, streams=True),
    Route(
        "GET", "containers/{}/stats", "stats", query={"stream": _SWITCH, "one-shot": _SWITCH}, streams=True
    ),
    # Its ps_args go to a `ps` outside of all containers.
    Route("GET", "containers/{}/top", "top"),
    Route("POST", "containers/{}/start", "start", "start"),
    Route("POST", "containers/{}/stop", "stop", "stop", {"t": _SECONDS}),
    Route("POST", "containers/{}/restart", "restart", "restart", {"t": _SECONDS}),
    Route("POST", "containers/{}/exec", "exec", "exec"),
    Route("POST", "exec/{exec}/start", "exec_start", "exec", streams=True),
    Route("POST", "exec/{exec}/resize", "exec_resize", "exec", {"h": _SIDE, "w": _SIDE}),
    Route("GET", "exec/{exec}/json", "exec_inspect", "exec"),
)
"""All there is."""


@frozen
class Call:
    """A request that is one of the table's."""

    route: Route
    reference: str
    """Container or command it is about; empty if none."""
    version: str
    """`v1.41`, or empty."""
    query: tuple[tuple[str, str], ...]

    @property
    def seconds(self) -> int:
        """How long the engine may wait before it acts."""
        return int(dict(self.query).get("t", "10"))

    def target(self, reference: str, query: Mapping[str, str] | None = None) -> str:
        """The request's target to the engine, built anew, about `reference`."""
        path = re.sub(r"\{(exec)?\}", reference, self.route.path)
        pairs = {**dict(self.query), **(query or {})}
        return f"{'/' + self.version if self.version else ''}/{path}" + (
            f"?{urlencode(pairs)}" if pairs else ""
        )


@frozen
class Refusal:
    """A request that is not passed on, and why; the reason is told to who asked."""

    reason: str
    action: str = ""


def find_call(method: str, target: str) -> Call | Refusal:
    """The call of the table that a request is."""
    path, _, query = target.partition("?")
    if len(target) > _LONGEST_TARGET or not target.startswith("/") or not target.isascii() or "#" in target:
        return Refusal("its address is not a path")
    segments = _segments(path)
    if segments is None:
        return Refusal("its path has empty, dotted or doubly encoded parts")
    version = segments.pop(0) if segments and _VERSION.fullmatch(segments[0]) else ""
    for route in ROUTES:
        reference = _match(route, segments) if route.method == method else None
        if reference is not None:
            return _with_query(route, reference, version, query)
    return Refusal(f"{method} /{'/'.join(segments)} is none of the calls that are passed on")


def _segments(path: str) -> list[str] | None:
    """The parts of a path, each decoded once; None where two readers could read it differently."""
    parts = [unquote(part, errors="strict") if part.isascii() else "" for part in _split(path)]
    if any(not part or part in {".", ".."} or set(part) & set("%/\\;") for part in parts):
        return None
    return parts


def _split(path: str) -> list[str]:
    try:
        for part in path.split("/"):
            unquote(part, errors="strict")
    except UnicodeDecodeError:
        return [""]
    return path.split("/")[1:]


def _match(route: Route, segments: list[str]) -> str | None:
    """What the variable part of a route is in these segments; empty if it has none, None if it is not the route."""
    wanted = route.path.split("/")
    if len(wanted) != len(segments):
        return None
    reference = ""
    for want, have in zip(wanted, segments, strict=True):
        if want.startswith("{"):
            if not _REFERENCE.fullmatch(have):
                return None
            reference = have
        elif want != have:
            return None
    return reference


def _with_query(route: Route, reference: str, version: str, query: str) -> Call | Refusal:
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query), max_num_fields=32)
    except ValueError:
        return Refusal("its query cannot be read", route.action)
    kept: dict[str, str] = {}
    for name, value in pairs:
        if name in kept:
            return Refusal(f"its query says {name[:50]!r} twice", route.action)
        if value and (name not in route.query or not route.query[name].fullmatch(value)):
            return Refusal(f"its query may not say {name[:50]!r} = {value[:50]!r}", route.action)
        kept[name] = value
    passed = tuple((name, value) for name, value in kept.items() if value and name != "filters")
    filters = tuple((name, value) for name, value in kept.items() if value and name == "filters")
    return Call(route, reference, version, passed + filters)
