"""Events as lines of JSON, for programs."""

import sys

from ringfence.cli.escape import safe_json
from ringfence.events import Event

SCHEMA_VERSION = 1


async def print_event(event: Event) -> None:
    """Print one event as a line of JSON; `event` is its name."""
    import msgspec

    line = safe_json({"schema_version": SCHEMA_VERSION, **msgspec.to_builtins(event)})
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
