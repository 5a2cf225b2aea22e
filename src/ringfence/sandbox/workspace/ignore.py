"""The ignore rules of a workspace at one moment, kept so that they can be applied at a later one."""

import re
from collections.abc import Iterable

import msgspec

from ringfence.sandbox.workspace.tree import Tree

MAX_RULES_BYTES = 1024**2
"""A `.gitignore` that is longer has no rules to us."""


class Rules(msgspec.Struct, frozen=True):
    """What decides which files are ignored."""

    files: dict[bytes, bytes] = {}
    """Each `.gitignore` in force and its contents."""
    excludes: dict[bytes, bytes] = {}
    """For each repository (`b""`: the workspace) the rules that are not in `.gitignore` files."""


def read_rules(tree: Tree, paths: Iterable[bytes]) -> dict[bytes, bytes]:
    """Contents of `.gitignore` files; like git we read regular files only, no links."""
    found = {}
    for path in paths:
        try:
            fd_status = tree.lstat(path)
            if fd_status is not None and (fd_status.st_mode & 0o170000) == 0o100000:
                found[path] = tree.read(path, MAX_RULES_BYTES)[0]
        except OSError:
            continue
    return found


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
