"""`ringfence session`: sessions of the claude and codex CLIs, listed, shown and followed."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ringfence.cli.options import JsonOption, LimitOption
from ringfence.cli.plural import counted
from ringfence.cli.printing import print_json_line
from ringfence.cli.settings import duration_of
from ringfence.errors import UsageError
from ringfence.escape import safe_json

if TYPE_CHECKING:
    from ringfence.events import Event


_Session = Annotated[
    str,
    typer.Argument(
        metavar="PATH|ID",
        help="A transcript's file, a session's id or the beginning of one, or 'last': the newest of the clients.",
    ),
]
_All = Annotated[bool, typer.Option("--all", help="Bookkeeping of the client, too.")]
_CLIENTS = ("claude", "codex", "ringfence")


def ls(
    *,
    json: JsonOption = False,
    limit: LimitOption = 20,
    client: Annotated[
        str | None, typer.Option("--client", metavar="NAME", help="Only those of claude, codex or ringfence.")
    ] = None,
    workspace: Annotated[
        Path | None, typer.Option("--workspace", "-C", metavar="DIR", help="Only those on this directory.")
    ] = None,
) -> None:
    """List sessions of the agent CLIs and of ringfence.

    The sessions' text is not verified.
    """
    from ringfence.cli.session.listing import listed_sessions

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

    path = _found(session)
    printer = _Printer(json=json, everything=everything)
    if path is None:
        for record in read(resolve(session)):
            printer.show(record.event, record.time)
        return
    overview = survey(path)
    printer.show(opening(overview, path, overview.session_id))
    for event in read_events(path):
        printer.show(event)
    printer.tell_hidden()


def follow(
    session: _Session,
    *,
    new: Annotated[bool, typer.Option("--new", help="Leave out what is in it already.")] = False,
    idle: Annotated[
        str | None, typer.Option("--idle", metavar="TIME", help="End when nothing was added for so long.")
    ] = None,
    everything: _All = False,
    json: JsonOption = False,
) -> None:
    """Print a session's events as they are written.

    Continues until interrupted, sub-agents included. The file may be empty at first.
    """
    import anyio

    from ringfence.runtime.transcript.session import follow_events

    path = _found(session)
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
    printer.tell_hidden()


def _found(reference: str) -> Path | None:
    """The transcript that is meant; None where it is a run of ours."""
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
    """Shows events: as lines for people, or each as a line of JSON."""

    def __init__(self, *, json: bool, everything: bool) -> None:
        from ringfence.cli.render.console import open_console

        self._json = json
        self._everything = everything
        self._hidden = 0
        self._console = open_console()

    def show(self, event: "Event", time: Any = None) -> None:
        """Show one event; bookkeeping only when all is wanted."""
        import msgspec

        from ringfence.cli.render.transcript import print_event

        if not self._everything and _is_bookkeeping(event):
            self._hidden += 1
        elif not self._everything and _is_only_results(event):
            pass  # they stand at their calls
        elif self._json:
            print_json_line(msgspec.to_builtins(event))
        else:
            print_event(self._console, event, time)

    def tell_hidden(self) -> None:
        """Say how much was left out."""
        if self._hidden:
            typer.echo(
                f"{counted(self._hidden, 'record')} of bookkeeping left out; --all shows them", err=True
            )


def _is_bookkeeping(event: "Event") -> bool:
    """What the client wrote for itself."""
    from ringfence.events import TranscriptNoted

    return isinstance(event, TranscriptNoted) and not event.text


def _is_only_results(event: "Event") -> bool:
    """Whether it is a message that only hands results to the model."""
    from ringfence.events import MessageSent
    from ringfence.journal.session import is_only_results

    return isinstance(event, MessageSent) and is_only_results(event.content)
