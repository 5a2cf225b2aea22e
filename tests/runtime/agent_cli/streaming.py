"""What the real clients printed, captured with the scripted model and shortened; and how to have it read."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ringfence.events import Event
from ringfence.runtime.agent_cli.base import Output
from ringfence.runtime.transcript.record import LineSplitter, parse

_CAPTURED = Path(__file__).parent / "streams"


def captured(client: str, name: str) -> list[bytes]:
    """The lines of a run by name."""
    for path in _CAPTURED.glob(f"{client}-*.jsonl"):
        for line in path.read_text().splitlines():
            sample = json.loads(line)
            if sample["name"] == name:
                return [json.dumps(each).encode() for each in sample["lines"]]
    raise KeyError(name)


def read(output: Output, lines: Iterable[bytes]) -> list[Event]:
    """The events of lines, to their end."""
    splitter = LineSplitter()
    cut = [line for each in lines for line in splitter.feed(each + b"\n")]
    return [*(event for line in cut for event in output.take(line, parse(line))), *output.end()]


def of(events: Iterable[Event], kind: type[Any]) -> list[Any]:
    """The events of a kind."""
    return [event for event in events if isinstance(event, kind)]
