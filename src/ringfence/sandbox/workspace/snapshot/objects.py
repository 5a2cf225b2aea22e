"""Reads files from disk, and stores, lists and reads them as objects of the store."""

import errno
import hashlib
import mmap
import os
import secrets
import stat
import struct
import time
import zlib
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import anyio.to_thread

from ringfence.errors import InfrastructureFault
from ringfence.frozen import frozen
from ringfence.sandbox.workspace.git.command import Git
from ringfence.sandbox.workspace.snapshot.stat_cache import Entry
from ringfence.sandbox.workspace.tree import GONE, Tree

BATCH_BYTES = 32 * 1024**2
_MAX_PACKS = 100
NAMES_AT = 8 + 256 * 4
"""Offset of the object names in the index of a pack, behind their number (version 2, gitformat-pack(5))."""
_FEW = 200
"""Number of objects: two hundred files, or fewer files and the directories above them."""
_MANY = 200
EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
HOLLOW = "a sparse file, most of which is not on disk"


@frozen
class Content:
    """A file with its contents as they were read."""

    path: bytes
    git_mode: int
    data: bytes
    entry: Entry


def read_batch(
    tree: Tree, paths: Iterator[bytes], *, began_ns: int, file_limit_bytes: int, skipped: dict[bytes, str]
) -> list[Content]:
    """Read the next files, about 32 MiB; return an empty list at the end.

    Args:
        tree: The tree that they are in.
        paths: The files still to be read.
        began_ns: When the snapshot began: files that changed later than shortly before will be read again.
        file_limit_bytes: The largest size of a file.
        skipped: Receives the files that are not read, and why.
    """
    batch: list[Content] = []
    gathered = 0
    for path in paths:
        try:
            data, status = tree.read(path, file_limit_bytes, holes=False)
        except OSError as exc:
            if exc.errno == errno.EFBIG:
                skipped[path] = f"larger than {file_limit_bytes} bytes"
            elif exc.errno == errno.ENODATA:
                skipped[path] = HOLLOW
            elif exc.errno not in GONE:
                skipped[path] = os.strerror(exc.errno or 0).lower()
            continue
        entry = Entry.of(status, blob_id(data), began_ns)
        batch.append(Content(path, git_mode(status.st_mode), data, entry))
        gathered += len(data) + 1000
        if gathered >= BATCH_BYTES:
            break
    return batch


def git_mode(mode: int) -> int:
    """The mode of a file or link in a git tree."""
    if stat.S_ISLNK(mode):
        return 0o120000
    return 0o100755 if mode & stat.S_IXUSR else 0o100644


def blob_id(data: bytes) -> bytes:
    """Git's id for these contents (SHA-1 as git's format demands, not as protection against forgery)."""
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).digest()


async def import_changes(
    git: Git,
    refs: Sequence[str],
    *,
    base_tree: str,
    deleted: Iterable[bytes],
    written: "Sequence[Content] | Sequence[Blob]",
) -> tuple[str, str]:
    """Commit the tree `base_tree` (empty: none) with these changes on all `refs`, without a parent.

    The changes are new contents, or files that the store already holds.

    Returns:
        The commit's id and its tree's id.
    """
    deleted = [*deleted]
    if not deleted and not written:
        return await _commit_unchanged(git, refs, base_tree or EMPTY_TREE)
    parts = [
        b"feature done\n",
        b"commit %s\nmark :1\n" % refs[0].encode(),
        b"committer ringfence <ringfence@localhost> %d +0000\n" % int(time.time()),
        # The commit contains its refs, so that two snapshots of one state in one second are distinct and have separate
        # memos.
        b"data %d\n%s\n" % (len(refs[0]), refs[0].encode()),
        b'M 040000 %s ""\n' % base_tree.encode() if base_tree not in {"", EMPTY_TREE} else b"deleteall\n",
    ]
    parts += [b"D %s\n" % quoted(path) for path in deleted]
    for each in written:
        if isinstance(each, Blob):
            parts.append(b"M %o %s %s\n" % (each.git_mode, each.id.encode(), quoted(each.path)))
            continue
        parts.append(b"M %o inline %s\ndata %d\n" % (each.git_mode, quoted(each.path), len(each.data)))
        parts += [each.data, b"\n"]
    parts += [b"reset %s\nfrom :1\n\n" % ref.encode() for ref in refs[1:]]
    parts.append(b'get-mark :1\nls :1 ""\ndone\n')
    unpack_limit = await anyio.to_thread.run_sync(_unpack_limit, git.directory)
    # A file hardly ever resembles the one before it, and finding that out takes as long as the rest. Trees do.
    depth = ("--depth=0",) if len(written) > _MANY else ()
    command = ("fast-import", "--quiet", "--force", *depth)
    packing = replace(git, options=(*git.options, f"fastimport.unpackLimit={unpack_limit}"))
    result = await packing.run(*command, stdin=b"".join(parts), timeout_s=600.0)
    lines = result.stdout.decode("ascii", "replace").splitlines()
    # Git reports an empty tree as "missing".
    if len(lines) != 2:
        raise InfrastructureFault(f"git fast-import answered {result.stdout[:200]!r}; is the disk full?")
    tree = lines[1].split()[2] if lines[1].startswith("040000 tree ") else EMPTY_TREE
    return lines[0], tree


async def _commit_unchanged(git: Git, refs: Sequence[str], tree: str) -> tuple[str, str]:
    """Commit a tree of the store, and write the refs; no other git may work on the store meanwhile.

    Does not use git, which takes 5 ms: a commit is a few lines and a checksum, and most runs of a loop need one.
    """

    def commit() -> str:
        if tree != EMPTY_TREE and not _has_object(git.directory / "objects", bytes.fromhex(tree)):
            raise InfrastructureFault(f"{str(git.directory)!r} has lost the tree {tree!r}")
        name = _write_commit(git.directory, tree, refs[0])
        for ref in refs:
            path = git.directory / ref
            path.parent.mkdir(parents=True, exist_ok=True)
            partial = path.with_name(f"{path.name}.lock")
            partial.write_text(f"{name}\n")
            partial.replace(path)
        return name

    return await anyio.to_thread.run_sync(commit), tree


def _write_commit(store: Path, tree: str, message: str) -> str:
    """Write a commit without a parent as a loose object; return its id."""
    person = f"ringfence <ringfence@localhost> {int(time.time())} +0000"
    body = f"tree {tree}\nauthor {person}\ncommitter {person}\n\n{message}\n".encode()
    data = b"commit %d\0" % len(body) + body
    name = hashlib.sha1(data, usedforsecurity=False).hexdigest()
    folder = store / "objects" / name[:2]
    folder.mkdir(exist_ok=True)
    partial = folder / f"tmp_obj_{secrets.token_hex(8)}"
    partial.write_bytes(zlib.compress(data))
    partial.chmod(0o444)
    partial.replace(folder / name[2:])
    return name


def _has_object(objects: Path, name: bytes) -> bool:
    """Whether an object exists, as a file or in a pack (index version 2, gitformat-pack(5))."""
    text = name.hex()
    return (objects / text[:2] / text[2:]).exists() or any(
        _is_in_index(index, name) for index in (objects / "pack").glob("*.idx")
    )


def _is_in_index(index: Path, name: bytes) -> bool:
    with index.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        if data[:8] != b"\xfftOc\0\0\0\2":
            return False
        counts = struct.unpack(">256I", data[8:NAMES_AT])
        first, last = counts[name[0] - 1] if name[0] else 0, counts[name[0]]
        while first < last:
            middle = (first + last) // 2
            found = data[NAMES_AT + 20 * middle : NAMES_AT + 20 * middle + 20]
            if found == name:
                return True
            first, last = (middle + 1, last) if found < name else (first, middle)
    return False


def _unpack_limit(store: Path) -> int:
    """How many objects are stored one by one; more are stored as a pack, which takes a tenth of the time.

    Git opens each pack, so there must not be thousands of them; `gc` joins them.
    """
    packs = sum(path.suffix == ".pack" for path in (store / "objects" / "pack").iterdir())
    return 1 if packs < _MAX_PACKS else _FEW


def quoted(path: bytes) -> bytes:
    """Quote a path in the form in which fast-import, and a file of alternates, accept any path."""
    return b'"' + path.replace(b"\\", b"\\\\").replace(b'"', b'\\"').replace(b"\n", b"\\n") + b'"'


@frozen
class Blob:
    """A file of a snapshot, without its contents."""

    path: bytes
    git_mode: int
    id: str
    size: int


def find_changed(root: Path, known: Iterable[Blob]) -> frozenset[bytes]:
    """Return the files that a directory does not hold as they are known; also those that cannot be read.

    No more is read of a file than its known size. Its owner's permissions are restored.
    """
    changed = set()
    with Tree(root, unlock=stat.S_IRUSR | stat.S_IXUSR) as tree:
        for blob in known:
            try:
                data, status = tree.read(blob.path, blob.size)
            except OSError:
                changed.add(blob.path)
                continue
            if (git_mode(status.st_mode), blob_id(data).hex()) != (blob.git_mode, blob.id):
                changed.add(blob.path)
    return frozenset(changed)


def read_line(line: bytes) -> Blob:
    """Parse a line of `git ls-tree -l`."""
    head, _, path = line.partition(b"\t")
    mode, _, name, size = head.split()
    return Blob(path=path, git_mode=int(mode, 8), id=name.decode(), size=int(size))


def read_changes(output: bytes) -> list[tuple[bytes, int, str]]:
    """Path, mode and id of each file after the changes in `git diff-tree -r -z --raw --no-renames`; mode 0: removed."""
    fields = output.split(b"\0")
    found = []
    for head, path in zip(fields[::2], fields[1::2], strict=False):
        _, mode, _, name, _ = head.split(b" ")
        found.append((path, int(mode, 8), name.decode()))
    return found


async def read_blobs(git: Git, blobs: Iterable[Blob]) -> AsyncIterator[list[tuple[Blob, bytes]]]:
    """Yield the contents of files, in lists of about 32 MiB."""
    batch: list[Blob] = []
    size = 0
    for blob in blobs:
        if batch and size + blob.size > BATCH_BYTES:
            yield await _read_contents(git, batch)
            batch, size = [], 0
        batch.append(blob)
        size += blob.size + 1000
    if batch:
        yield await _read_contents(git, batch)


async def _read_contents(git: Git, batch: list[Blob]) -> list[tuple[Blob, bytes]]:
    asked = "".join(f"{blob.id}\n" for blob in batch).encode()
    size = sum(blob.size + 200 for blob in batch)
    answer = (await git.run("cat-file", "--batch", stdin=asked, output_limit_bytes=size)).stdout
    contents, position = [], 0
    for blob in batch:
        start = answer.index(b"\n", position) + 1
        contents.append((blob, answer[start : start + blob.size]))
        position = start + blob.size + 1
    return contents
