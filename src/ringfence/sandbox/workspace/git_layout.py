"""Where the parts of a workspace's git directory are: a few bounded files are read, git is not run."""

import errno
import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path

from ringfence.sandbox.workspace.tree import Tree

_SMALL = 1024**2
INDEX_LIMIT = 512 * 1024**2


@dataclass(frozen=True)
class GitLayout:
    """A git directory of the user's, as found on disk."""

    directory: Path
    """This work tree's own git directory: HEAD, index."""
    common: Path
    """What all its work trees share: objects, refs, config. Equal to `directory` in a plain repository."""
    is_file: bool
    """Whether `.git` in the workspace is a file that names `directory` (linked work tree, submodule)."""

    @property
    def objects(self) -> Path:
        """The object database."""
        return self.common / "objects"


def has_git(workspace: Path) -> bool:
    """Whether anything at all is called `.git` in the workspace."""
    return os.path.lexists(workspace / ".git")


def find_git(workspace: Path) -> GitLayout | None:
    """The git directory of `workspace`; None where there is none, or what is called `.git` is not one.

    A `.git` that is a link, a fifo or a file of another kind is no git directory to us.
    """
    try:
        entry = os.lstat(workspace / ".git")
    except OSError:
        return None
    if stat.S_ISDIR(entry.st_mode):
        directory = workspace / ".git"
    elif stat.S_ISREG(entry.st_mode):
        named = _named_directory(workspace, read_small(workspace, b".git"))
        if named is None:
            return None
        directory = named
    else:
        return None
    common = _common(directory)
    if not _is_real_dir(common / "objects") or read_small(directory, b"HEAD") is None:
        return None
    return GitLayout(directory=directory, common=common, is_file=stat.S_ISREG(entry.st_mode))


def read_small(folder: Path, name: bytes, limit_bytes: int = _SMALL) -> bytes | None:
    """A file below `folder`, no links followed below it; None if absent, too large or not a regular file."""
    try:
        with Tree(folder) as tree:
            status = tree.lstat(name)
            if status is None or not stat.S_ISREG(status.st_mode):
                return None
            return tree.read(name, limit_bytes)[0]
    except OSError:
        return None


def alternates(objects: Path, *, limit: int = 16) -> list[Path]:
    """Further object databases that this one leans on, in order, each once."""
    found: list[Path] = []
    pending = [objects]
    while pending and len(found) < limit:
        base = pending.pop(0)
        for line in (read_small(base, b"info/alternates") or b"").splitlines():
            if not line or line.startswith(b"#"):
                continue
            path = Path(os.path.realpath(base / os.fsdecode(line)))
            if _is_real_dir(path) and path not in found and path != objects:
                found.append(path)
                pending.append(path)
    return found


def read_config(text: bytes) -> dict[str, str]:
    """The plain `section.key` settings of a git configuration file that we care for; the last one wins.

    Includes are not followed and subsections are left out: only a handful of harmless settings are ever used.
    """
    settings: dict[str, str] = {}
    section = ""
    for raw in text.decode("utf-8", "replace").splitlines():
        line = raw.strip()
        header = re.match(r"\[\s*([A-Za-z0-9.-]+)\s*\]\s*(.*)", line)
        if header:
            section, line = header[1].lower(), header[2]
        elif line.startswith("["):
            section = ""
        pair = re.match(r"([A-Za-z][A-Za-z0-9-]*)\s*(?:=\s*(.*))?$", line)
        if pair and section:
            settings[f"{section}.{pair[1].lower()}"] = _plain_value(pair[2])
    return settings


def _plain_value(text: str | None) -> str:
    """A value as git reads it: quotes may begin anywhere, escapes hold everywhere, comments only outside quotes."""
    if text is None:
        return "true"
    value, kept, quoted, position = "", 0, False, 0
    while position < len(text):
        letter = text[position]
        position += 1
        if letter == '"':
            quoted = not quoted
            continue
        if letter in "#;" and not quoted:
            break
        if letter == "\\":
            letter = {"n": "\n", "t": "\t", "b": "\b"}.get(
                text[position : position + 1], text[position : position + 1]
            )
            position += 1
        value += letter
        kept = len(value) if quoted or not letter.isspace() else kept
    return value[:kept]


def _named_directory(base: Path, text: bytes | None) -> Path | None:
    match = re.fullmatch(rb"gitdir: ([^\n\0]{1,4096})\n*", text or b"")
    if match is None:
        return None
    path = Path(os.path.realpath(base / os.fsdecode(match[1])))
    return path if _is_real_dir(path) else None


def _common(directory: Path) -> Path:
    named = read_small(directory, b"commondir")
    if named is None:
        return directory
    return Path(os.path.realpath(directory / os.fsdecode(named.rstrip(b"\n"))))


def _is_real_dir(path: Path) -> bool:
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except OSError as exc:
        if exc.errno in {errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.ELOOP}:
            return False
        raise
