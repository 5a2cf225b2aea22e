"""What happened to a loop as a line for a person. Nothing is escaped here."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ringfence.cli.plural import counted

if TYPE_CHECKING:
    from ringfence.cli.outcomes import Line
    from ringfence.loop.store.rows import EventRow

Data = Mapping[str, Any]
_SHOWN = 3
_STYLES = {
    "story.passed": "green",
    "story.retried": "yellow",
    "story.failed": "red",
    "story.skipped": "red",
    "story.blocked": "bold yellow",
}


def event_line(event: "EventRow", begun_ms: int) -> "Line":
    """An event: how long after the loop's beginning, which story, what.

    Args:
        event: It.
        begun_ms: When the loop began.
    """
    seconds = max(0, event.at_ms - begun_ms) // 1000
    stamp = f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    told = TOLD.get(event.type)
    what = told(event.data) if told is not None else event.type
    story = f"{event.story}: " if event.story else ""
    return f"{stamp}  {story}{what}", _STYLES.get(event.type, "")


def _started(data: Data) -> str:
    red, checks = int(data.get("red_count", 0)), _several(data.get("red_checks"))
    before = f"; {counted(red, 'test')} red before: {_several(data.get('red'))}" if red else ""
    others = f"; red before: {checks}" if checks else ""
    return f"{_stories(data.get('stories', 0))} from commit {_short(data.get('base'))}{before}{others}"


def _stories(count: Any) -> str:
    return "1 story" if count == 1 else f"{count} stories"


def _written(data: Data) -> str:
    return f"tests written, and red for the right reason: {_several(data.get('files'))}"


def _committed(data: Data) -> str:
    files = counted(int(data.get("files", 0)), "file")
    return f"attempt {data.get('attempt')}: code of {files}, {_short(data.get('commit'))}"


def _checked(data: Data) -> str:
    checks = data.get("checks")
    told = (
        ", ".join(f"{name} {colour}" for name, colour in checks.items()) if isinstance(checks, dict) else ""
    )
    return f"attempt {data.get('attempt')}: checks {'green' if data.get('is_green') else 'red'} ({told})"


def _rejected(data: Data) -> str:
    complaints = data.get("complaints") or [""]
    what = {"test_writer": "tests rejected", "merge": "begun anew"}.get(str(data.get("role")), "rejected")
    more = f" (and {len(complaints) - 1} more)" if len(complaints) > 1 else ""
    return f"attempt {data.get('attempt')}: {what}: {complaints[0]}{more}"


def _passed(data: Data) -> str:
    return f"passed on attempt {data.get('attempt')}, {_short(data.get('commit'))}"


def _short(commit: Any) -> str:
    return str(commit or "")[:12]


def _several(names: Any) -> str:
    names = [str(name) for name in names or ()]
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


TOLD: Mapping[str, Callable[[Data], str]] = {
    "loop.started": _started,
    "story.dispatched": lambda data: f"begun at {_short(data.get('base'))}",
    "tests.written": _written,
    "code.committed": _committed,
    "checks.completed": _checked,
    "story.retried": _rejected,
    "story.failed": _rejected,
    "story.passed": _passed,
    "story.skipped": lambda data: f"skipped: {data.get('reason')}",
    "story.blocked": lambda data: f"blocked: {data.get('question')}",
    "loop.completed": lambda data: f"the loop has ended: {data.get('reason')}",
    "loop.merged": lambda data: f"{data.get('branch')} is at {_short(data.get('commit'))} now",
    "loop.proposed": lambda data: f"pull request: {data.get('address')}",
    "loop.cancelled": lambda _: "the loop was stopped",
}
