"""Which files of a workspace a checkpoint covers: those git would track or offer to add.

Before a run git is asked. Where it would wait for ever or gives up, and always after a run, the tree is looked
over by our own hand, and git only says, in an empty directory, which of the names the rules ignore. The rules
after a run are those from before it: an agent that edits `.gitignore` can neither hide what it made nor make
files of the user look like its own.
"""

import hashlib
import os
import stat
import time
from collections.abc import Container, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import anyio

from ringfence.errors import InfrastructureFault
from ringfence.sandbox.workspace.git.command import Git, write_clean_git_dir
from ringfence.sandbox.workspace.run_as import Actor, both
from ringfence.sandbox.workspace.scratch import scratch_directory
from ringfence.sandbox.workspace.snapshot.git_listing import GitLister
from ringfence.sandbox.workspace.snapshot.ignore import MAX_RULES_BYTES, Rules, flatten
from ringfence.sandbox.workspace.snapshot.known import Names
from ringfence.sandbox.workspace.snapshot.memo import Memo, lies_in, mark_of
from ringfence.sandbox.workspace.snapshot.remembered import MAX_REMEMBERED_BYTES, Remembered, Told
from ringfence.sandbox.workspace.snapshot.scan import is_settled
from ringfence.sandbox.workspace.snapshot.survey import BEYOND, MAX_ENTRIES, Survey, survey
from ringfence.sandbox.workspace.tree import Tree


@dataclass
class Listing:
    """What was found; paths are bytes relative to the workspace."""

    names: Names = field(default_factory=lambda: Names({}))
    """Files to cover; after a run, those of before it."""
    new: set[bytes] = field(default_factory=set)
    """After a run: those to cover that are not among them."""
    git_entries: tuple[bytes, ...] = ()
    """Every `.git` below the workspace's own, wherever it is."""
    rules: Rules = field(default_factory=Rules)
    ignored: frozenset[bytes] = frozenset()
    """What is there and ignored: files, and directories as a whole, which end in a slash."""
    closed: dict[bytes, str] = field(default_factory=dict)
    """Directories, ending in a slash, that were not looked into, and why."""
    trusted: frozenset[bytes] = frozenset()
    """Files that the host runs or trusts by their name, ignored or not."""
    specials: frozenset[bytes] = frozenset()
    """Sockets, fifos and devices, ignored or not."""
    repositories: frozenset[bytes] = frozenset()
    """HEAD and config of what git takes for a repository by its contents, ignored or not."""
    blindness: str = ""
    """Why there may be sockets and repositories that were not found; empty: there are none."""
    unlocked: tuple[bytes, ...] = ()
    """Directories on which the owner was given rights back; empty for the root."""
    is_news: bool = True
    """Whether what is remembered changed."""
    notes: list[str] = field(default_factory=list)

    @property
    def paths(self) -> set[bytes]:
        """All files to cover."""
        return {*self.names, *self.new}


@dataclass
class LookedOver:
    """Tells who waits for it that the tree was looked over, with more to do for its listing."""

    event: anyio.Event = field(default_factory=anyio.Event)
    recalled: Container[bytes] = ()
    """Directories that hold the names they held at an earlier look; none of them is a link, nor lies below one."""

    def tell(self, found: Survey) -> None:
        """Let go on who waits."""
        self.recalled = found.recalled
        self.event.set()


async def list_again(
    root: Path,
    actor: Actor,
    earlier: Memo,
    known: Names,
    *,
    remembered: Remembered | None = None,
    looked: LookedOver | None = None,
) -> Listing:
    """List a tree after a run, by the rules from before it. Git does not enter it, and nothing in it is obeyed.

    Rights that the owner was deprived of are given back: what can be looked at is looked at.

    Args:
        root: The workspace, or a clone of it.
        actor: On whose behalf it is read.
        earlier: What was known before.
        known: Files of that time, which are covered whatever the rules.
        remembered: From earlier looks at it; is brought up to date.
        looked: Is told when the tree has been looked over, with more to do.
    """
    found = await actor.call(
        lambda: survey(
            root, known=known, leave_out=earlier.ignored, shut=earlier.skipped, remembered=remembered
        )
    )
    if looked:
        looked.tell(found)
    listing = _listing_of(found)
    listing.rules = earlier.rules
    new = {path for path in found.files if not lies_in(path, earlier.ignored)}
    listing.names, listing.new = known, new - await _ignored(new, earlier.rules, listing)
    return listing


async def _ignored(paths: set[bytes], rules: Rules, listing: Listing) -> set[bytes]:
    if not paths:
        return set()
    try:
        async with scratch_directory(Actor.current()) as scratch:
            return await ignored_among(paths, rules, scratch)
    except InfrastructureFault as exc:
        listing.notes.append(f"new files that are ignored are covered, too: {exc}")
        return set()


def _listing_of(found: Survey) -> Listing:
    return Listing(
        git_entries=tuple(sorted(found.git_entries)),
        closed=found.closed,
        trusted=frozenset(found.trusted),
        specials=frozenset(found.specials),
        repositories=frozenset(found.repositories),
        blindness=found.blindness,
        is_news=found.is_news,
        unlocked=found.unlocked,
        notes=[f"not all of the workspace was looked at: {found.blindness}"] if found.blindness else [],
    )


async def list_before(
    root: Path,
    actor: Actor,
    *,
    excludes: bytes = b"",
    remembered: Remembered | None = None,
    looked: LookedOver | None = None,
) -> Listing:
    """List a tree before a run, by the rules that are in it now.

    Args:
        root: The workspace.
        actor: On whose behalf it is read.
        excludes: The user's own ignore rules, that hold everywhere.
        remembered: From earlier looks at it; is brought up to date.
        looked: Is told when the tree has been looked over, with more to do.
    """
    remembered = remembered or Remembered()
    async with scratch_directory(actor) as scratch:
        git = GitLister(root, actor, excludes, scratch)
        began_ns = time.time_ns()

        async def look() -> Survey:
            return await actor.call(
                lambda: survey(root, gathers=False, remembered=remembered, began_ns=began_ns)
            )

        index = remembered.index
        found, asked = await both(look, lambda: git.asked(remembered, began_ns))
        found.is_news |= remembered.index != index
        if looked:
            looked.tell(found)
        question = await actor.call(lambda: _question(root, found, asked, began_ns))
        if question and remembered.told and remembered.told.question == question:
            return _recalled(remembered.told, found)
        hindrance = await actor.call(lambda: _hindrance(root, found))
        if hindrance is None:
            try:
                await git.list_all()
                listing = await _told_by_git(git, found)
            except InfrastructureFault as exc:
                hindrance = str(exc)
            else:
                listing.is_news = True
                if question and await git.is_still_so(began_ns):
                    _remember(remembered, listing, question)
                return listing
    return await _listed_by_hand(root, actor, excludes, hindrance)


def _question(root: Path, found: Survey, asked: bytes, began_ns: int) -> bytes:
    """Digest of all that decides what git says of these directories; empty where it must be asked each time.

    Repositories within are one such case: git opens them, and what it makes of them is in no directory's names.
    """
    if not asked or found.git_entries or found.closed or found.blindness:
        return b""
    digest = hashlib.sha256(asked)
    with Tree(root) as tree:
        for path in sorted(found.ignore_files):
            status = tree.lstat(path)
            if status is None or not is_settled(status.st_ctime_ns, began_ns):
                return b""
            digest.update(b"%s\0%r" % (path, mark_of(status)))
    return digest.digest()


def _recalled(told: Told, found: Survey) -> Listing:
    listing = _listing_of(found)
    listing.names, listing.rules, listing.ignored = Names(told.names), told.rules, told.ignored
    listing.notes += told.notes
    return listing


def _remember(remembered: Remembered, listing: Listing, question: bytes) -> None:
    names = listing.names.by_folder
    size = sum(map(len, (*names, *names.values(), *listing.ignored)))
    if size <= MAX_REMEMBERED_BYTES:
        remembered.told = Told(question, names, listing.ignored, listing.rules, listing.notes)


def _hindrance(root: Path, found: Survey) -> str | None:
    """What git would wait on for ever, or read without end; None if there is nothing."""
    opened = sorted(found.ignore_files)
    opened += [entry + name for entry in sorted(found.git_entries) for name in (b"/HEAD", b"/commondir")]
    with Tree(root) as tree:
        for path in opened:
            status = tree.lstat(path)
            if status is None or stat.S_ISDIR(status.st_mode):
                continue
            if not stat.S_ISREG(status.st_mode) or status.st_size > MAX_RULES_BYTES:
                return f"{os.fsdecode(path)!r} is no file of rules, or longer than {MAX_RULES_BYTES} bytes"
    return None


async def _told_by_git(git: GitLister, found: Survey) -> Listing:
    listing = _listing_of(found)
    listing.names = Names.of(git.paths)
    listing.rules, listing.ignored = await both(lambda: git.rules(frozenset(found.ignore_files)), git.ignored)
    listing.notes += git.notes
    if found.is_cut:
        # What git lists is whole all the same.
        listing.closed = {path: why for path, why in found.closed.items() if why != BEYOND}
        listing.notes.insert(0, f"only {MAX_ENTRIES} entries were searched for what your machine trusts")
    return listing


async def _listed_by_hand(root: Path, actor: Actor, excludes: bytes, hindrance: str) -> Listing:
    found = await actor.call(lambda: survey(root))
    listing = _listing_of(found)
    listing.notes.append(f"git was not asked which files are ignored: {hindrance}; look at it, and remove it")

    async with scratch_directory(actor) as scratch:
        git = GitLister(root, actor, excludes, scratch)
        beside = await git.tracked()
        listing.rules = Rules(files=await git.read_rules(found.ignore_files), excludes=beside.excludes)
        listing.notes += git.notes
    untracked = found.files - git.paths
    ignored = await _ignored(untracked, listing.rules, listing)
    listing.names = Names.of(git.paths | (untracked - ignored))
    listing.ignored = frozenset(ignored)
    return listing


_TIMEOUT_S = 60.0


async def ignored_among(paths: Iterable[bytes], rules: Rules, directory: Path) -> set[bytes]:
    """Those of `paths` that the rules ignore, answered by git in an empty directory.

    The workspace itself is not entered, so neither its size nor what lies in it has a say in how long this takes.

    Args:
        paths: Files, relative to the workspace.
        rules: Each repository's hold for what lies in it.
        directory: Is there and empty.

    Raises:
        InfrastructureFault: The rules take too long on these names.
    """
    found: set[bytes] = set()
    work_tree = directory / "nothing"
    work_tree.mkdir()
    for number, (place, inside) in enumerate(_by_repository(paths, rules).items()):
        git_dir = directory / str(number)
        write_clean_git_dir(git_dir)
        (git_dir / "info" / "exclude").write_bytes(flatten(rules, place))
        # A dot first: what begins with a colon has a meaning of its own to git.
        asked = b"\0".join(b"./" + path[len(place) :] for path in inside)
        git = Git(git_dir, work_tree, Actor.current())
        told = await git.run(
            "check-ignore", "-z", "--no-index", "--stdin", stdin=asked, timeout_s=_TIMEOUT_S, accept=(0, 1)
        )
        found.update(place + path[2:] for path in told.stdout.split(b"\0") if path)
    return found


def _by_repository(paths: Iterable[bytes], rules: Rules) -> dict[bytes, list[bytes]]:
    groups: dict[bytes, list[bytes]] = {}
    for path in paths:
        groups.setdefault(_place_of(path, rules), []).append(path)
    return groups


def _place_of(path: bytes, rules: Rules) -> bytes:
    end = path.rfind(b"/") + 1
    while end > 0 and path[:end] not in rules.excludes:
        end = path.rfind(b"/", 0, end - 1) + 1
    return path[:end]
