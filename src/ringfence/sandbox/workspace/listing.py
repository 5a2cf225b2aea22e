"""Which files of a workspace a checkpoint covers: those git would track or offer to add.

Before a run git is asked. Where it would wait for ever or gives up, and always after a run, the tree is looked
over by our own hand, and git only says, in an empty directory, which of the names the rules ignore. The rules
after a run are those from before it: an agent that edits `.gitignore` can neither hide what it made nor make
files of the user look like its own.
"""

import os
import stat
from dataclasses import dataclass, field
from pathlib import Path

import anyio

from ringfence.errors import InfrastructureFault
from ringfence.sandbox.workspace.actor import Actor, both
from ringfence.sandbox.workspace.git_listing import GitLister
from ringfence.sandbox.workspace.ignore import MAX_RULES_BYTES, Rules
from ringfence.sandbox.workspace.ignored import ignored_among
from ringfence.sandbox.workspace.memo import Memo, lies_in
from ringfence.sandbox.workspace.scratch import scratch_directory
from ringfence.sandbox.workspace.survey import BEYOND, MAX_ENTRIES, Survey, survey
from ringfence.sandbox.workspace.tree import Tree


@dataclass
class Listing:
    """What was found; paths are bytes relative to the workspace."""

    paths: set[bytes] = field(default_factory=set)
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
    notes: list[str] = field(default_factory=list)


async def list_again(root: Path, actor: Actor, earlier: Memo, known: set[bytes]) -> Listing:
    """List a tree after a run, by the rules from before it. Git does not enter it, and nothing in it is obeyed.

    Rights that the owner was deprived of are given back: what can be looked at is looked at.

    Args:
        root: The workspace, or a clone of it.
        actor: On whose behalf it is read.
        earlier: What was known before.
        known: Files of that time, which are covered whatever the rules.
    """
    found = await actor.call(lambda: survey(root, leave_out=earlier.ignored, shut=earlier.skipped))
    listing = _listing_of(found)
    listing.rules = earlier.rules
    new = {path for path in found.files - known if not lies_in(path, earlier.ignored)}
    listing.paths = known | (new - await _ignored(new, earlier.rules, listing))
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
        unlocked=found.unlocked,
        notes=[f"not all of the workspace was looked at: {found.blindness}"] if found.blindness else [],
    )


async def list_before(root: Path, actor: Actor, *, excludes: bytes = b"") -> Listing:
    """List a tree before a run, by the rules that are in it now.

    Args:
        root: The workspace.
        actor: On whose behalf it is read.
        excludes: The user's own ignore rules, that hold everywhere.
    """
    async with scratch_directory(actor) as scratch:
        git = GitLister(root, actor, excludes, scratch)
        found, hindrance = await _ask_git(git)
        if hindrance is None:
            try:
                return await _told_by_git(git, found)
            except InfrastructureFault as exc:
                hindrance = str(exc)
    return await _listed_by_hand(root, actor, excludes, hindrance)


async def _ask_git(git: GitLister) -> tuple[Survey, str | None]:
    """Have the files listed while the tree is looked over; and what keeps git from listing them."""
    hindrances: list[str] = []

    async def look(asking: anyio.CancelScope) -> Survey:
        found = await git.actor.call(lambda: survey(git.root, gathers=False))
        hindrance = await git.actor.call(lambda: _hindrance(git.root, found))
        if hindrance is not None:
            hindrances.append(hindrance)
            asking.cancel()
        return found

    async def ask(asking: anyio.CancelScope) -> None:
        with asking:
            try:
                await git.list_all()
            except InfrastructureFault as exc:
                hindrances.append(str(exc))

    asking = anyio.CancelScope()
    found, _ = await both(lambda: look(asking), lambda: ask(asking))
    return found, hindrances[0] if hindrances else None


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
    listing.paths = git.paths
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
    listing.paths, listing.ignored = git.paths | (untracked - ignored), frozenset(ignored)
    return listing
