"""What clients take for instructions without being asked to, kept from those who judge: theirs is the base's.

A client reads such files of its workspace by itself, before it reads what it is asked. So a candidate is shown to its
judges with all of them as they were before the story; what became of them is in the diff.
"""

import os
import posixpath
import re
from collections.abc import Collection, Iterator

from ringfence.check.tree import SYMLINK
from ringfence.loop.repository import Change, Tree

_NAMES = frozenset({
    "agents.md", "agents.override.md", "claude.md", "claude.local.md", ".agents", ".claude", ".codex", ".mcp.json",
})  # fmt: skip
"""Of files and directories, wherever they lie, in lower case."""
_IMPORT = re.compile(r"(?:^|[\s*_~\[>)])@((?:[^\s\\]|\\ )+)")
"""A client looks for these in the pieces that Markdown makes of a text: what is bold, or a link's text, is one."""
_BEHIND = re.compile(r"[#*~<\]|]")
"""What cannot be of a name that is imported: a heading's name behind it, and Markdown."""
_DEEPEST = 8
NOTE = """\
What instructs agents (AGENTS.md, CLAUDE.md, .claude and the like, and what those take in) is in your workspace as it was
before the story. What became of it is in the diff.

"""


def restore_agent_instructions(base: Tree, candidate: Tree, changed: Collection[str]) -> list[Change]:
    """What to change of a candidate so that all that instructs agents is as it was.

    Args:
        base: Before the story.
        candidate: Who judges it is shown this.
        changed: Paths in which they differ.
    """
    imported, led_to = _taken_in(base)
    above = {each for path in (*imported, *led_to, *filter(_is_by_name, base.files)) for each in _above(path)}
    # No directory is imported; but a file in its place would be.
    whole = led_to | (imported - {each for path in base.files for each in _above(path)})
    other = {
        path for path in changed
        if _is_by_name(path) or path in imported or _is_below(path, whole)
        or (path in above and _is_link(candidate, path))
    }  # fmt: skip
    rest = candidate.files.keys() - other
    back = {path for path in other if path in base.files and not _is_below(path, rest)}
    gone = {path for path in other if path in candidate.files and path not in back}
    changes = [Change(os.fsencode(path), None) for path in gone]
    for path in back:
        item = base.files[path]
        changes.append(Change(os.fsencode(path), item.mode, item.data))
    return sorted(changes, key=lambda change: change.path)


def _is_by_name(path: str) -> bool:
    return any(part.casefold() in _NAMES for part in path.split("/"))


def _is_below(path: str, places: Collection[str]) -> bool:
    """Whether a path is one of some places, or lies in one."""
    return path in places or any(each in places for each in _above(path))


def _above(path: str) -> Iterator[str]:
    """The directories that a path lies in."""
    parts = path.split("/")
    return ("/".join(parts[:depth]) for depth in range(1, len(parts)))


def _is_link(tree: Tree, path: str) -> bool:
    item = tree.files.get(path)
    return item is not None and item.mode == SYMLINK


def _taken_in(tree: Tree) -> tuple[set[str], set[str]]:
    """Places that the instructions of a tree name to be read with them; and those that links lead to."""
    imported, led_to = set[str](), set[str]()
    new = {path for path in tree.files if _is_by_name(path)}
    for _ in range(_DEEPEST):
        named = {place for path in new for place in _named_in(tree, path)} - imported
        led = {place for path in new for place in _led_to(tree, path)} - led_to
        new = named | led
        new |= {path for path in tree.files if _is_below(path, led)} if led else set()
        imported, led_to = imported | named, led_to | led
    return imported, led_to


def _named_in(tree: Tree, path: str) -> Iterator[str]:
    item = tree.files.get(path)
    if item is None or item.mode == SYMLINK:
        return
    for each in _IMPORT.findall(os.fsdecode(item.data)):
        place = each.replace("\\ ", " ")
        for named in {place, _BEHIND.split(place)[0]}:
            yield from _places(path, named)
            yield from _places(path, named.rstrip(".,;:)_"))


def _led_to(tree: Tree, path: str) -> Iterator[str]:
    """Where a path is in truth: it may be a link, or lie in one."""
    for link in (*_above(path), path):
        if _is_link(tree, link):
            target = os.fsdecode(tree.files[link].data)
            yield from _places(link, posixpath.join(target, posixpath.relpath(path, link)))


def _places(path: str, named: str) -> Iterator[str]:
    """The place in the tree that a file names, seen from where it lies: no directory that it lies in."""
    place = posixpath.normpath(posixpath.join(posixpath.dirname(path), named))
    if place not in (".", "..", *_above(path)) and not place.startswith(("../", "/")):
        yield place
