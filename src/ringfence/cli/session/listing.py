"""The sessions there are, of the clients and of ringfence, as `session ls` lists them."""

import os
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from ringfence.errors import RingfenceError
from ringfence.journal import list_runs, runs_dir
from ringfence.runtime.transcript.discovery import FoundSession, list_sessions, survey

_LOOKED_AT = 2000
"""Of so many the beginning is read to find those on a workspace."""
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
    """Its first line."""
    problem: str = ""
    """Why nothing more is known of it."""

    def row(self) -> tuple[str, ...]:
        """Its cells in the list."""
        when = datetime.fromisoformat(self.modified_at).astimezone()
        what = self.prompt or (f"({self.problem})" if self.problem else "")
        name = self.session_id
        return name, self.client, f"{when:%Y-%m-%d %H:%M}", _size(self.size_bytes), self.workspace, what


def listed_sessions(number: int, *, client: str | None, workspace: Path | None) -> list[ListedSession]:
    """The newest sessions.

    Args:
        number: How many at most.
        client: Only of this one.
        workspace: Only those that worked on it.
    """
    wanted = None if workspace is None else os.path.realpath(workspace)
    found: list[ListedSession] = []
    if client in (None, "ringfence"):
        found += _own(number, wanted)
    if client != "ringfence":
        there = [one for one in list_sessions() if client in (None, one.client)]
        looked_at = [one for one in there if wanted is None or one.may_be_in(wanted)][:_LOOKED_AT]
        kept = 0
        for one in looked_at:
            listed = _looked_at(one)
            if wanted is None or (listed.workspace and os.path.realpath(listed.workspace) == wanted):
                found.append(listed)
                kept += 1
            if kept == number:
                break
    return sorted(found, key=lambda each: each.modified_at, reverse=True)[:number]


def _looked_at(one: FoundSession) -> ListedSession:
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


def _own(number: int, workspace: str | None) -> list[ListedSession]:
    """Runs of ours, with the workspace that they were asked to work on."""
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
