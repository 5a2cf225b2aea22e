"""Reads the changes of a run for pages: the files as a tree, and the lines of one file page by page."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from starlette.requests import Request

from ringfence.frozen import frozen
from ringfence.web.client import ApiClient, ApiError

LINES = 400
"""The number of lines of a diff on one page."""
_FILES = 500
"""The maximum number of files in a tree."""
_HUNK = re.compile(r"@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@")


@frozen
class DiffLine:
    """A line of a diff."""

    kind: str
    """`add`, `del`, `same`, or `hunk` for the heading of a hunk."""
    before: int | None
    """The line number before the change; None: the line did not exist."""
    after: int | None
    text: str


async def read_changes(
    request: Request, api: ApiClient, noun: str, name: str, **query: Any
) -> dict[str, Any]:
    """The values that the page of changes of a job or a run shows.

    Args:
        request: Its query names the file and the first line.
        api: The API.
        noun: `jobs` or `runs`.
        name: The id of the job or run.
        query: Further parameters of the API, such as the attempt.
    """
    wanted = request.query_params
    first_file = _number(wanted.get("files"))
    try:
        listing = await api.get(noun, name, "diff", offset=first_file, limit=_FILES, **query)
    except ApiError as exc:
        if exc.status == 503:
            raise
        return {"files": [], "no_changes": str(exc), "attempt": query.get("attempt")}
    files = listing["files"]
    path = wanted.get("file") or (files[0]["path"] if files else None)
    values = {
        "listing": listing,
        "files": files,
        "tree": _tree(files),
        "file": path,
        "more_files": first_file + len(files) if first_file + len(files) < listing["total"] else None,
        "no_changes": "",
        "attempt": query.get("attempt"),
    }
    if path is None:
        return values
    offset = _number(wanted.get("line"))
    page = await api.get(noun, name, "diff", path=path, offset=offset, limit=LINES, **query)
    end = offset + len(page["lines"])
    return {
        **values,
        "lines": list(_number_lines(page["lines"], page["numbers"])),
        "first": offset,
        "end": end,
        "total": page["total"],
        "previous": max(0, offset - LINES) if offset else None,
        "next": end if end < page["total"] else None,
    }


def _number(text: str | None) -> int:
    return int(text) if text and text.isdecimal() and len(text) < 10 else 0


def _number_lines(lines: Sequence[str], numbers: Sequence[int] | None) -> Iterator[DiffLine]:
    """The lines with their numbers, without the lines before the first hunk."""
    position = None if numbers is None else (numbers[0], numbers[1])
    for line in lines:
        heading = _HUNK.match(line)
        if heading is not None:
            position = int(heading[1]), int(heading[2])
            yield DiffLine("hunk", None, None, line)
        elif position is not None:
            before, after = position
            match line[:1]:
                case "+":
                    yield DiffLine("add", None, after, line[1:])
                    position = before, after + 1
                case "-":
                    yield DiffLine("del", before, None, line[1:])
                    position = before + 1, after
                case "\\":
                    yield DiffLine("hunk", None, None, line)
                case _:
                    yield DiffLine("same", before, after, line[1:])
                    position = before + 1, after + 1


def _tree(files: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The files and their folders, each folder once, ordered by path."""
    rows: list[dict[str, Any]] = []
    folder = ""
    for file in sorted(files, key=lambda each: (each["path"].rpartition("/")[0], each["path"])):
        where, _, name = file["path"].rpartition("/")
        if where != folder:
            rows.append({"folder": f"{where}/"})
            folder = where
        rows.append({"folder": "", "name": name, **file})
    return rows
