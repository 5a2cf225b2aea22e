"""Formats network access as lines for people, with a hint when a command seems to lack network access."""

import re

from ringfence.cli.render.agent import Line
from ringfence.events import (
    CommandEnded,
    EgressClosed,
    EgressDecided,
    Event,
    ForwardClosed,
    ForwardRefused,
)
from ringfence.transcript import UNREACHABLE, decision_line, end_line

_MAX_LINES = 100


class EgressView:
    """Selects the network events to show during a run: each allowed, refused or unreachable host, once.

    It shows at most 100 lines, because the agent decides how many hosts it requests. The record holds all of them.
    """

    def __init__(self) -> None:
        self._shown: set[str] = set()
        self._count = 0

    def lines(self, event: Event) -> list[Line]:
        """The lines to show for an event."""
        match event:
            case EgressDecided(allowed=True):
                return self._line_once(f"{event.host}:{event.port}", decision_line(event), "dim")
            case EgressDecided(repeated=1):
                return self._line_once(decision_line(event), decision_line(event), "yellow")
            case EgressClosed(status=status) if status == UNREACHABLE:
                return self._line_once(end_line(event), end_line(event), "yellow")
            case _:
                return []

    def _line_once(self, key: str, line: str, style: str) -> list[Line]:
        if key in self._shown or self._count > _MAX_LINES:
            return []
        self._count += 1
        if self._count > _MAX_LINES:
            return [("  proxy: further lines are in the record only", "yellow")]
        self._shown.add(key)
        return [(f"  proxy: {line}", style)]


class RefusalSummary:
    """Collects refused requests to print at the end, because many programs do not report why they failed."""

    _MAX_LINES_SHOWN = 10

    def __init__(self) -> None:
        self._times: dict[str, int] = {}

    async def show(self, event: Event) -> None:
        """Process an event."""
        line, times = "", 1
        if isinstance(event, EgressDecided) and not event.allowed:
            line = "; ".join(filter(None, (f"refused: {event.reason}", event.remedy)))
            times = event.repeated
        elif isinstance(event, EgressClosed) and event.status == UNREACHABLE:
            line = end_line(event)
            times = self._times.get(line, 0) + 1
        if line and (line in self._times or len(self._times) <= self._MAX_LINES_SHOWN):
            self._times[line] = times

    def lines(self) -> list[str]:
        """The lines to print."""
        lines = [
            f"{line} ({times} times)" if times > 1 else line
            for line, times in list(self._times.items())[: self._MAX_LINES_SHOWN]
        ]
        return [
            *lines,
            *(
                ["more requests were refused; the record lists all"]
                if len(self._times) > self._MAX_LINES_SHOWN
                else []
            ),
        ]


HINT = "no host can be reached from inside, as none is granted; --allow HOST or --allow packages grants some"

_NETWORK_ERRORS = re.compile(
    r"could not resolve host|unable to resolve host|temporary failure in name resolution|name or service not known|"
    r"getaddrinfo (?:EAI_AGAIN|ENOTFOUND)|network is unreachable|ENETUNREACH|unknown ?host|"
    r"dial tcp: lookup|failed to lookup address|failed to connect to \S+ port \d+ after",
    re.IGNORECASE,
)


def lacks_network(output: str) -> bool:
    """Whether a program's output reports that it cannot resolve or reach a host."""
    return _NETWORK_ERRORS.search(output) is not None


_CONNECTED_ENDS = frozenset({"closed", "inside", "target", "cancelled"})
"""Ends of connections that were established; any other value is the reason for a failed connection."""


class ConnectionFailures:
    """Records whether the last command lacked network access, and which forwarded services did not respond."""

    def __init__(self) -> None:
        self.is_likely = False
        """Whether the last command seems to lack network access; a hint only, since the agent controls the output."""
        self.unreached: dict[str, str] = {}
        """Why each forwarded service was not reached, by the name of its forward."""

    def note(self, event: Event) -> None:
        """Process an event."""
        if isinstance(event, ForwardClosed) and event.ended_by in _CONNECTED_ENDS:
            self.unreached.pop(event.forward, None)  # the service responded later
        elif isinstance(event, ForwardClosed):
            self.unreached[event.forward] = event.ended_by
        elif isinstance(event, ForwardRefused):
            self.unreached[event.forward] = event.reason
        if isinstance(event, CommandEnded):
            is_failed = event.exit_code != 0
            self.is_likely = is_failed and (lacks_network(event.stderr) or lacks_network(event.stdout))
