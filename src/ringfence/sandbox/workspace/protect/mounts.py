"""Plans the mounts on a workspace: protected files read-only, special files masked; and notes on hard links.

A mount of a directory shows its sockets, fifos and devices: through a socket, commands inside reach the program that
listens on it outside, through a fifo the program that reads it. Those that exist at the start are masked. A directory
that could not be examined may hold one that is not masked, or a repository that is not guarded, so it is refused or
kept closed; a note would not be enough, as an earlier run may have closed it on purpose. A file with another name
outside the workspace (a hard link) cannot be protected by a mount, as both names are the same file; this is noted.
"""

import os
import re
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path

from ringfence.config.path_pattern import PathPatterns
from ringfence.errors import PolicyRefused
from ringfence.sandbox.base import BindMount
from ringfence.sandbox.workspace.git.layout import has_git
from ringfence.sandbox.workspace.protect.auto_executed_files import AUTO_EXECUTED_FILES
from ringfence.sandbox.workspace.snapshot.memo import lies_in, list_names, named_note
from ringfence.sandbox.workspace.snapshot.walk import ELSEWHERE, MAX_ENTRIES, UNREADABLE
from ringfence.sandbox.workspace.tree import SET_ID, Tree

COVER = Path("/dev/null")
"""The source of a mask."""
READ_ONLY_PATHS = tuple(
    os.fsencode(entry.path) for entry in AUTO_EXECUTED_FILES if entry.treatment == "read_only"
)
_MAX_PROTECTED = 500
_MAX_WALKED = 5_000_000
_MAX_HOPS = 40  # as in Linux, see path_resolution(7)
_SHOWN = 5
_MAX_LINKS_LOOKED_AT = 2000
"""Limit of files examined in ignored directories (venvs, node_modules): enough to find out whether links are made."""
_ESCAPE = re.compile(rb"\\([0-7]{3})")


def check_own_git(workspace: Path) -> None:
    """Refuse a `.git` that is a link or special file and would be mounted read-only, as no private one replaces it.

    Raises:
        PolicyRefused: There is one: a mount would land elsewhere, and git would follow it.
    """
    git = workspace / ".git"
    if has_git(workspace) and not stat.S_ISDIR(git.lstat().st_mode) and not stat.S_ISREG(git.lstat().st_mode):
        raise PolicyRefused(
            f"{str(git)!r} is neither a directory nor a file and cannot be guarded; use mode 'clone'",
            rule="git-link",
        )


def git_entries(entries: Collection[bytes]) -> list[bytes]:
    """Every `.git` below the workspace's own, as git on the host runs the hooks and programs that it names.

    Raises:
        PolicyRefused: There are more than can be mounted upon.
    """
    return _at_most(
        200,
        entries,
        "{count} git repositories lie in the workspace, and {most} can be guarded; remove some"
        " (`ringfence diff --flagged` names those that a run made)",
        rule="too-many-repositories",
    )


def closed_directories(closed: Mapping[bytes, str]) -> list[bytes]:
    """Directories without read permission, which are not examined, and which an agent run as their owner could open.

    Args:
        closed: Paths that were not examined, and why; directories end in a slash.

    Raises:
        PolicyRefused: There are more than can be mounted upon.
    """
    shut = [
        path[:-1]
        for path, why in closed.items()
        if path.endswith(b"/") and path != ELSEWHERE and why.startswith(UNREADABLE)
    ]
    return _at_most(
        100,
        shut,
        "{count} directories in the workspace cannot be read, and {most} can be kept shut; let their owner read them,"
        " remove them",
        rule="too-many-shut",
    )


def special_files(paths: Collection[bytes]) -> list[bytes]:
    """Sockets, fifos and devices, which lead out to the program at their other end or to a device.

    Raises:
        PolicyRefused: There are more than can be masked.
    """
    return _at_most(
        200,
        paths,
        "{count} sockets, fifos and devices lie in the workspace, and {most} can be covered; remove them"
        " (`ringfence undo` does where a run left them)",
        rule="too-many-sockets",
    )


def _at_most(most: int, paths: Collection[bytes], too_many: str, *, rule: str) -> list[bytes]:
    if len(paths) > most:
        text = too_many.format(count=len(paths), most=most)
        raise PolicyRefused(f"{text}, or use mode 'clone'", rule=rule)
    return sorted(paths)


def make_masks(workspace: Path, paths: Iterable[bytes]) -> tuple[BindMount, ...]:
    """Mounts that cover paths in a workspace with a file to which no data can be sent."""
    return tuple(BindMount(COVER, workspace / os.fsdecode(path), read_only=True) for path in paths)


def make_mounts(
    workspace: Path,
    read_only: Iterable[bytes],
    masked: Collection[bytes] = (),
    *,
    source: Path | None = None,
    protect: Collection[str] = (),
) -> tuple[BindMount, ...]:
    """The mounts on a writable workspace; except for masks, the parents of each are mounted on themselves, too.

    A mount point cannot be renamed, removed or replaced, which is why each parent is mounted, too. Links are not
    mounted, as a mount would follow them. They are reported; their targets in the workspace are read-only, too.

    Args:
        workspace: Path inside.
        read_only: Paths in it. Those that exist are mounted on themselves.
        masked: Paths to mask.
        source: Directory on the host that is shown there, if different.
        protect: Further patterns, as in `.gitignore`, of paths that may not be written. Each existing file or
        directory that matches is mounted; those that appear later are reported.

    Raises:
        PolicyRefused: More files match than can be mounted.
    """
    source = source or workspace
    held = _held(source, workspace, read_only, protect)
    for path in masked:
        # Nothing in the user's own git directory can be renamed: it is replaced, or read-only as a whole.
        held |= dict.fromkeys(_above(path) if not path.startswith(b".git/") else (), False) | held
    upon_themselves = tuple(
        # A mount that only keeps a path in place must not make a part of a read-only directory writable.
        BindMount(
            source / os.fsdecode(path),
            workspace / os.fsdecode(path),
            read_only=read_only or any(held.get(above) for above in _above(path)),
        )
        for path, read_only in sorted(held.items(), key=lambda item: (item[0].count(b"/"), item[0]))
    )
    # Masks come last, as a directory that is mounted after them would show its sockets again.
    return (*upon_themselves, *make_masks(workspace, masked))


def _held(
    source: Path, workspace: Path, paths: Iterable[bytes], protect: Collection[str]
) -> dict[bytes, bool]:
    """The existing paths to mount on themselves, with the directories above them, and whether each is read-only."""
    held: dict[bytes, bool] = {}
    with Tree(source) as tree:
        literal = [
            os.fsencode(pattern.strip("/")) for pattern in protect if not set(pattern) & set("*?[\\!#")
        ]
        wanted = [*paths, *_matching(tree, protect)]
        behind = [_behind_links(source, workspace, path) for path in (*wanted, *literal)]
        for path in (*wanted, *filter(None, behind)):
            status = tree.lstat(path)
            if status is None or not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):
                continue
            held |= dict.fromkeys(_above(path), False) | held | {path: True}
    return held


def _behind_links(source: Path, workspace: Path, path: bytes) -> bytes | None:
    """Resolve links at or above a path; None if there are none, or if the path leads out.

    Also None if it leads into a `.git`: an earlier run may have made the link, and a mount of the user's own git
    directory would replace the private one.

    Args:
        source: Directory on the host that is shown as the workspace.
        workspace: Path inside, the prefix of absolute links.
        path: Path relative to it.
    """
    at, left, hops = list[bytes](), path.split(b"/"), 0
    top = os.fsencode(source)
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
            target = os.readlink(b"/".join((top, *at, part)))  # noqa: PTH115 -- bytes: a start asks for hundreds
        except OSError:  # no link, or nothing
            at.append(part)
            continue
        hops += 1
        if target.startswith(b"/"):
            inside = os.fsencode(workspace) + b"/"
            if not target.startswith(inside):
                return None
            at, target = [], target.removeprefix(inside)
        left = target.split(b"/") + left
        if hops > _MAX_HOPS:
            return None
    leads_into_git = any(os.fsdecode(part).casefold() == ".git" for part in at)
    return b"/".join(at) if hops and at and not leads_into_git else None


def _above(path: bytes) -> list[bytes]:
    """The directories above a path, except the top."""
    parts = path.split(b"/")
    return [b"/".join(parts[:depth]) for depth in range(1, len(parts))]


def _matching(tree: Tree, patterns: Collection[str]) -> list[bytes]:
    """Paths in the tree that match; for a matching directory, only the directory itself."""
    if not patterns:
        return []
    spec = PathPatterns(patterns)
    found: set[bytes] = set()
    seen = 0
    for folder, names in tree.walk(_MAX_WALKED):
        seen += len(names)
        if not found.isdisjoint((*_above(folder), folder)):
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


def cover_note(specials: Collection[bytes]) -> tuple[str, ...]:
    """A note on what is masked; empty if nothing is."""
    what = "sockets, fifos and devices in the workspace are out of the agent's reach"
    return named_note(what, sorted(specials), most=_SHOWN)


def links_note(
    tree: Tree,
    linked: Mapping[bytes, tuple[int, int]],
    ignored: Collection[bytes],
    *,
    read_only: Collection[bytes],
) -> tuple[str, ...]:
    """Note which files have hard links elsewhere.

    Args:
        tree: The workspace.
        linked: Files with more than one name: the inode, and the number of names.
        ignored: Directories, ending in a slash, in which a bounded number of files is examined.
        read_only: Paths that cannot be written inside, such as a virtual environment with hard links to a cache.
    """
    found = dict(linked)
    closed = {*read_only, *(path + b"/" for path in read_only)}
    folders = sorted(path[:-1] for path in ignored if path.endswith(b"/") and not lies_in(path, closed))
    for folder in folders[:_MAX_LINKS_LOOKED_AT]:
        found |= _linked_in(tree, folder, max(1, _MAX_LINKS_LOOKED_AT // len(folders)))
    seen: dict[int, int] = {}
    for inode, _ in found.values():
        seen[inode] = seen.get(inode, 0) + 1
    out = sorted(
        path for path, (inode, names) in found.items() if seen[inode] < names and not lies_in(path, closed)
    )
    if not out:
        return ()
    count = f"at least {len(out)}" if folders else str(len(out))
    files = "file has" if len(out) == 1 else "files have"
    note = (
        f"{count} {files} another name elsewhere (hard links), and what is written to them in place is written"
        f" there, too; mode 'clone' has none: {list_names(out, most=_SHOWN)}"
    )
    return (note,)


def _linked_in(tree: Tree, folder: bytes, limit: int) -> dict[bytes, tuple[int, int]]:
    """Files with more than one name, among the first files found."""
    found: dict[bytes, tuple[int, int]] = {}
    pending = [folder]
    while pending and limit > 0:
        here = pending.pop()
        try:
            with os.scandir(tree.directory(here)) as entries:
                for entry in islice(entries, limit):
                    limit -= 1
                    path = here + b"/" + os.fsencode(entry.name)
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(path)
                    elif entry.is_file(follow_symlinks=False):
                        status = entry.stat(follow_symlinks=False)
                        if status.st_nlink > 1:
                            found[path] = (status.st_ino, status.st_nlink)
        except OSError:
            continue
    return found


def refuse_unseen(workspace: Path, blindness: str) -> None:
    """Refuse to show a workspace that was not examined completely.

    Raises:
        PolicyRefused: It was not.
    """
    if blindness:
        raise PolicyRefused(
            f"workspace {str(workspace)!r} was not looked over to its end, and a socket or git repository that was"
            f" not found would be open to the agent: {blindness}; or use mode 'clone', which shows files only",
            rule="workspace-unseen",
        )


def check_roots_files(workspace: Path) -> None:
    """Refuse root's workspace if it would show more than the files of an ordinary project.

    Inside, root's files belong to the sandbox's user. The kernel clears a set-id bit or a file capability when a file is
    written, but not when it is written through a mapping (mmap(2)). And the owner of a read-only file can make it
    writable by an access control list, which keeps the bit. So an agent could put its own program into one.

    Raises:
        PolicyRefused: Something is mounted in it, or files in it have set-id bits or capabilities.
    """
    inner = [
        os.fsdecode(point) for point in _mount_points() if point.startswith(os.fsencode(workspace) + b"/")
    ]
    if inner:
        raise PolicyRefused(
            f"workspace mode 'bind' is not allowed: root's workspace is shown without what is mounted in it, and there"
            f" is a mount on {', '.join(map(repr, sorted(inner)[:_SHOWN]))}; unmount it, or use mode 'clone'",
            rule="bind-inner-mount",
        )
    with Tree(workspace) as tree:
        found = sorted(_privileged(tree))
    if found:
        raise PolicyRefused(
            f"workspace mode 'bind' is not allowed: an agent could put its own program into files with set-id bits"
            f" or capabilities: {list_names(found, most=_SHOWN)}; take these away (chmod ug-s, setcap -r), or use mode"
            " 'clone'",
            rule="bind-privileged-files",
        )


def _privileged(tree: Tree) -> Iterator[bytes]:
    """Files that give rights to the user that runs them. Skips git directories, none of which is writable inside."""
    for folder, names in tree.walk(MAX_ENTRIES):
        for name in map(os.fsencode, names):
            path = folder + b"/" + name if folder else name
            status = tree.lstat(path)
            if status is None or not stat.S_ISREG(status.st_mode):
                continue
            if status.st_mode & SET_ID or _has_capabilities(tree, path):
                yield path


def _has_capabilities(tree: Tree, path: bytes) -> bool:
    try:
        directory, name = tree.parent(path)
        return "security.capability" in os.listxattr(
            b"/proc/self/fd/%d/%s" % (directory, name), follow_symlinks=False
        )
    except OSError:  # the file system does not support them, or the file is gone
        return False


def _mount_points() -> Iterator[bytes]:
    for line in Path("/proc/self/mountinfo").read_bytes().splitlines():
        yield _ESCAPE.sub(lambda found: bytes([int(found[1], 8)]), line.split()[4])
