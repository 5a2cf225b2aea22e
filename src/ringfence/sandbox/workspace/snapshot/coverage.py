"""Which files of a walk a snapshot covers: those git would track or offer to add.

After a run the ignore rules are those from before it: an agent that edits `.gitignore` can neither hide what it made
nor make files of the user look like its own.
"""

from collections.abc import Awaitable, Callable, Collection, Container
from dataclasses import dataclass, field

from ringfence.errors import InfrastructureFault
from ringfence.sandbox.workspace.run_as import Actor, both
from ringfence.sandbox.workspace.scratch import scratch_directory
from ringfence.sandbox.workspace.snapshot.ignore import (
    ROOM_FOR_RULES_BYTES,
    Rules,
    ignored_among,
    left_out_note,
    read_rules,
    rule_cost,
)
from ringfence.sandbox.workspace.snapshot.index import Repositories
from ringfence.sandbox.workspace.snapshot.memo import Memo, lies_in, named_note
from ringfence.sandbox.workspace.snapshot.stat_cache import StatCache
from ringfence.sandbox.workspace.snapshot.walk import MAX_ENTRIES, UNREADABLE, Walk
from ringfence.sandbox.workspace.tree import Tree

_MAX_ROUNDS = 50
"""Of reading rules: each begins with what those that are known leave over. Directories nest deeper only on purpose."""


@dataclass
class Coverage:
    """What a snapshot is to cover."""

    new: set[bytes] = field(default_factory=set)
    """Files that were not compared with the cache."""
    dropped: set[bytes] = field(default_factory=set)
    """Files in the cache that are not covered any more."""
    rules: Rules = field(default_factory=Rules)
    ignored: frozenset[bytes] = frozenset()
    """What is there and ignored: files, and directories as a whole, which end in a slash."""
    notes: list[str] = field(default_factory=list)


class _Evaluator:
    """Asks git which paths the rules ignore; once that took too long, nothing is ignored."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    async def ignored(self, paths: set[bytes], rules: Rules, *, are_folders: bool = False) -> set[bytes]:
        if not paths or self.notes:
            return set()
        try:
            async with scratch_directory(Actor.current()) as scratch:
                return await ignored_among(paths, rules, scratch, are_folders=are_folders)
        except InfrastructureFault as exc:
            self.notes.append(f"new files that are ignored are covered, too: {exc}")
            return set()


async def cover_before(
    repositories: Repositories, look: Callable[[], Awaitable[Walk]], cache: StatCache, excludes: bytes
) -> tuple[Walk, Coverage]:
    """Walk over a workspace before a run, and choose its files by the rules that are in it now.

    Args:
        repositories: Those of the workspace, not read yet.
        look: The walk.
        cache: What it compares with.
        excludes: The user's own ignore rules, that hold everywhere.
    """
    found, _ = await both(look, lambda: repositories.read(b""))
    evaluator = _Evaluator()
    reader = _RuleReader(repositories, found, excludes, evaluator)
    folders = await reader.read_all()
    coverage = await _choose(found, cache, repositories.tracked, reader.rules(), folders, evaluator)
    coverage.notes += [*repositories.notes, *left_out_note(reader.left_out)]
    unread = [path for path, why in found.closed.items() if why.startswith(UNREADABLE)]
    coverage.notes += named_note("not looked into, as they cannot be read", unread)
    if found.is_cut:
        coverage.notes.insert(0, f"only {MAX_ENTRIES} entries were searched; what lies beyond is not covered")
    return found, coverage


async def cover_after(found: Walk, cache: StatCache, known: Collection[bytes], earlier: Memo) -> Coverage:
    """Choose the files of a walk after a run, by the rules from before it. Nothing in the workspace is obeyed.

    Args:
        found: The walk.
        cache: What it compared with.
        known: Files of that time, which are covered whatever the rules.
        earlier: What was known then.
    """
    evaluator = _Evaluator()
    folders = await evaluator.ignored(found.new_folders(known), earlier.rules, are_folders=True)
    coverage = await _choose(found, cache, known, earlier.rules, folders, evaluator, earlier.ignored)
    coverage.ignored = earlier.ignored
    return coverage


async def _choose(
    found: Walk,
    cache: StatCache,
    always: Collection[bytes],
    rules: Rules,
    folders: set[bytes],
    evaluator: _Evaluator,
    left_out: Container[bytes] = (),
) -> Coverage:
    """Choose the files that are covered.

    Args:
        found: The walk.
        cache: What it compared with.
        always: Files that are covered whatever the rules.
        rules: The rules.
        folders: Directories that they ignore.
        evaluator: Tells which files they ignore.
        left_out: Files that are ignored whatever the rules, but for those in `always`.
    """
    new = {path for path in found.new_files(folders, always) if path not in left_out or path in always}
    # As always, mostly: the cache is of the snapshot that this one will be compared with.
    unsure = set() if always is cache else set(cache).difference(always) - found.lost | found.suspects.keys()
    ignored = await evaluator.ignored((new | unsure).difference(always), rules)
    whole = {folder + b"/" for folder in folders if folder.rpartition(b"/")[0] not in folders}
    notes = [f"not all of the workspace was looked at: {found.blindness}"] if found.blindness else []
    coverage = Coverage(new - ignored, unsure & ignored, rules, frozenset(whole | ignored))
    coverage.notes = notes + evaluator.notes
    return coverage


class _RuleReader:
    """Reads the ignore rules in force: those in directories that no other rule ignores.

    Args:
        repositories: The workspace's own is read already.
        found: The walk.
        excludes: The user's own rules.
        evaluator: Tells which directories are ignored.
    """

    def __init__(
        self, repositories: Repositories, found: Walk, excludes: bytes, evaluator: _Evaluator
    ) -> None:
        self.left_out = 0
        """Files and repositories whose rules there was no room for."""
        self._repositories = repositories
        self._found = found
        self._own = excludes.rstrip(b"\n") + b"\n"
        self._evaluator = evaluator
        self._files: dict[bytes, bytes] = {}
        self._excludes: dict[bytes, bytes] = {}
        self._room = ROOM_FOR_RULES_BYTES

    def rules(self) -> Rules:
        """The rules that were read."""
        return Rules(files=self._files, excludes=self._excludes)

    async def read_all(self) -> set[bytes]:
        """Read them; return the directories that they ignore, with those in them."""
        repositories, found = self._repositories, self._found
        self._note_excludes()
        files = set(found.ignore_files)
        first = {path for path in files if path == b".gitignore" or path in repositories.tracked}
        files -= first
        await self._read_files(first)
        places = {entry.removesuffix(b".git") for entry in found.git_entries} | repositories.submodules
        ignored: set[bytes] = set()
        for _ in range(_MAX_ROUNDS):
            folders = found.new_folders() | {path.rpartition(b"/")[0] for path in files}
            folders |= {place[:-1] for place in places}
            ignored = await self._evaluator.ignored(folders, self.rules(), are_folders=True)
            more = {path for path in files if path.rpartition(b"/")[0] not in ignored}
            inner = {place for place in places if place[:-1] not in ignored}
            if not more and not inner:
                break
            files -= more
            await self._read_files(more)
            places = (places - inner) | await self._read_repositories(inner)
        left_out = repositories.left_out
        return ignored | {path for path in found.new_folders() if left_out and lies_in(path + b"/", left_out)}

    async def _read_repositories(self, places: set[bytes]) -> set[bytes]:
        """Read repositories; return the submodules that they name."""
        before = set(self._repositories.submodules)
        for place in sorted(places, key=lambda place: (place.count(b"/"), place)):
            await self._repositories.read(place)
        self._note_excludes()
        return self._repositories.submodules - before

    def _note_excludes(self) -> None:
        for place, local in self._repositories.excludes.items():
            if place in self._excludes:
                continue
            rules = self._own + local
            # The workspace's own come first, and always hold.
            if place and len(rules) > self._room:
                self.left_out += 1
                rules = b""
            self._room -= len(rules)
            self._excludes[place] = rules

    async def _read_files(self, paths: set[bytes]) -> None:
        repositories, room = self._repositories, max(0, self._room)

        def read() -> tuple[dict[bytes, bytes], int]:
            with Tree(repositories.root) as tree:
                return read_rules(tree, paths, room_bytes=room)

        if paths:
            files, left_out = await repositories.actor.call(read)
            self._files |= files
            self.left_out += left_out
            self._room -= sum(rule_cost(path, data) for path, data in files.items())
