"""Finds the parts of a workspace's git directory. Only a few small files are read; git is not run.

An agent may have written `.git`, and each path in it may lead to another directory of the user, to make it visible
inside or writable. So only parts in the workspace's own `.git` are used, without links on the way. The one exception
is a git directory elsewhere that names this workspace in turn, which an agent could not have written.
"""

import os
import re
import stat
from pathlib import Path

from ringfence.frozen import frozen
from ringfence.sandbox.workspace.tree import Tree

_SMALL = 1024**2
_MAX_DATABASES = 16
_LONGEST_ADDRESS = 1000
_IN_DATABASE = re.compile(
    r"[0-9a-f]{2}|pack|info|tmp_\w{1,64}|incoming-\w{1,64}|tmp_objdir-[\w-]{1,64}|[\w-]{1,64}\.lock"
)
_KNOWN_EXTENSIONS = frozenset({"objectformat", "worktreeconfig", "partialclone", "noop", "preciousobjects"})
INDEX_LIMIT = 512 * 1024**2


@frozen
class GitLayout:
    """The parts of a user's git directory on disk."""

    directory: Path
    """This work tree's own git directory: HEAD, index."""
    common: Path
    """The directory that all its work trees share: objects, refs, config. Equals `directory` in a plain repository."""
    workspace: Path
    databases: tuple[Path, ...] = ()
    """The object database, and the databases that it names as alternates."""
    refused: str | None = None
    """Why its objects are not used, and what the user can do: some are outside, or are not git objects."""

    @property
    def is_linked(self) -> bool:
        """Whether `.git` in the workspace is a file that names `directory` (linked work tree, submodule)."""
        return self.directory not in (self.workspace, self.workspace / ".git")

    @property
    def objects(self) -> Path:
        """The object database."""
        return self.common / "objects"


def has_git(workspace: Path) -> bool:
    """Whether the workspace has an entry `.git` of any kind."""
    return os.path.lexists(workspace / ".git")


def find_git(workspace: Path) -> GitLayout | None:
    """The git directory of `workspace`; None if there is none, or if its `.git` is not used as one."""
    found = examine_git(workspace)
    return found if isinstance(found, GitLayout) else None


def find_bare(directory: Path) -> GitLayout | None:
    """The bare repository that `directory` is; None if it is not one."""
    parts = (directory / "objects", directory / "refs")
    is_one = read_small(directory, b"HEAD") is not None and all(map(_is_real_dir, parts))
    if not is_one or os.path.lexists(directory / "commondir"):
        return None
    return GitLayout(directory, directory, directory, *_databases(directory, directory))


def examine_git(workspace: Path) -> GitLayout | str | None:
    """Find the git directory of a workspace.

    A `.git` that is a link, a fifo or another special file is not used as a git directory, nor is one whose parts are
    elsewhere without a reference back.

    Returns:
        The layout; or a note for the user why `.git` is not used; or None if there is no git directory.
    """
    directory = common = git = workspace / ".git"
    try:
        mode = os.lstat(git).st_mode
    except OSError:
        return None
    if stat.S_ISREG(mode):
        match = re.fullmatch(rb"gitdir: ([^\n\0]{1,4096})\n*", read_small(workspace, b".git") or b"")
        if match is None or not _is_real_dir(directory := _resolve(workspace, match[1])):
            return _unused_note(git, "names no git directory")
        shared = _common_of(workspace, directory)
        if shared is None:
            return _unused_note(
                git,
                f"names {str(directory)!r}, which does not name this workspace in turn, or is another user's; if it"
                " is right, run `git worktree repair` there",
            )
        common = shared
    elif not stat.S_ISDIR(mode):
        return _unused_note(git, "is neither a directory nor a file")
    elif os.path.lexists(git / "commondir"):
        return _unused_note(git / "commondir", "names another git directory; remove it if it is not yours")
    if read_small(directory, b"HEAD") is None:
        return None
    for part in ("objects", "refs"):
        if not _is_real_dir(common / part):
            return _unused_note(
                common / part, "is no directory of its own; move what it links to in its place"
            )
    return GitLayout(directory, common, workspace, *_databases(workspace, common))


def _unused_note(path: Path, why: str) -> str:
    return f"the git repository is not used, and no commits come out: {str(path)!r} {why}"


def _common_of(workspace: Path, directory: Path) -> Path | None:
    """The common directory of a git directory elsewhere; None if it does not name the workspace in turn."""
    home = Path(os.path.realpath(workspace))
    if directory.is_relative_to(home):
        # An agent could have written both ends.
        return None
    link, named = read_small(directory, b"gitdir"), read_small(directory, b"commondir")
    if link is not None:
        common = directory.parent.parent
        fits = (
            directory.parent.name == "worktrees"
            and _resolve(directory, link) == home / ".git"
            and _resolve(directory, named or b"") == common
        )
    else:
        common = directory
        tree = read_config(directory).get("core.worktree", "")
        fits = tree != "" and _resolve(directory, os.fsencode(tree)) == home
        fits = fits and not os.path.lexists(directory / "commondir")
    owner = home.stat().st_uid
    parts = (directory, common, common / "objects", common / "refs")
    is_whole = read_small(common, b"HEAD") is not None and all(_is_real_dir(part, owner) for part in parts)
    return common if fits and is_whole else None


def _databases(workspace: Path, common: Path) -> tuple[tuple[Path, ...], str | None]:
    """The object databases, and the reason if they are not used."""
    databases = [common / "objects"]
    own = [Path(os.path.realpath(common)), Path(os.path.realpath(workspace)) / ".git"]
    for base in databases:
        file, lines = base / "info" / "alternates", read_small(base, b"info/alternates")
        named = [
            _resolve(base, line) for line in (lines or b"").splitlines() if line and not line.startswith(b"#")
        ]
        is_outside = any(not any(path.is_relative_to(root) for root in own) for path in named)
        new = [path for path in named if _is_real_dir(path) and path != own[0] / "objects"]
        databases += [path for path in dict.fromkeys(new) if path not in databases]
        if is_outside or (lines is None and os.path.lexists(file)) or len(databases) > _MAX_DATABASES:
            return (databases[0],), (
                f"{str(file)!r} names objects outside of the repository; to have them in it, run"
                " `git repack -a -d && rm .git/objects/info/alternates`"
            )
        why = _foreign_entry(base)
        if why is not None:
            return (databases[0],), why
    return tuple(databases), None


def _foreign_entry(database: Path) -> str | None:
    """A note on an entry of an object database that is a link, or that git would not have made; None without one."""
    try:
        with os.scandir(database) as entries:
            for entry in entries:
                is_short_file = len(entry.name) < 5 and not entry.is_dir(follow_symlinks=False)
                if not _IN_DATABASE.fullmatch(entry.name) or is_short_file or entry.is_symlink():
                    return f"{entry.path!r} is nothing that git keeps there; remove it"
    except OSError as exc:
        return f"{str(database)!r} cannot be read: {exc.strerror}"
    return None


def _resolve(base: Path, line: bytes) -> Path:
    """The path that a line of a file in a git directory names, with links resolved."""
    return Path(os.path.realpath(base / os.fsdecode(line.rstrip(b"\n").replace(b"\0", b""))))


def _is_real_dir(path: Path, owner: int | None = None) -> bool:
    try:
        status = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and owner in (None, status.st_uid)


def read_small(folder: Path, name: bytes, limit_bytes: int = _SMALL) -> bytes | None:
    """Read a file below `folder` without following links below it; None if absent, too large or not regular."""
    try:
        with Tree(folder) as tree:
            status = tree.lstat(name)
            if status is None or not stat.S_ISREG(status.st_mode):
                return None
            return tree.read(name, limit_bytes)[0]
    except OSError:
        return None


def read_config(directory: Path, name: bytes = b"config") -> dict[str, str]:
    """The plain `section.key` settings of a configuration file in a git directory; the last one wins.

    Includes are not followed and subsections are ignored: only a handful of harmless settings are used.
    """
    settings: dict[str, str] = {}
    section, text = "", read_small(directory, name) or b""
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


def read_origin(directory: Path) -> str:
    """The address of the remote `origin` in a git directory's configuration, without credentials; empty if it has none.

    A path on this machine is no address. Includes are not followed.
    """
    address, is_origin = "", False
    for raw in (read_small(directory, b"config") or b"").decode("utf-8", "replace").splitlines():
        line = raw.strip()
        if line.startswith("["):
            is_origin = re.fullmatch(r'\[\s*remote\s+"origin"\s*\]', line, re.IGNORECASE) is not None
        elif is_origin and (pair := re.fullmatch(r"url\s*=\s*(.*)", line, re.IGNORECASE)):
            address = address or _plain_value(pair[1])
    return _public_address(address)


def _public_address(text: str) -> str:
    """The address of a repository without user, password, query and fragment; empty for anything else."""
    found = re.fullmatch(
        r"(https?|ssh|git)://(?:[^/?#@]*@)?([A-Za-z0-9.-]+(?::\d{1,5})?)(/[!-\"$->@-~]*)?(?:[?#].*)?", text
    )
    if found is not None:
        return f"{found[1]}://{found[2]}{found[3] or ''}"[:_LONGEST_ADDRESS]
    short = re.fullmatch(r"(?:[^/:@]+@)?([A-Za-z0-9][A-Za-z0-9.-]+):([!-\"$-9;->@-~][!-\"$->@-~]*)", text)
    return f"ssh://{short[1]}/{short[2].lstrip('/')}"[:_LONGEST_ADDRESS] if short else ""


def read_effective_config(layout: GitLayout) -> dict[str, str]:
    """The settings of a work tree: those of `config`, and of its `config.worktree` if the repository uses that file.

    `git sparse-checkout set` writes to the second. Extensions count in the first only, as for git.
    """
    config = read_config(layout.common)
    if not is_true(config.get("extensions.worktreeconfig", "")):
        return config
    own = read_config(layout.directory, b"config.worktree")
    return config | {key: value for key, value in own.items() if not key.startswith("extensions.")}


def is_true(value: str) -> bool:
    """Whether git reads a setting's value as true."""
    return value.lower() in {"true", "yes", "on", "1"}


def parse_format(config: dict[str, str]) -> tuple[str, str]:
    """A repository's object format, and its unknown extensions as text, empty without any."""
    extensions = {
        key.partition(".")[2]: value.lower() for key, value in config.items() if key.startswith("extensions.")
    }
    unknown = {key for key, value in extensions.items() if key not in _KNOWN_EXTENSIONS and value != "files"}
    object_format = extensions.get("objectformat", "sha1")
    unknown |= {object_format} - {"sha1", "sha256"}
    return object_format, ", ".join(sorted(unknown))


def _plain_value(text: str | None) -> str:
    """A value as git reads it: quotes can begin anywhere, escapes count everywhere, comments only outside quotes."""
    if text is None:
        return "true"
    value, kept, quoted = "", 0, False
    letters = iter(text)
    for letter in letters:
        if letter == '"':
            quoted = not quoted
        elif letter in "#;" and not quoted:
            break
        else:
            escaped = next(letters, "") if letter == "\\" else None
            value += letter if escaped is None else {"n": "\n", "t": "\t", "b": "\b"}.get(escaped, escaped)
            kept = len(value) if quoted or escaped or not letter.isspace() else kept
    return value[:kept]
