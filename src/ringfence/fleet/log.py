"""How a fleet's processes say what happens: a line for people, and the same as an event with fields for programs."""

from typing import Literal, Protocol

Level = Literal["info", "warning"]


class Log(Protocol):
    """Says something, once. It never fails, and never holds up who calls it for long."""

    def __call__(self, line: str, /, *, event: str, level: Level = "warning", **fields: object) -> None:
        """Say it.

        Args:
            line: For people. It may hold text of agents.
            event: What kind of thing it is, in the past tense: `worker.ended`.
            level: `info` for what is as it should be.
            fields: What programs look for: `job`, `agent`, ...
        """
