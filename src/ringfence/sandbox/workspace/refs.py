"""Refs of a repository, read from its files."""

import os
import re
from dataclasses import field

from ringfence.frozen import frozen
from ringfence.sandbox.workspace.git_layout import GitLayout, read_small
from ringfence.sandbox.workspace.tree import Tree

_PACKED_LIMIT = 64 * 1024**2
_MAX_REFS = 200_000
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


def is_ref_name(name: str) -> bool:
    """Whether git would take this as the full name of a ref (`git check-ref-format`)."""
    return name.startswith("refs/") and len(name) <= 1000 and "/" in name[5:] and not _FORBIDDEN.search(name)


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
