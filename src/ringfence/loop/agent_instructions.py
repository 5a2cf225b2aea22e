"""Restores the instruction files of agent CLIs for reviewer and judge to their state before the story.

An agent CLI reads such files of its workspace before its prompt. An attempt's changes of them are in the diff.
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
"""Names of files and directories, in any directory, in lower case."""
_IMPORT = re.compile(r"(?:^|[\s*_~\[>)])@((?:[^\s\\]|\\ )+)")
"""An import. Agent CLIs search for imports in each piece of Markdown, such as bold text or the text of a link."""
_BEHIND = re.compile(r"[#*~<\]|]")
"""Characters that end the name of an import: the start of a heading, and Markdown's markup."""
_MAX_DEPTH = 8
NOTE = """\
What instructs agents (AGENTS.md, CLAUDE.md, .claude and the like, and what those take in) is in your workspace as it was
before the story. What became of it is in the diff.

"""


def restore_agent_instructions(base: Tree, candidate: Tree, changed: Collection[str]) -> list[Change]:
    """Return the changes that restore all files that instruct agents in a candidate.

    Args:
        base: The tree before the story.
        candidate: The tree that reviewer and judge are shown.
        changed: Paths in which they differ.
    """
    imported, led_to = _named_paths(base)
    above = {each for path in (*imported, *led_to, *filter(_is_by_name, base.files)) for each in _above(path)}
    # A directory is not imported, but a file in its place would be.
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


def _is_below(path: str, roots: Collection[str]) -> bool:
    """Return whether a path is one of the roots, or is below one."""
    return path in roots or any(each in roots for each in _above(path))


def _above(path: str) -> Iterator[str]:
    """Yield the directories that contain a path, from the top."""
    parts = path.split("/")
    return ("/".join(parts[:depth]) for depth in range(1, len(parts)))


def _is_link(tree: Tree, path: str) -> bool:
    item = tree.files.get(path)
    return item is not None and item.mode == SYMLINK


def _named_paths(tree: Tree) -> tuple[set[str], set[str]]:
    """Return the paths that the instructions of a tree import, and the paths that their links lead to."""
    imported, led_to = set[str](), set[str]()
    new = {path for path in tree.files if _is_by_name(path)}
    for _ in range(_MAX_DEPTH):
        named = {target for path in new for target in _imports_of(tree, path)} - imported
        led = {target for path in new for target in _targets_of(tree, path)} - led_to
        new = named | led
        new |= {path for path in tree.files if _is_below(path, led)} if led else set()
        imported, led_to = imported | named, led_to | led
    return imported, led_to


def _imports_of(tree: Tree, path: str) -> Iterator[str]:
    item = tree.files.get(path)
    if item is None or item.mode == SYMLINK:
        return
    for each in _IMPORT.findall(os.fsdecode(item.data)):
        text = each.replace("\\ ", " ")
        for named in {text, _BEHIND.split(text)[0]}:
            yield from _resolve(path, named)
            yield from _resolve(path, named.rstrip(".,;:)_"))


def _targets_of(tree: Tree, path: str) -> Iterator[str]:
    """Yield the targets of a path that is a link, or is below one."""
    for link in (*_above(path), path):
        if _is_link(tree, link):
            target = os.fsdecode(tree.files[link].data)
            yield from _resolve(link, posixpath.join(target, posixpath.relpath(path, link)))


def _resolve(path: str, named: str) -> Iterator[str]:
    """Yield the path that a file names relative to its directory, unless it is a directory above the file."""
    target = posixpath.normpath(posixpath.join(posixpath.dirname(path), named))
    if target not in (".", "..", *_above(path)) and not target.startswith(("../", "/")):
        yield target
