"""A command that failed for lack of a network, and what grants one: no program knows of `--allow`."""

import re

from ringfence.events import CommandEnded, Event, ForwardClosed, ForwardRefused

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
