"""A checkpoint of a state that the store has already: a commit and its refs, written without starting git.

Only where git itself has been told to keep that state: the tree is that of a commit which a ref of the store pins.
Formats: gitformat-loose(5), gitrepository-layout(5).
"""

import hashlib
import os
import re
import time
import zlib
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

_OBJECT_LIMIT_BYTES = 64 * 1024
_ID = re.compile(r"[0-9a-f]{40}")
_TREE = re.compile(rb"commit \d+\0tree ([0-9a-f]{40})\n")


def commit_again(store: Path, refs: tuple[str, str], tree: str) -> str | None:
    """Commit a tree that the second of the refs pins already, on both refs, without a parent.

    Args:
        store: The git directory, held by the caller alone.
        refs: The new one, and the one that names the last commit.
        tree: Of the new commit.

    Returns:
        Its id; None where git must be asked, be it that something is not as expected.
    """
    with suppress(OSError, ValueError, zlib.error):
        if _tree_of(store, refs[1]) != tree or _is_torn(store, tree):
            return None
        commit = _write_object(store, _commit(tree, refs[0]))
        for ref in refs:
            _write_ref(store, ref, commit)
        return commit
    return None


def _tree_of(store: Path, ref: str) -> str | None:
    """The tree of the commit that a ref names, if both are files of their own."""
    commit = (store / ref).read_text(encoding="ascii").strip()
    if not _ID.fullmatch(commit):
        return None
    with _path(store, commit).open("rb") as file:
        packed = file.read(_OBJECT_LIMIT_BYTES)
    found = _TREE.match(zlib.decompressobj().decompress(packed, _OBJECT_LIMIT_BYTES))
    return found[1].decode() if found else None


def _is_torn(store: Path, tree: str) -> bool:
    """Whether a crash of the machine left a tree empty; git syncs packs, but not objects that are files."""
    path = _path(store, tree)
    return path.exists() and not path.stat().st_size


def _commit(tree: str, message: str) -> bytes:
    by = f"ringfence <ringfence@localhost> {int(time.time())} +0000"
    body = f"tree {tree}\nauthor {by}\ncommitter {by}\n\n{message}".encode()
    return b"commit %d\0%s" % (len(body), body)


def _write_object(store: Path, content: bytes) -> str:
    name = hashlib.sha1(content, usedforsecurity=False).hexdigest()
    path = _path(store, name)
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        _put(path, (zlib.compress(content, 1),), lock=path.with_name(f"tmp_obj_{name[2:]}"), mode=0o444)
    return name


def _write_ref(store: Path, ref: str, commit: str) -> None:
    path = store / ref
    path.parent.mkdir(parents=True, exist_ok=True)
    _put(path, (commit.encode(), b"\n"), lock=path.with_name(f"{path.name}.lock"), mode=0o666)


def _put(path: Path, content: Iterable[bytes], *, lock: Path, mode: int) -> None:
    """Write a file as git does: under another name, on the disk, then at once."""
    fd = os.open(lock, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        try:
            os.write(fd, b"".join(content))
            os.fsync(fd)
        finally:
            os.close(fd)
        lock.replace(path)
    except BaseException:
        lock.unlink(missing_ok=True)
        raise


def _path(store: Path, name: str) -> Path:
    return store / "objects" / name[:2] / name[2:]
