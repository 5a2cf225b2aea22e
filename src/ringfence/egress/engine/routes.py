"""The calls of the engine's API that processes inside may make. Pure: a method and a target become a call or an error.

The paths are those of https://docs.docker.com/reference/api/engine/version/v1.41/; everything that is not in the
table is rejected.
"""

import re
from collections.abc import Mapping
from dataclasses import field
from urllib.parse import parse_qsl, unquote, urlencode

from ringfence.config.engine_access import EngineAct
from ringfence.frozen import frozen

_VERSION = re.compile(r"v1\.\d{1,3}", re.ASCII)
_REFERENCE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")
_NUMBER = re.compile(r"\d{1,12}(\.\d{1,9})?", re.ASCII)
_SWITCH = re.compile(r"0|1|true|false|True|False", re.ASCII)
_SECONDS = re.compile(r"\d{1,3}", re.ASCII)
_TAIL = re.compile(r"all|\d{1,9}", re.ASCII)
_COUNT = re.compile(r"\d{1,5}", re.ASCII)
_ANY = re.compile(r"[^\x00-\x1f\x7f]{0,8192}")
_TARGET_LIMIT = 16 * 1024

_LOGS = {
    **dict.fromkeys(("follow", "stdout", "stderr", "timestamps", "details"), _SWITCH),
    **dict.fromkeys(("since", "until"), _NUMBER),
    "tail": _TAIL,
}


class Rejected(Exception):
    """A request that is not forwarded.

    Args:
        status: The HTTP status of the response.
        reason: Why, for the client.
        action: The action of the route, if one matched.
    """

    def __init__(self, status: int, reason: str, *, action: str = "") -> None:
        super().__init__(reason)
        self.status = status
        self.action = action


@frozen
class Route:
    """One call of the API. `{}` in the path stands for a container, `{exec}` for a command in one."""

    method: str
    path: str
    action: str
    needs: EngineAct | None = None
    """The grant that the call needs; None for calls that only read."""
    query: Mapping[str, re.Pattern[str]] = field(default_factory=dict)
    """Parameters that are forwarded, and the form of their values."""
    streams: bool = False
    """Whether the response may continue for long."""


ROUTES: tuple[Route, ...] = (
    Route("GET", "_ping", "ping"),
    Route("HEAD", "_ping", "ping"),
    Route("GET", "version", "version"),
    Route("GET", "info", "info"),
    Route(
        "GET",
        "containers/json",
        "list",
        query={"all": _SWITCH, "limit": _COUNT, "size": _SWITCH, "filters": _ANY},
    ),
    Route("GET", "images/json", "images", query={"all": _SWITCH, "digests": _SWITCH, "filters": _ANY}),
    Route("GET", "containers/{}/json", "inspect", query={"size": _SWITCH}),
    Route("GET", "containers/{}/logs", "logs", query=_LOGS, streams=True),
    Route(
        "GET", "containers/{}/stats", "stats", query={"stream": _SWITCH, "one-shot": _SWITCH}, streams=True
    ),
    # Its ps_args would be arguments of a `ps` outside of all containers.
    Route("GET", "containers/{}/top", "top"),
    Route("POST", "containers/{}/start", "start", "start"),
    Route("POST", "containers/{}/stop", "stop", "stop", {"t": _SECONDS}),
    Route("POST", "containers/{}/restart", "restart", "restart", {"t": _SECONDS}),
    Route("POST", "containers/{}/exec", "exec", "exec"),
    Route("POST", "exec/{exec}/start", "exec_start", "exec", streams=True),
    Route("POST", "exec/{exec}/resize", "exec_resize", "exec", {"h": _COUNT, "w": _COUNT}),
    Route("GET", "exec/{exec}/json", "exec_inspect", "exec"),
)
"""All calls."""


@frozen
class Call:
    """A request that matches a route of the table."""

    route: Route
    reference: str
    """The container or command in its path; empty if there is none."""
    version: str
    """`v1.41`, or empty."""
    query: Mapping[str, str]

    @property
    def delay_s(self) -> int:
        """How long the engine may wait before it acts."""
        return int(self.query.get("t", "10"))

    def target(self, reference: str, query: Mapping[str, str] | None = None) -> str:
        """Return the rebuilt target of the request to the engine, for the container or command `reference`."""
        path = re.sub(r"\{(exec)?\}", reference, self.route.path)
        parameters = urlencode({**self.query, **(query or {})})
        version = f"/{self.version}" if self.version else ""
        return f"{version}/{path}{'?' + parameters if parameters else ''}"


def find_call(method: str, target: str) -> Call:
    """Match a request with the table.

    Raises:
        Rejected: It matches no route, or its parameters do not.
    """
    path, _, query = target.partition("?")
    if len(target) > _TARGET_LIMIT or not target.startswith("/") or not target.isascii() or "#" in target:
        raise Rejected(403, "its address is not a path")
    segments = _split_path(path)
    version = segments.pop(0) if segments and _VERSION.fullmatch(segments[0]) else ""
    for route in ROUTES:
        reference = _match(route, segments) if route.method == method else None
        if reference is not None:
            return Call(route, reference, version, _parse_query(route, query))
    raise Rejected(403, f"{method} /{'/'.join(segments)} is not a call that is forwarded")


def _split_path(path: str) -> list[str]:
    """Return the segments of a path, each decoded once; reject paths that two parsers could read differently."""
    try:
        segments = [unquote(segment, errors="strict") for segment in path.split("/")[1:]]
    except UnicodeDecodeError:
        segments = [""]
    if any(segment in {"", ".", ".."} or set(segment) & set("%/\\;") for segment in segments):
        raise Rejected(403, "its path has empty, dotted or doubly encoded segments")
    return segments


def _match(route: Route, segments: list[str]) -> str | None:
    """Return the variable segment of a route; empty if the route has none, None if it does not match."""
    pattern = route.path.split("/")
    if len(pattern) != len(segments):
        return None
    reference = ""
    for wanted, segment in zip(pattern, segments, strict=True):
        if not wanted.startswith("{"):
            if wanted != segment:
                return None
        elif _REFERENCE.fullmatch(segment):
            reference = segment
        else:
            return None
    return reference


def _parse_query(route: Route, query: str) -> dict[str, str]:
    """Return the forwarded parameters; those without a value are left out."""
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query), max_num_fields=32)
    except ValueError:
        raise Rejected(403, "its query cannot be read", action=route.action) from None
    found: dict[str, str] = {}
    for name, value in pairs:
        if name in found:
            raise Rejected(403, f"its query has {name[:50]!r} twice", action=route.action)
        if value and (name not in route.query or not route.query[name].fullmatch(value)):
            raise Rejected(403, f"its query may not have {name[:50]!r} = {value[:50]!r}", action=route.action)
        found[name] = value
    return {name: value for name, value in found.items() if value}
