"""Reads the files of a commit from a git object database, and believes no id that it has not computed itself.

Git runs on a directory of ringfence's own that names the database (law 6), with the bounds for data of an agent. Every
object that it prints is hashed again: the commit, the tree (from the listing of all its files) and each file. So the
files are those of the commit, whatever the database holds under these names.
"""

import hashlib
from collections.abc import Iterable

from ringfence.errors import RecordError
from ringfence.frozen import frozen
from ringfence.integrations.attestation.manifest import (
    MAX_FILE_BYTES,
    MAX_FILES,
    MAX_PATH_BYTES,
    FileEntry,
    Mode,
    encode_path,
    git_tree_id,
)
from ringfence.sandbox.workspace.git.command import Git
from ringfence.sandbox.workspace.snapshot.objects import Blob, read_blobs

_LISTING_BYTES = 512 * 1024**2
_MODES: dict[int, Mode] = {0o100644: "100644", 0o100755: "100755", 0o120000: "120000"}
_ALGORITHMS = {40: "sha1", 64: "sha256"}


@frozen
class GitTree:
    """A tree of a git object database."""

    id: str
    files: tuple[Blob, ...]


async def read_commit_tree(git: Git, commit: str) -> GitTree:
    """Read a commit and list the files of its tree.

    Args:
        git: A git directory of ringfence's own.
        commit: The id of a commit, or of a tag that names one.

    Raises:
        RecordError: The objects are missing, do not match their ids, or are too many.
        InfrastructureFault: Git failed or reached a bound.
    """
    for _ in range(5):
        kind, data = await _read_object(git, commit)
        if kind == b"commit":
            break
        if kind != b"tag" or not data.startswith(b"object "):
            raise RecordError(f"{commit!r} is no commit but a {kind.decode()}; name a commit")
        commit = data[7:].partition(b"\n")[0].decode()
    else:
        raise RecordError(f"{commit!r} is a tag of a tag of a tag; name the commit")
    tree = data.removeprefix(b"tree ").partition(b"\n")[0].decode()
    return await read_tree(git, tree)


async def read_tree(git: Git, tree: str) -> GitTree:
    """List the files of a tree.

    Raises:
        RecordError, InfrastructureFault: As `read_commit_tree`.
    """
    listing = await git.run("ls-tree", "-r", "-z", "-l", tree, output_limit_bytes=_LISTING_BYTES)
    files = tuple(_parse_line(line) for line in listing.stdout.split(b"\0") if line)
    if any(len(each.path) > MAX_PATH_BYTES for each in files):
        raise RecordError(
            f"the tree {tree!r} has paths of more than {MAX_PATH_BYTES} bytes; name another commit"
        )
    if len(files) > MAX_FILES:
        raise RecordError(
            f"the tree {tree!r} has {len(files)} files; an attestation lists at most {MAX_FILES}"
        )
    if git_tree_id({each.path: (each.git_mode, each.id) for each in files}, _ALGORITHMS[len(tree)]) != tree:
        raise RecordError(f"the tree {tree!r} is not what its id says: an object was replaced")
    return GitTree(tree, files)


async def hash_files(git: Git, blobs: Iterable[Blob]) -> list[FileEntry]:
    """Read files from an object database and return their entries for a manifest, in the order of their paths.

    Raises:
        RecordError: A file does not match its id, or is of a kind or size that a manifest cannot have.
        InfrastructureFault: Git failed or reached a bound.
    """
    wanted = list(blobs)
    for blob in wanted:
        if blob.git_mode not in _MODES or blob.size > MAX_FILE_BYTES:
            raise RecordError(
                f"{encode_path(blob.path)!r} has mode {blob.git_mode:o} and {blob.size} bytes: it is no file, or larger"
                f" than {MAX_FILE_BYTES} bytes, which an attestation cannot state"
            )
    entries = []
    async for batch in read_blobs(git, wanted):
        for blob, data in batch:
            if hash_object("blob", data, len(blob.id)) != blob.id:
                raise RecordError(f"{encode_path(blob.path)!r} is not what its id {blob.id!r} says")
            digest = hashlib.sha256(data).hexdigest()
            entries.append(FileEntry(encode_path(blob.path), _MODES[blob.git_mode], len(data), digest))
    return sorted(entries, key=lambda each: each.raw_path)


def hash_object(kind: str, data: bytes, digits: int = 40) -> str:
    """Return git's id of an object: SHA-1 or, for ids of 64 digits, SHA-256."""
    head = f"{kind} {len(data)}\0".encode()
    return hashlib.new(_ALGORITHMS[digits], head + data, usedforsecurity=False).hexdigest()


async def _read_object(git: Git, name: str) -> tuple[bytes, bytes]:
    """Return the type and the content of a commit or tag."""
    answer = await git.run("cat-file", "--batch", stdin=f"{name}\n".encode(), output_limit_bytes=64 * 1024**2)
    head, _, rest = answer.stdout.partition(b"\n")
    fields = head.split(b" ")
    if len(fields) != 3:
        raise RecordError(f"the object {name!r} is missing; `ringfence gc` removes old checkpoints")
    data = rest[: int(fields[2])]
    if hash_object(fields[1].decode(), data, len(name)) != name:
        raise RecordError(f"the object {name!r} is not what its id says: it was replaced")
    return fields[1], data


def _parse_line(line: bytes) -> Blob:
    """Parse a line of `git ls-tree -l`; a submodule has no size."""
    head, _, path = line.partition(b"\t")
    mode, _, name, size = head.split()
    return Blob(path, int(mode, 8), name.decode(), 0 if size == b"-" else int(size))
