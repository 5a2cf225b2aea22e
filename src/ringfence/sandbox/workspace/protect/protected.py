"""What is done about files in a workspace that the host runs or trusts by itself, and about those the user protects."""

import os
import stat
from collections.abc import Collection, Iterable
from fnmatch import fnmatchcase
from pathlib import Path

from ringfence.config.path_pattern import PathPatterns
from ringfence.errors import PolicyRefused
from ringfence.sandbox.base import Overlay
from ringfence.sandbox.workspace.git.layout import has_git
from ringfence.sandbox.workspace.protect.auto_executed_files import PROTECTED, Protected
from ringfence.sandbox.workspace.protect.ways_out import covers_for
from ringfence.sandbox.workspace.tree import Tree

_MAX_GIT_ENTRIES = 200
_MAX_PROTECTED = 500
_MAX_WALKED = 5_000_000
_MAX_HOPS = 40  # as Linux: path_resolution(7)
TRUSTED_NAMES = frozenset(entry.path.rpartition("/")[2].casefold() for entry in PROTECTED)
"""What `is_trusted` can hold for, by the last part of the path; a row with a `*` is looked for in changes only."""
_STARRED = tuple(entry for entry in PROTECTED if "*" in entry.path)
"""Names by a pattern: one in any directory."""


def overlays_for(
    workspace: Path,
    *,
    source: Path | None = None,
    git_entries: Iterable[bytes] = (),
    protect: Collection[str] = (),
    covered: Collection[bytes] = (),
) -> tuple[Overlay, ...]:
    """Read-only mounts of what is there, each with its parents mounted upon themselves.

    A directory that something is mounted on cannot be renamed or removed, so its place cannot be taken by
    another; this is why each parent, too, is mounted. Links are left alone: a mount would follow them. They
    are reported; what they lead to in the workspace is read-only as well.

    Args:
        workspace: Path inside.
        source: Directory on the host that is shown there, if another.
        git_entries: Every `.git` below the workspace's own; these become read-only too.
        protect: Further patterns, as in `.gitignore`, of what may not be written. Each file or directory that
            is there and matches is mounted; what appears later is reported.
        covered: Sockets and the like, which are covered.

    Raises:
        PolicyRefused: There are more git repositories, sockets, or files that match, than can be mounted.
    """
    source = source or workspace
    paths = [os.fsencode(entry.path) for entry in PROTECTED if entry.treatment == "read_only"]
    git_entries = tuple(git_entries)
    if len(git_entries) > _MAX_GIT_ENTRIES:
        raise PolicyRefused(
            f"{len(git_entries)} git repositories lie in the workspace, and {_MAX_GIT_ENTRIES} can be guarded;"
            " remove some (`ringfence diff --flagged` names those that a run made), or use mode 'clone'",
            rule="too-many-repositories",
        )
    overlays: dict[bytes, bool] = {}
    with Tree(source) as tree:
        literal = [
            os.fsencode(pattern.strip("/")) for pattern in protect if not set(pattern) & set("*?[\\!#")
        ]
        wanted = [*paths, *git_entries, *_matching(tree, protect)]
        behind = [_behind_links(source, workspace, path) for path in (*wanted, *literal)]
        for path in (*wanted, *filter(None, behind)):
            status = tree.lstat(path)
            if status is None or not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):
                continue
            overlays |= dict.fromkeys(_above(path), False) | overlays | {path: True}
    for path in covered:
        # In the user's own git directory nothing can be renamed: it is replaced, or read-only as a whole.
        overlays |= dict.fromkeys(_above(path) if not path.startswith(b".git/") else (), False) | overlays
    upon_themselves = tuple(
        # What lies in a read-only place is not opened again by a mount that only holds it there.
        Overlay(
            source / os.fsdecode(path),
            workspace / os.fsdecode(path),
            read_only=read_only or any(overlays.get(above) for above in _above(path)),
        )
        for path, read_only in sorted(overlays.items(), key=lambda item: (item[0].count(b"/"), item[0]))
    )
    # The last: what is mounted upon itself would show a socket in it again.
    return upon_themselves + covers_for(workspace, covered)


def _behind_links(source: Path, workspace: Path, path: bytes) -> bytes | None:
    """Where a path leads if links at or above it are followed; None if there are none, or it leads out.

    Nor is what leads into a `.git` named: an earlier run may have made the link, and a mount of the user's own git
    directory would take the place of the private one.

    Args:
        source: Directory on the host that is shown as the workspace.
        workspace: Path inside, with which absolute links begin.
        path: Relative to it.
    """
    at, left, hops = list[bytes](), path.split(b"/"), 0
    while left:
        part = left.pop(0)
        if part in (b"", b"."):
            continue
        if part == b"..":
            if not at:
                return None
            at.pop()
            continue
        try:
            target = os.fsencode((source / os.fsdecode(b"/".join((*at, part)))).readlink())
        except OSError:  # no link, or nothing
            at.append(part)
            continue
        hops += 1
        if target.startswith(b"/"):
            top = os.fsencode(workspace) + b"/"
            if not target.startswith(top):
                return None
            at, target = [], target.removeprefix(top)
        left = target.split(b"/") + left
        if hops > _MAX_HOPS:
            return None
    leads_into_git = any(os.fsdecode(part).casefold() == ".git" for part in at)
    return b"/".join(at) if hops and at and not leads_into_git else None


def _above(path: bytes) -> list[bytes]:
    """The directories above a path, but for the top."""
    parts = path.split(b"/")
    return [b"/".join(parts[:depth]) for depth in range(1, len(parts))]


def matches_any(paths: Iterable[str], patterns: Collection[str]) -> list[str]:
    """Those of `paths` that a pattern, as in `.gitignore`, matches."""
    if not patterns:
        return []
    spec = PathPatterns(patterns)
    return [path for path in paths if spec.match(path)]


def _matching(tree: Tree, patterns: Collection[str]) -> list[bytes]:
    """What is in the tree and matches: directories whole, not what is in them again."""
    if not patterns:
        return []
    spec = PathPatterns(patterns)
    found: set[bytes] = set()
    seen = 0
    for folder, names in tree.walk(_MAX_WALKED):
        seen += len(names)
        if _lies_in(folder, found):
            continue
        if folder and spec.match(os.fsdecode(folder) + "/"):
            found.add(folder)
            continue
        paths = (folder + b"/" + os.fsencode(name) if folder else os.fsencode(name) for name in names)
        found |= {path for path in paths if spec.match(os.fsdecode(path))}
        if len(found) > _MAX_PROTECTED or seen >= _MAX_WALKED:
            raise PolicyRefused(
                f"the patterns {list(patterns)!r} of sandbox.protect match more than {_MAX_PROTECTED} paths, or "
                f"the workspace holds more than {_MAX_WALKED}; protect whole directories, like 'fixtures/'",
                rule="too-many-protected",
            )
    return sorted(found)


def _lies_in(path: bytes, folders: Collection[bytes]) -> bool:
    parts = path.split(b"/")
    return any(b"/".join(parts[:depth]) in folders for depth in range(1, len(parts) + 1))


def guard_git(workspace: Path) -> tuple[Overlay, ...]:
    """A read-only mount of the workspace's `.git`, for when it is not replaced by a private one.

    Raises:
        PolicyRefused: It is a link or stranger: a mount would land elsewhere, and git would follow it.
    """
    git = workspace / ".git"
    if not has_git(workspace):
        return ()
    kind = git.lstat().st_mode
    if not stat.S_ISDIR(kind) and not stat.S_ISREG(kind):
        raise PolicyRefused(
            f"{str(git)!r} is neither a directory nor a file and cannot be guarded; use mode 'clone'",
            rule="git-link",
        )
    return (Overlay(git, git, read_only=True),)


def _directories(*, anywhere: bool) -> frozenset[str]:
    """The directories that rows of the table lie in, in lower case."""
    rows = [entry.path.casefold().split("/") for entry in PROTECTED if entry.anywhere is anywhere]
    return frozenset("/".join(row[:depth]) for row in rows for depth in range(1, len(row)))


_DIRECTORIES, _DIRECTORIES_ANYWHERE = _directories(anywhere=False), _directories(anywhere=True)


def flag(changed: Iterable[str]) -> list[str]:
    """Those of the changed paths that run, or are trusted, on the user's machine without being asked for."""
    paths = sorted(set(changed))
    repositories = _bare_repositories(paths)
    return [path for path in paths if _is_flagged(path, repositories)]


def _is_flagged(path: str, repositories: Collection[str]) -> bool:
    return is_trusted(path) or path in repositories or _is_in_place_of_directory(path)


def _is_in_place_of_directory(path: str) -> bool:
    """Whether a file or link is where a directory has files that the host trusts: a link there leads to others."""
    parts = path.casefold().split("/")
    return path.casefold() in _DIRECTORIES or any(
        "/".join(parts[depth:]) in _DIRECTORIES_ANYWHERE for depth in range(len(parts))
    )


def reason(path: str) -> str:
    """Why a path was flagged."""
    if any(part.casefold() == ".git" for part in path.split("/")):
        return "git runs hooks and programs that it names"
    entry = next((entry for entry in PROTECTED if _matches(path, entry)), None)
    if entry is not None:
        return entry.because
    if _is_in_place_of_directory(path):
        return (
            "it is in the place of a directory whose files tools run or trust; a link there leads to others"
        )
    return "git takes the directory for a repository and runs programs that it names"


def is_trusted(path: str) -> bool:
    """Whether the host runs or trusts a file at this path, or in this directory, by its name."""
    # File systems that do not tell upper from lower case take `.GIT` for `.git`.
    parts = path.casefold().split("/")
    if ".git" in parts:
        return True
    rows = _STARRED if TRUSTED_NAMES.isdisjoint(parts) else PROTECTED
    return any(_matches(path, entry) for entry in rows)


def is_run(path: str) -> bool:
    """Whether a row says so that an agent must not write to."""
    return any(entry.treatment == "read_only" and _matches(path, entry) for entry in PROTECTED)


def _matches(path: str, entry: Protected) -> bool:
    parts, wanted = path.casefold().split("/"), entry.path.casefold().split("/")
    places = (
        range(len(parts) - len(wanted) + 1) if entry.anywhere else range(min(1, len(parts) - len(wanted) + 1))
    )
    if "*" in entry.path:
        return any(fnmatchcase(part, wanted[-1]) for part in parts)
    return any(parts[place : place + len(wanted)] == wanted for place in places)


def _bare_repositories(paths: Iterable[str]) -> set[str]:
    """HEAD and config of directories that git would take for a repository, whatever their name."""
    folders = set()
    for path in paths:
        parts = path.split("/")
        if parts[-1] == "HEAD":
            folders.add("/".join(parts[:-1]))
        folders |= {
            "/".join(parts[:i]) for i, part in enumerate(parts[:-1]) if part in {"refs", "objects", "hooks"}
        }
    return {f"{folder}/{name}".lstrip("/") for folder in folders for name in ("HEAD", "config")}
