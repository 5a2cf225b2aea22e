"""`ringfence session`: lists, shows and follows sessions of the agent CLIs and of ringfence."""

import os
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from ringfence.cli.options import JsonOption, LimitOption
from ringfence.cli.output import counted, print_json_line
from ringfence.cli.settings import duration_of
from ringfence.errors import RingfenceError, UsageError
from ringfence.escape import safe_json
from ringfence.journal import list_runs, runs_dir
from ringfence.runtime.transcript.discovery import FoundSession, list_sessions, survey

if TYPE_CHECKING:
    from ringfence.events import Event

_Session = Annotated[
    str,
    typer.Argument(
        metavar="PATH|ID",
        help="A transcript's file, a session's id or the beginning of one, or 'last': the newest of the clients.",
    ),
]
_All = Annotated[bool, typer.Option("--all", help="Also show the agent CLI's bookkeeping.")]
_CLIENTS = ("claude", "codex", "ringfence")


def ls(
    *,
    json: JsonOption = False,
    limit: LimitOption = 20,
    client: Annotated[
        str | None,
        typer.Option("--client", metavar="NAME", help="List only sessions of claude, codex or ringfence."),
    ] = None,
    workspace: Annotated[
        Path | None,
        typer.Option("--workspace", "-C", metavar="DIR", help="List only sessions on this directory."),
    ] = None,
) -> None:
    """List sessions of the agent CLIs and of ringfence.

    The sessions' text is not verified.
    """
    if client is not None and client not in _CLIENTS:
        raise UsageError(f"there is no client {client!r}; there are: {', '.join(_CLIENTS)}")
    found = listed_sessions(limit, client=client, workspace=workspace)
    if json:
        import msgspec

        typer.echo(safe_json(msgspec.to_builtins(found), indent=2))
        return
    if not found:
        typer.echo("no sessions found; see --client, --workspace, CLAUDE_CONFIG_DIR and CODEX_HOME", err=True)
        return
    from ringfence.cli.render.console import open_console, print_table

    header = ("session", "client", "changed", "size", "workspace", "task")
    print_table(open_console(), header, [one.row() for one in found])


def show(session: _Session, *, everything: _All = False, json: JsonOption = False) -> None:
    """Print the events of a session, in order.

    Events of sub-agents come last. Text of agents is shown escaped.
    """
    from ringfence.journal import read, resolve
    from ringfence.runtime.transcript.discovery import survey
    from ringfence.runtime.transcript.session import opening, read_events

    path = _find_transcript(session)
    printer = _Printer(json=json, everything=everything)
    if path is None:
        for record in read(resolve(session)):
            printer.show(record.event, record.time)
        return
    overview = survey(path)
    printer.show(opening(overview, path, overview.session_id))
    for event in read_events(path):
        printer.show(event)
    printer.report_hidden()


def follow(
    session: _Session,
    *,
    new: Annotated[bool, typer.Option("--new", help="Skip events that the file holds already.")] = False,
    idle: Annotated[
        str | None, typer.Option("--idle", metavar="TIME", help="End after this time without a new event.")
    ] = None,
    everything: _All = False,
    json: JsonOption = False,
) -> None:
    """Print a session's events as they are written.

    Continues until interrupted, sub-agents included. The file may be empty at first.
    """
    import anyio

    from ringfence.runtime.transcript.session import follow_events

    path = _find_transcript(session)
    if path is None:
        raise UsageError(
            f"{session!r} is a run of ringfence; follow it by `ringfence runs logs --follow {session}`"
        )
    idle_s = None if idle is None else duration_of("--idle", idle)
    printer = _Printer(json=json, everything=everything)

    async def print_all() -> None:
        async for event in follow_events(path, from_end=new, idle_s=idle_s):
            printer.show(event)

    anyio.run(print_all)
    printer.report_hidden()


def _find_transcript(reference: str) -> Path | None:
    """Find a transcript by its reference; None if the reference is a run of Ringfence."""
    from ringfence.journal import resolve
    from ringfence.runtime.transcript.discovery import find_session

    try:
        return find_session(reference)
    except UsageError as exc:
        try:
            resolve(reference)
        except UsageError:
            raise exc from None
        return None


class _Printer:
    """Prints events as lines for people, or each as a line of JSON."""

    def __init__(self, *, json: bool, everything: bool) -> None:
        from ringfence.cli.render.console import open_console

        self._json = json
        self._everything = everything
        self._hidden = 0
        self._console = open_console()

    def show(self, event: "Event", time: Any = None) -> None:
        """Print an event; bookkeeping only with --all."""
        import msgspec

        from ringfence.cli.render.transcript import print_event

        if not self._everything and _is_bookkeeping(event):
            self._hidden += 1
        elif not self._everything and _is_only_results(event):
            pass  # the results are printed with their calls
        elif self._json:
            print_json_line(msgspec.to_builtins(event))
        else:
            print_event(self._console, event, time)

    def report_hidden(self) -> None:
        """Print the number of events that were left out."""
        if self._hidden:
            typer.echo(
                f"{counted(self._hidden, 'record')} of bookkeeping left out; --all shows them", err=True
            )


def _is_bookkeeping(event: "Event") -> bool:
    """Whether the agent CLI wrote the record for its own use."""
    from ringfence.events import TranscriptNoted

    return isinstance(event, TranscriptNoted) and not event.text


def _is_only_results(event: "Event") -> bool:
    """Whether an event is a message that only holds tool results for the model."""
    from ringfence.events import MessageSent
    from ringfence.journal.session import is_only_results

    return isinstance(event, MessageSent) and is_only_results(event.content)


_MAX_SESSIONS_READ = 2000
"""Transcripts whose beginning is read to find the sessions on a workspace."""
_SHORT_CHARS = 200


class ListedSession(msgspec.Struct, frozen=True, kw_only=True):
    """A session, by its file's name and first records."""

    session_id: str
    client: str
    path: str
    modified_at: str
    size_bytes: int
    client_version: str = ""
    workspace: str = ""
    model: str = ""
    prompt: str = ""
    """First line of the task."""
    problem: str = ""
    """Why the transcript could not be read."""

    def row(self) -> tuple[str, ...]:
        """The cells of the session in the list."""
        when = datetime.fromisoformat(self.modified_at).astimezone()
        what = self.prompt or (f"({self.problem})" if self.problem else "")
        name = self.session_id
        return name, self.client, f"{when:%Y-%m-%d %H:%M}", _size(self.size_bytes), self.workspace, what


def listed_sessions(number: int, *, client: str | None, workspace: Path | None) -> list[ListedSession]:
    """List the newest sessions.

    Args:
        number: The maximum number of sessions.
        client: List only sessions of this program.
        workspace: List only sessions on this directory.
    """
    wanted = None if workspace is None else os.path.realpath(workspace)
    found: list[ListedSession] = []
    if client in (None, "ringfence"):
        found += _list_own_runs(number, wanted)
    if client != "ringfence":
        there = [one for one in list_sessions() if client in (None, one.client)]
        candidates = [one for one in there if wanted is None or one.may_be_in(wanted)][:_MAX_SESSIONS_READ]
        kept = 0
        for one in candidates:
            listed = _read_overview(one)
            if wanted is None or (listed.workspace and os.path.realpath(listed.workspace) == wanted):
                found.append(listed)
                kept += 1
            if kept == number:
                break
    return sorted(found, key=lambda each: each.modified_at, reverse=True)[:number]


def _read_overview(one: FoundSession) -> ListedSession:
    listed = ListedSession(
        session_id=one.session_id,
        client=one.client,
        path=str(one.path),
        modified_at=_time(one.modified_s),
        size_bytes=one.size_bytes,
    )
    try:
        overview = survey(one.path)
    except RingfenceError as exc:
        return msgspec.structs.replace(listed, problem=str(exc))
    return msgspec.structs.replace(
        listed,
        client_version=overview.client_version,
        workspace=overview.workspace,
        model=overview.model,
        prompt=_first_line(overview.prompt),
    )


def _list_own_runs(number: int, workspace: str | None) -> list[ListedSession]:
    """List Ringfence's own runs, optionally only those on a workspace."""
    from ringfence.journal import creation_of

    found: list[ListedSession] = []
    for run in list_runs(None if workspace else number):
        directory = runs_dir() / run.id
        created = creation_of(directory)
        if workspace is not None and (created is None or created.workspace != workspace):
            continue
        with suppress(OSError):
            status = (directory / "journal.jsonl").stat()
            listed = ListedSession(
                session_id=run.id,
                client="ringfence",
                path=str(directory),
                modified_at=_time(status.st_mtime),
                size_bytes=status.st_size,
                client_version=created.version if created else "",
                workspace=created.workspace if created else "",
                model=run.model,
                prompt=run.prompt,
                problem=run.reason if run.state == "damaged" else "",
            )
            found.append(listed)
        if len(found) == number:
            break
    return found


def _size(count: int) -> str:
    return f"{count / 1024:,.0f} KiB" if count < 10 * 1024**2 else f"{count / 1024**2:,.0f} MiB"


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "")[:_SHORT_CHARS]
