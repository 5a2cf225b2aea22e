"""Finds the sessions that the claude and codex CLIs keep, and identifies the CLI that wrote a transcript.

Links below the CLIs' directories are not followed. The first record of a known kind decides which CLI wrote a file.
"""

import itertools
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from ringfence.errors import RecordError, UsageError
from ringfence.events import JSONObject
from ringfence.frozen import frozen
from ringfence.runtime.claude.transcript import ClaudeTranslator
from ringfence.runtime.codex.transcript import RolloutTranslator
from ringfence.runtime.transcript.reader import read_items
from ringfence.runtime.transcript.record import Damage, Item, Record
from ringfence.runtime.transcript.translator import CliName, Overview, SessionTranslator

_MAX_NAME_CHARS = 200
_NAME = re.compile(r"(?P<id>[A-Za-z0-9-]{1,100})\.jsonl")
_ROLLOUT = re.compile(r"rollout-\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d-(?P<id>[A-Za-z0-9-]{1,100})\.jsonl")
_DAY_FOLDERS = 3
_IDENTIFYING_ITEMS = 32
_HEAD_BYTES = 1024**2
_EXPECTED = (
    'expected a session of the claude CLI (lines of JSON objects with "type" and "sessionId") or a rollout of '
    'the codex CLI (with "timestamp", "type" and "payload")'
)
_CLAUDE_KEYS = frozenset({"sessionId", "parentUuid", "leafUuid", "messageId"})
_TRANSLATORS: dict[CliName, type[SessionTranslator]] = {
    "claude": ClaudeTranslator,
    "codex": RolloutTranslator,
}


@frozen
class FoundSession:
    """A session's file, as its directory describes it. Its contents were not read."""

    client: CliName
    session_id: str
    path: Path
    modified_s: float
    """Seconds since 1970."""
    size_bytes: int

    def may_be_in(self, workspace: str) -> bool:
        """Return whether the session may belong to a workspace, by the path of its file.

        The claude CLI names a directory after the workspace: each UTF-16 unit except ASCII letters and digits becomes a
        dash, and a hash replaces characters beyond 200. Several workspaces can share a name.
        """
        if self.client != "claude":
            return True
        units = memoryview(workspace.encode("utf-16-le", "surrogatepass")).cast("H")
        name = "".join(chr(unit) if unit < 128 and chr(unit).isalnum() else "-" for unit in units)
        folder = self.path.parent.name
        return folder == name or (
            len(name) > _MAX_NAME_CHARS and folder.startswith(f"{name[:_MAX_NAME_CHARS]}-")
        )


def claude_home(environ: Mapping[str, str] | None = None) -> Path:
    """Return the claude CLI's directory: `$CLAUDE_CONFIG_DIR`, else `~/.claude`."""
    return _home("CLAUDE_CONFIG_DIR", ".claude", environ)


def codex_home(environ: Mapping[str, str] | None = None) -> Path:
    """Return the codex CLI's directory: `$CODEX_HOME`, else `~/.codex`."""
    return _home("CODEX_HOME", ".codex", environ)


def list_sessions(environ: Mapping[str, str] | None = None) -> list[FoundSession]:
    """Return all sessions in both CLIs' directories, the newest first. A directory that cannot be read has none."""
    found = [*_claude_sessions(claude_home(environ)), *_codex_sessions(codex_home(environ))]
    return sorted(found, key=lambda one: (one.modified_s, one.session_id), reverse=True)


def find_session(reference: str, environ: Mapping[str, str] | None = None) -> Path:
    """Return the file of the session that `reference` means.

    Args:
        reference: A path; or a session's id, the beginning of one, or `last`: the newest.
        environ: Replaces `os.environ`.

    Raises:
        UsageError: No session matches, or several do.
    """
    if "/" in reference or reference.endswith(".jsonl") or os.path.lexists(reference):
        return Path(reference).absolute()
    found = list_sessions(environ)
    if reference != "last":
        found = [one for one in found if one.session_id == reference] or [
            one for one in found if reference and one.session_id.startswith(reference)
        ]
    elif found:
        return found[0].path
    if not found:
        raise UsageError(
            f"there is no file and no session {reference!r}; `ringfence session ls` lists the sessions"
        )
    if len(found) > 1:
        names = ", ".join(one.session_id for one in found[:3])
        raise UsageError(
            f"{reference!r} fits {len(found)} sessions ({names}, ...); give more of its id, or its path"
        )
    return found[0].path


def _home(variable: str, folder: str, environ: Mapping[str, str] | None) -> Path:
    known = os.environ if environ is None else environ
    if known.get(variable):
        return Path(known[variable]).absolute()
    with suppress(RuntimeError):  # a user without a name, and without HOME
        return Path(known.get("HOME") or Path.home(), folder)
    return Path("/", folder)


def _claude_sessions(home: Path) -> Iterator[FoundSession]:
    for project in _folders(home / "projects"):
        # In older versions, files named agent-… belong to sub-agents, each part of a session.
        yield from (
            one for one in _files("claude", project, _NAME) if not one.session_id.startswith("agent-")
        )


def _codex_sessions(home: Path) -> Iterator[FoundSession]:
    folders = [home / "sessions"]
    for _ in range(_DAY_FOLDERS):
        folders = [below for folder in folders for below in _folders(folder) if below.name.isdigit()]
    for folder in folders:
        yield from _files("codex", folder, _ROLLOUT)


def _folders(path: Path) -> list[Path]:
    try:
        with os.scandir(path) as entries:
            return [path / entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []


def _files(cli: CliName, folder: Path, name: re.Pattern[str]) -> list[FoundSession]:
    found = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                match = name.fullmatch(entry.name)
                if match and entry.is_file(follow_symlinks=False):
                    status = entry.stat(follow_symlinks=False)
                    path = folder / entry.name
                    found.append(FoundSession(cli, match["id"], path, status.st_mtime, status.st_size))
    except OSError:
        return found
    return found


def cli_of(value: JSONObject) -> CliName | None:
    """Return the CLI that writes such a record; None if it is unknown."""
    if not isinstance(value.get("type"), str):
        return None
    if isinstance(value.get("payload"), dict) and "timestamp" in value:
        return "codex"
    return "claude" if _CLAUDE_KEYS & value.keys() else None


def identify(path: Path) -> CliName:
    """Return the CLI that wrote a transcript.

    Raises:
        RecordError: No known CLI did; the text names the line and what was expected.
        UsageError: It is not a regular file.
    """
    first: Item | None = None
    for item in itertools.islice(read_items(path), _IDENTIFYING_ITEMS):
        first = first or item
        cli = cli_of(item.value) if isinstance(item, Record) else None
        if cli is not None:
            return cli
    if first is None:
        raise RecordError(
            f"{path}:1: the transcript is empty; {_EXPECTED}; `ringfence session follow` waits for its records"
        )
    raise unknown(path, first)


def unknown(path: Path, first: Item) -> RecordError:
    """Return the error for a file that is not a transcript, by its first line."""
    return RecordError(f"{path}:{first.line}: {_difference(first)}; {_EXPECTED}")


def open_translator(cli: CliName, file: str, agent: str | None = None) -> SessionTranslator:
    """Return a translator of a CLI's session files."""
    return _TRANSLATORS[cli](file, agent)


def survey(path: Path) -> Overview:
    """Return an overview of the session from the beginning of its transcript.

    Raises:
        RecordError, UsageError: As `identify`.
    """
    cli = identify(path)
    overview, translator = Overview(client=cli), open_translator(cli, str(path))
    for item in read_items(path, until_bytes=_HEAD_BYTES):
        if isinstance(item, Record):
            translator.update_overview(item, overview)
            if overview.is_complete:
                break
    return overview


def _difference(item: Item) -> str:
    if isinstance(item, Damage):
        return f"{item.reason}, so this is not a transcript"
    if "session_id" in item.value:
        return "this is what the claude CLI prints (stream-json), not the file of its session"
    if {"seq", "prev", "event"} <= item.value.keys():
        return "this is a journal of ringfence; see `ringfence runs logs`"
    return "no known agent CLI writes such a record"
