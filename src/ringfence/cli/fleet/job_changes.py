"""`ringfence job diff`, `apply` and `reject`: the changes of a job, also of a fleet on another machine."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ringfence.cli.fleet.job import JobArgument
from ringfence.cli.options import JsonOption, ServerOption
from ringfence.cli.output import notify, print_answer
from ringfence.escape import visible

if TYPE_CHECKING:
    from ringfence.fleet.client import FleetClient
    from ringfence.fleet.local_reader import LocalReader

_PAGE = 5000
"""The largest page that the API returns."""
_Attempt = Annotated[
    int | None,
    typer.Option("--attempt", min=1, metavar="N", help="Which attempt; default: the last one."),
]
_Force = Annotated[
    bool, typer.Option("--force", help="Overwrite files that were changed since, and keep them.")
]


def diff(
    job: JobArgument,
    *,
    attempt: _Attempt = None,
    stat: Annotated[bool, typer.Option("--stat", help="Show only the files and numbers of lines.")] = False,
    server: ServerOption = None,
    json: JsonOption = False,
) -> None:
    """Show what a job changed in its workspace.

    With `--json` it prints the files with their numbers of lines.
    """
    from ringfence.fleet.reader import open_reader

    reader = open_reader(server=server)
    found = reader.get("jobs", job, "diff", attempt=attempt, limit=_PAGE)
    while len(found["files"]) < found["total"]:
        page = reader.get("jobs", job, "diff", attempt=attempt, offset=len(found["files"]), limit=_PAGE)
        if not page["files"]:
            break
        found["files"] += page["files"]
    if json:
        print_answer(found, (), json=True)
        return
    for line in (*found["warnings"], *found["notes"]):
        notify(visible(line, one_line=True))
    if found["state"] in ("undone", "rejected"):
        notify(f"these changes are {found['state']}; `ringfence job apply {job}` brings them in")
    if stat:
        for file in found["files"]:
            lines = "binary" if file["is_binary"] else f"+{file['insertions']} -{file['deletions']}"
            typer.echo(visible(f"{file['kind']:<10} {lines:<12} {file['path']}", one_line=True))
        return
    # A file that became a link is listed twice, as deleted and as added; its lines are those of both.
    for path in dict.fromkeys(file["path"] for file in found["files"]):
        for line in _lines(reader, job, path, attempt):
            typer.echo(visible(line, one_line=True))


def _lines(reader: "FleetClient | LocalReader", job: str, path: str, attempt: int | None) -> Iterator[str]:
    """The lines of the patch of one file, read page by page."""
    offset = 0
    while True:
        page: dict[str, Any] = reader.get(
            "jobs", job, "diff", attempt=attempt, path=path, offset=offset, limit=_PAGE
        )
        yield from page["lines"]
        offset += len(page["lines"])
        if not page["lines"] or offset >= page["total"]:
            return


def apply(
    job: JobArgument, *, force: _Force = False, server: ServerOption = None, json: JsonOption = False
) -> None:
    """Apply a job's changes to its workspace.

    Applies the changes of its last attempt, on the machine where it ran.
    """
    _decide(job, "apply", force=force, server=server, json=json)


def reject(
    job: JobArgument, *, force: _Force = False, server: ServerOption = None, json: JsonOption = False
) -> None:
    """Reject a job's changes; those in the workspace are undone."""
    _decide(job, "reject", force=force, server=server, json=json)


def _decide(job: str, action: str, *, force: bool, server: str | None, json: bool) -> None:
    from ringfence.fleet.client import open_client

    done = open_client(server).post("jobs", job, action, body={"force": force})
    for note in done["notes"]:
        notify(visible(note, one_line=True))
    print_answer(done, [*done["files"], f"{job}: {done['state']}"], json=json)
