"""What a client inside told of itself, for the live view: its words, its session, and notes on what is amiss."""

import msgspec

from ringfence.cli.render.tool_calls import Line
from ringfence.escape import safe_json
from ringfence.events import (
    AgentAnswered,
    ModelReplied,
    PermissionDecided,
    SessionKept,
    SessionLost,
    SessionResumed,
    TranscriptDamaged,
    TranscriptNoted,
)


def speech(event: ModelReplied) -> list[tuple[str, bool]]:
    """Texts of a client's reply, and of each whether it is thinking; none of a reply that was shown as it came."""
    if isinstance(event.origin, msgspec.UnsetType):
        return []
    found = []
    for block in event.content:
        kind = block.get("type")
        text = block.get("thinking" if kind == "thinking" else "text")
        if kind in ("text", "thinking") and isinstance(text, str) and text:
            found.append((text, kind == "thinking" or event.origin.agent is not None))
    return found


def note_lines(event: TranscriptNoted) -> list[Line]:
    """A note that says something to people; bookkeeping is in the record only."""
    return [(f"  client: {line}", "yellow") for line in event.text.strip().split("\n")[:1] if line]


def answer_lines(event: AgentAnswered) -> list[Line]:
    """An answer by a schema; a text was shown as it came."""
    if event.structured_output is None:
        return []
    return [(f"  answer: {safe_json(event.structured_output)}", "bold")]


def damage_lines(event: TranscriptDamaged) -> list[Line]:
    """What of its output could not be read."""
    where = "" if isinstance(event.origin, msgspec.UnsetType) else f" (line {event.origin.line})"
    return [(f"  client: not read{where}: {event.reason}", "yellow")]


def permission_lines(event: PermissionDecided) -> list[Line]:
    """A refusal of the host's; what it permits is seen by what comes of it."""
    reason = f": {event.reason}" if event.reason else ""
    return [] if event.allowed else [(f"  {event.tool} was not permitted{reason}", "yellow")]


def resumed_lines(event: SessionResumed) -> list[Line]:
    """Whose session is gone on with, and what is not as it was then."""
    how = "forks" if event.is_forked else "goes on with"
    lines = [(f"  {how} the session of run {event.run}", "dim")]
    return [*lines, *((f"    {difference}", "yellow") for difference in event.differences)]


def lost_lines(event: SessionLost) -> list[Line]:
    """A session that the client did not find."""
    return [(f"  client: its session is gone, it begins anew: {event.reason}", "bold yellow")]


def kept_lines(event: SessionKept) -> list[Line]:
    """A session that could not be kept whole; that it was kept is in the record only."""
    return [(f"  session: not all of it was kept: {event.problem}", "yellow")] if event.problem else []
