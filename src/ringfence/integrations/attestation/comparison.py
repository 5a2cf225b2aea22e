"""Compares a directory, or a commit, with the manifest of an attestation.

What is compared is the bytes in the work tree, whatever git says about them. Git decides one thing only: whether a file
that the manifest does not list counts. One that git tracks does. Others, such as what a build left there, are counted
and named, because whoever wrote the tree could also have written its index.
"""

import errno
import os
import stat
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

import anyio.to_thread

from ringfence.errors import ConfigurationError, UsageError
from ringfence.frozen import frozen
from ringfence.integrations.attestation.git_index import Repository, find_repository, read_tracked
from ringfence.integrations.attestation.git_tree import GitTree, hash_files, read_commit_tree
from ringfence.integrations.attestation.manifest import FileEntry, decode_gap, git_tree_id
from ringfence.sandbox.workspace.git.command import Git, write_clean_git_dir
from ringfence.sandbox.workspace.git.layout import parse_format, read_config
from ringfence.sandbox.workspace.git.refs import read_refs
from ringfence.sandbox.workspace.run_as import Actor, scratch_directory
from ringfence.sandbox.workspace.snapshot.memo import lies_in
from ringfence.sandbox.workspace.snapshot.objects import Blob, blob_id, git_mode, quoted
from ringfence.sandbox.workspace.tree import GONE, MAX_DEPTH, Tree

MAX_ENTRIES = 2_000_000
_MAX_PATHS_BYTES = 256 * 1024**2
SHOWN = 5
"""The number of files that are named where there may be many."""
_KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


@frozen
class Difference:
    """The first path, by its bytes, at which a tree differs from the manifest."""

    path: bytes
    what: str
    """The difference, as the predicate of a sentence: `is missing`."""

    def __str__(self) -> str:
        return f"{self.path.decode('utf-8', 'backslashreplace')!r} {self.what}"


@frozen
class Comparison:
    """The result of comparing a tree with a manifest."""

    difference: Difference | None
    tree: str = ""
    """Git's id (SHA-1) of the compared files; empty if they differ."""
    untracked: tuple[bytes, ...] = ()
    """Some files that neither the manifest lists nor git tracks."""
    untracked_count: int = 0
    unread: tuple[bytes, ...] = ()
    """Some directories that could not be read, and in which git tracks no file."""
    nested: tuple[bytes, ...] = ()
    """Some entries called `.git` below the root's own, which no comparison reads."""
    absent: tuple[bytes, ...] = ()
    """Submodules that are not checked out, and of which the manifest lists no file."""


def compare_tree(
    root: Path, files: Sequence[FileEntry], uncovered: Iterable[str], *, all_files: bool = False
) -> Comparison:
    """Compare a directory with a manifest. Nothing is written, executed or followed.

    Args:
        root: The directory: a checkout of the resulting tree, or a copy without git.
        files: The manifest's files.
        uncovered: Paths that the manifest does not cover. A file there that counts is a difference, too: nothing is
            known of it.
        all_files: Whether every file that the manifest does not list is a difference.

    Raises:
        UsageError: The directory cannot be read, or has too many files.
        ConfigurationError: Its git index cannot be used.
    """
    root = _resolved(root)
    repository = None if all_files else find_repository(root)
    tracked = read_tracked(repository) if repository is not None else None
    known = {entry.raw_path: entry for entry in files}
    gaps = frozenset(decode_gap(each) for each in uncovered)
    with Tree(root) as tree:
        walk = _Walk(tree)
        walk.visit()
        extra = [path for path in walk.found if path not in known]
        counted = {path for path in extra if tracked is None or path in tracked}
        untracked = sorted(path for path in extra if path not in counted)
        blobs: dict[bytes, tuple[int, str]] = {}
        for path in sorted(known.keys() | counted):
            entry = known.get(path)
            what = (
                _compare_file(tree, path, entry, blobs) if entry is not None else _describe_extra(path, gaps)
            )
            if what is not None:
                return Comparison(Difference(path, what))
    unread = sorted(walk.unread)
    for folder in unread:
        if tracked is None or any(path.startswith(folder) for path in tracked.paths | tracked.submodules):
            return Comparison(Difference(folder.removesuffix(b"/"), "cannot be read, or is nested too deep"))
    return Comparison(
        None,
        git_tree_id(blobs),
        tuple(untracked[:SHOWN]),
        len(untracked),
        tuple(unread[:SHOWN]),
        tuple(sorted(path for path in walk.git if path != b".git")[:SHOWN]),
        _list_absent(tracked.submodules, [*known, *walk.found]) if tracked is not None else (),
    )


def _list_absent(submodules: Iterable[bytes], paths: Iterable[bytes]) -> tuple[bytes, ...]:
    """Return the submodules below which there is no file."""
    absent = set(submodules)
    for path in paths if absent else ():
        absent.difference_update([place for place in absent if path.startswith(place)])
    return tuple(sorted(absent)[:SHOWN])


@dataclass
class _Walk:
    """All entries below a directory except directories, and except everything called `.git`."""

    tree: Tree
    found: list[bytes] = field(default_factory=list)
    unread: list[bytes] = field(default_factory=list)
    git: list[bytes] = field(default_factory=list)

    def visit(self) -> None:
        pending, size = [b""], 0
        while pending:
            folder = pending.pop()
            prefix = folder + b"/" if folder else b""
            try:
                if folder.count(b"/") >= MAX_DEPTH - 1:
                    raise OSError(errno.ENAMETOOLONG, "nested too deep")
                with os.scandir(self.tree.directory(folder)) as entries:
                    for entry in entries:
                        path = prefix + os.fsencode(entry.name)
                        size += len(path)
                        if entry.name == ".git":
                            self.git.append(path)
                        else:
                            (pending if entry.is_dir(follow_symlinks=False) else self.found).append(path)
                        if len(self.found) > MAX_ENTRIES or size > _MAX_PATHS_BYTES:
                            raise UsageError(
                                f"{str(self.tree.root)!r} has more than {MAX_ENTRIES} files, or too long names;"
                                " compare a fresh checkout"
                            )
            except OSError:
                self.unread.append(prefix)


def _compare_file(
    tree: Tree, path: bytes, entry: FileEntry, blobs: dict[bytes, tuple[int, str]]
) -> str | None:
    """Return what a path holds instead of the manifest's file; None if it is that file, whose id goes to `blobs`."""
    try:
        data, status = tree.read(path, entry.size)
    except OSError as exc:
        return _describe_error(tree, path, exc)
    mode = git_mode(status.st_mode)
    what = describe_mode(mode, int(entry.mode, 8))
    if what is None and sha256(data).hexdigest() != entry.sha256:
        what = "leads elsewhere" if entry.mode == "120000" else "has other content"
    blobs[path] = (mode, blob_id(data).hex())
    return what


def _describe_extra(path: bytes, gaps: frozenset[bytes]) -> str:
    """Say what is wrong with a file that the manifest does not list."""
    if path in gaps or lies_in(path, gaps):
        return "is not covered by the statement, as no snapshot of the run could hold it"
    return "is not in the attested tree"


def describe_mode(found: int, attested: int) -> str | None:
    """Return how a git mode differs from the attested one; None if it does not."""
    if found == attested:
        return None
    links = {found, attested} & {0o120000}
    if links or not {found, attested} <= {0o100644, 0o100755}:
        return {0o120000: "is a link", 0o160000: "is a submodule, whose files no commit holds"}.get(
            found, "is a file and not a link"
        )
    return "is executable" if found == 0o100755 else "is not executable"


def _describe_error(tree: Tree, path: bytes, error: OSError) -> str:
    if error.errno in GONE:
        return "is missing"
    if error.errno == errno.EFBIG:
        return "has other content"
    try:
        status = tree.lstat(path)
    except OSError:
        status = None
    kind = _KINDS.get(stat.S_IFMT(status.st_mode)) if status is not None else None
    return f"is {kind}" if kind else f"cannot be read: {(error.strerror or 'failed').lower()}"


async def compare_commit(
    root: Path, rev: str, files: Sequence[FileEntry], uncovered: Iterable[str]
) -> Comparison:
    """Compare a commit of the repository that a directory is in with a manifest. The work tree is not read.

    Args:
        root: A directory of the repository; in a subdirectory, only the files below it are compared.
        rev: `HEAD`, a branch, a tag, or the whole id of a commit.
        files: The manifest's files.
        uncovered: Paths that the manifest does not cover.

    Raises:
        UsageError: There is no repository, or it has no such commit.
        ConfigurationError, RecordError: The repository cannot be used, or an object does not match its id.
        InfrastructureFault: Git failed or reached a bound.
    """
    root = _resolved(root)
    repository, object_format, commit = await find_commit(root, rev, advice="leave out --commit")
    async with scratch_directory(Actor.current()) as scratch:
        write_clean_git_dir(scratch, object_format=object_format)
        lines = b"".join(quoted(os.fsencode(each)) + b"\n" for each in repository.layout.databases)
        (scratch / "objects" / "info" / "alternates").write_bytes(lines)
        git = Git(scratch, actor=Actor.current())
        tree = await read_commit_tree(git, commit)
        return await compare_git_tree(git, tree, repository.prefix, files, uncovered)


async def compare_git_tree(
    git: Git, tree: GitTree, prefix: bytes, files: Sequence[FileEntry], uncovered: Iterable[str]
) -> Comparison:
    """Compare a tree that was read from git with a manifest.

    Args:
        git: The git directory of ringfence's own that has it.
        tree: The tree.
        prefix: The directory in it that is compared, ending in a slash; empty for all of it.
        files: The manifest's files.
        uncovered: Paths that the manifest does not cover.

    Raises:
        RecordError, InfrastructureFault: As `compare_commit`.
    """
    return await _compare_blobs(git, _below(tree, prefix), files, uncovered)


def _below(tree: GitTree, prefix: bytes) -> dict[bytes, Blob]:
    return {
        blob.path[len(prefix) :]: Blob(blob.path[len(prefix) :], blob.git_mode, blob.id, blob.size)
        for blob in tree.files
        if blob.path.startswith(prefix)
    }


async def _compare_blobs(
    git: Git, blobs: Mapping[bytes, Blob], files: Sequence[FileEntry], uncovered: Iterable[str]
) -> Comparison:
    """Compare names, modes and sizes, then the contents of the files before the first difference found so far."""
    known = {entry.raw_path: entry for entry in files}
    gaps = frozenset(decode_gap(each) for each in uncovered)
    difference: Difference | None = None
    same: list[Blob] = []
    for path in sorted(known.keys() | blobs.keys()):
        entry = known.get(path)
        what = _compare_blob(blobs.get(path), entry) if entry is not None else _describe_extra(path, gaps)
        if what is not None:
            difference = Difference(path, what)
            break
        same.append(blobs[path])
    for entry in await hash_files(git, same):
        if entry.sha256 != known[entry.raw_path].sha256:
            return Comparison(Difference(entry.raw_path, "has other content"))
    if difference is not None:
        return Comparison(difference)
    is_sha1 = all(len(blob.id) == 40 for blob in same)
    return Comparison(
        None, git_tree_id({each.path: (each.git_mode, each.id) for each in same}) if is_sha1 else ""
    )


def _compare_blob(blob: Blob | None, entry: FileEntry) -> str | None:
    if blob is None:
        return "is missing"
    what = describe_mode(blob.git_mode, int(entry.mode, 8))
    return what or ("has other content" if blob.size != entry.size else None)


async def find_commit(root: Path, rev: str, *, advice: str) -> tuple[Repository, str, str]:
    """Find the repository that a directory is in, and a commit of it.

    Args:
        root: The directory, resolved.
        rev: `HEAD`, a branch, a tag, or the whole id of a commit.
        advice: The next step if there is no repository.

    Returns:
        The repository, its object format (`sha1` or `sha256`), and the commit's id.

    Raises:
        UsageError: There is no repository, or it has no such commit.
        ConfigurationError, RecordError: The repository cannot be used.
    """
    repository = await anyio.to_thread.run_sync(find_repository, root)
    if repository is None:
        raise UsageError(f"--commit {rev!r}: {str(root)!r} is in no git repository; {advice}")
    if repository.layout.refused is not None:
        raise ConfigurationError(repository.layout.refused)
    object_format, unknown = parse_format(read_config(repository.layout.common))
    if unknown:
        raise ConfigurationError(f"the repository of {str(root)!r} has the unknown extension {unknown!r}")
    return repository, object_format, _resolve_rev(repository, rev, object_format)


def _resolve_rev(repository: Repository, rev: str, object_format: str) -> str:
    """Return the id that a name means, from the files of the repository's refs."""
    digits = 64 if object_format == "sha256" else 40
    if len(rev) == digits and not rev.strip("0123456789abcdef"):
        return rev
    refs = read_refs(repository.layout, object_format)
    named = {"HEAD": refs.head_commit(), **{name: refs.direct.get(to) for name, to in refs.symbolic.items()}}
    named |= refs.direct
    for name in (rev, f"refs/{rev}", f"refs/tags/{rev}", f"refs/heads/{rev}", f"refs/remotes/{rev}"):
        if found := named.get(name):
            return found
    raise UsageError(
        f"--commit {rev!r} is no branch, tag or whole commit id of {str(repository.layout.workspace)!r}; name one"
    )


def _resolved(root: Path) -> Path:
    try:
        found = root.resolve(strict=True)
    except (OSError, RuntimeError, ValueError) as exc:
        reason = getattr(exc, "strerror", None) or str(exc)
        raise UsageError(f"--tree {str(root)!r} cannot be read: {reason}; name a directory") from exc
    if not found.is_dir() or not os.access(found, os.R_OK | os.X_OK):
        raise UsageError(f"--tree {str(root)!r} is not a directory that can be read; name one")
    return found
