"""Which files of a workspace a checkpoint covers: those git would track or offer to add.

Git answers (`ls-files`), on a git directory of ours that holds nothing but a copy of the index. Repositories
within the workspace are listed one by one, so that nothing can hide in one. The ignore rules are those of the
workspace; after a run, those from before it: an agent that edits `.gitignore` can neither hide what it made
nor make files of the user look like its own.
"""

import os
import shutil
import stat
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from ringfence.errors import InfrastructureFault
from ringfence.sandbox.workspace.actor import Actor, both
from ringfence.sandbox.workspace.git import Git, write_clean_git_dir
from ringfence.sandbox.workspace.git_layout import INDEX_LIMIT, find_git, read_config, read_small
from ringfence.sandbox.workspace.ignore import Rules, flatten, read_rules, still_hold
from ringfence.sandbox.workspace.tree import Tree

_MAX_REPOSITORIES = 1000
_MAX_WALKED = 2_000_000
_TIMEOUT_S = 60.0
_GITLINK = b"\x00\x00\xe0\x00"  # mode 160000 as an index entry holds it


@dataclass
class Listing:
    """What was found; paths are bytes relative to the workspace."""

    paths: set[bytes] = field(default_factory=set)
    git_entries: tuple[bytes, ...] = ()
    """Every `.git` below the workspace's own, wherever it is."""
    rules: Rules = field(default_factory=Rules)
    ignored: frozenset[bytes] = frozenset()
    """What is there and ignored: files, and directories as a whole, which end in a slash."""
    closed: tuple[bytes, ...] = ()
    """Directories that could not be read."""
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class _Walked:
    git_entries: tuple[bytes, ...]
    ignore_files: frozenset[bytes]
    is_cut: bool
    closed: tuple[bytes, ...]


@dataclass
class _Repository:
    git: Git
    place: bytes
    """Its path in the workspace, ending in a slash; empty for the workspace itself."""
    rules: list[str]
    gitlinks: bool
    excludes: bytes


class Lister:
    """Lists one directory tree.

    Args:
        root: The workspace, or a clone of it.
        actor: On whose behalf it is read.
        excludes: The user's own ignore rules, that hold everywhere.
        trust_git: Whether each `.git` in the tree is the user's own, so that its index and excludes count.
    """

    def __init__(self, root: Path, actor: Actor, *, excludes: bytes = b"", trust_git: bool = True) -> None:
        self._root = root
        self._actor = actor
        self._excludes = excludes
        self._trust_git = trust_git

    async def find(self, earlier: Rules | None = None) -> Listing:
        """List the tree.

        Args:
            earlier: Rules that are used instead of the tree's own where the two differ.
        """
        scratch = Path(await self._actor.call(lambda: tempfile.mkdtemp(prefix="ringfence-list-")))
        listing = Listing()
        try:
            if earlier is None:
                walked, repositories = await both(
                    lambda: self._actor.call(self._walk), lambda: self._list_all(scratch, listing, None)
                )
                listing.rules, ignored = await both(
                    lambda: self._rules(repositories, listing.paths, walked.ignore_files),
                    lambda: self._ignored(repositories),
                )
                listing.ignored |= ignored
            else:
                # The walk comes first: rules that an agent wrote are not even tried, they may take for ever.
                walked = await self._actor.call(self._walk)
                same = await self._actor.call(lambda: self._unchanged(earlier, walked.ignore_files))
                await self._list_all(scratch, listing, earlier, is_same=same)
                listing.rules = earlier
            listing.git_entries, listing.closed = walked.git_entries, walked.closed
            if walked.is_cut:
                listing.notes.append(f"only {_MAX_WALKED} entries were searched for git repositories")
        finally:
            await self._actor.clean_up(lambda: shutil.rmtree(scratch, ignore_errors=True))
        return listing

    def _walk(self) -> _Walked:
        git_entries, ignore_files, count = [], [], 0
        closed: list[bytes] = []
        with Tree(self._root) as tree:
            for folder, names in tree.walk(_MAX_WALKED, closed):
                count += len(names)
                if folder and ".git" in names:
                    git_entries.append(folder + b"/.git")
                if ".gitignore" in names:
                    ignore_files.append(folder + b"/.gitignore" if folder else b".gitignore")
        return _Walked(
            tuple(sorted(git_entries)), frozenset(ignore_files), count >= _MAX_WALKED, tuple(closed)
        )

    def _unchanged(self, earlier: Rules, present: frozenset[bytes]) -> bool:
        with Tree(self._root) as tree:
            return still_hold(earlier, tree, present)

    async def _list_all(
        self, scratch: Path, listing: Listing, frozen: Rules | None, *, is_same: bool = False
    ) -> list[_Repository]:
        pending = [b""]
        repositories: list[_Repository] = []
        while pending and len(repositories) < _MAX_REPOSITORIES:
            place = pending.pop()
            repository = await self._actor.call(
                lambda place=place: self._open(  # type: ignore[misc]
                    scratch / str(len(repositories)), place, frozen, is_same=is_same
                )
            )
            repositories.append(repository)
            for path in await self._list_one(repository, listing):
                if path.endswith(b"/"):
                    pending.append(place + path)
                else:
                    listing.paths.add(place + path)
        if pending:
            listing.ignored |= frozenset(pending)
            listing.notes.append(f"only {_MAX_REPOSITORIES} git repositories in the workspace are covered")
        return repositories

    def _open(self, directory: Path, place: bytes, frozen: Rules | None, *, is_same: bool) -> _Repository:
        work_tree = self._root / os.fsdecode(place.rstrip(b"/"))
        write_clean_git_dir(directory)
        local, gitlinks = _copy_from_user(work_tree, directory) if self._trust_git else (b"", False)
        excludes = self._excludes.rstrip(b"\n") + b"\n" + local
        if frozen is not None:
            excludes = frozen.excludes.get(place, b"")
        (directory / "info" / "exclude").write_bytes(excludes)
        rules = ["--exclude-standard"]
        if frozen is not None and not is_same:
            (directory / "rules").write_bytes(flatten(frozen, place))
            rules = ["-X", str(directory / "rules")]
        return _Repository(Git(directory, work_tree, self._actor), place, rules, gitlinks, excludes)

    async def _list_one(self, repository: _Repository, listing: Listing) -> list[bytes]:
        command = ("ls-files", "-z", "-c", "-o", *repository.rules)
        try:
            result = await repository.git.run(*command, timeout_s=_TIMEOUT_S)
        except InfrastructureFault:
            # An index we cannot use (sparse, damaged, of a newer git): the files are found without it.
            directory = repository.git.directory
            await self._actor.call(lambda: (directory / "index").unlink(missing_ok=True))
            repository.gitlinks = False
            result = await repository.git.run(*command, timeout_s=_TIMEOUT_S)
            name = os.fsdecode(repository.place) or "."
            listing.notes.append(
                f"the git index of {name!r} was not used: files that are ignored are left out"
            )
        listing.notes += [line[:300] for line in result.stderr.decode("utf-8", "replace").splitlines()[:20]]
        paths = [path for path in result.stdout.split(b"\0") if path]
        return paths + (await self._submodules(repository) if repository.gitlinks else [])

    async def _ignored(self, repositories: Iterable[_Repository]) -> frozenset[bytes]:
        """What is ignored now: whatever becomes of the rules, none of it is anything that a run added."""
        found: set[bytes] = set()
        for repository in repositories:
            command = ("ls-files", "-z", "-o", "-i", "--directory", "--exclude-standard")
            result = await repository.git.run(*command, timeout_s=_TIMEOUT_S)
            paths = {path for path in result.stdout.split(b"\0") if path}
            # Named, too, are empty directories and those with nothing but ignored files: not ignored as a whole.
            # Asked without the slash: with it, `logs/*` is said to match `logs/`.
            folders = {path[:-1] for path in paths if path.endswith(b"/")}
            paths = {path for path in paths if not path.endswith(b"/")}
            paths |= {path + b"/" for path in await self._told_ignored(repository, folders)}
            found.update(repository.place + path for path in paths)
        return frozenset(found)

    async def _told_ignored(self, repository: _Repository, folders: set[bytes]) -> set[bytes]:
        if not folders:
            return set()
        asked = b"\0".join(sorted(folders))
        told = await repository.git.run("check-ignore", "-z", "--stdin", stdin=asked, accept=(0, 1, 128))
        return set(told.stdout.split(b"\0")) & folders

    async def _submodules(self, repository: _Repository) -> list[bytes]:
        # ls-files names a submodule but does not enter it, whatever is in its directory.
        staged = (await repository.git.run("ls-files", "-z", "-s", timeout_s=_TIMEOUT_S)).stdout.split(b"\0")
        links = [entry.partition(b"\t")[2] for entry in staged if entry.startswith(b"160000 ")]

        def real() -> list[bytes]:
            with Tree(self._root) as tree:
                found = [(path, tree.lstat(repository.place + path)) for path in links]
            return [path + b"/" for path, status in found if status and stat.S_ISDIR(status.st_mode)]

        return await self._actor.call(real)

    async def _rules(
        self, repositories: Iterable[_Repository], covered: set[bytes], present: frozenset[bytes]
    ) -> Rules:
        """The rules in force: `.gitignore` files that are covered, and those in directories that are."""
        in_force = present & covered
        rest = present - covered
        excludes = {}
        for repository in sorted(repositories, key=lambda repository: -len(repository.place)):
            place = repository.place
            excludes[place] = repository.excludes
            mine = {path for path in rest if path.startswith(place)}
            rest -= mine
            folders = {path[len(place) :].rpartition(b"/")[0] for path in mine} - {b""}
            ignored = await self._told_ignored(repository, folders)
            mine = {path for path in mine if path[len(place) :].rpartition(b"/")[0] not in ignored}
            in_force |= mine

        def read() -> dict[bytes, bytes]:
            with Tree(self._root) as tree:
                return read_rules(tree, sorted(in_force))

        return Rules(files=await self._actor.call(read), present=present, excludes=excludes)


def _copy_from_user(work_tree: Path, target: Path) -> tuple[bytes, bool]:
    """Copy a repository's index; return its local ignore rules and whether it may have submodules."""
    layout = find_git(work_tree)
    if layout is None:
        return b"", False
    excludes = read_small(layout.common, b"info/exclude") or b""
    index = read_small(layout.directory, b"index", INDEX_LIMIT)
    if index is None:
        return excludes, False
    object_format = read_config(read_small(layout.common, b"config") or b"").get(
        "extensions.objectformat", "sha1"
    )
    write_clean_git_dir(target, object_format="sha256" if object_format.lower() == "sha256" else "sha1")
    # A sparse index names directories only; git finds the files in the objects.
    (target / "objects" / "info" / "alternates").write_bytes(os.fsencode(layout.objects) + b"\n")
    (target / "index").write_bytes(index)
    gitlinks = _GITLINK in index
    for path in sorted(layout.directory.glob("sharedindex.*"))[:4]:
        shared = read_small(layout.directory, os.fsencode(path.name), INDEX_LIMIT)
        if shared is not None:
            (target / path.name).write_bytes(shared)
            gitlinks = gitlinks or _GITLINK in shared
    return excludes, gitlinks
