"""Where the claude and codex CLIs keep their sessions, and how to find one. Links below their homes are not followed."""

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from ringfence.errors import UsageError
from ringfence.frozen import frozen
from ringfence.runtime.transcript.base import ClientName

_LONGEST_NAME = 200
_NAME = re.compile(r"(?P<id>[A-Za-z0-9-]{1,100})\.jsonl")
_ROLLOUT = re.compile(r"rollout-\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d-(?P<id>[A-Za-z0-9-]{1,100})\.jsonl")
_DAY_FOLDERS = 3
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


@frozen
class FoundSession:
    """A session's file, as its directory tells of it. What is in it was not read."""

    client: ClientName
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


def _files(client: ClientName, folder: Path, name: re.Pattern[str]) -> list[FoundSession]:
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
