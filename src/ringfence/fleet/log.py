"""The log interface of a fleet's processes: each message is a line for people and an event with fields for programs."""

from typing import Literal, Protocol

Level = Literal["info", "warning"]


class Log(Protocol):
    """Logs a message. It never raises, and never blocks the caller for long."""

    def __call__(self, line: str, /, *, event: str, level: Level = "warning", **fields: object) -> None:
        """Log a message.

        Args:
            line: The message for people. It may contain text of agents.
            event: The kind of event, in the past tense, such as `worker.ended`.
            level: `info` for normal events.
            fields: The data for programs, such as `job` and `agent`.
        """
