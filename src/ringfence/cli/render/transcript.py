"""Prints a journal's events for people. Every text is escaped, as an agent wrote most of it."""

from datetime import datetime
from typing import TYPE_CHECKING

from ringfence.escape import visible
from ringfence.events import Event
from ringfence.transcript import describe_event

if TYPE_CHECKING:
    from rich.console import Console

_INDENT = "    "


def print_event(console: "Console", event: Event, time: datetime | None) -> None:
    """Print an event as lines of a transcript; an imported event with its original time.

    On a terminal a title is cut to its line and a body is wrapped under its indent, so that no text of an
    agent begins at the left edge, where the titles stand. Elsewhere no line is cut or wrapped.
    """
    from rich.padding import Padding
    from rich.text import Text

    text = describe_event(event, time)
    head = Text(f"{text.clock}  ", style="dim")
    head.append(visible(text.title, one_line=True), style=text.title_style)
    lines = visible(text.body).rstrip("\n").split("\n") if text.body else []
    if console.is_terminal:
        console.print(head, no_wrap=True, overflow="ellipsis")
        if lines:
            console.print(
                Padding(Text("\n".join(lines), style=text.body_style, overflow="fold"), (0, 0, 0, 4))
            )
        return
    console.print(head, soft_wrap=True)
    for line in lines:
        console.print(Text(f"{_INDENT}{line}", style=text.body_style), soft_wrap=True)
