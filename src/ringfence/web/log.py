"""Reads a record's events as entries of a log, page by page."""

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from starlette.requests import Request

from ringfence.frozen import frozen
from ringfence.journal.record import event_of
from ringfence.transcript import describe_event
from ringfence.web.client import ApiClient, ApiError
from ringfence.web.formats import parse_moment

PAGE = 200
"""The number of events that a page requests at a time. With a filter by kind, a page may hold up to 299."""
MAX_BODY_CHARS = 6000
"""The maximum length of the body of an entry on a page of many."""
_MAX_FETCHES = 10
_KINDS: Mapping[str, tuple[str, ...]] = {
    "all": (),
    "talk": ("message.", "model.replied", "agent.", "job."),
    "tools": ("tool.", "command."),
    "network": ("egress.", "model.asked", "model.exchanged", "forward."),
}
KINDS = tuple(_KINDS)
"""The kinds of events by which a log can be filtered."""
_CLASSES = {
    "bold cyan": "user", "bold green": "agent", "bold yellow": "tool", "yellow": "tool", "bold red": "error",
    "dim": "quiet",
}  # fmt: skip


@frozen
class Entry:
    """An event in the form in which a page shows it."""

    seq: int
    clock: str
    title: str
    css_class: str
    body: str
    is_dimmed: bool
    """Whether the body is shown dimmed."""
    hidden_chars: int
    """The number of characters of the body that are not shown."""


@frozen
class LogPage:
    """A page of a log."""

    entries: tuple[Entry, ...]
    start: int
    """The number of the page's first event."""
    next_event: int
    """The number of the first event after the page."""
    is_end: bool
    """Whether the page ends at the end of the record, as far as it is written."""


def read_entry(line: str | Mapping[str, Any]) -> Entry:
    """Convert an event, in the form in which the API sends it, to an entry."""
    record = json.loads(line) if isinstance(line, str) else line
    event = event_of(record["event"], record["data"])
    moment: datetime | None = parse_moment(record["time"])
    text = describe_event(event, moment)
    return Entry(
        record["seq"],
        text.clock,
        text.title,
        _CLASSES.get(text.title_style, ""),
        text.body.rstrip("\n")[:MAX_BODY_CHARS],
        text.body_style == "dim",
        max(0, len(text.body.rstrip("\n")) - MAX_BODY_CHARS),
    )


def is_of_kind(line: str, kind: str) -> bool:
    """Whether an event, in the form in which the API sends it, is of a kind of `KINDS`."""
    prefixes = _KINDS.get(kind, ())
    return not prefixes or json.loads(line)["event"].startswith(prefixes)


async def read_log(api: ApiClient, noun: str, name: str, *, start: int, kind: str, **query: Any) -> LogPage:
    """A page of the log of a job or a run.

    Args:
        api: The API.
        noun: `jobs` or `runs`.
        name: The id of the job or run.
        start: The first event; a negative number counts from the end.
        kind: Only events of this kind.
        query: Further parameters of the API, such as the attempt.
    """
    entries: list[Entry] = []
    first: int | None = None
    position, is_end = start, False
    for _ in range(_MAX_FETCHES):
        count = 0
        async with api.lines(noun, name, "events", start=position, limit=PAGE, **query) as lines:
            async for line in lines:
                count += 1
                number = json.loads(line)["seq"]
                first = number if first is None else first
                position = number + 1
                if is_of_kind(line, kind):
                    entries.append(read_entry(line))
        is_end = count < PAGE or start < 0
        if is_end or len(entries) >= PAGE // 2:
            break
    return LogPage(tuple(entries), max(0, start) if first is None else first, max(0, position), is_end)


async def log_values(
    request: Request, api: ApiClient, noun: str, name: str, *, is_over: bool, attempt: str | None = None
) -> dict[str, Any]:
    """The values that the page of the log of a job or a run shows.

    Args:
        request: Its query names the first event and the kind of events.
        api: The API.
        noun: `jobs` or `runs`.
        name: The id of the job or run.
        is_over: Whether it has ended.
        attempt: The attempt at the job; None: the last one.
    """
    kind = request.query_params.get("show", "all")
    start = _start_of(request.query_params.get("from"), is_over=is_over)
    log, reason = None, ""
    try:
        log = await read_log(api, noun, name, start=start, kind=kind, attempt=attempt)
    except ApiError as exc:
        reason = str(exc)
    return {
        "log": log,
        "log_error": reason,
        "kind": kind,
        "kinds": KINDS,
        "attempt": attempt,
        "page_size": PAGE,
    }


def _start_of(text: str | None, *, is_over: bool) -> int:
    """The first event of a page: as in its URL, otherwise the first one, or, until the run is over, the last page's."""
    if text == "last" or (text is None and not is_over):
        return -PAGE
    return int(text) if text is not None and text.isdecimal() and len(text) < 10 else 0
