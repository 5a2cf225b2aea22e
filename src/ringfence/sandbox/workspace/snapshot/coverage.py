"""Chooses the files of a walk that a snapshot covers: those git would track or offer to add.

After a run the ignore rules are those from before it: an agent that edits `.gitignore` can neither hide files it made
nor make files of the user look like its own.
"""

import errno
import stat
from collections.abc import Collection, Container
from dataclasses import dataclass, field

from ringfence.sandbox.workspace.snapshot.ignore import (
    MAX_RULES_BYTES,
    ROOM_FOR_RULES_BYTES,
    IgnoreCheck,
    Rules,
)
from ringfence.sandbox.workspace.snapshot.index import Repositories
from ringfence.sandbox.workspace.snapshot.memo import Memo, depth_of, lies_in, named_note
from ringfence.sandbox.workspace.snapshot.stat_cache import StatCache
from ringfence.sandbox.workspace.snapshot.walk import MAX_ENTRIES, UNREADABLE, Walk
from ringfence.sandbox.workspace.tree import Tree

_MAX_ROUNDS = 50
"""Limit of rounds, each of which reads rules in directories not ignored before. Only an attack needs more."""


@dataclass
class Coverage:
    """The files that a snapshot covers."""

    new: set[bytes] = field(default_factory=set)
    """Files that were not compared with the cache."""
    dropped: set[bytes] = field(default_factory=set)
    """Files in the cache that are no longer covered."""
    rules: Rules = field(default_factory=Rules)
    ignored: frozenset[bytes] = frozenset()
    """Existing paths that are ignored; whole directories end in a slash."""
    notes: list[str] = field(default_factory=list)


async def cover_before(
    found: Walk, cache: StatCache, repositories: Repositories, excludes: bytes, check: IgnoreCheck
) -> Coverage:
    """Choose the files of a walk before a run, by the current rules in the workspace.

    Args:
        found: The walk.
        cache: The stat cache that the walk used.
        repositories: The repositories in the workspace; the workspace's own has been read already.
        excludes: The user's own ignore rules, which apply everywhere.
        check: Determines which paths rules ignore.
    """
    reader = _RuleReader(repositories, found, excludes, check)
    folders = await reader.read_all()
    coverage = await _choose(found, cache, repositories.tracked, reader.rules, folders, check)
    coverage.notes += repositories.notes
    if reader.left_out:
        coverage.notes.append(
            f"more than {ROOM_FOR_RULES_BYTES} bytes of ignore rules: those of {reader.left_out} files or repositories"
            " do not hold for what a run adds, which is covered"
        )
    unread = [path for path, why in found.skipped.items() if why.startswith(UNREADABLE)]
    coverage.notes += named_note("not looked into, as they cannot be read", unread)
    if found.is_cut:
        coverage.notes.insert(0, f"only {MAX_ENTRIES} entries were searched; what lies beyond is not covered")
    return coverage


async def cover_after(
    found: Walk, cache: StatCache, known: Collection[bytes], earlier: Memo, check: IgnoreCheck
) -> Coverage:
    """Choose the files of a walk after a run, by the rules from before it; the current rules have no effect.

    Args:
        found: The walk.
        cache: The stat cache that the walk used.
        known: Files from before the run, which are covered regardless of the rules.
        earlier: The data of the snapshot from before the run.
        check: Determines which paths rules ignore.
    """
    folders = await check.ignored(found.new_folders(known), earlier.rules, are_folders=True)
    coverage = await _choose(found, cache, known, earlier.rules, folders, check, earlier.ignored)
    coverage.ignored = earlier.ignored
    return coverage


async def _choose(
    found: Walk,
    cache: StatCache,
    always: Collection[bytes],
    rules: Rules,
    folders: set[bytes],
    check: IgnoreCheck,
    left_out: Container[bytes] = (),
) -> Coverage:
    """Choose the files that are covered.

    Args:
        found: The walk.
        cache: The stat cache that the walk used.
        always: Files that are covered regardless of the rules.
        rules: The rules.
        folders: Directories that they ignore.
        check: Determines which files they ignore.
        left_out: Files that are ignored regardless of the rules, except those in `always`.
    """
    new = {path for path in found.new_files(folders, always) if path not in left_out or path in always}
    # Usually equal to `always`: the cache is of the snapshot that this one will be compared with.
    unsure = set() if always is cache else set(cache).difference(always) - found.lost | found.suspects.keys()
    ignored = await check.ignored((new | unsure).difference(always), rules)
    whole = {folder + b"/" for folder in folders if folder.rpartition(b"/")[0] not in folders}
    notes = [f"not all of the workspace was looked at: {found.blindness}"] if found.blindness else []
    return Coverage(new - ignored, unsure & ignored, rules, frozenset(whole | ignored), notes + check.notes)


@dataclass
class _RuleReader:
    """Reads the ignore rules that apply: those in directories that no other rule ignores.

    Args:
        repositories: The repositories; the workspace's own has been read already.
        found: The walk.
        excludes: The user's own rules.
        check: Determines which directories are ignored.
    """

    repositories: Repositories
    found: Walk
    excludes: bytes
    check: IgnoreCheck
    rules: Rules = field(default_factory=Rules)
    """The rules that were read."""
    left_out: int = 0
    """Files and repositories whose rules did not fit."""
    _room_bytes: int = ROOM_FOR_RULES_BYTES

    async def read_all(self) -> set[bytes]:
        """Read the rules; return the directories that they ignore, including nested ones."""
        found, repositories = self.found, self.repositories
        # Tracked files are hardly ever in an ignored directory.
        ready = {path for path in found.ignore_files if path == b".gitignore" or path in repositories.tracked}
        new_folders = found.new_folders()
        ignored: set[bytes] = set()
        done: set[bytes] = set()
        for _ in range(_MAX_ROUNDS):
            await self._read(ready)
            done |= ready
            submodules = {place + b".git" for place in repositories.submodules}
            pending = (found.ignore_files | found.git_entries | submodules) - done
            folders = new_folders | {_folder_of(path) for path in pending}
            ignored = await self.check.ignored(folders, self.rules, are_folders=True)
            ready = {path for path in pending if _folder_of(path) not in ignored}
            if not ready:
                break
        left_out = repositories.left_out
        return ignored | {path for path in new_folders if left_out and lies_in(path + b"/", left_out)}

    async def _read(self, paths: set[bytes]) -> None:
        """Read `.gitignore` files, and the repositories of directories that have a `.git`."""
        git_entries = {path for path in paths if path.endswith(b".git")}
        for path in sorted(git_entries, key=depth_of):
            await self.repositories.read(path.removesuffix(b".git"))
        self._add_excludes()
        if files := paths - git_entries:
            await self.repositories.actor.call(lambda: self._read_files(files))

    def _read_files(self, paths: set[bytes]) -> None:
        """Read `.gitignore` files, shallow ones first; like git, only regular files, not links."""
        with Tree(self.repositories.root) as tree:
            for path in sorted(paths, key=depth_of):
                try:
                    status = tree.lstat(path)
                    if status is None or not stat.S_ISREG(status.st_mode) or status.st_size > MAX_RULES_BYTES:
                        continue
                    data = tree.read(path, min(MAX_RULES_BYTES, max(0, self._room_bytes)))[0]
                except OSError as exc:
                    self.left_out += exc.errno == errno.EFBIG
                    continue
                # Upper bound of its size when each of its rules is written with the path before it.
                cost = len(data) + (data.count(b"\n") + 1) * len(path)
                if cost > self._room_bytes:
                    self.left_out += 1
                else:
                    self._room_bytes -= cost
                    self.rules.files[path] = data

    def _add_excludes(self) -> None:
        for place, own_rules in self.repositories.excludes.items():
            if place in self.rules.excludes:
                continue
            rules = self.excludes.rstrip(b"\n") + b"\n" + own_rules
            # The workspace's own rules come first, and always apply.
            if place and len(rules) > self._room_bytes:
                self.left_out += 1
                rules = b""
            self._room_bytes -= len(rules)
            self.rules.excludes[place] = rules


def _folder_of(path: bytes) -> bytes:
    return path.rpartition(b"/")[0]
