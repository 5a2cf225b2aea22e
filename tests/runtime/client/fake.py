"""The client of `double.py`, and its stream."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ringfence.events import (
    Event,
    ModelReplied,
    Origin,
    ToolCalled,
    ToolReturned,
    TranscriptDamaged,
    TranscriptNoted,
    Usage,
)
from ringfence.runtime import Task
from ringfence.runtime.client.base import Client, Launch, Place, Stream
from ringfence.runtime.transcript.lines import Line

SOURCE = Path(__file__).with_name("double.py").read_text()


def asked(*steps: Sequence[Any]) -> str:
    """A prompt of steps."""
    return json.dumps(steps)


class FakeStream(Stream):
    """Reads replies, results of tools and the last word."""

    def take(self, line: Line) -> list[Event]:
        """The events of a line."""
        origin = Origin(file="claude:stdout", line=line.number)
        if line.data is None:
            return [
                TranscriptDamaged(origin=origin, reason="too long", offset=line.offset, size_bytes=line.size)
            ]
        if not line.data:
            return []
        try:
            value = json.loads(line.data)
        except ValueError:
            value = None
        self.seen.take("claude", value)
        if not isinstance(value, dict):
            return [TranscriptNoted(origin=origin, kind="no_json", text="", record=None)]
        message = value.get("message") or {}
        if value.get("type") == "result":
            self.final_text = value["result"]
            self.structured_output = value.get("structured_output")
        if value.get("type") == "assistant":
            self.session_id = value.get("session_id")
            return _replied(message, origin)
        if value.get("type") == "user":
            return [
                ToolReturned(
                    origin=origin,
                    call_id=block["tool_use_id"],
                    tool="Bash",
                    is_error=False,
                    content=block["content"],
                    duration_ms=0.0,
                )
                for block in message["content"]
            ]
        return [TranscriptNoted(origin=origin, kind=str(value.get("type")), text="", record=value)]

    def flush(self) -> list[Event]:
        """Nothing ever waits."""
        return []


def _replied(message: dict[str, Any], origin: Origin) -> list[Event]:
    calls = [block for block in message["content"] if block["type"] == "tool_use"]
    replied = ModelReplied(
        origin=origin,
        model=message["model"],
        message_id=message["id"],
        content=message["content"],
        stop_reason="",
        usage=Usage(**message["usage"]),
        cost_usd=1.0,
        duration_ms=0.0,
        request_digest="",
    )
    return [
        replied,
        *(
            ToolCalled(origin=origin, call_id=each["id"], tool=each["name"], arguments=each["input"])
            for each in calls
        ),
    ]


class FakeClient(Client):
    """Starts `double.py`."""

    name = "claude"
    title = "the fake client"
    tested = ("1", "1")
    install = "it is here"

    def __init__(self, **files: bytes) -> None:
        self.files = files

    def launch(self, task: Task, place: Place) -> Launch:
        """The prompt by stdin."""
        files = {f"{place.home}/{name}": data for name, data in self.files.items()}
        return Launch(
            argv=(place.program, "-I", "-c", SOURCE),
            env={"FAKE": "1"},
            files=files,
            stdin=task.prompt.encode(),
        )

    def interactive(self, place: Place, args: Sequence[str]) -> Launch:
        """As it is."""
        return Launch(argv=(place.program, *args))

    def stream(self) -> Stream:
        """What reads it."""
        return FakeStream()

    def state_dir(self, place: Place) -> str:
        """It has none."""
        return f"{place.home}/.fake"

    def session_files(self) -> tuple[str, ...]:
        """None."""
        return ()
