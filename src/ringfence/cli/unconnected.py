"""A command that failed for lack of a network, and what grants one: no program knows of `--allow`."""

import re

from ringfence.events import CommandEnded, Event

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


class Unconnected:
    """Looks whether the last command failed so."""

    def __init__(self) -> None:
        self.is_likely = False
        """Whether it did. What is inside decides it: good for advice, and for nothing else."""

    def note(self, event: Event) -> None:
        """Take an event."""
        if isinstance(event, CommandEnded):
            is_failed = event.exit_code != 0
            self.is_likely = is_failed and (lacks_network(event.stderr) or lacks_network(event.stdout))
