"""Refs of a repository, read from its files."""

import os
import re
import stat
from contextlib import suppress
from dataclasses import field
from pathlib import Path

from ringfence.frozen import frozen
from ringfence.sandbox.workspace.git.layout import GitLayout, read_small
from ringfence.sandbox.workspace.tree import Tree

_PACKED_LIMIT = 64 * 1024**2
_MAX_REFS = 200_000
_MAX_AGENT_REFS = 10_000
_SMALL = 4096
ELSEWHERE = (b"commondir", b"reftable")
"""Where they are, git keeps refs in other places."""
_LONGEST_PART = 250
"""Bytes between two slashes: git keeps a ref in a file of that name, and locks it by one that ends in `.lock`."""
_FORBIDDEN = re.compile(r"[\x00-\x20\x7f~^:?*\[\\]|\.\.|@\{|//|(^|/)\.|\.(/|$)|\.lock(/|$)|/$|^/|^-|^@$")


@frozen
class Refs:
    """Where a repository's branches and tags point."""

    head: bytes
    """Contents of HEAD: `ref: refs/heads/main` or an id."""
    direct: dict[str, str]
    symbolic: dict[str, str]
    notes: tuple[str, ...] = field(default=())

    def packed(self) -> bytes:
        """The direct ones as a `packed-refs` file."""
        lines = [f"{target} {name}\n" for name, target in sorted(self.direct.items())]
        return b"# pack-refs with: sorted \n" + "".join(lines).encode("utf-8", "surrogateescape")

    def head_commit(self) -> str | None:
        """The commit HEAD is at; None before the first commit."""
        text = self.head.decode("utf-8", "surrogateescape").strip()
        return self.direct.get(text[5:].strip()) if text.startswith("ref:") else text


def read_refs(layout: GitLayout, id_length: int) -> Refs:
    """All refs of a repository with the `files` format; what is malformed is left out and noted."""
    is_id = re.compile(rb"[0-9a-f]{%d}" % id_length)
    head = read_small(layout.directory, b"HEAD") or b""
    direct: dict[str, str] = {}
    symbolic: dict[str, str] = {}
    notes = []
    for line in (read_small(layout.common, b"packed-refs", _PACKED_LIMIT) or b"").splitlines():
        target, _, name = line.partition(b" ")
        if is_id.fullmatch(target) and is_ref_name(os.fsdecode(name)):
            direct[os.fsdecode(name)] = target.decode()
    for ref, text in _loose(layout):
        if is_id.fullmatch(text):
            direct[ref] = text.decode()
        elif text.startswith(b"ref:") and is_ref_name(os.fsdecode(text[4:].strip())):
            symbolic[ref] = os.fsdecode(text[4:].strip())
            direct.pop(ref, None)
    if not is_id.fullmatch(head.strip()) and not is_ref_name(
        os.fsdecode(head.strip()).removeprefix("ref:").strip()
    ):
        notes.append("HEAD could not be read: the agent starts on an empty branch")
        head = b"ref: refs/heads/main\n"
    return Refs(head, direct, symbolic, tuple(notes))


def read_agent_refs(directory: Path, id_length: int) -> Refs:
    """Branches and HEAD of a private git directory that an agent could write; what is no ref is left out and noted.

    Only regular files are read, no link is followed, and git is not run: an agent's configuration, and what it put in
    the place of these files, have no say.

    Args:
        directory: The git directory; what is inside is dead by now.
        id_length: Of an object's id.
    """
    is_id = re.compile(rb"[0-9a-f]{%d}" % id_length)
    notes, direct = list[str](), dict[str, str]()
    packed, loose, head = _agent_files(directory, notes)
    lines = [line for line in packed.splitlines() if line and not line.startswith((b"#", b"^"))]
    junk = 0
    for name, text in [
        *((name, target) for target, _, name in (line.partition(b" ") for line in lines)),
        *loose,
    ]:
        ref = os.fsdecode(name)
        if text.startswith(b"ref:"):
            direct.pop(ref, None)
        elif is_id.fullmatch(text) and is_ref_name(ref):
            direct[ref] = text.decode()
        else:
            junk += 1
    if junk:
        notes.append(f"{junk} refs that git would not read were passed over")
    if head and not is_id.fullmatch(head.strip()) and not head.startswith(b"ref:"):
        notes.append("what HEAD holds names no commit and was passed over")
        head = b""
    return Refs(head or b"ref: refs/heads/none\n", direct, {}, tuple(notes))


def _agent_files(directory: Path, notes: list[str]) -> tuple[bytes, list[tuple[bytes, bytes]], bytes]:
    """Contents of `packed-refs`, of each loose branch, and of HEAD."""
    found: dict[bytes, bytes] = {}
    try:
        with Tree(directory, unlock=stat.S_IRWXU) as tree:
            for name, limit in ((b"HEAD", _SMALL), (b"packed-refs", _PACKED_LIMIT)):
                status = tree.lstat(name)
                if status is not None and stat.S_ISREG(status.st_mode) and status.st_size <= limit:
                    found[name] = tree.read(name, limit)[0]
                elif status is not None or name == b"HEAD":
                    notes.append(
                        f"{name.decode()} is no file that git could have written and was passed over"
                    )
            if any(tree.lstat(name) is not None for name in ELSEWHERE):
                notes.append("refs that git keeps in another format than files were passed over")
    except OSError as exc:
        notes.append(f"refs could not be read: {exc.strerror}")
    loose = _agent_branches(directory / "refs", notes)
    return found.get(b"packed-refs", b""), loose, found.get(b"HEAD", b"")


def _agent_branches(directory: Path, notes: list[str]) -> list[tuple[bytes, bytes]]:
    """Name and contents of each branch that is a file; empty contents of what is no file."""
    found, seen = list[tuple[bytes, bytes]](), 0
    with suppress(OSError), Tree(directory, unlock=stat.S_IRWXU) as tree:
        for folder, names in tree.walk(_MAX_AGENT_REFS):
            seen += len(names)
            if folder != b"heads" and not folder.startswith(b"heads/"):
                continue
            for entry in names:
                path = folder + b"/" + os.fsencode(entry)
                status = tree.lstat(path)
                if status is not None and stat.S_ISDIR(status.st_mode):
                    continue
                is_small = status is not None and stat.S_ISREG(status.st_mode) and status.st_size <= _SMALL
                text = tree.read(path, _SMALL)[0] if is_small else b""
                found.append((b"refs/" + path, text.strip()))
    if seen >= _MAX_AGENT_REFS:
        notes.append(f"of more than {_MAX_AGENT_REFS} refs the rest was passed over")
    return found


def is_ref_name(name: str) -> bool:
    """Whether git would take this as the full name of a ref (`git check-ref-format`), and can keep it in a file."""
    is_storable = len(name) <= 1000 and all(
        len(os.fsencode(part)) <= _LONGEST_PART for part in name.split("/")
    )
    return name.startswith("refs/") and is_storable and "/" in name[5:] and not _FORBIDDEN.search(name)


def _loose(layout: GitLayout) -> list[tuple[str, bytes]]:
    found = []
    if not (layout.common / "refs").is_dir():
        return []
    with Tree(layout.common / "refs") as tree:
        for folder, names in tree.walk(_MAX_REFS):
            for entry in names:
                path = folder + b"/" + os.fsencode(entry) if folder else os.fsencode(entry)
                name = "refs/" + os.fsdecode(path)
                text = read_small(layout.common / "refs", path, 4096) if is_ref_name(name) else None
                if text is not None:
                    found.append((name, text.strip()))
    return found
