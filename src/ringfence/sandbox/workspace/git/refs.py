"""Reads the refs of a repository from its files. Git is not run, no link is followed, only regular files are read."""

import os
import re
import stat
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path

from ringfence.frozen import frozen
from ringfence.sandbox.workspace.git.layout import GitLayout
from ringfence.sandbox.workspace.tree import Tree

MAX_TIPS = 64
_PACKED_LIMIT = 64 * 1024**2
_MAX_REFS = 200_000
_MAX_AGENT_REFS = 10_000
_SMALL = 4096
_OTHER_STORAGE = (b"commondir", b"reftable")
"""If one of these exists, git stores refs in another way."""
_MAX_PARTS = 64
_LONGEST_PART = 250
"""Limit of bytes between two slashes: a ref is a file of that name, and its lock adds `.lock`."""
_FORBIDDEN = re.compile(r"[\x00-\x20\x7f~^:?*\[\\]|\.\.|@\{|//|(^|/)\.|\.(/|$)|\.lock(/|$)|/$|^/|^-|^@$")


@frozen
class Refs:
    """The branches and tags of a repository, and the objects that they point at."""

    head: bytes
    """Contents of HEAD: `ref: refs/heads/main` or an id."""
    direct: dict[str, str]
    symbolic: dict[str, str]
    notes: tuple[str, ...] = ()
    object_format: str = "sha1"

    def files(self) -> dict[str, bytes]:
        """Files of a git directory with these refs: HEAD, `packed-refs`, and one for each symbolic ref."""
        lines = "".join(f"{target} {name}\n" for name, target in sorted(self.direct.items()))
        symbolic = {
            name: os.fsencode(f"ref: {target}\n")
            for name, target in self.symbolic.items()
            if name.count("/") < _MAX_PARTS
        }
        packed = os.fsencode(f"# pack-refs with: sorted \n{lines}")
        return {"HEAD": self.head, "packed-refs": packed, **symbolic}

    def head_commit(self) -> str | None:
        """The commit that HEAD resolves to; None before the first commit."""
        text = self.head.decode("utf-8", "surrogateescape").strip()
        return self.direct.get(text[5:].strip()) if text.startswith("ref:") else text

    def commits(self) -> list[str]:
        """All objects that branches, tags and HEAD point at."""
        return sorted({*self.direct.values(), self.head_commit() or ""} - {""})


def read_refs(layout: GitLayout, object_format: str = "sha1") -> Refs:
    """Read all refs of the user's repository that are stored in files; skip malformed ones with a note."""
    refs = _read(layout.directory, layout.common, object_format, _MAX_REFS)
    if refs.head:
        return refs
    note = "HEAD could not be read: the agent starts on an empty branch"
    return replace(refs, head=b"ref: refs/heads/main\n", notes=(*refs.notes, note))


def read_new_tips(directory: Path, base: Refs) -> tuple[dict[str, str], list[str]]:
    """Read the branches of a private git directory that are new or were moved.

    An agent could write to the directory: its configuration is not read, and other kinds of files in place of refs are
    ignored. An agent that hides a commit this way loses that commit, and nothing else.

    Args:
        directory: The git directory; no process inside may be alive.
        base: The refs that the directory was made with.

    Returns:
        The commit of each such branch, and of a `HEAD` that is on none of them; and notes for the user.
    """
    now = _read(directory, directory, base.object_format, _MAX_AGENT_REFS, unlock=stat.S_IRWXU)
    heads = {name: tip for name, tip in sorted(now.direct.items()) if name.startswith("refs/heads/")}
    known = base.commits()
    tips = {name: tip for name, tip in heads.items() if tip not in known and name != "refs/heads/HEAD"}
    head = now.head_commit()
    if head and head not in {*heads.values(), *known}:
        tips["HEAD"] = head
    notes = list(now.notes)
    if len(tips) > MAX_TIPS:
        notes.append(f"{len(tips)} branches were made inside; the first {MAX_TIPS} are imported")
    if not now.head:
        notes.append("what HEAD holds names no commit and was passed over")
    return dict(islice(tips.items(), MAX_TIPS)), notes


def is_ref_name(name: str) -> bool:
    """Whether git accepts this as the full name of a ref (`git check-ref-format`), and can keep it in a file."""
    is_storable = len(name) <= 1000 and all(
        len(os.fsencode(part)) <= _LONGEST_PART for part in name.split("/")
    )
    return name.startswith("refs/") and is_storable and "/" in name[5:] and not _FORBIDDEN.search(name)


def _read(directory: Path, common: Path, object_format: str, limit: int, *, unlock: int = 0) -> Refs:
    """Read the refs of a git directory; HEAD is empty if it names neither a ref nor a commit."""
    is_id = re.compile(rb"[0-9a-f]{%d}" % (64 if object_format == "sha256" else 40))
    notes: list[str] = []
    head = (_file(directory, b"HEAD", _SMALL, unlock, notes) or b"").strip()
    if not is_id.fullmatch(head) and not is_ref_name(os.fsdecode(head.removeprefix(b"ref:").strip())):
        head = b""
    packed = (_file(common, b"packed-refs", _PACKED_LIMIT, unlock, notes) or b"").splitlines()
    pairs = (line.partition(b" ")[::2] for line in packed if line and not line.startswith((b"#", b"^")))
    direct, symbolic, malformed = dict[str, str](), dict[str, str](), 0
    for text, name in (*pairs, *_loose(common, limit, unlock, notes)):
        ref, target = os.fsdecode(name), os.fsdecode(text.removeprefix(b"ref:").strip())
        if is_id.fullmatch(text) and is_ref_name(ref):
            direct[ref] = target
        elif text.startswith(b"ref:") and is_ref_name(ref) and is_ref_name(target):
            direct.pop(ref, None)
            symbolic[ref] = target
        elif not ref.startswith("refs/") or ref.startswith("refs/heads/"):
            malformed += 1
    if malformed:
        notes.append(f"{malformed} refs that git would not read were passed over")
    return Refs(head + b"\n" if head else b"", direct, symbolic, tuple(notes), object_format)


def _file(directory: Path, name: bytes, limit: int, unlock: int, notes: list[str]) -> bytes | None:
    try:
        with Tree(directory, unlock=unlock) as tree:
            status = tree.lstat(name)
            if status is not None and stat.S_ISREG(status.st_mode) and status.st_size <= limit:
                return tree.read(name, limit)[0]
    except OSError as exc:
        notes.append(f"refs could not be read: {exc.strerror}")
        return None
    if status is not None or name == b"HEAD":
        notes.append(f"{name.decode()} is no file that git could have written and was passed over")
    return None


def _loose(common: Path, limit: int, unlock: int, notes: list[str]) -> Iterator[tuple[bytes, bytes]]:
    """Contents and name of each entry below `refs`; empty contents for anything but a small regular file."""
    seen = 0
    try:
        with Tree(common, unlock=unlock) as tree:
            if any(tree.lstat(name) is not None for name in _OTHER_STORAGE):
                notes.append("refs that git keeps in another format than files were passed over")
            tree.directory(b"refs")
        with Tree(common / "refs", unlock=unlock) as tree:
            for folder, names in tree.walk(limit):
                seen += len(names)
                for path in (os.path.join(folder, os.fsencode(name)) for name in names):  # noqa: PTH118 -- bytes
                    status = tree.lstat(path)
                    if status is None or stat.S_ISDIR(status.st_mode):
                        continue
                    is_small = stat.S_ISREG(status.st_mode) and status.st_size <= _SMALL
                    yield tree.read(path, _SMALL)[0].strip() if is_small else b"", b"refs/" + path
    except OSError as exc:
        notes.append(f"refs could not be read: {exc.strerror}")
    if seen >= limit:
        notes.append(f"of more than {limit} refs the rest was passed over")
