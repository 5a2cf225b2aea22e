"""What a run asked of the network, as lines for a person, and a hint where a command seems to have lacked one."""

import re

from ringfence.cli.output import counted
from ringfence.cli.render.agent import Line
from ringfence.events import (
    CommandEnded,
    EgressClosed,
    EgressDecided,
    Event,
    ForwardClosed,
    ForwardRefused,
    ModelAsked,
    ModelExchanged,
)

_MOST_LINES = 100
_UNREACHABLE = 502


def decision_line(event: EgressDecided) -> str:
    """A decision of the proxy."""
    if event.allowed:
        method = "" if event.method == "CONNECT" else f"{event.method} "
        through = f", through {event.through}" if event.through else ""
        return f"{method}{event.host}:{event.port}{event.path}, by rule {event.rule!r}{through}"
    times = f" ({event.repeated} times by now)" if event.repeated > 1 else ""
    return f"refused: {event.reason}{times}"


def end_line(event: EgressClosed) -> str:
    """The end of what was let out."""
    target = f"{event.host}:{event.port}"
    if event.status == _UNREACHABLE:
        return f"{target} cannot be reached: {event.ended_by}"
    ended = "" if event.ended_by == "closed" else f", ended by {event.ended_by}"
    return (
        f"{target}: {event.sent_bytes:,} bytes out, {event.received_bytes:,} in, "
        f"{event.duration_ms / 1000:.2f} s{ended}"
    )


def asked_line(event: ModelAsked) -> str:
    """A request for a model."""
    model = f" {event.model}" if event.model else ""
    stripped = f", without {', '.join(event.stripped)}" if event.stripped else ""
    refused = "" if event.allowed else f", refused: {event.reason}"
    return f"{event.exchange}: {event.method} {event.path}{model}{stripped}{refused}"


def exchanged_line(event: ModelExchanged) -> str:
    """What came of a request for a model."""
    cost = "" if event.cost_usd is None else f", ${event.cost_usd:.4f}"
    ended = "" if event.ended_by == "closed" else f", ended by {event.ended_by}"
    spent = f"{counted(event.usage.total, 'token')}{cost}"
    return f"{event.exchange}: {event.status}, {spent}, {event.duration_ms / 1000:.2f} s{ended}"


class Outward:
    """Chooses what is shown while a run goes: what is let out, refused or out of reach, each the first time.

    At most 100 lines: what is inside decides how many hosts it asks for. The record has all.
    """

    def __init__(self) -> None:
        self._shown: set[str] = set()
        self._count = 0

    def lines(self, event: Event) -> list[Line]:
        """What to show of an event."""
        match event:
            case EgressDecided(allowed=True):
                return self._bounded(f"{event.host}:{event.port}", decision_line(event), "dim")
            case EgressDecided(repeated=1):
                return self._bounded(decision_line(event), decision_line(event), "yellow")
            case EgressClosed(status=status) if status == _UNREACHABLE:
                return self._bounded(end_line(event), end_line(event), "yellow")
            case _:
                return []

    def _bounded(self, key: str, line: str, style: str) -> list[Line]:
        if key in self._shown or self._count > _MOST_LINES:
            return []
        self._count += 1
        if self._count > _MOST_LINES:
            return [("  proxy: more is in the record only", "yellow")]
        self._shown.add(key)
        return [(f"  proxy: {line}", style)]


class Refused:
    """Gathers what a command was refused, for a few lines at its end: many programs do not say why they failed."""

    _MOST = 10

    def __init__(self) -> None:
        self._times: dict[str, int] = {}

    async def show(self, event: Event) -> None:
        """Take an event."""
        line, times = "", 1
        if isinstance(event, EgressDecided) and not event.allowed:
            line = "; ".join(filter(None, (f"refused: {event.reason}", event.remedy)))
            times = event.repeated
        elif isinstance(event, EgressClosed) and event.status == _UNREACHABLE:
            line = end_line(event)
            times = self._times.get(line, 0) + 1
        if line and (line in self._times or len(self._times) <= self._MOST):
            self._times[line] = times

    def lines(self) -> list[str]:
        """What to say."""
        told = [
            f"{line} ({times} times)" if times > 1 else line
            for line, times in list(self._times.items())[: self._MOST]
        ]
        return [*told, *(["more was refused; the record has all"] if len(self._times) > self._MOST else [])]


HINT = "no host can be reached from inside, as none is granted; --allow HOST or --allow packages grants some"

_WORDS = re.compile(
    r"could not resolve host|unable to resolve host|temporary failure in name resolution|name or service not known|"
    r"getaddrinfo (?:EAI_AGAIN|ENOTFOUND)|network is unreachable|ENETUNREACH|unknown ?host|"
    r"dial tcp: lookup|failed to lookup address|failed to connect to \S+ port \d+ after",
    re.IGNORECASE,
)


def lacks_network(output: str) -> bool:
    """Whether a program says that it cannot find, or reach, another machine."""
    return _WORDS.search(output) is not None


_ENDS = frozenset({"closed", "inside", "target", "cancelled"})
"""Of connections that were made; else it is said why there was none."""


class Unconnected:
    """Looks whether the last command failed so, and which granted services did not answer."""

    def __init__(self) -> None:
        self.is_likely = False
        """Whether it did. What is inside decides it: good for advice, and for nothing else."""
        self.unreached: dict[str, str] = {}
        """Why a forwarded service was not reached, by what was granted."""

    def note(self, event: Event) -> None:
        """Take an event."""
        if isinstance(event, ForwardClosed) and event.ended_by in _ENDS:
            self.unreached.pop(event.forward, None)  # one that was waited for
        elif isinstance(event, ForwardClosed):
            self.unreached[event.forward] = event.ended_by
        elif isinstance(event, ForwardRefused):
            self.unreached[event.forward] = event.reason
        if isinstance(event, CommandEnded):
            is_failed = event.exit_code != 0
            self.is_likely = is_failed and (lacks_network(event.stderr) or lacks_network(event.stdout))
