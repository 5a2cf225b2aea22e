"""Finds the sessions that the claude and codex CLIs keep, and tells whose transcript a file is.

Links below the CLIs' directories are not followed. The first record that an agent CLI is known to write decides whose
transcript a file is.
"""

import itertools
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from ringfence.errors import RecordError, UsageError
from ringfence.frozen import frozen
from ringfence.runtime.claude.transcript import ClaudeTranslator
from ringfence.runtime.codex.transcript import RolloutTranslator
from ringfence.runtime.transcript.reader import read_items
from ringfence.runtime.transcript.record import Damage, Item, JSONObject, Record
from ringfence.runtime.transcript.translator import CliName, Overview, Translator

_LONGEST_NAME = 200
_NAME = re.compile(r"(?P<id>[A-Za-z0-9-]{1,100})\.jsonl")
_ROLLOUT = re.compile(r"rollout-\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d-(?P<id>[A-Za-z0-9-]{1,100})\.jsonl")
_DAY_FOLDERS = 3
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_LOOKED_AT = 32
_HEAD_BYTES = 1024**2
_EXPECTED = (
    'expected a session of the claude CLI (lines of JSON objects with "type" and "sessionId") or a rollout of '
    'the codex CLI (with "timestamp", "type" and "payload")'
)
_CLAUDE_KEYS = frozenset({"sessionId", "parentUuid", "leafUuid", "messageId"})
_TRANSLATORS: dict[CliName, type[Translator]] = {"claude": ClaudeTranslator, "codex": RolloutTranslator}


@frozen
class FoundSession:
    """A session's file, as its directory tells of it. What is in it was not read."""

    client: CliName
    session_id: str
    path: Path
    modified_s: float
    """Seconds since 1970."""
    size_bytes: int


def claude_home(environ: Mapping[str, str] | None = None) -> Path:
    """The claude CLI's directory: `$CLAUDE_CONFIG_DIR`, else `~/.claude`."""
    return _home("CLAUDE_CONFIG_DIR", ".claude", environ)


def codex_home(environ: Mapping[str, str] | None = None) -> Path:
    """The codex CLI's directory: `$CODEX_HOME`, else `~/.codex`."""
    return _home("CODEX_HOME", ".codex", environ)


def encode_workspace(workspace: str) -> str:
    """The name that the claude CLI gives to the directory of a workspace's sessions.

    Every UTF-16 unit but letters and digits of ASCII becomes a dash; a longer name than 200 is cut, and a hash
    of the whole follows. Different workspaces can have the same name: a session's `cwd` tells.
    """
    units = memoryview(workspace.encode("utf-16-le", "surrogatepass")).cast("H")
    name = "".join(chr(unit) if unit < 128 and chr(unit).isalnum() else "-" for unit in units)
    if len(name) <= _LONGEST_NAME:
        return name
    number = 0
    for unit in units:
        number = (number * 31 + unit) & 0xFFFFFFFF
    number = abs(number - 2**32 if number >= 2**31 else number)
    digits = ""
    while number or not digits:
        number, digit = divmod(number, 36)
        digits = _DIGITS[digit] + digits
    return f"{name[:_LONGEST_NAME]}-{digits}"


def list_sessions(environ: Mapping[str, str] | None = None) -> list[FoundSession]:
    """All sessions in both clients' directories, the newest first. A directory that cannot be read has none."""
    found = [*_claude_sessions(claude_home(environ)), *_codex_sessions(codex_home(environ))]
    return sorted(found, key=lambda one: (one.modified_s, one.session_id), reverse=True)


def find_session(reference: str, environ: Mapping[str, str] | None = None) -> Path:
    """The file of the session that `reference` means.

    Args:
        reference: A path; or a session's id, the beginning of one, or `last`: the newest.
        environ: Instead of `os.environ`.

    Raises:
        UsageError: No session fits, or several do.
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
    with suppress(RuntimeError):  # a user of no name, without HOME
        return Path(known.get("HOME") or Path.home(), folder)
    return Path("/", folder)


def _claude_sessions(home: Path) -> Iterator[FoundSession]:
    for project in _folders(home / "projects"):
        # agent-… are those of sub-agents of older versions, each part of a session.
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


def _files(client: CliName, folder: Path, name: re.Pattern[str]) -> list[FoundSession]:
    found = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                match = name.fullmatch(entry.name)
                if match and entry.is_file(follow_symlinks=False):
                    status = entry.stat(follow_symlinks=False)
                    path = folder / entry.name
                    found.append(FoundSession(client, match["id"], path, status.st_mtime, status.st_size))
    except OSError:
        return found
    return found


def cli_of(value: JSONObject) -> CliName | None:
    """Who writes such a record; None if nobody is known to."""
    if not isinstance(value.get("type"), str):
        return None
    if isinstance(value.get("payload"), dict) and "timestamp" in value:
        return "codex"
    return "claude" if _CLAUDE_KEYS & value.keys() else None


def identify(path: Path) -> CliName:
    """Whose transcript a file is.

    Raises:
        RecordError: It is nobody's; the text says at which line, and what was expected.
        UsageError: It is no file that can hold one.
    """
    items = itertools.islice(read_items(path), _LOOKED_AT)
    first: Item | None = None
    for item in items:
        first = first or item
        client = cli_of(item.value) if isinstance(item, Record) else None
        if client is not None:
            return client
    if first is None:
        raise RecordError(
            f"{path}:1: the transcript is empty; {_EXPECTED}; `ringfence session follow` waits for its records"
        )
    raise unknown(path, first)


def unknown(path: Path, first: Item) -> RecordError:
    """The error that says that a file is no transcript, by its first line."""
    return RecordError(f"{path}:{first.line}: {_unlike(first)}; {_EXPECTED}")


def open_translator(client: CliName, file: str, agent: str | None = None) -> Translator:
    """The reader of a client's files."""
    return _TRANSLATORS[client](file, agent)


def survey(path: Path) -> Overview:
    """What the beginning of a transcript says of its session.

    Raises:
        RecordError, UsageError: As `identify`.
    """
    client = identify(path)
    overview, reader = Overview(client=client), open_translator(client, str(path))
    for item in read_items(path, until_bytes=_HEAD_BYTES):
        if isinstance(item, Record):
            reader.look(item, overview)
            if overview.is_complete:
                break
    return overview


def _unlike(item: Item) -> str:
    if isinstance(item, Damage):
        return f"{item.reason}, so this is no transcript"
    if "session_id" in item.value:
        return "this is what the claude CLI prints (stream-json), not the file of its session"
    if {"seq", "prev", "event"} <= item.value.keys():
        return "this is a journal of ringfence; see `ringfence audit show`"
    return "this record is of no client that is known"
