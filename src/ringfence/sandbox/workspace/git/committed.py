"""What an agent's commits change, file by file: it passes the same table as what the agent changed in the tree.

A commit need not hold what the workspace holds: it can be made of objects that no file ever was. What of it a `git
merge` would bring to the user's tree is found before the commits are taken over, and is part of the run's changes.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import msgspec

from ringfence.sandbox.workspace.git.command import Git
from ringfence.sandbox.workspace.protect.flags import flag, matches_any
from ringfence.sandbox.workspace.snapshot.diff import ChangeKind, compare_trees, parse_diff, parse_entries

MAX_KEPT = 20_000
"""Files of commits in a record; those that run on the user's machine come first."""
_LISTING_BYTES = 64 * 1024**2
_MOST_BASES = 16
_EMPTY_TREES = {40: "4b825dc642cb6eb9a060e54bf8d69288fbee4904"}
_EMPTY_TREES[64] = "6ef19b41225c5369f1c104d45d8d85efa9b057b53b14b4b9b939dd74decc5321"


class CommittedFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file that a commit changes."""

    ref: str
    """Where the commit is; in a submodule, after the submodule's place and a colon."""
    path: str
    """Relative to the workspace; bytes that are no UTF-8 are surrogate escapes."""
    kind: ChangeKind
    insertions: int = 0
    deletions: int = 0
    binary: bool = False
    mode: int = 0
    """As git has it; 0 where the commit removes the file."""
    id: str = ""
    """Of its contents."""
    is_earlier: bool = False
    """Whether only an earlier commit changes it: a merge does not bring it in, but cherry-picking that commit would."""


async def committed_files(
    git: Git, head: str | None, tips: Mapping[str, str], *, place: str, protect: Collection[str]
) -> list[CommittedFile]:
    """What merging each of the tips would change.

    Args:
        git: A git directory of ours that has the user's objects and the new ones.
        head: The commit the user was at; None before the first.
        tips: The refs, and the commit of each.
        place: Of the submodule in the workspace; empty for the workspace's own repository.
        protect: Patterns of what the agent may not write.

    Raises:
        GitBoundReached: They change more than can be looked at.
    """
    found: list[CommittedFile] = []
    for ref, tip in tips.items():
        bases = await merge_bases(git, head, tip)
        last = await _last(git, ref, tip, bases)
        passing = {path for path in await _names(git, tip, bases) if path not in last}
        suspects = {*flag(passing), *matches_any(passing, protect)}
        earlier = (
            CommittedFile(ref=ref, path=path, kind="modified", is_earlier=True) for path in sorted(suspects)
        )
        moved = await _moved_by_merge(git, head, bases, last.values(), protect)
        found += [*last.values(), *moved, *earlier]
    if not place:
        return found
    return [
        msgspec.structs.replace(one, ref=f"{place}: {one.ref}", path=f"{place}/{one.path}") for one in found
    ]


async def merge_bases(git: Git, head: str | None, tip: str) -> list[str]:
    """What git compares a commit with when it is merged; the empty tree where nothing is shared."""
    told = await git.run("merge-base", "--all", head, tip, accept=(0, 1)) if head else None
    shared = told.stdout.decode().split()[:_MOST_BASES] if told else []
    return shared or [_EMPTY_TREES[len(tip)]]


async def _last(git: Git, ref: str, tip: str, bases: Sequence[str]) -> dict[str, CommittedFile]:
    found: dict[str, CommittedFile] = {}
    for base in bases:
        output = await compare_trees(git, base, tip, output_limit_bytes=_LISTING_BYTES)
        entries = parse_entries(output)
        for change in parse_diff(output).files:
            mode, name = entries[change.path]
            found[change.path] = CommittedFile(
                ref=ref,
                path=change.path,
                kind=change.kind,
                insertions=change.insertions,
                deletions=change.deletions,
                binary=change.binary,
                mode=mode,
                id=name,
            )
    return found


async def _moved_by_merge(
    git: Git,
    head: str | None,
    bases: Sequence[str],
    changes: Iterable[CommittedFile],
    protect: Collection[str],
) -> list[CommittedFile]:
    """Changes that a merge would make at another path, as the user has renamed the file or directory since, if flagged.

    A directory counts as renamed if one of its files is in the other place and none is in the old one any more.
    """
    files, folders = dict[str, str](), dict[str, set[str]]()
    for base in bases:
        if head is None or base in (head, *_EMPTY_TREES.values()):
            continue
        for old, new in await _renames(git, base, head):
            files[old] = new
            for before, after in _renamed_folders(old, new):
                folders.setdefault(before, set()).add(after)
    if not files or head is None:
        return []
    told = await git.run("ls-tree", "-r", "-d", "-z", "--name-only", head, output_limit_bytes=_LISTING_BYTES)
    for folder in told.stdout.decode("utf-8", "surrogateescape").split("\0"):
        folders.pop(folder, None)
    found = [
        msgspec.structs.replace(change, path=path, kind="modified")
        for change in changes
        for path in _places_after_merge(change.path, files, folders)
    ]
    suspects = {*flag(one.path for one in found), *matches_any((one.path for one in found), protect)}
    return [one for one in found if one.path in suspects]


async def _renames(git: Git, base: str, head: str) -> list[tuple[str, str]]:
    options = ("-r", "-z", "-M", "--diff-filter=R", "--name-status")
    told = await git.run("diff-tree", *options, base, head, output_limit_bytes=_LISTING_BYTES)
    fields = told.stdout.decode("utf-8", "surrogateescape").split("\0")
    return list(zip(fields[1::3], fields[2::3], strict=False))


def _renamed_folders(old: str, new: str) -> Iterator[tuple[str, str]]:
    """Pairs of directories by whose renaming a file may have come from one path to the other."""
    before, after = old.split("/")[:-1], new.split("/")[:-1]
    while before and before != after:
        yield "/".join(before), "/".join(after)
        if not after or before[-1] != after[-1]:
            return
        before, after = before[:-1], after[:-1]


def _places_after_merge(
    path: str, files: Mapping[str, str], folders: Mapping[str, Collection[str]]
) -> set[str]:
    parts = path.split("/")
    found = {files[path]} if path in files else set[str]()
    for depth in range(1, len(parts)):
        for folder in folders.get("/".join(parts[:depth]), ()):
            found.add("/".join((*folder.split("/"), *parts[depth:])).lstrip("/"))
    return found - {path}


async def _names(git: Git, tip: str, bases: Sequence[str]) -> set[str]:
    """Paths that any of the new commits changes; of a merge, those that are as in none of its parents."""
    is_commit = bases[0] not in _EMPTY_TREES.values()
    known = [f"^{base}" for base in bases] if is_commit else []
    listed = await git.run("rev-list", tip, *known, output_limit_bytes=_LISTING_BYTES)
    options = ("--stdin", "-r", "-c", "-z", "--root", "--no-commit-id", "--name-only", "--no-renames")
    told = await git.run("diff-tree", *options, stdin=listed.stdout, output_limit_bytes=_LISTING_BYTES)
    return set(told.stdout.decode("utf-8", "surrogateescape").split("\0")) - {""}


def beside_tree(
    files: Sequence[CommittedFile], tree: Mapping[bytes, tuple[int, str]], protect: Collection[str]
) -> tuple[list[CommittedFile], int]:
    """Return the committed files that differ from the workspace, auto-executed ones first, and the number omitted.

    Args:
        files: From `committed_files`.
        tree: What the workspace holds after the run.
        protect: Patterns of what the agent may not write.
    """
    absent = (0, "")
    other = [
        one
        for one in files
        if one.is_earlier
        or ((one.mode, one.id) if one.mode else absent)
        != tree.get(one.path.encode("utf-8", "surrogateescape"), absent)
    ]
    paths = [one.path for one in other]
    suspects = {*flag(paths), *matches_any(paths, protect)}
    other.sort(key=lambda one: one.path not in suspects)
    return other[:MAX_KEPT], max(0, len(other) - MAX_KEPT)
