"""The changes of a run: its files as a tree, and the lines of one file by pages."""

from typing import Any

from starlette.requests import Request

from ringfence.web.client import ApiClient, ApiError

LINES = 400
"""Lines of a diff on one page."""


async def read_changes(request: Request, api: ApiClient, noun: str, name: str) -> dict[str, Any]:
    """What the page of changes shows of a job or a run.

    Args:
        request: Its query names the file and the first line.
        api: The API.
        noun: `jobs` or `runs`.
        name: The id of the job or run.
    """
    query = request.query_params
    try:
        listing = await api.get(noun, name, "diff")
    except ApiError as exc:
        if exc.status in (404, 503):
            raise
        return {"files": [], "tree": [], "file": None, "lines": [], "no_changes": str(exc)}
    files = listing["files"]
    path = query.get("file") or (files[0]["path"] if files else None)
    offset = max(0, int(query["line"])) if query.get("line", "").isdecimal() else 0
    shown: dict[str, Any] = {"lines": [], "total": 0}
    if path is not None:
        shown = await api.get(noun, name, "diff", path=path, offset=offset, limit=LINES)
    end = offset + len(shown["lines"])
    return {
        "listing": listing,
        "files": files,
        "tree": _tree(files),
        "file": path,
        "lines": shown["lines"],
        "first": offset,
        "end": end,
        "total": shown.get("total", end),
        "previous": max(0, offset - LINES) if offset else None,
        "next": end if shown.get("total", end) > end else None,
        "no_changes": "",
    }


def _tree(files: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The files with the folders above them, each folder once, in the order of their paths."""
    rows: list[dict[str, Any]] = []
    folder = ""
    for file in sorted(files, key=lambda each: (each["path"].rpartition("/")[0], each["path"])):
        where, _, name = file["path"].rpartition("/")
        if where != folder:
            rows.append({"folder": where + "/"})
            folder = where
        rows.append({"folder": "", "name": name, **file})
    return rows
