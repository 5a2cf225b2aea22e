"""Writes commits of a loop from changes, and reads commits as data, both without a work tree.

The same base, changes, message and time give the same commit, so a step that is repeated after a crash creates no
second one. Titles and ids come from story files, models from agents; none of them can add a trailer.
"""

import os
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from ringfence.check.tree import TreeEntry
from ringfence.errors import InfrastructureFault, UsageError
from ringfence.frozen import frozen
from ringfence.loop.repository.change import Change, parents
from ringfence.loop.repository.refusal import NothingChanged, WorkRefused
from ringfence.sandbox.workspace.git.command import Git
from ringfence.sandbox.workspace.snapshot.objects import Blob, quoted, read_blobs

_ID = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_REF = "refs/ringfence/candidate"
_NAME, _EMAIL = "ringfence", "ringfence@localhost"
_MANY = 200
_IMPORT_S = 600.0
_LAST_TIME_S = 2**40
_LISTING_BYTES = 512 * 1024**2
_READ_FILE_BYTES = 1024**2
"""Only path and mode of larger files are read, as they are neither tests nor test configuration."""
_READ_BYTES = 512 * 1024**2
_GITLINK = 0o160000
_TREE = b"040000"
_MOST_SUBJECT = 200
_MOST_VALUE = 300
_MOST_BODY = 20_000
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")
_SURROGATE = re.compile(r"[\ud800-\udfff]")
_LIKE_TRAILER = re.compile(r"(?i)^\s*(?:ringfence-[\w-]*|[\w-]+-by)\s*:")


@frozen
class Trailers:
    """The story, attempt, role and model of a commit."""

    loop: str
    story: str
    attempt: int
    role: str
    model: str = ""
    """The model; empty if it is not known, and then there is no such trailer."""


def compose(message: str, trailers: Trailers) -> bytes:
    """Return the complete message as UTF-8, without control characters except line ends.

    Args:
        message: The subject in its first line, then any text.
        trailers: The trailers; values are cut to one line of 300 characters.
    """
    first, _, rest = message.strip().partition("\n")
    lines = [_line(first, _MOST_SUBJECT) or "(no title)", ""]
    body = [_body_line(line) for line in rest.strip("\n")[:_MOST_BODY].splitlines()]
    if any(body):
        lines += [*body, ""]
    values = {
        "Loop": trailers.loop,
        "Story": trailers.story,
        "Attempt": str(trailers.attempt),
        "Role": trailers.role,
        "Model": trailers.model,
    }
    lines += [f"Ringfence-{key}: {value}" for key, text in values.items() if (value := _line(text))]
    return ("\n".join(lines) + "\n").encode()


def _body_line(line: str) -> str:
    plain = _CONTROL.sub(" ", _plain(line)).rstrip()
    # An indented line is not a trailer to any program.
    return f"    {plain.lstrip()}" if _LIKE_TRAILER.match(plain) else plain


def _line(text: str, most: int = _MOST_VALUE) -> str:
    return _CONTROL.sub(" ", _plain(text)).strip()[:most].rstrip()


def _plain(text: str) -> str:
    return _SURROGATE.sub("\ufffd", text)


def check_id(commit: str) -> str:
    """Check that a text is a full commit id, and return it.

    Raises:
        UsageError: It is not one.
    """
    if not _ID.fullmatch(commit):
        raise UsageError(f"{commit!r} is no whole id of a commit")
    return commit


async def make_commit(git: Git, base: str, changes: Sequence[Change], *, message: bytes, at_s: int) -> str:
    """Commit exactly these changes on a base; return the commit's id.

    Args:
        git: The loop's repository, under its lock.
        base: The parent.
        changes: Changes that `check_changes` accepted.
        message: The complete message.
        at_s: The time of the commit, in seconds since the epoch.

    Raises:
        NothingChanged: The base already contains all of them.
        WorkRefused: A change would remove or hide other files of the base.
        InfrastructureFault: Git failed.
    """
    _check_time(at_s)
    gone = sorted((change.path for change in changes if change.git_mode is None), reverse=True)
    written = [change for change in changes if change.git_mode is not None]
    above = sorted({parent for change in written for parent in parents(change.path)})
    stamp = f"{_NAME} <{_EMAIL}> {at_s} +0000".encode()
    parts = [
        b"feature done\n",
        b"commit %s\nmark :1\nauthor %s\ncommitter %s\n" % (_REF.encode(), stamp, stamp),
        b"data %d\n%s\nfrom %s\n" % (len(message), message, check_id(base).encode()),
        # Each `ls` is answered by a line: the entry before a file is removed, and before any is written.
        *(b"ls %s\nD %s\n" % (quoted(path), quoted(path)) for path in gone),
        *(b"ls %s\n" % quoted(path) for path in (*above, *(change.path for change in written))),
    ]
    for change in written:
        contents = (change.object_id or "inline").encode()
        parts.append(b"M %o %s %s\n" % (change.git_mode or 0, contents, quoted(change.path)))
        if change.object_id is None:
            parts += [b"data %d\n" % len(change.data), change.data, b"\n"]
    parts.append(b'\nget-mark :1\nls :1 ""\nls %s ""\ndone\n' % base.encode())
    # A file hardly ever resembles the one before it, and finding that out takes longer than all the rest.
    depth = ("--depth=0",) if len(written) > _MANY else ()
    # Leftovers of a killed git; under the lock no other git is running.
    (git.directory / f"{_REF}.lock").unlink(missing_ok=True)
    listing = await git.run(
        *("fast-import", "--quiet", "--force", "--date-format=raw", *depth),
        stdin=b"".join(parts),
        timeout_s=_IMPORT_S,
        output_limit_bytes=_LISTING_BYTES,
    )
    lines = iter(listing.stdout.splitlines())
    strange = {path for path in (*gone,) if next(lines)[:6] == _TREE}
    strange |= {path for path in above if next(lines)[:6] not in {_TREE, b"missin"}}
    strange |= {change.path for change in written if next(lines)[:6] == _TREE}
    commit, after, before = next(lines).decode(), next(lines), next(lines)
    if strange:
        why = "the changes do not fit the base: it would be removed or replaced unnamed"
        raise WorkRefused({os.fsdecode(path): why for path in sorted(strange)})
    if after == before:
        raise NothingChanged("what was changed is in the base already, so there is nothing to commit")
    return commit


def identity(**more: str) -> dict[str, str]:
    """Environment in which git makes commits and log entries as ringfence."""
    values = {"NAME": _NAME, "EMAIL": _EMAIL, **more}
    return {f"GIT_{who}_{key}": value for who in ("AUTHOR", "COMMITTER") for key, value in values.items()}


def _check_time(at_s: int) -> None:
    if not 0 <= at_s < _LAST_TIME_S:
        raise UsageError(f"{at_s!r} is no time of a commit")


async def commit_tree(git: Git, tree: str, parent: str, *, message: bytes, at_s: int) -> str:
    """Commit a tree that the repository has; return the commit's id."""
    _check_time(at_s)
    made = await replace(git, environment=identity(DATE=f"@{at_s} +0000")).run(
        "commit-tree", tree, "-p", parent, stdin=message
    )
    return made.stdout.decode().strip()


async def changes_to_restore(git: Git, source: str, paths: Collection[bytes]) -> list[Change]:
    """The changes that restore files, of any size, to their state in a commit."""
    found = {blob.path: blob for blob in await list_files(git, check_id(source))}
    return [
        Change(path, found[path].git_mode, object_id=found[path].id) if path in found else Change(path, None)
        for path in sorted(paths)
    ]


@frozen
class Tree:
    """Files by path; bytes of paths that are not UTF-8 are surrogate escapes."""

    files: Mapping[str, TreeEntry]

    def read(self, path: str) -> TreeEntry | None:
        """The file at a path, if there is one."""
        return self.files.get(path)

    def line_count(self, path: str) -> int | None:
        """The number of lines in a file; None if it does not exist."""
        item = self.files.get(path)
        return None if item is None or not item.is_file else len(item.data.splitlines())

    def changed(self, changes: Sequence[Change], *, inside: bytes = b"") -> "Tree":
        """Return the tree with changes applied.

        Args:
            changes: The changes, with paths relative to the top of the repository.
            inside: The directory whose files the tree holds; empty for the top.
        """
        files, prefix = dict(self.files), inside + b"/" if inside else b""
        for change in changes:
            path = os.fsdecode(change.path.removeprefix(prefix))
            if not change.path.startswith(prefix):
                continue
            if change.git_mode is None:
                files.pop(path, None)
            else:
                is_read = len(change.data) <= _READ_FILE_BYTES
                files[path] = TreeEntry(change.data if is_read else b"", change.git_mode)
        return Tree(files)


async def list_files(git: Git, commit: str) -> list[Blob]:
    """Every file of a commit; the entry of another repository (mode 160000) has no size.

    Raises:
        InfrastructureFault: One of its objects is missing.
    """
    listing = await git.run("ls-tree", "-r", "-z", "-l", commit, output_limit_bytes=_LISTING_BYTES)
    files = []
    for line in listing.stdout.split(b"\0")[:-1]:
        head, _, path = line.partition(b"\t")
        mode, _, name, size = head.split()
        if size == b"BAD":
            raise InfrastructureFault(f"the contents of {os.fsdecode(path)!r} are not there")
        files.append(Blob(path, int(mode, 8), name.decode(), 0 if size == b"-" else int(size)))
    return files


async def read_tree(git: Git, files: Sequence[Blob], *, inside: bytes) -> Tree:
    """The files below a directory, by their paths in it.

    Raises:
        UsageError: They hold more than 512 MiB, not counting files above 1 MiB.
    """
    prefix = inside + b"/" if inside else b""
    below = [blob for blob in files if blob.path.startswith(prefix)]
    read = [blob for blob in below if blob.size <= _READ_FILE_BYTES and blob.git_mode != _GITLINK]
    total = sum(blob.size for blob in read)
    if total > _READ_BYTES:
        raise UsageError(
            f"the repository's files hold {total} bytes; a loop works with {_READ_BYTES} at most"
        )
    found = {os.fsdecode(blob.path.removeprefix(prefix)): TreeEntry(b"", blob.git_mode) for blob in below}
    async for batch in read_blobs(git, read):
        for blob, data in batch:
            found[os.fsdecode(blob.path.removeprefix(prefix))] = TreeEntry(data, blob.git_mode)
    return Tree(found)
