"""Stores the ignore rules of a workspace at one time, so that they can be applied at a later time.

Git evaluates them, in an empty directory. It does not enter the workspace, so neither the workspace's size nor its
contents affect how long that takes.
"""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

import anyio.to_thread
import msgspec

from ringfence.errors import InfrastructureFault
from ringfence.sandbox.workspace.git.command import Git
from ringfence.sandbox.workspace.snapshot.walk import MAX_NAMES_BYTES

MAX_RULES_BYTES = 1024**2
"""A longer `.gitignore` is treated as empty."""
ROOM_FOR_RULES_BYTES = 8 * 1024**2
"""Limit for all rules together, as `flatten` writes them: an agent can easily make hundreds of sparse files."""
_TIMEOUT_S = 60.0


class Rules(msgspec.Struct, frozen=True):
    """The rules that decide which files are ignored."""

    files: dict[bytes, bytes] = {}
    """Each `.gitignore` that applies, and its contents."""
    excludes: dict[bytes, bytes] = {}
    """For each repository (`b""`: the workspace) the rules that are not in `.gitignore` files."""


class IgnoreCheck:
    """Determines with git which paths the rules ignore; once that has taken too long, no path is ignored.

    Args:
        store: A locked git directory of ringfence: git reads the rules from its `info/exclude`, and gets an empty
        directory in it as the work tree.
    """

    def __init__(self, store: Git) -> None:
        self.notes: list[str] = []
        self._exclude_file = store.directory / "info" / "exclude"
        self._nothing = store.directory / "nothing"
        self._git = replace(store, work_tree=self._nothing)

    async def ignored(
        self, paths: Collection[bytes], rules: Rules, *, are_folders: bool = False
    ) -> set[bytes]:
        """Return the paths that the rules ignore, by themselves or with a directory above them.

        Args:
            paths: Files and links, relative to the workspace.
            rules: The rules; each repository's apply to the files in it.
            are_folders: Whether the paths are directories instead.
        """
        found: set[bytes] = set()
        for place, inside in _by_repository(paths, rules.excludes).items():
            patterns = flatten(rules, place, are_folders=are_folders)
            if not patterns or self.notes:
                continue
            try:
                found |= await self._match(patterns, place, inside)
            except InfrastructureFault as exc:
                self.notes.append(f"new files that are ignored are covered, too: {exc}")
                return set()
        return found

    async def _match(self, patterns: bytes, place: bytes, paths: list[bytes]) -> set[bytes]:
        await anyio.to_thread.run_sync(self._write, patterns)
        answer = await self._git.run(
            "check-ignore",
            "-z",
            "--no-index",
            "--stdin",
            # A dot first, as a leading colon has a special meaning to git.
            stdin=b"\0".join(b"./" + path[len(place) :] for path in paths),
            timeout_s=_TIMEOUT_S,
            accept=(0, 1),
            output_limit_bytes=2 * MAX_NAMES_BYTES,
        )
        return {place + path[2:] for path in answer.stdout.split(b"\0") if path}

    def _write(self, patterns: bytes) -> None:
        self._nothing.mkdir(exist_ok=True)
        self._exclude_file.write_bytes(patterns)


def _by_repository(paths: Iterable[bytes], places: Mapping[bytes, bytes]) -> dict[bytes, list[bytes]]:
    if len(places) == 1:
        inside = list(paths)
        return {b"": inside} if inside else {}
    groups: dict[bytes, list[bytes]] = {}
    for path in paths:
        end = path.rfind(b"/") + 1
        while end > 0 and path[:end] not in places:
            end = path.rfind(b"/", 0, end - 1) + 1
        groups.setdefault(path[:end], []).append(path)
    return groups


def flatten(rules: Rules, place: bytes = b"", *, are_folders: bool = False) -> bytes:
    """Combine all rules into one exclude file, for the repository at `place`.

    Args:
        rules: The rules.
        place: The repository's path in the workspace, ending in a slash; empty for the workspace itself.
        are_folders: Whether it is for directories, which git does not see: rules for directories only then apply, too.
    """
    own = _lines(rules.excludes.get(place, b""))
    lines = [line for line in own if line.strip() and not line.startswith(b"#")]
    inside = [path for path in rules.files if path.startswith(place)]
    for path in sorted(inside, key=lambda path: (path.count(b"/"), path)):
        folder = path[len(place) :].rpartition(b"/")[0]
        lines += [rule for line in _lines(rules.files[path]) if (rule := moved(line, folder))]
    return b"".join((_for_folders(line) if are_folders else line) + b"\n" for line in lines)


def _lines(data: bytes) -> list[bytes]:
    """Split a file of rules into lines as git does."""
    return [line.removesuffix(b"\r") for line in data.removeprefix(b"\xef\xbb\xbf").split(b"\n")]


def moved(line: bytes, folder: bytes) -> bytes:
    """Convert a line of the `.gitignore` in `folder` to a line for the root's; empty if it is not a rule."""
    if not line.strip() or line.startswith(b"#"):
        return b""
    negated, pattern = (b"!", line[1:]) if line.startswith(b"!") else (b"", line)
    # Trailing spaces mean nothing unless escaped; a slash anywhere but at the end ties the pattern to its
    # folder.
    body = _without_spaces_at_end(pattern)
    base = b"/" + escape(folder) + b"/" if folder else b"/"
    if b"/" in body.rstrip(b"/"):
        return negated + base + body.lstrip(b"/")
    return negated + (base + b"**/" + body if folder else body)


def _for_folders(line: bytes) -> bytes:
    """Convert a rule so that it applies to a directory; git ignores spaces at its end unless they are escaped."""
    body = _without_spaces_at_end(line)
    return body[:-1] if body.endswith(b"/") else line


def _without_spaces_at_end(pattern: bytes) -> bytes:
    """Strip the spaces at the end of a pattern, except an escaped one."""
    # A regular expression would search for the end from each space: hours for a line of spaces that a letter ends.
    body = pattern.rstrip(b" ")
    is_escaped = (len(body) - len(body.rstrip(b"\\"))) % 2 == 1
    return body + b" " if is_escaped and len(body) < len(pattern) else body


def escape(path: bytes) -> bytes:
    """Escape a path as a pattern that matches it; line ends, which no pattern can contain, become `?`."""
    escaped = re.sub(rb"([\\*?\[\]!# ])", rb"\\\1", path)
    return escaped.replace(b"\n", b"?").replace(b"\r", b"?")
