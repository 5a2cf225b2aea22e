"""The ignore rules of a workspace at one moment, kept so that they can be applied at a later one."""

import errno
import re
import stat
from collections.abc import Iterable

import msgspec

from ringfence.sandbox.workspace.tree import Tree

MAX_RULES_BYTES = 1024**2
"""A `.gitignore` that is longer has no rules to us."""
ROOM_FOR_RULES_BYTES = 8 * 1024**2
"""Of all rules together, as `flatten` writes them: hundreds of sparse files cost an agent nothing."""


class Rules(msgspec.Struct, frozen=True):
    """What decides which files are ignored."""

    files: dict[bytes, bytes] = {}
    """Each `.gitignore` in force and its contents."""
    excludes: dict[bytes, bytes] = {}
    """For each repository (`b""`: the workspace) the rules that are not in `.gitignore` files."""


def read_rules(tree: Tree, paths: Iterable[bytes], *, room_bytes: int) -> tuple[dict[bytes, bytes], int]:
    """Contents of `.gitignore` files, the shallow ones first, and how many there was no room for.

    Like git we read regular files only, no links.
    """
    found: dict[bytes, bytes] = {}
    left_out = 0
    for path in sorted(paths, key=lambda path: (path.count(b"/"), path)):
        try:
            status = tree.lstat(path)
            if status is None or not stat.S_ISREG(status.st_mode) or status.st_size > MAX_RULES_BYTES:
                continue
            data = tree.read(path, min(MAX_RULES_BYTES, room_bytes))[0]
        except OSError as exc:
            left_out += exc.errno == errno.EFBIG
            continue
        cost = len(data) + (data.count(b"\n") + 1) * len(path)
        if cost > room_bytes:
            left_out += 1
            continue
        room_bytes -= cost
        found[path] = data
    return found, left_out


def left_out_note(count: int) -> tuple[str, ...]:
    """Tell of rules there was no room for; nothing where there was."""
    if not count:
        return ()
    first = f"more than {ROOM_FOR_RULES_BYTES} bytes of ignore rules: those of {count} files or repositories"
    return (f"{first} do not hold for what a run adds, which is covered",)


def flatten(rules: Rules, place: bytes = b"") -> bytes:
    """One exclude file that says what all rules together say, for the repository at `place`.

    Args:
        rules: The rules.
        place: The repository's path in the workspace, ending in a slash; empty for the workspace itself.
    """
    lines = rules.excludes.get(place, b"").splitlines()
    inside = [path for path in rules.files if path.startswith(place)]
    for path in sorted(inside, key=lambda path: (path.count(b"/"), path)):
        folder = path[len(place) :].rpartition(b"/")[0]
        lines += [rule for line in rules.files[path].splitlines() if (rule := moved(line, folder))]
    return b"\n".join(lines) + b"\n"


def moved(line: bytes, folder: bytes) -> bytes:
    """A line of the `.gitignore` in `folder` as a line of the root's; empty if it is no rule."""
    if not line.strip() or line.startswith(b"#"):
        return b""
    negated, pattern = (b"!", line[1:]) if line.startswith(b"!") else (b"", line)
    # Trailing spaces mean nothing unless escaped; a slash anywhere but at the end ties the pattern to its
    # folder.
    body = re.sub(rb"(?<!\\) +$", b"", pattern)
    base = b"/" + escape(folder) + b"/" if folder else b"/"
    if b"/" in body.rstrip(b"/"):
        return negated + base + body.lstrip(b"/")
    return negated + (base + b"**/" + body if folder else body)


def escape(path: bytes) -> bytes:
    """A path as a pattern that matches it; line ends, which no pattern can hold, become `?`."""
    escaped = re.sub(rb"([\\*?\[\]!# ])", rb"\\\1", path)
    return escaped.replace(b"\n", b"?").replace(b"\r", b"?")
