"""System prompts, one text file per toolset.

They contain nothing that differs between identical runs, so that requests to the model can be cached and compared.
"""

from collections.abc import Sequence
from importlib import resources

from ringfence.errors import UsageError

_MOST_NAMED = 40
_NO_NETWORK = (
    "There is no network. Downloads, package installs from the internet and calls to other machines fail; "
    "use what is installed, and say so if something is missing."
)
_GRANTED = (
    "There is no network but what was granted: {named}. Hosts of the web are reached by a proxy that programs find by "
    "HTTP_PROXY and HTTPS_PROXY; leave these as they are. Everything else is refused, and the result of the "
    "command lists what was refused; say so if something you need is missing."
)


def system_prompt(toolset: str, *, reachable: Sequence[str] = ()) -> str:
    """Return the system prompt for an agent with a toolset.

    Args:
        toolset: The toolset's name.
        reachable: The granted destinations outside the sandbox, in words.

    Raises:
        UsageError: There is no such toolset.
    """
    file = resources.files(__name__).joinpath(f"{toolset}.md")
    if "/" in toolset or not file.is_file():
        raise UsageError(f"there is no system prompt for the toolset {toolset!r}")
    return file.read_text(encoding="utf-8").strip().replace("{network}", _network(reachable))


def _network(reachable: Sequence[str]) -> str:
    if not reachable:
        return _NO_NETWORK
    more = len(reachable) - _MOST_NAMED
    named = [*reachable[:_MOST_NAMED], *([f"{more} more"] if more > 0 else [])]
    return _GRANTED.format(named="; ".join(named))
