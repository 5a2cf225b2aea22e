"""The manifest of a tree: path, mode, size and SHA-256 of each file, and the digests over all of them.

A path is bytes. In JSON it is text: UTF-8 as it is, with `%` as `%25` and every byte that is not UTF-8 as `%` and two
hexadecimal digits, so that equal texts mean equal paths.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping
from typing import Literal
from urllib.parse import unquote_to_bytes

import msgspec

MAX_FILES = 200_000
MAX_FILE_BYTES = 100 * 1024**2
"""Larger files are in no snapshot; see `snapshot.capture.FILE_LIMIT_BYTES`."""
MAX_PATH_BYTES = 4096
MAX_DEPTH = 256

Mode = Literal["100644", "100755", "120000"]
"""As git writes it: a file, an executable file, a symbolic link (whose content is its target)."""

_DIGEST = re.compile(r"[0-9a-f]{64}")
_INVALID = re.compile("[\udc80-\udcff]")


class FileEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One file or symbolic link of a tree."""

    path: str
    """The path from the root, with `/`; see this module's docstring."""
    mode: Mode
    size: int
    """In bytes; of a link, of its target."""
    sha256: str
    """Of the content; of a link, of its target."""

    @property
    def raw_path(self) -> bytes:
        """The path as bytes."""
        return decode_path(self.path)


def encode_path(path: bytes) -> str:
    """Return a path as text."""
    text = path.decode("utf-8", "surrogateescape").replace("%", "%25")
    return _INVALID.sub(lambda found: f"%{ord(found[0]) - 0xDC00:02X}", text)


def decode_path(text: str) -> bytes:
    """Return the path that `encode_path` has written.

    Raises:
        ValueError: It is not the one spelling of a path below a root.
    """
    path = unquote_to_bytes(text.encode())
    parts = path.split(b"/")
    is_below = not {b"", b".", b".."} & set(parts) and b"\0" not in path
    if not is_below or encode_path(path) != text or len(path) > MAX_PATH_BYTES or len(parts) > MAX_DEPTH:
        raise ValueError(f"{text[:200]!r} is not a path below the root of a tree")
    return path


def decode_gap(text: str) -> bytes:
    """Return an uncovered path as bytes; a directory ends in a slash, and `./` stands for the whole tree.

    Raises:
        ValueError: As `decode_path`.
    """
    if text == "./":
        return b"./"
    return decode_path(text.removesuffix("/")) + (b"/" if text.endswith("/") else b"")


def check_files(files: Iterable[FileEntry]) -> None:
    """Check that entries can be those of a tree: in the order of their paths' bytes, none twice, none in a file.

    Raises:
        ValueError: They cannot.
    """
    before = b""
    open_files: set[bytes] = set()
    for number, entry in enumerate(files):
        path = entry.raw_path
        if number >= MAX_FILES:
            raise ValueError(f"it lists more than {MAX_FILES} files")
        if path <= before:
            raise ValueError(f"its files are not in order at {entry.path[:200]!r}")
        if any(path[:end] in open_files for end in _slashes(path)):
            raise ValueError(f"{entry.path[:200]!r} lies in a file")
        if not _DIGEST.fullmatch(entry.sha256) or not 0 <= entry.size <= MAX_FILE_BYTES:
            raise ValueError(f"the digest or size of {entry.path[:200]!r} is not one")
        open_files.add(path)
        before = path


def digest_files(files: Iterable[FileEntry]) -> str:
    """Return the SHA-256 over a manifest in its canonical form.

    That is, in the order of the paths' bytes, for each file: mode, space, size in decimal, space, SHA-256 in
    hexadecimal, tab, path, NUL.
    """
    found = hashlib.sha256()
    for entry in files:
        found.update(f"{entry.mode} {entry.size} {entry.sha256}\t".encode() + entry.raw_path + b"\0")
    return found.hexdigest()


def git_tree_id(blobs: Mapping[bytes, tuple[int, str]], algorithm: str = "sha1") -> str:
    """Return git's id of the tree of these files.

    Args:
        blobs: The mode and the id of each file, by path.
        algorithm: The hash of the repository's object format, `sha1` or `sha256`.

    Source: gitformat-pack(5) and git's `tree.c`: entries in the order of their names, directories as if these ended in
    a slash.
    """
    folders: dict[bytes, dict[bytes, tuple[int, bytes]]] = {b"": {}}
    for path, (mode, name) in blobs.items():
        folder, _, base = path.rpartition(b"/")
        folders.setdefault(folder, {})[base] = (mode, bytes.fromhex(name))
    for path in [*folders]:
        while path:
            path = path.rpartition(b"/")[0]
            folders.setdefault(path, {})
    ids: dict[bytes, bytes] = {}
    for path in sorted(folders, key=lambda each: each.count(b"/") + bool(each), reverse=True):
        body = b"".join(
            b"%o %s\0%s" % (mode, base, name)
            for base, (mode, name) in sorted(
                folders[path].items(), key=lambda each: each[0] + b"/" * (each[1][0] == 0o40000)
            )
        )
        ids[path] = hashlib.new(algorithm, b"tree %d\0" % len(body) + body, usedforsecurity=False).digest()
        if path:
            above, _, base = path.rpartition(b"/")
            folders[above][base] = (0o40000, ids[path])
    return ids[b""].hex()


def _slashes(path: bytes) -> Iterable[int]:
    at = path.find(b"/")
    while at >= 0:
        yield at
        at = path.find(b"/", at + 1)
